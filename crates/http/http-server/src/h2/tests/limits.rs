//! Limits on the work and memory that a client can cause, and how points are earned back.

use std::time::{Duration, Instant};

use brisk_http_connection::streams::{Round, StreamLimits};
use brisk_wire::h2::frame::HEAD;

use super::*;
use crate::flood::Flood;

/// Head of a `POST` whose body is still to come.
fn post(stream: u32) -> Vec<u8> {
    let mut post = get(stream, "/", &[]);
    post[4] = flag::END_HEADERS;
    post
}

fn goaway(frames: &[Written]) -> Option<(u32, u32)> {
    let frame = frames.last().filter(|frame| frame.head.kind == kind::GOAWAY)?;
    let (last, reason) = frame.payload.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*last), u32::from_be_bytes(*reason.first_chunk()?)))
}

#[test]
fn who_waits_for_the_window_of_the_connection_is_excused_while_others_use_it() {
    let bench = Bench::new();
    let start = Instant::now();
    let round = |second| {
        let now = start + Duration::from_secs(second);
        let round = Round { now, paused: Duration::ZERO, released: 0, blocked: false };
        let limits = StreamLimits { write: Duration::from_secs(30), read_rate: 0, request: None };
        bench.connection().multiplex().streams.end_overdue(round, limits);
    };
    let mut h2 = bench.connect(&wide());
    h2.feed(&get(1, "/big", &[("priority", "u=0")]));
    h2.feed(&get(3, "/big", &[("priority", "u=7")]));
    assert_eq!(order(&h2.answer()), [1]);
    for second in (0..100).step_by(2) {
        round(second);
        h2.feed(&frame(kind::WINDOW_UPDATE, 0, 0, &1000_u32.to_be_bytes()));
        assert_eq!(data(&h2.answer(), 1), 1000);
    }
    assert_eq!(h2.open_streams(), 2);
    for second in (100..140).step_by(2) {
        round(second);
        h2.answer();
    }
    assert_eq!(h2.open_streams(), 0, "a window that stays closed holds nothing");
}

#[test]
fn uploads_that_no_one_reads_leave_the_rest_of_the_window_to_others() {
    let bench = Bench::new();
    let mut h2 = bench.connect(&[]);
    h2.answer();
    // Slow readers hold the rest of the window.
    h2.recv.window = 300_000;
    h2.claim(299_999);
    assert_eq!(h2.answer(), []);
    h2.claim(1);
    let frames = h2.answer();
    assert_eq!(frames.len(), 1);
    assert_eq!((frames[0].head.kind, frames[0].head.stream), (kind::WINDOW_UPDATE, 0));
    assert_eq!(frames[0].payload, 300_000_u32.to_be_bytes());
    assert_eq!(h2.recv.window, 600_000);
}

#[test]
fn what_comes_on_streams_that_were_reset_long_ago_is_ignored() {
    let bench = Bench::new();
    let mut h2 = bench.connect(&[]);
    for stream in (1..400).step_by(2) {
        h2.feed(&post(stream));
        assert_eq!(h2.answer().last().map(|frame| frame.head.kind), Some(kind::RST_STREAM));
    }
    let trailers = get(1, "/", &[]);
    h2.feed(&[frame(kind::DATA, 0, 1, b"late"), trailers].concat());
    assert_eq!((h2.answer(), h2.failure(), h2.flood.exhausted_by()), (Vec::new(), None, None));
}

#[test]
fn streams_that_ended_whole_or_were_never_opened_take_nothing() {
    let bench = Bench::new();
    for (late, reason) in [
        (frame(kind::DATA, 0, 5, b"late"), Reason::STREAM_CLOSED),
        (get(5, "/", &[]), Reason::STREAM_CLOSED),
        (frame(kind::DATA, 0, 3, b"late"), Reason::STREAM_CLOSED),
        (get(3, "/", &[]), Reason::PROTOCOL_ERROR),
    ] {
        let mut h2 = bench.connect(&[]);
        h2.feed(&get(5, "/", &[]));
        h2.answer();
        h2.feed(&late);
        assert_eq!(h2.failure(), Some(reason));
    }
}

#[test]
fn blocks_that_are_ignored_are_counted() {
    let bench = Bench::new();
    let mut h2 = bench.connect(&[]);
    h2.feed(&post(1));
    h2.answer();
    let long = get(1, "/", &[("x-a", &"a".repeat(100))]);
    (0..200).for_each(|_| h2.feed(&long));
    assert_eq!((h2.failure(), h2.flood.exhausted_by()), (None, Some(Flood::OtherFrame)));
    let mut h2 = bench.connect(&[]);
    h2.feed(&post(1));
    h2.answer();
    // A field of almost 4 KiB that enters the table, and then three references to it.
    let mut block = vec![0x40, 1, b'a', 0x7f, 0xa1, 0x1e];
    block.extend([b'x'; 4000]);
    block.extend([0xbe; 3]);
    h2.feed(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &block));
    assert_eq!(h2.failure(), None);
    assert!(bench.connection().multiplex().long_heads() > 0);
}

