//! Limits on the work and memory that a client can cause.

use brisk_http_connection::held::HeldBytes;
use brisk_wire::h3::frame::FrameHead;

use super::*;

#[test]
fn heads_beyond_the_limits_are_refused_with_431() {
    let many: Vec<_> = (0..20).map(|_| ("x-a", "1")).collect();
    // In Huffman code, the first is below the limit and the second above.
    let [decoded, refused] = ["a", "~"].map(|letter| letter.repeat(70_000));
    for head in [get("/", &many), get("/", &[("x-long", &decoded)]), get("/", &[("x-long", &refused)])] {
        let mut bench = Bench::new();
        bench.send(0, &head);
        // A turn reads 64 KiB.
        bench.turn();
        bench.turn();
        assert_eq!((response(&bench, 0).0, bench.closing), (vec![431], None));
        assert_eq!(bench.client.received[&0].stop, Some(Code::NO_ERROR), "the rest is not read");
        bench.turn();
        assert_eq!(bench.http3.open_requests(), 0);
    }
}

#[test]
fn requests_beyond_the_limit_are_rejected_and_may_be_repeated() {
    let mut bench = Bench::new();
    bench.client.window = Some(0);
    for stream in (0..40).step_by(4) {
        bench.send_all(stream, &get("/big", &[]));
    }
    bench.turn();
    assert_eq!(bench.http3.open_requests(), 8);
    let reset = |stream: u64| bench.client.received.get(&stream).and_then(|received| received.reset);
    assert_eq!(
        [reset(28), reset(32), reset(36)],
        [None, Some(Code::REQUEST_REJECTED), Some(Code::REQUEST_REJECTED)]
    );
}

#[test]
fn requests_that_are_cancelled_exhaust_the_budget() {
    // Cancelled before the response, and after its begin, which refunds half of the price.
    for (is_answered, stops, expected) in [(false, false, 6), (true, false, 10), (true, true, 10)] {
        let mut bench = Bench::new();
        bench.client.window = Some(0);
        let mut cancelled = 0;
        for stream in (0..200).step_by(4) {
            bench.send(stream, &get("/big", &[]));
            if is_answered {
                bench.turn();
            }
            if stops {
                bench.stop(stream);
            } else {
                bench.end(stream, Read::Reset);
            }
            bench.turn();
            cancelled += 1;
            if bench.closing.is_some() {
                break;
            }
            assert_eq!(bench.client.received[&stream].reset, Some(Code::REQUEST_CANCELLED));
        }
        let closing = bench.closing.expect("an end");
        assert_eq!((closing.end, closing.code), (End::Flood, Code::EXCESSIVE_LOAD));
        assert_eq!(cancelled, expected, "with a budget of 5");
    }
}

#[test]
fn requests_that_are_malformed_exhaust_the_budget() {
    let mut bench = Bench::new();
    for stream in (0..200).step_by(4) {
        bench.send_all(stream, &get("/", &[("X-A", "1")]));
        bench.turn();
        if bench.closing.is_some() {
            assert_eq!((stream, bench.failure()), (20, Some(Code::EXCESSIVE_LOAD)));
            return;
        }
    }
    panic!("no end");
}

