//! Estimate of a server's initial congestion window from the arrival times of its first flight.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::recording::Recording;

/// Shortest round trip over which bursts can be distinguished.
const FAR: Duration = Duration::from_millis(2);

/// Shortest burst, in segments, that the window may have limited.
const LEAST: u64 = 4;

/// Client flights up to this size in bytes do not end a server flight: acknowledgements of HTTP/2. Requests and the end of a
/// handshake are longer.
const SMALL: u64 = 72;

/// Bytes that the server sent before it waited for acknowledgements or had no more to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Size in bytes of the first burst of at least four segments, or of the largest burst.
    pub bytes: u64,
    /// Size in segments of this connection.
    pub segments: u64,
    /// The flight continued one round trip later, so the burst filled the window. Otherwise the window is at least this large.
    pub is_limit: bool,
}

/// Estimates the window; `None` if the round trip is below 2 ms.
pub fn window(recording: &Recording, rtt: Duration, segment: u32) -> Option<Window> {
    if rtt < FAR || segment == 0 {
        return None;
    }
    let bursts = bursts(&recording.server.pieces, rtt / 2);
    let most = LEAST * u64::from(segment);
    // After the first long burst the window has grown and is no longer the initial one.
    let first_long = bursts.iter().position(|burst| burst.bytes >= most);
    let Some(index) = first_long else {
        let bytes = bursts.iter().map(|burst| burst.bytes).max()?;
        return Some(Window { bytes, segments: bytes.div_ceil(u64::from(segment)), is_limit: false });
    };
    let burst = &bursts[index];
    let is_limit = bursts.get(index + 1).is_some_and(|next| {
        let gap = next.begin.saturating_duration_since(burst.begin);
        // Later bytes, or bytes after a request in between, had another cause than an acknowledgement.
        gap >= near(rtt) && gap < rtt * 3 / 2 && sent(recording, burst.begin, next.begin) < SMALL
    });
    let segments = burst.bytes.div_ceil(u64::from(segment));
    Some(Window { bytes: burst.bytes, segments, is_limit })
}

/// Whether the server's bytes from offset `begin` to `end` waited for an acknowledgement: they arrived in two parts one round
/// trip apart. `None` if the round trip is below 2 ms.
pub fn waited(recording: &Recording, begin: u64, end: u64, rtt: Duration, segment: u32) -> Option<bool> {
    if rtt < FAR || segment == 0 {
        return None;
    }
    let first = recording.server.time_of(begin + 1)?;
    let (mut before, mut last) = (begin, first);
    for (reached, at) in recording.server.pieces.iter().filter(|(reached, _)| *reached > begin) {
        let is_late = at.saturating_duration_since(last) >= near(rtt);
        // A shorter part did not fill a window of four segments, so the server itself paused.
        if is_late && before - begin >= LEAST * u64::from(segment) {
            return Some(true);
        }
        if *reached >= end {
            break;
        }
        (before, last) = (*reached, *at);
    }
    Some(false)
}

/// 0.7 round trips.
fn near(rtt: Duration) -> Duration {
    rtt.mul_f64(0.7)
}

/// Bytes that the client sent between two times.
fn sent(recording: &Recording, from: Instant, to: Instant) -> u64 {
    let mut before = 0;
    let mut sum = 0;
    for (end, at) in &recording.client.pieces {
        if *at > from && *at < to {
            sum += end - before;
        }
        before = *end;
    }
    sum
}

/// Bytes that arrived together.
struct Burst {
    begin: Instant,
    bytes: u64,
}

/// Bursts: a burst contains the bytes within `length` of its first byte.
fn bursts(pieces: &[(u64, Instant)], length: Duration) -> Vec<Burst> {
    let mut bursts: Vec<Burst> = Vec::new();
    let mut before = 0;
    for (end, at) in pieces {
        match bursts.last_mut() {
            Some(burst) if at.saturating_duration_since(burst.begin) < length => {
                burst.bytes += end - before;
            }
            _ => bursts.push(Burst { begin: *at, bytes: end - before }),
        }
        before = *end;
    }
    bursts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flight_in_two_bursts_shows_the_window() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut recording = Recording::default();
        recording.client.pieces = vec![(300, start)];
        recording.server.pieces = vec![
            (8000, start + ms(20)),
            (14_600, start + ms(21)),
            (17_000, start + ms(40)),
            (17_100, start + ms(90)),
        ];
        let window = window(&recording, ms(20), 1460).expect("a window");
        assert_eq!((window.bytes, window.segments, window.is_limit), (14_600, 10, true));
        recording.client.pieces.push((400, start + ms(22)));
        let window = super::window(&recording, ms(20), 1460).expect("a window");
        assert!(!window.is_limit);
        assert!(super::window(&recording, ms(1), 1460).is_none());
    }

    #[test]
    fn acknowledgements_of_http2_hide_no_limit_and_slow_start_is_none() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut recording = Recording::default();
        // A hello; the request; the acknowledgement of the server's settings; a larger window.
        recording.client.pieces =
            [(300, 0), (700, 21), (731, 42), (766, 62)].map(|(end, at)| (end, start + ms(at))).to_vec();
        // A short flight, then a body of 10 segments, of 20, of 40.
        recording.server.pieces = [(3000, 20), (17_600, 41), (46_800, 61), (105_200, 81)]
            .map(|(end, at)| (end, start + ms(at)))
            .to_vec();
        let window = window(&recording, ms(20), 1460).expect("a window");
        assert_eq!((window.bytes, window.segments, window.is_limit), (14_600, 10, true));
        // A body whose pieces come all the time is no burst of all its bytes.
        recording.server.pieces = (0..200).map(|at| (at * 1460 + 1460, start + ms(20 + at))).collect();
        let window = super::window(&recording, ms(20), 1460).expect("a window");
        assert_eq!((window.bytes, window.is_limit), (14_600, false));
    }

    #[test]
    fn a_flight_waited_if_it_came_in_two_parts() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut recording = Recording::default();
        recording.server.pieces = vec![(100, start), (14_600, start + ms(1)), (20_000, start + ms(2))];
        assert_eq!(waited(&recording, 0, 20_000, ms(20), 1460), Some(false));
        recording.server.pieces[2].1 = start + ms(21);
        assert_eq!(waited(&recording, 0, 20_000, ms(20), 1460), Some(true));
        assert_eq!(waited(&recording, 0, 14_600, ms(20), 1460), Some(false));
        // The server took its time before the window can have been full.
        recording.server.pieces = vec![(100, start), (20_000, start + ms(30))];
        assert_eq!(waited(&recording, 0, 20_000, ms(20), 1460), Some(false));
        assert_eq!(waited(&recording, 0, 20_000, ms(1), 1460), None);
    }
}
