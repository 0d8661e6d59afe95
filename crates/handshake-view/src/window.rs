//! What can be seen of a server's initial window: how much of its first flight came at once.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::capture::Noted;

/// Over shorter links than this, bursts cannot be distinguished.
const FAR: Duration = Duration::from_millis(2);

/// Segments from which on a burst may have been limited by the window.
const LEAST: u64 = 4;

/// Bytes of the client that nothing waits for: acknowledgements of HTTP/2. A request is longer, and the end of a handshake too.
const SMALL: u64 = 72;

/// What came before the server had to wait for acknowledgements, or had no more to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Bytes of the first burst of more than four segments, or of the largest.
    pub bytes: u64,
    /// The same in segments of this connection.
    pub segments: u64,
    /// More of the same flight came a round trip later: this is the window. Otherwise the window is at least this.
    pub is_limit: bool,
}

/// Finds the window; `None` over links that are too short for it.
pub(crate) fn window(noted: &Noted, rtt: Duration, segment: u32) -> Option<Window> {
    if rtt < FAR || segment == 0 {
        return None;
    }
    let bursts = bursts(&noted.server.pieces, rtt / 2);
    let most = LEAST * u64::from(segment);
    // Behind the first long burst the window has grown: it is the initial one no more.
    let place = bursts.iter().position(|burst| burst.bytes >= most);
    let Some(place) = place else {
        let bytes = bursts.iter().map(|burst| burst.bytes).max()?;
        return Some(Window { bytes, segments: bytes.div_ceil(u64::from(segment)), is_limit: false });
    };
    let burst = &bursts[place];
    let is_limit = bursts.get(place + 1).is_some_and(|next| {
        let gap = next.begin.saturating_duration_since(burst.begin);
        gap >= near(rtt) && gap < rtt * 3 / 2 && sent(noted, burst.begin, next.begin) < SMALL
    });
    let segments = burst.bytes.div_ceil(u64::from(segment));
    Some(Window { bytes: burst.bytes, segments, is_limit })
}

/// Whether bytes of the server, from `begin` to `end`, waited for an acknowledgement on their way: they came in two parts a
/// round trip apart. `None` where that cannot be seen.
pub(crate) fn waited(noted: &Noted, begin: u64, end: u64, rtt: Duration, segment: u32) -> Option<bool> {
    if rtt < FAR || segment == 0 {
        return None;
    }
    let first = noted.server.time_of(begin + 1)?;
    let (mut before, mut last) = (begin, first);
    for (reached, at) in noted.server.pieces.iter().filter(|(reached, _)| *reached > begin) {
        let is_late = at.saturating_duration_since(last) >= near(rtt);
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

/// Most of a round trip.
fn near(rtt: Duration) -> Duration {
    rtt.mul_f64(0.7)
}

/// Bytes that the client sent within this time.
fn sent(noted: &Noted, from: Instant, to: Instant) -> u64 {
    let mut before = 0;
    let mut sum = 0;
    for (end, at) in &noted.client.pieces {
        if *at > from && *at < to {
            sum += end - before;
        }
        before = *end;
    }
    sum
}

struct Burst {
    begin: Instant,
    bytes: u64,
}

/// What came within `length` of its first byte is one burst.
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
        let mut noted = Noted::default();
        noted.client.pieces = vec![(300, start)];
        noted.server.pieces = vec![
            (8000, start + ms(20)),
            (14_600, start + ms(21)),
            (17_000, start + ms(40)),
            (17_100, start + ms(90)),
        ];
        let window = window(&noted, ms(20), 1460).expect("a window");
        assert_eq!((window.bytes, window.segments, window.is_limit), (14_600, 10, true));
        noted.client.pieces.push((400, start + ms(22)));
        let window = super::window(&noted, ms(20), 1460).expect("a window");
        assert!(!window.is_limit);
        assert!(super::window(&noted, ms(1), 1460).is_none());
    }

    #[test]
    fn acknowledgements_of_http2_hide_no_limit_and_slow_start_is_none() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut noted = Noted::default();
        // A hello; the request; the acknowledgement of the server's settings; a larger window.
        noted.client.pieces =
            [(300, 0), (700, 21), (731, 42), (766, 62)].map(|(end, at)| (end, start + ms(at))).to_vec();
        // A short flight, then a body of 10 segments, of 20, of 40.
        noted.server.pieces = [(3000, 20), (17_600, 41), (46_800, 61), (105_200, 81)]
            .map(|(end, at)| (end, start + ms(at)))
            .to_vec();
        let window = window(&noted, ms(20), 1460).expect("a window");
        assert_eq!((window.bytes, window.segments, window.is_limit), (14_600, 10, true));
        // A body whose pieces come all the time is no burst of all its bytes.
        noted.server.pieces = (0..200).map(|at| (at * 1460 + 1460, start + ms(20 + at))).collect();
        let window = super::window(&noted, ms(20), 1460).expect("a window");
        assert_eq!((window.bytes, window.is_limit), (14_600, false));
    }

    #[test]
    fn a_flight_waited_if_it_came_in_two_parts() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut noted = Noted::default();
        noted.server.pieces = vec![(100, start), (14_600, start + ms(1)), (20_000, start + ms(2))];
        assert_eq!(waited(&noted, 0, 20_000, ms(20), 1460), Some(false));
        noted.server.pieces[2].1 = start + ms(21);
        assert_eq!(waited(&noted, 0, 20_000, ms(20), 1460), Some(true));
        assert_eq!(waited(&noted, 0, 14_600, ms(20), 1460), Some(false));
        // The server took its time before the window can have been full.
        noted.server.pieces = vec![(100, start), (20_000, start + ms(30))];
        assert_eq!(waited(&noted, 0, 20_000, ms(20), 1460), Some(false));
        assert_eq!(waited(&noted, 0, 20_000, ms(1), 1460), None);
    }
}
