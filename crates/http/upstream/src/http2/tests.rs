//! What one connection makes of the frames of a server, without I/O.

mod leftovers;
mod neighbours;
mod resets;
mod simulation;

use std::task::Poll;
use std::time::Duration;

use brisk_http::error::Http2Error;
use brisk_http::http1::HeadLimits;
use brisk_net::TurnLimit;
use brisk_wire::h2::frame::{Reason, WriteFrames, flag, kind};
use brisk_wire::h2::settings::{self, id};
use http::Method;

use super::fuzz::{Asked, Bench, Written};
use super::state::{CONNECTION_WINDOW, STREAM_WINDOW};

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.frame(kind, flags, stream, payload);
    out
}

/// A block of fields that are spelled out.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// Status 200 and these fields.
fn head(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS | flags, stream, &[vec![0x88], block(fields)].concat())
}

fn data(stream: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    frame(kind::DATA, flags, stream, bytes)
}

fn reset(stream: u32, reason: Reason) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &reason.0.to_be_bytes())
}

fn goaway(last: u32, reason: Reason) -> Vec<u8> {
    frame(kind::GOAWAY, 0, 0, &[last.to_be_bytes(), reason.0.to_be_bytes()].concat())
}

fn kinds(frames: &[Written]) -> Vec<(u8, u8, u32)> {
    frames.iter().map(|frame| (frame.head.kind, frame.head.flags, frame.head.stream)).collect()
}

/// A connection with GET on stream 1, of which everything so far was written.
fn asked() -> (Bench, Asked) {
    let mut bench = Bench::new(&[]);
    let asked = bench.ask(Method::GET, None);
    bench.written();
    (bench, asked)
}

#[test]
fn a_connection_begins_with_settings_and_a_request_is_one_frame() {
    let mut bench = Bench::new(&[]);
    bench.ask(Method::GET, None);
    let frames = bench.written();
    let expected = [
        (kind::SETTINGS, 0, 0),
        (kind::WINDOW_UPDATE, 0, 0),
        (kind::SETTINGS, flag::ACK, 0),
        (kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1),
    ];
    assert_eq!(kinds(&frames), expected);
    // `:method GET`, `:scheme https`, `:authority a`, `:path /`
    assert_eq!(frames[3].payload, [0x82, 0x87, 0x01, 1, b'a', 0x84]);
}

#[test]
fn a_response_is_read_with_its_trailers() {
    let (mut bench, mut asked) = asked();
    bench.feed(&head(1, 0, &[("x-a", "b")]));
    bench.feed(&data(1, 0, b"hel"));
    bench.read(&mut asked);
    assert_eq!((asked.status(), asked.body.as_slice(), asked.is_over), (200, &b"hel"[..], false));
    bench.feed(&data(1, 0, b"lo"));
    let trailers = block(&[("x-sum", "1")]);
    bench.feed(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &trailers));
    bench.read(&mut asked);
    assert_eq!((asked.body.as_slice(), asked.is_over, asked.error), (&b"hello"[..], true, None));
    assert!(bench.state.numbers.is_empty());
    bench.state.release(asked.place);
    assert_eq!(bench.written(), []);
}

#[test]
fn a_body_goes_out_as_far_as_windows_allow() {
    let mut bench = Bench::new(&settings::payload(&[(id::INITIAL_WINDOW_SIZE, 20_000)]));
    let asked = bench.ask(Method::POST, Some(&vec![b'x'; 30_000]));
    asked.inbox.as_ref().expect("a body").end(None);
    let sent = |frames: &[Written]| -> Vec<_> {
        let data = frames.iter().filter(|frame| frame.head.kind == kind::DATA);
        data.map(|frame| (frame.head.length, frame.head.flags)).collect()
    };
    assert_eq!(sent(&bench.written()), [(16_384, 0), (3616, 0)]);
    bench.feed(&frame(kind::WINDOW_UPDATE, 0, 1, &9000_u32.to_be_bytes()));
    assert_eq!(sent(&bench.written()), [(9000, 0)]);
    bench.feed(&frame(kind::SETTINGS, 0, 0, &settings::payload(&[(id::INITIAL_WINDOW_SIZE, 65_535)])));
    assert_eq!(sent(&bench.written()), [(1000, flag::END_STREAM)]);
    // What is left of the connection's window holds all streams.
    let other = bench.ask(Method::POST, Some(&vec![b'x'; 60_000]));
    assert_eq!(sent(&bench.written()).iter().map(|(length, _)| length).sum::<u32>(), 65_535 - 30_000);
    bench.feed(&frame(kind::WINDOW_UPDATE, 0, 0, &100_000_u32.to_be_bytes()));
    assert_eq!(sent(&bench.written()).iter().map(|(length, _)| length).sum::<u32>(), 30_000 - 5535);
    drop((asked, other));
}