#[test]
fn the_last_stream_that_was_announced_does_not_rise() {
    let bench = Bench::new();
    let mut h2 = bench.connect(&[]);
    h2.feed(&get(1, "/", &[]));
    h2.answer();
    h2.drain();
    h2.feed(&frame(kind::PING, flag::ACK, 0, b"brisk:ok"));
    assert_eq!(goaway(&h2.answer()), Some((1, 0)));
    h2.feed(&[get(3, "/", &[]), frame(kind::PING, 0, 1, &[0; 8])].concat());
    assert_eq!(goaway(&h2.answer()), Some((1, Reason::PROTOCOL_ERROR.0)));
}

#[test]
fn nothing_follows_the_end_with_an_error() {
    let bench = Bench::new();
    let mut h2 = bench.connect(&wide());
    h2.feed(&[get(1, "/big", &[]), frame(kind::PING, 0, 1, &[0; 8])].concat());
    let frames = h2.answer();
    assert_eq!((goaway(&frames), data(&frames, 1)), (Some((1, Reason::PROTOCOL_ERROR.0)), 0));
    h2.drain();
    assert_eq!(h2.answer(), []);
}

#[test]
fn output_that_the_client_does_not_take_is_held() {
    let request = [open_connection(), get(1, "/big", &[])].concat();
    let other = Bench::new();
    let mut whole = other.connect(&wide());
    whole.feed(&request);
    let before_data = whole.answer().into_iter().take_while(|frame| frame.head.kind != kind::DATA);
    let heads = before_data.map(|frame| HEAD + frame.payload.len()).sum();
    let bench = Bench::new();
    let answers = &bench.connection().answers;
    let begun = || {
        let mut h2 = bench.connect(&wide());
        h2.feed(&request);
        h2.answer_up_to(heads);
        assert!((BIG..BIG + 2000).contains(&answers.held()), "{}", answers.held());
        h2
    };
    drop(begun());
    assert_eq!(answers.held(), 0);
    let mut h2 = begun();
    assert_eq!((data(&h2.answer(), 1), answers.held()), (BIG, 0));
    h2.feed(&frame(kind::PING, 0, 0, &[0; 8]));
    h2.answer_up_to(0);
    assert_eq!(answers.held(), HEAD + 8, "a response to the PING waits");
    drop(h2);
    assert_eq!(answers.held(), 0);
}

#[test]
fn wrong_priorities_do_not_reset_what_is_idle() {
    let bench = Bench::new();
    for (stream, payload, reason) in [
        (3, &[0, 0, 0, 1][..], Reason::FRAME_SIZE_ERROR),
        (3, &[0, 0, 0, 3, 9], Reason::PROTOCOL_ERROR),
        (2, &[0, 0, 0, 2, 9], Reason::PROTOCOL_ERROR),
    ] {
        let mut h2 = bench.connect(&[]);
        h2.feed(&get(1, "/big", &[]));
        h2.feed(&frame(kind::PRIORITY, 0, stream, payload));
        assert_eq!(h2.failure(), Some(reason));
        assert!(h2.answer().iter().all(|frame| frame.head.kind != kind::RST_STREAM));
    }
    let mut h2 = bench.connect(&[]);
    h2.feed(&get(1, "/big", &[]));
    h2.feed(&frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 9]));
    assert_eq!((h2.failure(), h2.open_streams()), (None, 0));
}

#[test]
fn the_least_of_several_tables_is_reported() {
    let bench = Bench::new();
    let mut h2 =
        bench.connect(&settings::payload(&[(id::HEADER_TABLE_SIZE, 0), (id::HEADER_TABLE_SIZE, 4096)]));
    h2.feed(&get(1, "/", &[]));
    let frames = h2.answer();
    let head = frames.iter().find(|frame| frame.head.kind == kind::HEADERS).expect("a head");
    // RFC 7541 section 4.2: a change of the table size begins the block.
    assert_eq!(head.payload[..5], [0x20, 0x3f, 0xe1, 0x1f, 0x88]);
}

#[test]
fn trailers_have_the_limits_of_heads() {
    // The head of a request may have 10 header lines here.
    for (lines, is_reset) in [(10, false), (16, true)] {
        let bench = Bench::new();
        let mut h2 = bench.connect(&[]);
        h2.feed(&post(1));
        let trailers = [0, 1, b'a', 1, b'b'].repeat(lines);
        h2.feed(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &trailers));
        let reset = frame(kind::RST_STREAM, 0, 1, &Reason::PROTOCOL_ERROR.0.to_be_bytes());
        let frames = h2.answer();
        let has_reset = frames
            .iter()
            .any(|frame| (frame.head.kind, &frame.payload[..]) == (kind::RST_STREAM, &reset[9..]));
        assert_eq!(has_reset, is_reset, "{lines} lines: {frames:?}");
    }
}
