//! HTTP/3 on connections of quinn-proto.

use std::task::{Context, Poll, Waker};

use brisk_testkit::quic_pair::QuicPair;
use bytes::Bytes;
use quinn_proto::{Dir, ReadError, StreamId, TransportConfig, VarInt};

use super::super::testing::complete_frames;
use super::super::{Closing, Http3};
use super::*;

/// Client and server over QUIC.
struct Pair {
    quic: QuicPair,
    http3: Http3,
    closing: Option<Closing>,
}

impl Pair {
    fn new() -> Self {
        let mut transport = TransportConfig::default();
        transport.send_window(100_000);
        let http3 = Http3::new(crate::testing::http());
        Self { quic: QuicPair::new(transport), http3, closing: None }
    }

    /// Sends a request on a new stream, and its end unless `is_open`.
    fn request(&mut self, bytes: &[u8]) -> StreamId {
        let client = &mut self.quic.client.connection;
        let stream = client.streams().open(Dir::Bi).expect("a stream");
        assert_eq!(client.send_stream(stream).write(bytes), Ok(bytes.len()));
        stream
    }

    fn get(&mut self, path: &str, more: &[(&str, &str)]) -> StreamId {
        let stream = self.request(&get(path, more));
        self.quic.client.connection.send_stream(stream).finish().expect("an open stream");
        stream
    }

    /// Passes datagrams and runs the server until nothing changes.
    fn run(&mut self) {
        for _ in 0..20 {
            self.quic.exchange();
            for event in self.quic.server.take_events() {
                self.http3.event(&event);
            }
            let context = &mut Context::from_waker(Waker::noop());
            if self.closing.is_none()
                && let Poll::Ready(closing) = self.http3.poll(&mut self.quic.server.connection, context)
            {
                self.closing = Some(closing);
            }
        }
    }

    /// Reads available bytes of a stream, and whether the stream has ended or was reset.
    fn read(&mut self, stream: StreamId) -> (Vec<u8>, Result<bool, u64>) {
        let mut receiving = self.quic.client.connection.recv_stream(stream);
        let mut chunks = receiving.read(true).expect("an open stream");
        let mut bytes = Vec::new();
        let end = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
                Ok(None) => break Ok(true),
                Err(ReadError::Blocked) => break Ok(false),
                Err(ReadError::Reset(code)) => break Err(code.into_inner()),
            }
        };
        let _ = chunks.finalize();
        (bytes, end)
    }

    fn held(&self) -> usize {
        self.http3.h3.http.connection.answers.held()
    }
}

#[test]
fn requests_are_answered_over_quic() {
    let mut pair = Pair::new();
    let streams = [pair.get("/", &[]), pair.get("/missing", &[])];
    pair.run();
    for (stream, expected) in streams.into_iter().zip([200, 404]) {
        let (bytes, end) = pair.read(stream);
        assert_eq!((parsed(complete_frames(&bytes)).0, end), (vec![expected], Ok(true)));
    }
    let control = pair.quic.client.connection.streams().accept(Dir::Uni).expect("a control stream");
    assert_eq!(pair.read(control).0[..2], [0, 4]);
    assert_eq!((pair.http3.open_requests(), pair.closing, pair.held()), (0, None, 0));
}

#[test]
fn a_response_beyond_the_window_is_written_as_it_is_acknowledged() {
    let mut pair = Pair::new();
    let stream = pair.get("/big", &[]);
    let other = pair.get("/big", &[("priority", "u=7")]);
    pair.run();
    for stream in [stream, other] {
        let (bytes, end) = pair.read(stream);
        assert_eq!((parsed(complete_frames(&bytes)).2.len(), end), (BIG, Ok(true)));
    }
    assert_eq!((pair.http3.open_requests(), pair.held()), (0, 0));
    assert!(pair.http3.h3.unacknowledged.is_empty());
}

#[test]
fn cancelled_requests_are_reset_over_quic() {
    let mut pair = Pair::new();
    let stopped = pair.get("/big", &[]);
    let client = &mut pair.quic.client.connection;
    client
        .recv_stream(stopped)
        .stop(VarInt::from_u64(Code::REQUEST_CANCELLED.0).expect("a code"))
        .expect("a stream");
    let reset = pair.request(&post(&[]));
    pair.run();
    let client = &mut pair.quic.client.connection;
    client.send_stream(reset).reset(VarInt::from_u32(0x10c)).expect("an open stream");
    pair.run();
    assert_eq!((pair.http3.open_requests(), pair.closing, pair.held()), (0, None, 0));
    let malformed = pair.get("/", &[("X-A", "1")]);
    pair.run();
    assert_eq!(pair.read(malformed), (Vec::new(), Err(Code::MESSAGE_ERROR.0)));
}

#[test]
fn an_upload_is_read_to_its_end_and_its_windows_are_returned() {
    let mut pair = Pair::new();
    let stream = pair.request(&post(&[]));
    let part = frame(kind::DATA, &vec![b'x'; 30_000]);
    let mut sent = 0;
    for _ in 0..100 {
        let mut rest = [Bytes::from(part[sent..].to_vec())];
        if let Ok(written) = pair.quic.client.connection.send_stream(stream).write_chunks(&mut rest) {
            sent = (sent + written.bytes) % part.len();
        }
        pair.run();
    }
    // The body is longer than the window of the stream, which is returned as the body is read.
    while sent > 0 {
        let written = pair.quic.client.connection.send_stream(stream).write(&part[sent..]).expect("a window");
        sent = (sent + written) % part.len();
        pair.run();
    }
    pair.quic.client.connection.send_stream(stream).finish().expect("an open stream");
    pair.run();
    assert_eq!((pair.read(stream).1, pair.http3.open_requests()), (Ok(true), 0));
    assert_eq!(pair.closing, None);
}