#[test]
fn a_body_of_which_the_end_comes_late_ends_with_an_empty_frame_or_its_trailers() {
    let mut bench = Bench::new(&settings::payload(&[(id::INITIAL_WINDOW_SIZE, 5)]));
    let asked = bench.ask(Method::POST, Some(b"hello"));
    bench.written();
    // There is no window left, and none is needed.
    asked.inbox.as_ref().expect("a body").end(None);
    assert_eq!(kinds(&bench.written()), [(kind::DATA, flag::END_STREAM, 1)]);
    let asked = bench.ask(Method::POST, Some(b"hello"));
    let trailers = [("x-sum".parse().expect("a name"), "1".parse().expect("a value"))];
    asked.inbox.as_ref().expect("a body").end(Some(trailers.into_iter().collect()));
    let expected = (kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 3);
    assert_eq!(kinds(&bench.written()).last(), Some(&expected));
}

#[test]
fn an_upload_goes_on_behind_the_response_until_the_server_wants_no_more() {
    let mut bench = Bench::new(&[]);
    let mut asked = bench.ask(Method::POST, Some(b"one"));
    let inbox = asked.inbox.take().expect("a body");
    bench.feed(&head(1, flag::END_STREAM, &[]));
    bench.read(&mut asked);
    assert!(asked.is_over && asked.error.is_none());
    bench.state.release(asked.place);
    bench.written();
    assert!(inbox.push(b"two", 0).is_continue());
    assert_eq!(kinds(&bench.written()), [(kind::DATA, 0, 1)]);
    bench.feed(&reset(1, Reason::NO_ERROR));
    assert!(inbox.push(b"three", 0).is_break(), "it is not read");
    assert!(bench.written().is_empty() && bench.state.numbers.is_empty());
}

#[test]
fn a_request_that_is_given_up_or_broken_is_not_whole_for_the_server() {
    let mut bench = Bench::new(&[]);
    let [given_up, broken] = [(); 2].map(|()| bench.ask(Method::POST, Some(b"half")));
    bench.written();
    bench.state.release(given_up.place);
    assert_eq!(bench.written()[0].payload, Reason::CANCEL.0.to_be_bytes());
    broken.inbox.as_ref().expect("a body").fail();
    let frames = bench.written();
    assert_eq!(kinds(&frames), [(kind::RST_STREAM, 0, 3)]);
    assert!(bench.state.numbers.is_empty());
}

#[test]
fn what_the_server_has_not_looked_at_is_as_it_was() {
    for (number, bytes, refused) in [
        (1, goaway(1, Reason::NO_ERROR), false),
        (3, goaway(1, Reason::NO_ERROR), true),
        (3, reset(3, Reason::REFUSED_STREAM), true),
        (3, reset(3, Reason::INTERNAL_ERROR), false),
        (3, reset(3, Reason::NO_ERROR), false),
    ] {
        let (mut bench, first) = asked();
        let second = bench.ask(Method::GET, None);
        bench.written();
        bench.feed(&bytes);
        let mut asked = if number == 1 { first } else { second };
        bench.read(&mut asked);
        let expected = if refused { Some(Http2Error::Refused) } else { asked.error };
        assert_eq!(asked.error, expected, "{bytes:?}");
        assert_eq!(asked.is_over && bench.state.stream(asked.place).is_untouched, refused, "{bytes:?}");
    }
}

