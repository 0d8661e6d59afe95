//! What can be seen of a server's initial window: how much of its first flight came at once.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::capture::Noted;

/// Over shorter links than this, bursts cannot be distinguished.
const FAR: Duration = Duration::from_millis(2);

/// What came before the server had to wait for acknowledgements, or had no more to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Bytes of the largest burst of the first three.
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
    let begins = bursts.first()?.begin;
    let sent = |from: Instant, to: Instant| noted.client.pieces.iter().any(|(_, at)| *at > from && *at < to);
    let mut found = Window { bytes: 0, segments: 0, is_limit: false };
    for (index, burst) in bursts.iter().enumerate().take(3) {
        let next = bursts.get(index + 1);
        let is_limit = next.is_some_and(|next| {
            let gap = next.begin.saturating_duration_since(burst.begin);
            burst.bytes >= 4 * u64::from(segment)
                && gap < rtt * 3 / 2
                && !sent(burst.begin.max(begins), next.begin)
        });
        if is_limit {
            found = Window { bytes: burst.bytes, segments: 0, is_limit };
            break;
        }
        if burst.bytes > found.bytes {
            found.bytes = burst.bytes;
        }
    }
    found.segments = found.bytes.div_ceil(u64::from(segment));
    Some(found)
}

struct Burst {
    begin: Instant,
    bytes: u64,
}

fn bursts(pieces: &[(u64, Instant)], gap: Duration) -> Vec<Burst> {
    let mut bursts: Vec<Burst> = Vec::new();
    let (mut last, mut before) = (None::<Instant>, 0);
    for (end, at) in pieces {
        match bursts.last_mut() {
            Some(burst) if last.is_some_and(|last| at.saturating_duration_since(last) < gap) => {
                burst.bytes += end - before;
            }
            _ => bursts.push(Burst { begin: *at, bytes: end - before }),
        }
        (last, before) = (Some(*at), *end);
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
}
