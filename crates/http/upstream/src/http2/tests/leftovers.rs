//! Streams whose requests have all they want of them.

use std::future::poll_fn;

use brisk_net::DeadlineWheel;
use tokio::time::Instant;

use super::super::pulse::Linger;
use super::*;

fn ends_stream(bench: &mut Bench, asked: &Asked) -> bool {
    bench.state.stream(asked.place).is_end_stream()
}

#[test]
fn an_upload_that_outlives_its_answer_counts_and_has_an_end() {
    let mut bench = Bench::new(&settings::payload(&[(id::INITIAL_WINDOW_SIZE, 5)]));
    let mut asked = bench.ask(Method::POST, Some(b"much more than that"));
    bench.written();
    bench.feed(&head(1, flag::END_STREAM, &[]));
    bench.read(&mut asked);
    assert_eq!((asked.status(), asked.is_over, bench.state.leftovers), (200, true, 0));
    bench.state.release(asked.place);
    assert_eq!((bench.state.leftovers, bench.state.numbers.len()), (1, 1));
    bench.state.end_leftovers();
    assert_eq!(bench.written(), [], "some time is left to it");
    bench.state.end_leftovers();
    let frames = bench.written();
    assert_eq!(kinds(&frames), [(kind::RST_STREAM, 0, 1)]);
    assert_eq!(frames[0].payload, Reason::CANCEL.0.to_be_bytes());
    assert_eq!((bench.state.leftovers, bench.state.numbers.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_left_over_has_ten_seconds_at_least_and_twenty_at_most() {
    let wheel = DeadlineWheel::new();
    let mut linger = Linger::new(&wheel);
    let (mut bench, asked) = asked();
    bench.feed(&head(1, 0, &[("content-length", "0")]));
    bench.state.release(asked.place);
    let start = Instant::now();
    let ended = poll_fn(|context| {
        linger.check(&mut bench.state, context);
        if bench.state.leftovers == 0 { Poll::Ready(start.elapsed()) } else { Poll::Pending }
    });
    let elapsed = tokio::select! {
        () = wheel.run() => unreachable!("the wheel never returns"),
        elapsed = ended => elapsed,
    };
    assert!((10..=20).contains(&elapsed.as_secs()), "{elapsed:?}");
}

#[test]
fn the_end_of_a_stream_may_come_behind_that_of_its_response() {
    for ends in [true, false] {
        let (mut bench, mut asked) = asked();
        bench.feed(&head(1, 0, &[("content-length", "5")]));
        bench.feed(&data(1, 0, b"hello"));
        bench.read(&mut asked);
        bench.state.release(asked.place);
        assert_eq!((bench.written(), bench.state.leftovers), (Vec::new(), 1));
        if ends {
            bench.feed(&data(1, flag::END_STREAM, b""));
            assert_eq!((bench.written(), bench.state.leftovers), (Vec::new(), 0));
            continue;
        }
        bench.state.end_leftovers();
        bench.state.end_leftovers();
        assert_eq!(kinds(&bench.written()), [(kind::RST_STREAM, 0, 1)]);
        assert_eq!((bench.state.leftovers, bench.state.failure), (0, None));
    }
    // Nothing but the end may come.
    let (mut bench, asked) = asked();
    bench.feed(&head(1, 0, &[("content-length", "0")]));
    bench.state.release(asked.place);
    bench.feed(&data(1, 0, b"more"));
    assert_eq!(kinds(&bench.written()), [(kind::RST_STREAM, 0, 1)]);
    assert_eq!((bench.state.leftovers, bench.state.failure), (0, None));
}

#[test]
fn what_a_request_does_not_want_any_more_is_reset() {
    let (mut bench, asked) = asked();
    bench.feed(&head(1, 0, &[("content-length", "5")]));
    bench.state.release(asked.place);
    assert_eq!(kinds(&bench.written()), [(kind::RST_STREAM, 0, 1)]);
    assert_eq!(bench.state.leftovers, 0);
}

#[test]
fn a_connection_that_ends_leaves_nothing_over() {
    let (mut bench, asked) = asked();
    bench.feed(&head(1, 0, &[("content-length", "0")]));
    bench.state.release(asked.place);
    bench.state.fail(Http2Error::Ended, None);
    assert_eq!(bench.state.leftovers, 0);
}

#[test]
fn a_response_without_a_body_ends_with_its_head() {
    let ok = block(&[(":status", "200"), ("content-length", "5")]);
    let others = ["204", "304"].map(|status| block(&[(":status", status)]));
    for (method, block) in [
        (Method::HEAD, &ok),
        (Method::GET, &others[0]),
        (Method::GET, &others[1]),
        (Method::HEAD, &others[0]),
    ] {
        let mut bench = Bench::new(&[]);
        let mut asked = bench.ask(method, None);
        bench.written();
        bench.feed(&frame(kind::HEADERS, flag::END_HEADERS, 1, block));
        bench.read(&mut asked);
        assert!(asked.head.is_some() && asked.is_over && ends_stream(&mut bench, &asked), "{block:?}");
        bench.state.release(asked.place);
        assert_eq!(bench.written(), []);
        bench.feed(&data(1, flag::END_STREAM, b""));
        assert!(bench.state.numbers.is_empty());
    }
    let (mut bench, mut asked) = asked();
    bench.feed(&head(1, 0, &[("content-length", "5")]));
    bench.read(&mut asked);
    assert!(!ends_stream(&mut bench, &asked));
}

#[test]
fn a_length_that_came_twice_is_passed_on_once() {
    let (mut bench, mut asked) = asked();
    bench.feed(&head(1, 0, &[("content-length", "5"), ("content-length", "5")]));
    bench.read(&mut asked);
    let head = asked.head.as_ref().expect("a head");
    assert_eq!(head.headers().get_all("content-length").count(), 1);
}

#[test]
fn windows_of_streams_that_have_ended_cost_something() {
    let (mut bench, asked) = asked();
    bench.feed(&head(1, flag::END_STREAM, &[]));
    bench.state.release(asked.place);
    for _ in 0..10_000 {
        bench.feed(&frame(kind::WINDOW_UPDATE, 0, 1, &[0, 1, 0, 0]));
    }
    assert_eq!(bench.state.failure, Some(Http2Error::Flood));
}