#[test]
fn a_body_that_was_refused_is_there_to_be_sent_again_if_it_is_short_and_whole() {
    let long = vec![b'x'; 100_000];
    for (body, is_whole, is_there) in
        [(&b"hello"[..], true, true), (b"", false, true), (b"half", false, false), (&long, true, false)]
    {
        let wide = settings::payload(&[(id::INITIAL_WINDOW_SIZE, 1 << 20)]);
        let mut bench = Bench::new(&wide);
        let asked = bench.ask_whole(body, is_whole);
        bench.written();
        bench.feed(&reset(1, Reason::REFUSED_STREAM));
        let stream = bench.state.stream(asked.place);
        assert_eq!(stream.is_untouched, is_there, "{} bytes", body.len());
        let length = http_body::Body::size_hint(&stream.take_request_body()).exact();
        if is_whole && is_there {
            assert_eq!(length, Some(body.len() as u64));
        }
        // Nor when the server has answered.
        let asked = bench.ask_whole(body, is_whole);
        bench.feed(&head(3, 0, &[]));
        bench.feed(&reset(3, Reason::REFUSED_STREAM));
        assert!(!bench.state.stream(asked.place).is_untouched);
    }
}

#[test]
fn what_was_not_written_when_the_connection_ended_is_as_it_was() {
    let (mut bench, first) = asked();
    let second = bench.ask(Method::GET, None);
    bench.state.fail(Http2Error::Ended, None);
    assert!(!bench.state.stream(first.place).is_untouched);
    assert!(bench.state.stream(second.place).is_untouched);
}

#[test]
fn goaway_ends_what_is_new_and_lets_the_rest_go_on() {
    let (mut bench, mut asked) = asked();
    bench.feed(&goaway(i32::MAX.cast_unsigned(), Reason::NO_ERROR));
    assert!(!bench.state.takes_requests());
    bench.feed(&goaway(1, Reason::NO_ERROR));
    bench.feed(&head(1, flag::END_STREAM, &[]));
    bench.read(&mut asked);
    assert_eq!((asked.status(), asked.error, bench.state.failure), (200, None, None));
}

#[test]
fn interim_responses_are_passed_over() {
    let (mut bench, mut asked) = asked();
    for status in ["100", "102", "103"] {
        let fields = block(&[(":status", status), ("link", status)]);
        bench.feed(&frame(kind::HEADERS, flag::END_HEADERS, 1, &fields));
        bench.read(&mut asked);
    }
    let interims = bench.state.stream(asked.place).interims.take();
    let interims: Vec<_> =
        interims.iter().map(|(status, headers)| (status.as_u16(), &headers["link"])).collect();
    assert_eq!(interims, [(102, &"102".parse().expect("a value")), (103, &"103".parse().expect("a value"))]);
    bench.feed(&head(1, flag::END_STREAM, &[]));
    bench.read(&mut asked);
    assert_eq!((asked.status(), asked.error), (200, None));
}

#[test]
fn malformed_responses_reset_their_stream_alone() {
    let status = |status: &str| block(&[(":status", status)]);
    let wrong: &[(u8, Vec<u8>)] = &[
        (0, block(&[("x-a", "b")])),
        (0, block(&[(":status", "200"), (":status", "200")])),
        (0, block(&[("x-a", "b"), (":status", "200")])),
        (0, block(&[(":status", "200"), (":path", "/")])),
        (0, block(&[(":status", "200"), ("connection", "close")])),
        (0, block(&[(":status", "200"), ("transfer-encoding", "chunked")])),
        (0, block(&[(":status", "200"), ("X-Upper", "b")])),
        (0, block(&[(":status", "200"), ("content-length", "1"), ("content-length", "2")])),
        (0, block(&[(":status", "200"), ("content-length", "-1")])),
        (0, block(&[(":status", "200"), ("x-a", " b")])),
        (0, block(&[(":status", "200"), ("x-a", "b\t")])),
        (flag::END_STREAM, block(&[(":status", "200"), ("content-length", "1")])),
        (0, status("99")),
        (0, status("101")),
        (0, status("2000")),
        (flag::END_STREAM, status("100")),
    ];
    for (flags, block) in wrong {
        let (mut bench, mut asked) = asked();
        bench.feed(&frame(kind::HEADERS, flag::END_HEADERS | flags, 1, block));
        bench.read(&mut asked);
        assert_eq!(asked.error, Some(Http2Error::Broken(Reason::PROTOCOL_ERROR)), "{block:?}");
        assert_eq!(kinds(&bench.written()), [(kind::RST_STREAM, 0, 1)]);
        assert!(bench.state.failure.is_none() && !bench.state.stream(asked.place).is_untouched);
    }
}