#[test]
fn trailers_have_the_limits_of_heads() {
    let reset = |trailers: &[u8]| {
        let mut bench = Bench::new();
        bench.client.window = Some(0);
        bench.send_all(0, &[&post(&[]), trailers].concat());
        bench.turn();
        bench.turn();
        bench.client.received.get(&0).and_then(|received| received.reset)
    };
    let many: Vec<_> = (0..20).map(|_| ("x-a", "1")).collect();
    // Not shorter in Huffman code, so that it is not decoded at all.
    let long = "~".repeat(70_000);
    assert_eq!(reset(&headers(&many[..10])), None);
    assert_eq!(reset(&headers(&many)), Some(Code::MESSAGE_ERROR));
    assert_eq!(reset(&headers(&[("x-long", &long)])), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn useless_frames_and_instructions_exhaust_the_budget() {
    let flood = |stream: u64, begin: &[u8], again: &[u8]| {
        let mut bench = Bench::new();
        bench.send(stream, begin);
        for number in 0..200 {
            bench.send(stream, again);
            bench.turn();
            if let Some(code) = bench.failure() {
                return (number, code);
            }
        }
        panic!("no end");
    };
    let update = frame(kind::PRIORITY_UPDATE, b"\x04u=1");
    let request = [post(&[]), frame(kind::DATA, b"x")].concat();
    for (stream, begin, again) in [
        (2, &[0, 4, 0][..], &update[..]),
        (2, &[0, 4, 0], &[0x21, 0]),
        (2, &[0, 4, 0], &[0xd, 1, 0]),
        (2, &[2], &[0x20]),
        (2, &[3], &[0x41]),
        (0, &request, &[0, 0]),
        (0, &request, &[0x21, 1, 7]),
    ] {
        let (number, code) = flood(stream, begin, again);
        assert_eq!(code, Code::EXCESSIVE_LOAD, "{stream} {again:x?}");
        // The response to the request is complete and earns points.
        assert!((50..56).contains(&number), "{stream} {again:x?}: {number}");
    }
}

#[test]
fn incomplete_heads_are_held_up_to_a_limit() {
    let mut bench = Bench::new();
    let mut head = Vec::new();
    FrameHead { kind: kind::HEADERS, length: 64 << 10 }.write(&mut head);
    head.resize(60_000, 0);
    for stream in (0..32).step_by(4) {
        bench.send(stream, &head);
        bench.turn();
    }
    let partial = |bench: &Bench| bench.http3.h3.partial.as_ref().map_or(0, HeldBytes::bytes);
    assert!(partial(&bench) > 0 && partial(&bench) <= 256 << 10);
    let reset = |stream: u64| bench.client.received.get(&stream).and_then(|received| received.reset);
    assert_eq!((reset(0), reset(28)), (None, Some(Code::EXCESSIVE_LOAD)));
    for stream in (0..32).step_by(4) {
        bench.end(stream, Read::Reset);
    }
    bench.turn();
    assert_eq!((partial(&bench), bench.http3.open_requests()), (0, 0));
}

#[test]
fn bodies_are_read_as_far_as_their_readers_take_them() {
    let mut bench = Bench::new();
    bench.client.piece = 16 << 10;
    let inbox = |bench: &Bench| bench.http3.h3.unread;
    let body = frame(kind::DATA, &vec![0; 1 << 20]);
    let streams = [0, 4, 8, 12, 16, 20, 24, 28];
    for (number, stream) in (1..).zip(streams) {
        bench.send(stream, &post(&[]));
        bench.send(stream, &body);
        // Without running the readers, in two turns of 64 KiB.
        for _ in 0..2 {
            bench.http3.h3.turn.begin();
            bench.http3.h3.read_requests(&mut bench.client);
        }
        // 64 KiB of each, 256 KiB of all, and one piece of each.
        let least = (number << 16).min(256 << 10);
        assert!((least..=least + (number << 14)).contains(&inbox(&bench)), "{number}: {}", inbox(&bench));
    }
    // The fixed responses end without the bodies, which are read and discarded.
    for _ in 0..200 {
        bench.turn();
    }
    assert_eq!((inbox(&bench), bench.closing), (0, None));
    for stream in streams {
        bench.end(stream, Read::End);
    }
    for _ in 0..3 {
        bench.turn();
    }
    assert_eq!(bench.http3.open_requests(), 0);
}

#[test]
fn streams_that_wait_for_the_connection_are_excused_and_others_time_out() {
    use std::time::Instant;

    use brisk_http_connection::streams::{Round, StreamLimits};

    let mut bench = Bench::new();
    bench.client.connection_window = Some(1000);
    bench.send_all(0, &get("/big", &[("priority", "u=0")]));
    bench.send_all(4, &get("/big", &[("priority", "u=7")]));
    bench.turn();
    let start = Instant::now();
    let round = |bench: &Bench, second| {
        let now = start + Duration::from_secs(second);
        let round = Round { now, paused: Duration::ZERO, released: 0, blocked: false };
        let limits = StreamLimits { write: Duration::from_secs(30), read_rate: 0, request: None };
        bench.http3.h3.http.connection.multiplex().streams.end_overdue(round, limits);
    };
    for second in (0..100).step_by(2) {
        round(&bench, second);
        bench.client.connection_window = Some(1000);
        bench.unblock();
        bench.turn();
    }
    assert_eq!(bench.http3.open_requests(), 2);
    for second in (100..140).step_by(2) {
        round(&bench, second);
        bench.client.connection_window = Some(0);
        bench.unblock();
        bench.turn();
    }
    assert_eq!(bench.http3.open_requests(), 0, "a window that stays closed holds nothing");
}
