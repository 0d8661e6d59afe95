//! Streams that clients cancel, below and above the rate of resets.

use super::super::resets::{ABANDONED, BURST, TOTAL};
use super::*;

/// A connection that has reset as many streams as it may at once.
fn used_to_the_burst() -> Bench {
    let mut bench = Bench::new(&[]);
    for _ in 0..BURST {
        let asked = bench.ask(Method::GET, None);
        bench.state.release(asked.place);
    }
    let resets = bench.written().iter().filter(|frame| frame.head.kind == kind::RST_STREAM).count();
    assert_eq!((resets, bench.state.leftovers), (BURST as usize, 0));
    bench
}

/// The streams reset since the last call.
fn resets(bench: &mut Bench) -> Vec<u32> {
    let frames = bench.written();
    frames.iter().filter(|frame| frame.head.kind == kind::RST_STREAM).map(|frame| frame.head.stream).collect()
}

fn whole_window(bench: &Bench) -> bool {
    let recv = &bench.state.recv;
    recv.window + i64::from(recv.unclaimed) == i64::from(CONNECTION_WINDOW)
}

#[test]
fn beyond_the_burst_canceled_streams_run_out_without_a_reset() {
    let mut bench = used_to_the_burst();
    let first = 2 * BURST + 1;
    let before = bench.ask(Method::GET, None);
    let mut begun = bench.ask(Method::GET, None);
    bench.feed(&[head(first + 2, 0, &[]), data(first + 2, 0, &[b'x'; 16_384])].concat());
    bench.state.release(before.place);
    bench.state.release(begun.place);
    assert_eq!((resets(&mut bench), bench.state.leftovers), (Vec::new(), 2));
    // All that the server still sends is discarded, within the window that it has.
    let piece = [b'x'; 16_384];
    bench
        .feed(&[head(first, 0, &[]), data(first, 0, &piece), data(first, flag::END_STREAM, &piece)].concat());
    bench.feed(&data(first + 2, 0, &piece));
    assert!(whole_window(&bench));
    assert_eq!(bench.state.leftovers, 1, "one has run out");
    assert!(bench.written().iter().all(|frame| frame.head.stream == 0), "windows of streams stay closed");
    bench.feed(&head(first + 2, flag::END_STREAM, &[]));
    assert_eq!((resets(&mut bench), bench.state.leftovers, bench.state.numbers.len()), (Vec::new(), 0, 0));
    // Other requests go on.
    begun = bench.ask(Method::GET, None);
    bench.feed(&head(first + 4, flag::END_STREAM, &[]));
    bench.read(&mut begun);
    assert_eq!((begun.status(), bench.state.failure), (200, None));
}

#[test]
fn an_abandoned_stream_that_does_not_end_is_reset_when_the_rate_permits() {
    let mut bench = used_to_the_burst();
    let asked = [(); 3].map(|()| bench.ask(Method::GET, None));
    for asked in &asked {
        bench.state.release(asked.place);
    }
    bench.state.end_leftovers();
    assert!(resets(&mut bench).is_empty());
    bench.state.resets.tick(Duration::from_secs(2));
    bench.state.end_leftovers();
    assert_eq!(resets(&mut bench), [2 * BURST + 1, 2 * BURST + 3]);
    bench.state.resets.tick(Duration::from_secs(3));
    bench.state.end_leftovers();
    assert_eq!((resets(&mut bench), bench.state.leftovers), (vec![2 * BURST + 5], 0));
}

#[test]
fn an_incomplete_request_is_never_ended_otherwise_than_by_a_reset() {
    let mut bench = used_to_the_burst();
    let number = 2 * BURST + 1;
    let asked = bench.ask(Method::POST, Some(b"half"));
    bench.written();
    bench.state.release(asked.place);
    bench.feed(&head(number, flag::END_STREAM, &[]));
    assert_eq!((bench.written(), bench.state.leftovers), (Vec::new(), 1));
    bench.state.resets.tick(Duration::from_secs(1));
    bench.state.end_leftovers();
    assert_eq!((kinds(&bench.written()), bench.state.leftovers), (vec![(kind::RST_STREAM, 0, number)], 0));
}