#[test]
fn a_body_has_the_length_that_its_head_states() {
    for (method, bytes, is_right) in [
        (Method::GET, data(1, flag::END_STREAM, b"hello"), true),
        (Method::GET, data(1, flag::END_STREAM, b"hell"), false),
        (Method::GET, data(1, 0, b"hello!"), false),
        (Method::HEAD, data(1, flag::END_STREAM, b""), true),
        // Its head is all that is wanted of it.
        (Method::HEAD, data(1, flag::END_STREAM, b"hello"), true),
    ] {
        let mut bench = Bench::new(&[]);
        let mut asked = bench.ask(method, None);
        bench.feed(&head(1, 0, &[("content-length", "5")]));
        bench.feed(&bytes);
        bench.read(&mut asked);
        assert_eq!(asked.error.is_none(), is_right, "{bytes:?}");
    }
}

#[test]
fn what_breaks_the_protocol_ends_the_connection_with_its_reason() {
    let long = [0, 0x40, 1, 0, 0, 0, 0, 0, 1];
    for (bytes, reason) in [
        (head(2, 0, &[]), Reason::PROTOCOL_ERROR),
        (head(3, 0, &[]), Reason::PROTOCOL_ERROR),
        (data(3, 0, b"x"), Reason::PROTOCOL_ERROR),
        (data(0, 0, b"x"), Reason::PROTOCOL_ERROR),
        (reset(3, Reason::CANCEL), Reason::PROTOCOL_ERROR),
        (frame(kind::RST_STREAM, 0, 1, &[0; 3]), Reason::FRAME_SIZE_ERROR),
        (frame(kind::PUSH_PROMISE, flag::END_HEADERS, 1, &[0, 0, 0, 2]), Reason::PROTOCOL_ERROR),
        (frame(kind::CONTINUATION, flag::END_HEADERS, 1, &[]), Reason::PROTOCOL_ERROR),
        (frame(kind::PING, 0, 0, &[0; 7]), Reason::FRAME_SIZE_ERROR),
        (frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]), Reason::PROTOCOL_ERROR),
        (frame(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]), Reason::FLOW_CONTROL_ERROR),
        (frame(kind::WINDOW_UPDATE, 0, 5, &[0, 0, 0, 1]), Reason::PROTOCOL_ERROR),
        (frame(kind::SETTINGS, 0, 1, &[]), Reason::PROTOCOL_ERROR),
        (frame(kind::SETTINGS, 0, 0, &settings::payload(&[(id::ENABLE_PUSH, 1)])), Reason::PROTOCOL_ERROR),
        (frame(kind::GOAWAY, 0, 0, &[0; 7]), Reason::FRAME_SIZE_ERROR),
        (frame(kind::HEADERS, flag::END_HEADERS, 1, &[0xff]), Reason::COMPRESSION_ERROR),
        (frame(kind::DATA, flag::PADDED, 1, &[9, 9]), Reason::PROTOCOL_ERROR),
        (long.to_vec(), Reason::FRAME_SIZE_ERROR),
        ([frame(kind::HEADERS, 0, 1, &[]), data(1, 0, b"x")].concat(), Reason::PROTOCOL_ERROR),
    ] {
        let (mut bench, mut asked) = asked();
        bench.feed(&bytes);
        bench.read(&mut asked);
        assert_eq!(bench.state.failure, Some(Http2Error::Broken(reason)), "{bytes:?}");
        assert_eq!(asked.error, bench.state.failure);
        let frames = bench.written();
        assert_eq!(frames.last().map(|frame| frame.head.kind), Some(kind::GOAWAY), "{frames:?}");
        assert_eq!(frames.last().map(|frame| frame.payload[7]), Some(reason.0 as u8));
    }
    let mut bench = Bench::new(&[]);
    bench.feed(&frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]));
    assert_eq!(bench.state.failure, Some(Http2Error::Broken(Reason::PROTOCOL_ERROR)), "an idle stream");
}

