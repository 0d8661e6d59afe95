//! What one response on a connection does to the others.

use super::*;

/// What the server may send on the connection.
struct Server {
    window: i64,
}

impl Server {
    /// Sends a frame as the window of the connection allows, and takes note of how it opens.
    fn send(&mut self, bench: &mut Bench, stream: u32, bytes: &[u8]) {
        self.window -= i64::try_from(bytes.len()).expect("a frame");
        assert!(self.window >= 0, "the window is closed");
        bench.feed(&data(stream, 0, bytes));
        self.look(bench);
    }

    fn look(&mut self, bench: &mut Bench) {
        for frame in bench.written() {
            if (frame.head.kind, frame.head.stream) == (kind::WINDOW_UPDATE, 0) {
                let increment = u32::from_be_bytes(*frame.payload.first_chunk().expect("4 bytes"));
                assert!(increment > 0);
                self.window += i64::from(increment);
            }
        }
    }
}

/// Streams with a head, of which nothing is read but by the test.
fn streams(bench: &mut Bench, count: u32) -> Vec<Asked> {
    let asked: Vec<_> = (0..count).map(|_| bench.ask(Method::GET, None)).collect();
    bench.written();
    (0..count).for_each(|index| bench.feed(&head(2 * index + 1, 0, &[])));
    asked
}

#[test]
fn what_slow_readers_hold_leaves_the_rest_of_the_window_to_others() {
    let piece = [b'x'; 16_384];
    let each = STREAM_WINDOW as usize / piece.len();
    // What was read before the others came, in pieces.
    for before in [0, 1, 100, 127] {
        let mut bench = Bench::new(&[]);
        let mut asked = streams(&mut bench, 16);
        let mut server = Server { window: CONNECTION_WINDOW.into() };
        let mut reader = asked.pop().expect("a stream");
        for _ in 0..before {
            server.send(&mut bench, 31, &piece);
            bench.read(&mut reader);
        }
        for (index, _) in asked.iter().enumerate() {
            (0..each).for_each(|_| server.send(&mut bench, 2 * index as u32 + 1, &piece));
        }
        for _ in 0..1000 {
            server.send(&mut bench, 31, &piece);
            bench.read(&mut reader);
            server.look(&mut bench);
        }
        assert_eq!((reader.body.len(), reader.error), ((before + 1000) * piece.len(), None));
    }
}

#[test]
fn no_request_joins_those_whose_readers_hold_the_window() {
    let mut bench = Bench::new(&[]);
    let mut asked = streams(&mut bench, 15);
    for index in 0..15 {
        assert!(bench.state.has_window());
        let piece = data(2 * index + 1, 0, &[b'x'; 16_384]);
        (0..16).for_each(|_| bench.feed(&piece));
    }
    assert!(!bench.state.has_window());
    bench.read(&mut asked[0]);
    assert!(bench.state.has_window());
}

#[test]
fn a_request_that_may_be_sent_elsewhere_is_not_written() {
    let (mut bench, first) = asked();
    let second = bench.ask(Method::DELETE, None);
    bench.feed(&head(1, 0, &[]));
    bench.feed(&data(1, 0, &[b'x'; 16_384]));
    bench.state.fail(Http2Error::Ended, Some(Reason::NO_ERROR));
    assert!(bench.state.stream(second.place).is_untouched);
    // What no one reads opens no windows any more.
    bench.state.claim(CONNECTION_WINDOW / 2);
    bench.state.release(first.place);
    assert_eq!(kinds(&bench.written()), [(kind::GOAWAY, 0, 0)]);
}

#[test]
fn what_a_write_that_failed_was_given_counts_as_sent() {
    let (mut bench, _first) = asked();
    let second = bench.ask(Method::DELETE, None);
    let wrote = bench.state.write(|_| Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into())));
    assert!(wrote.is_err());
    bench.state.fail(Http2Error::Ended, None);
    assert!(!bench.state.stream(second.place).is_untouched);
}

#[test]
fn an_error_that_ends_the_connection_is_that_of_its_stream_alone() {
    let endless =
        [frame(kind::HEADERS, 0, 3, &[]), frame(kind::CONTINUATION, 0, 3, b"").repeat(100)].concat();
    for (bytes, error) in [
        (endless, Http2Error::HeadTooLarge),
        (frame(kind::HEADERS, flag::END_HEADERS, 3, &[0xff]), Http2Error::Broken(Reason::COMPRESSION_ERROR)),
        (frame(kind::RST_STREAM, 0, 3, &[0; 3]), Http2Error::Broken(Reason::FRAME_SIZE_ERROR)),
    ] {
        let (mut bench, mut bystander) = asked();
        let mut guilty = bench.ask(Method::GET, None);
        bench.written();
        bench.feed(&bytes);
        bench.read(&mut guilty);
        bench.read(&mut bystander);
        assert_eq!((guilty.error, bystander.error), (Some(error), Some(Http2Error::Neighbour)));
        assert_eq!(bench.state.failure, Some(error));
    }
}
