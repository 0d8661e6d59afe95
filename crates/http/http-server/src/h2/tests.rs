//! Frames of a single connection and their effects, without TLS.

use std::task::{Context, Waker};

use brisk_net::TurnLimit;
use brisk_wire::h2::frame::{Reason, WriteFrames, flag, kind};
use brisk_wire::h2::settings::{self, id};

use super::testing::{BIG, Bench, Written};

mod limits;
mod simulation;

/// `GET` of a path, with additional fields.
fn get(stream: u32, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let mut block = vec![0x82, 0x87, 0x41, 1, b'a', 0x04];
    block.extend(text(path));
    for (name, value) in fields {
        block.push(0);
        block.extend([text(name), text(value)].concat());
    }
    let mut out = Vec::new();
    out.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &block);
    out
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.frame(kind, flags, stream, payload);
    out
}

/// Settings with windows for any response.
fn wide() -> Vec<u8> {
    settings::payload(&[(id::INITIAL_WINDOW_SIZE, 1 << 30)])
}

fn open_connection() -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes())
}

/// Streams of the `DATA` frames in order; consecutive frames of a stream count once.
fn order(frames: &[Written]) -> Vec<u32> {
    let mut streams: Vec<_> =
        frames.iter().filter(|frame| frame.head.kind == kind::DATA).map(|frame| frame.head.stream).collect();
    streams.dedup();
    streams
}

fn data(frames: &[Written], stream: u32) -> usize {
    let data = frames.iter().filter(|frame| frame.head.kind == kind::DATA && frame.head.stream == stream);
    data.map(|frame| frame.payload.len()).sum()
}

#[test]
fn an_answer_is_a_head_and_data_with_the_end() {
    let bench = Bench::new();
    let mut h2 = bench.connect(&[]);
    h2.feed(&get(1, "/", &[]));
    let frames = h2.answer();
    let kinds: Vec<_> = frames.iter().map(|frame| (frame.head.kind, frame.head.flags)).collect();
    let answer = [(kind::HEADERS, flag::END_HEADERS), (kind::DATA, flag::END_STREAM)];
    assert_eq!(kinds[..3], [(kind::SETTINGS, 0), (kind::WINDOW_UPDATE, 0), (kind::SETTINGS, flag::ACK)]);
    assert_eq!(kinds[3..], answer);
    assert_eq!((frames[3].payload[0], &frames[4].payload[..]), (0x88, &b"hello"[..]));
    assert_eq!(h2.open_streams(), 0);
    h2.feed(&get(3, "/", &[]));
    let (first, again) = (frames[3].payload.len(), h2.answer());
    h2.feed(&get(5, "/", &[]));
    let third = h2.answer();
    assert!(
        third[0].payload.len() < 6 && again.len() == 2 && first > 20,
        "{third:?}: fields that come again are indices"
    );
}

#[test]
fn windows_bound_what_is_sent_and_updates_let_it_go_on() {
    let bench = Bench::new();
    let mut h2 = bench.connect(&[]);
    h2.feed(&get(1, "/big", &[]));
    assert_eq!(data(&h2.answer(), 1), 65_535);
    h2.feed(&frame(kind::WINDOW_UPDATE, 0, 1, &100_000_u32.to_be_bytes()));
    assert_eq!(data(&h2.answer(), 1), 0, "the window of the connection is closed");
    h2.feed(&frame(kind::WINDOW_UPDATE, 0, 0, &50_000_u32.to_be_bytes()));
    assert_eq!(data(&h2.answer(), 1), 50_000);
    h2.feed(&[open_connection(), frame(kind::SETTINGS, 0, 0, &wide())].concat());
    let rest = h2.answer();
    assert_eq!(data(&rest, 1), BIG - 115_535);
    assert_eq!(rest.last().map(|frame| frame.head.flags), Some(flag::END_STREAM));
}