#[test]
fn settings_come_first() {
    let mut state = super::state::State::new(HeadLimits { size: 1000, lines: 100 }, 100);
    state.feed(&mut frame(kind::PING, 0, 0, &[0; 8]).as_slice().into(), &mut TurnLimit::default());
    assert_eq!(state.failure, Some(Http2Error::Broken(Reason::PROTOCOL_ERROR)));
}

#[test]
fn windows_hold_what_the_server_sends_and_open_as_it_is_read() {
    let (mut bench, mut asked) = asked();
    bench.feed(&head(1, 0, &[]));
    let piece = data(1, 0, &[b'x'; 16_384]);
    let most = STREAM_WINDOW as usize / 16_384;
    for _ in 0..most {
        bench.feed(&piece);
    }
    assert_eq!((bench.state.failure, bench.written().len()), (None, 0), "nothing was read");
    bench.read(&mut asked);
    assert_eq!(asked.body.len(), STREAM_WINDOW as usize);
    let opened = bench.written();
    assert!(opened.iter().all(|frame| (frame.head.kind, frame.head.stream) == (kind::WINDOW_UPDATE, 1)));
    for _ in 0..=most {
        bench.feed(&piece);
    }
    bench.read(&mut asked);
    assert_eq!(asked.error, Some(Http2Error::Broken(Reason::FLOW_CONTROL_ERROR)));
    assert_eq!(bench.state.failure, None, "other streams go on");
}

#[test]
fn no_stream_holds_more_than_the_window_of_the_connection() {
    let mut bench = Bench::new(&[]);
    let piece = [b'x'; 16_384];
    let each = STREAM_WINDOW as usize / piece.len();
    let most = CONNECTION_WINDOW as usize / piece.len();
    let asked: Vec<_> = (0..=most / each).map(|_| bench.ask(Method::GET, None)).collect();
    for (index, _) in asked.iter().enumerate() {
        let number = 2 * index as u32 + 1;
        bench.feed(&head(number, 0, &[]));
        for _ in 0..each {
            bench.feed(&data(number, 0, &piece));
        }
    }
    assert_eq!(bench.state.failure, Some(Http2Error::Broken(Reason::FLOW_CONTROL_ERROR)));
}

#[test]
fn heads_have_a_limit_of_bytes_and_of_lines() {
    let long = "x".repeat(100);
    let fields = vec![("x-a", long.as_str()); 40];
    let (mut bench, mut asked) = asked();
    bench.feed(&head(1, flag::END_STREAM, &fields));
    bench.read(&mut asked);
    assert_eq!((asked.error, bench.state.failure), (Some(Http2Error::HeadTooLarge), None));
    let mut asked = bench.ask(Method::GET, None);
    bench.feed(&head(3, flag::END_STREAM, &vec![("a", ""); 101]));
    bench.read(&mut asked);
    assert_eq!((asked.error, bench.state.failure), (Some(Http2Error::HeadTooLarge), None));
    // A block that never ends.
    let mut asked = bench.ask(Method::GET, None);
    bench.feed(&frame(kind::HEADERS, 0, 5, &[]));
    for _ in 0..100 {
        bench.feed(&frame(kind::CONTINUATION, 0, 5, &block(&[("a", "b")])));
    }
    bench.read(&mut asked);
    assert_eq!(asked.error, Some(Http2Error::HeadTooLarge));
    assert_eq!(bench.state.failure, Some(Http2Error::HeadTooLarge));
}

#[test]
fn trailers_have_the_limits_of_heads() {
    for (lines, error) in [(100, None), (102, Some(Http2Error::HeadTooLarge))] {
        let (mut bench, mut asked) = asked();
        let trailers = block(&vec![("a", ""); lines]);
        bench.feed(&head(1, 0, &[]));
        bench.feed(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &trailers));
        bench.read(&mut asked);
        assert_eq!((asked.error, bench.state.failure), (error, None), "{lines} lines");
    }
}