#[test]
fn a_request_whose_body_fails_fails_at_once_although_its_reset_waits() {
    let mut bench = used_to_the_burst();
    let mut asked = bench.ask(Method::POST, Some(b"half"));
    bench.written();
    asked.inbox.take().expect("a body").fail();
    assert_eq!(bench.written(), []);
    bench.read(&mut asked);
    assert_eq!(asked.error, Some(Http2Error::RequestBody));
    bench.feed(&head(2 * BURST + 1, 0, &[]));
    bench.state.release(asked.place);
    assert_eq!((bench.written(), bench.state.leftovers), (Vec::new(), 1));
    bench.state.resets.tick(Duration::from_secs(1));
    bench.state.end_leftovers();
    assert_eq!((resets(&mut bench), bench.state.leftovers), (vec![2 * BURST + 1], 0));
}

#[test]
fn a_connection_with_many_abandoned_streams_gets_no_further_requests() {
    let mut bench = used_to_the_burst();
    let mut other = bench.ask(Method::GET, None);
    let number = 2 * BURST + 1;
    for _ in 0..=ABANDONED {
        assert!(!bench.state.resets.are_used_up());
        let asked = bench.ask(Method::GET, None);
        bench.state.release(asked.place);
    }
    assert!(bench.state.resets.are_used_up() && bench.state.takes_requests());
    bench.feed(&[head(number, 0, &[]), data(number, flag::END_STREAM, b"whole")].concat());
    bench.read(&mut other);
    assert_eq!(
        (other.body.as_slice(), other.error),
        (b"whole".as_slice(), None),
        "streams in progress finish"
    );
}

/// The next number of `SplitMix64`.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Requests, cancels, responds and passes time at random, as long as the pool would use the connection.
fn play(seed: u64) {
    let mut random = seed;
    let mut bench = Bench::new(&[]);
    let mut asked: Vec<Asked> = Vec::new();
    let mut open: Vec<u32> = Vec::new();
    let (mut number, mut seconds, mut sent) = (1, 0, 0);
    for _ in 0..2000 {
        let which = next(&mut random) as usize;
        match next(&mut random) % 8 {
            0..3 if !bench.state.resets.are_used_up() && asked.len() < 60 => {
                let body = which.is_multiple_of(3).then_some(b"half".as_slice());
                asked.push(bench.ask(if body.is_some() { Method::POST } else { Method::GET }, body));
                open.push(number);
                number += 2;
            }
            3 | 4 if !asked.is_empty() => {
                let gone = asked.swap_remove(which % asked.len());
                if which.is_multiple_of(2)
                    && let Some(inbox) = &gone.inbox
                {
                    inbox.fail();
                }
                bench.state.release(gone.place);
            }
            5 if !open.is_empty() => {
                let stream = open.swap_remove(which % open.len());
                if bench.state.find(stream).is_some() {
                    bench.feed(&[head(stream, 0, &[]), data(stream, flag::END_STREAM, b"whole")].concat());
                }
            }
            6 => {
                seconds += which as u64 % 3;
                bench.state.resets.tick(Duration::from_secs(seconds));
            }
            _ => bench.state.end_leftovers(),
        }
        sent += resets(&mut bench).len();
        let state = &bench.state;
        assert!(sent <= BURST as usize + seconds as usize, "seed {seed}: {sent} resets in {seconds} s");
        assert!(state.resets.abandoned() <= state.numbers.len() && state.failure.is_none(), "seed {seed}");
    }
    for asked in asked.drain(..) {
        bench.state.release(asked.place);
    }
    while !bench.state.numbers.is_empty() {
        seconds += 1;
        bench.state.resets.tick(Duration::from_secs(seconds));
        bench.state.end_leftovers();
        assert!(seconds < 10_000, "seed {seed}: every stream ends");
    }
    assert!(whole_window(&bench) && bench.state.leftovers == 0 && bench.state.resets.abandoned() == 0);
    assert!(sent <= TOTAL as usize + 60, "seed {seed}: no further requests after {sent} resets");
}

#[test]
fn no_schedule_resets_more_streams_than_the_rate_permits() {
    (0..200).for_each(play);
}