#[test]
fn answers_come_by_their_priorities() {
    let bench = Bench::new();
    let mut h2 = bench.connect(&wide());
    h2.feed(&open_connection());
    h2.feed(&get(1, "/big", &[("priority", "u=5")]));
    h2.feed(&get(3, "/big", &[("priority", "u=1")]));
    h2.feed(&get(5, "/big", &[("priority", "u=1")]));
    h2.feed(&get(7, "/big", &[("priority", "u=6")]));
    h2.feed(&frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x07u=0"));
    let frames = h2.answer();
    assert_eq!(order(&frames), [7, 3, 5, 1]);
    // The requests begin in the same order.
    let heads = frames.iter().filter(|frame| frame.head.kind == kind::HEADERS);
    assert_eq!(heads.map(|frame| frame.head.stream).collect::<Vec<_>>(), [7, 3, 5, 1]);
}

#[test]
fn an_urgent_answer_overtakes_data_that_the_client_has_not_taken() {
    let bench = Bench::new();
    let mut h2 = bench.connect(&wide());
    h2.feed(&[open_connection(), get(1, "/big", &[("priority", "u=5")])].concat());
    h2.answer_up_to(0);
    h2.feed(&get(3, "/big", &[("priority", "u=0")]));
    assert_eq!(order(&h2.answer()), [3, 1]);
}

#[test]
fn those_that_are_incremental_or_state_nothing_take_turns() {
    for fields in [&[("priority", "i")][..], &[]] {
        let bench = Bench::new();
        let mut h2 = bench.connect(&wide());
        h2.feed(&[open_connection(), get(1, "/big", fields), get(3, "/big", fields)].concat());
        let order = order(&h2.answer());
        assert_eq!(order.len(), 2 * BIG.div_ceil(16_384), "{order:?}");
    }
}

#[test]
fn an_upload_that_no_one_reads_is_reset_without_an_error_when_its_answer_is_sent() {
    let bench = Bench::new();
    let mut h2 = bench.connect(&[]);
    let mut post = get(1, "/", &[("content-length", "9")]);
    post[4] = flag::END_HEADERS;
    h2.feed(&[post, frame(kind::DATA, 0, 1, b"123")].concat());
    let frames = h2.answer();
    let last = frames.last().expect("frames");
    assert_eq!((last.head.kind, &last.payload[..]), (kind::RST_STREAM, &[0; 4][..]));
    // Frames already on their way are ignored.
    h2.feed(&frame(kind::DATA, flag::END_STREAM, 1, b"456789"));
    assert_eq!((h2.answer(), h2.failure()), (Vec::new(), None));
}

#[test]
fn an_upload_that_ends_after_its_answer_is_followed_by_a_frame() {
    for payload in [&b""[..], b"456789"] {
        let bench = Bench::new();
        let mut h2 = bench.connect(&[]);
        bench.connection().multiplex().discards.begin_turn(&Context::from_waker(Waker::noop()));
        let mut post = get(1, "/", &[]);
        post[4] = flag::END_HEADERS;
        h2.feed(&[post, frame(kind::DATA, 0, 1, b"123")].concat());
        assert!(h2.answer().iter().all(|frame| frame.head.kind != kind::RST_STREAM));
        h2.feed(&frame(kind::DATA, flag::END_STREAM, 1, payload));
        let frames = h2.answer();
        let heads: Vec<_> = frames.iter().map(|frame| (frame.head.kind, frame.head.stream)).collect();
        assert_eq!((heads, h2.failure()), (vec![(kind::WINDOW_UPDATE, 0)], None));
    }
}

#[test]
fn bodies_unlike_their_length_and_other_faults_end_their_stream_alone() {
    let bench = Bench::new();
    for (request, reason) in [
        (get(1, "/", &[("content-length", "1")]), Reason::PROTOCOL_ERROR),
        (get(1, "/", &[("X-Upper", "1")]), Reason::PROTOCOL_ERROR),
        (get(1, "", &[]), Reason::PROTOCOL_ERROR),
    ] {
        let mut h2 = bench.connect(&[]);
        h2.feed(&request);
        let frames = h2.answer();
        let last = frames.last().expect("frames");
        assert_eq!((last.head.kind, &last.payload[..]), (kind::RST_STREAM, &reason.0.to_be_bytes()[..]));
        assert_eq!(h2.failure(), None);
    }
}

#[test]
fn a_block_in_too_many_frames_ends_the_connection() {
    let bench = Bench::new();
    let mut h2 = bench.connect(&[]);
    h2.feed(&frame(kind::HEADERS, flag::END_STREAM, 1, &[0x82]));
    for _ in 0..100 {
        h2.feed(&frame(kind::CONTINUATION, 0, 1, &[]));
    }
    assert_eq!(h2.failure(), Some(Reason::ENHANCE_YOUR_CALM));
}

#[test]
fn more_streams_than_allowed_are_refused() {
    let bench = Bench::new();
    let mut h2 = bench.connect(&[]);
    (0..9).for_each(|number| h2.feed(&get(2 * number + 1, "/big", &[])));
    let frames = h2.answer();
    let refused: Vec<_> = frames.iter().filter(|frame| frame.head.kind == kind::RST_STREAM).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].head.stream, &refused[0].payload[..]), (17, &[0, 0, 0, 7][..]));
}

#[test]
fn the_end_is_announced_and_then_holds() {
    let bench = Bench::new();
    let mut h2 = bench.connect(&[]);
    h2.answer();
    h2.drain();
    h2.feed(&get(1, "/", &[]));
    let frames = h2.answer();
    assert_eq!((frames[0].head.kind, &frames[0].payload[..4]), (kind::GOAWAY, &[0x7f, 0xff, 0xff, 0xff][..]));
    let ping = frames[1].payload.clone();
    assert_eq!(data(&frames, 1), 5, "a request that was on its way is answered");
    h2.feed(&frame(kind::PING, flag::ACK, 0, &ping));
    h2.feed(&get(3, "/", &[]));
    let last = h2.answer();
    assert_eq!((last.len(), &last[0].payload[..4]), (1, &[0, 0, 0, 1][..]));
}

#[test]
fn a_turn_processes_a_limited_number_of_frames() {
    let bench = Bench::new();
    let mut h2 = bench.connect(&[]);
    let mut post = get(1, "/", &[]);
    post[4] = flag::END_HEADERS;
    h2.feed(&post);
    let data = frame(kind::DATA, 0, 1, b"x");
    let bytes = data.repeat(1_000);
    let mut turn = TurnLimit::default();
    let processed = h2.feed_within(&bytes, &mut turn);
    assert!((1..=TurnLimit::FRAMES).contains(&(processed / data.len())), "{processed}");
    assert_eq!(h2.feed_within(&bytes[processed..], &mut turn), 0);
    h2.feed(&bytes[processed..]);
    assert_eq!(h2.failure(), None);
}