#[test]
fn frames_without_use_have_an_end() {
    let settings = settings::payload(&[(id::INITIAL_WINDOW_SIZE, 1000)]);
    for useless in [
        frame(kind::PING, 0, 0, &[0; 8]),
        frame(kind::PING, flag::ACK, 0, &[0; 8]),
        frame(kind::SETTINGS, 0, 0, &settings),
        frame(kind::SETTINGS, flag::ACK, 0, &[]),
        frame(kind::PRIORITY, 0, 1, &[0; 5]),
        frame(0x77, 0, 0, &[]),
        frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        data(1, 0, b""),
        frame(kind::DATA, flag::PADDED, 1, &[0]),
        frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&[(":status", "103")])),
        goaway(1, Reason::NO_ERROR),
    ] {
        let (mut bench, _asked) = asked();
        if useless[3] == kind::DATA {
            bench.feed(&head(1, 0, &[]));
        }
        for _ in 0..10_000 {
            bench.feed(&useless);
            assert!(bench.state.send.waiting() <= 256 << 10 || bench.state.failure.is_some());
        }
        assert_eq!(bench.state.failure, Some(Http2Error::Flood), "{useless:?}");
    }
}

#[test]
fn interim_responses_beyond_their_limit_end_their_request_alone() {
    // 64 KiB are 23 heads of 2762 bytes.
    let long = "x".repeat(100);
    let large = [block(&[(":status", "103")]), block(&[("link", long.as_str()); 20])].concat();
    for (interim, most) in [(block(&[(":status", "102")]), 100), (large, 23)] {
        let (mut bench, mut asked) = asked();
        let mut other = bench.ask(Method::GET, None);
        for _ in 0..most {
            bench.feed(&frame(kind::HEADERS, flag::END_HEADERS, 1, &interim));
        }
        bench.read(&mut asked);
        assert_eq!(asked.error, None);
        bench.feed(&frame(kind::HEADERS, flag::END_HEADERS, 1, &interim));
        bench.read(&mut asked);
        assert_eq!(asked.error, Some(Http2Error::Interim));
        bench.feed(&head(3, flag::END_STREAM, &[]));
        bench.read(&mut other);
        assert_eq!((other.status(), bench.state.failure), (200, None));
    }
}

#[test]
fn what_is_under_way_on_a_stream_that_was_given_up_costs_nothing() {
    let (mut bench, first) = asked();
    bench.feed(&head(1, 0, &[]));
    bench.state.release(first.place);
    for _ in 0..20_000 {
        bench.feed(&data(1, 0, b"small"));
    }
    assert_eq!(bench.state.failure, None);
    for _ in 0..STREAM_WINDOW {
        bench.feed(&data(1, 0, b"small"));
    }
    assert_eq!(bench.state.failure, Some(Http2Error::Flood));
}

#[test]
fn windows_that_open_as_an_upload_goes_on_cost_nothing() {
    let mut bench = Bench::new(&[]);
    let asked = bench.ask(Method::POST, Some(b""));
    let inbox = asked.inbox.as_ref().expect("a body");
    for _ in 0..20_000 {
        assert!(inbox.push(&[b'x'; 1000], 0).is_continue());
        assert_eq!(bench.written().iter().filter(|frame| frame.head.kind == kind::DATA).count(), 1);
        for stream in [0, 1] {
            bench.feed(&frame(kind::WINDOW_UPDATE, 0, stream, &1000_u32.to_be_bytes()));
        }
        bench.feed(&frame(kind::PING, 0, 0, &[0; 8]));
    }
    assert_eq!(bench.state.failure, None);
}

#[test]
fn what_waits_to_be_written_takes_no_room_twice() {
    let (mut bench, _asked) = asked();
    for _ in 0..1000 {
        bench.ask(Method::GET, None);
        let taken = std::cell::Cell::new(false);
        let wrote = bench.state.write(|bytes| {
            if taken.replace(true) { Poll::Pending } else { Poll::Ready(Ok(bytes.len() - 1)) }
        });
        assert!(!wrote.expect("no error"));
        assert!(bench.state.send.out.len() < 1000, "what was written is gone");
    }
}

#[test]
fn the_server_says_how_many_streams_it_takes() {
    let mut bench = Bench::new(&settings::payload(&[(id::MAX_CONCURRENT_STREAMS, 1)]));
    assert!(bench.state.has_room());
    let asked = bench.ask(Method::GET, None);
    assert!(!bench.state.has_room());
    bench.feed(&head(1, flag::END_STREAM, &[]));
    assert!(bench.state.has_room());
    bench.state.release(asked.place);
}
