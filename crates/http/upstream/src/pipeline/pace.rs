//! Means of the delay and length of responses by [`Site`], for the decision whether a request may join a pipeline.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use brisk_http::message::Request;
use http::header;

/// Mean delay that a response adds to those behind it from which it does not suit a pipeline, in seconds.
const SLOW: f32 = 2e-3;

/// Largest delay that counts, so that single ones weigh little; one beyond the maximum delay of requests excludes its site.
const SLOWEST: f32 = 2.0 * SLOW;
const LATE: f32 = 0.1;

/// Mean length from which responses do not suit a pipeline, in bytes.
const LARGE: f32 = 65_536.0;

/// Weight of past responses in the means.
const RESPONSES: f32 = 16.0;

/// Factor of the mean delay after a response that was not in a pipeline: its time is not the delay under load. A
/// site is tried again after at least 200 of them, or after some fast ones.
const SLOW_ALONE: f32 = 255.0 / 256.0;
const FAST_ALONE: f32 = 0.75;

/// Number of means. [`Site`]s that share a mean are treated alike.
const SITES: usize = 64;

/// A part of an upstream's resources: those of a host whose paths begin with the same segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site(usize);

impl Site {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let mut hash = DefaultHasher::new();
        request.headers().get(header::HOST).hash(&mut hash);
        let path = request.uri().path().trim_start_matches('/');
        path.split_once('/').map(|(first, _)| first).hash(&mut hash);
        Self(hash.finish() as usize % SITES)
    }
}

/// Mean responses by [`Site`].
#[derive(Debug)]
pub(super) struct Paces([Pace; SITES]);

#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// In seconds.
    delay: f32,
    length: f32,
}

/// Time of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Time {
    /// Delay of those behind it.
    Delay(Duration),
    /// Time to its head, without others on its connection.
    Alone(Duration),
    /// First of a pipeline and in time: those behind it would have waited too.
    First,
}

impl Default for Paces {
    fn default() -> Self {
        Self([Pace::default(); SITES])
    }
}

impl Paces {
    pub(super) fn suits(&self, site: Site) -> bool {
        let Pace { delay, length } = self.0[site.0];
        delay <= SLOW && length <= LARGE
    }

    pub(super) fn note(&mut self, site: Site, time: Time, length: Option<u64>) {
        let pace = &mut self.0[site.0];
        match time {
            Time::Delay(delay) if delay.as_secs_f32() >= LATE => pace.delay = SLOWEST,
            Time::Delay(delay) => {
                pace.delay += (delay.as_secs_f32().min(SLOWEST) - pace.delay) / RESPONSES;
            }
            Time::Alone(time) if time.as_secs_f32() <= SLOW => pace.delay *= FAST_ALONE,
            Time::Alone(_) => pace.delay *= SLOW_ALONE,
            Time::First => {}
        }
        let length = length.unwrap_or_default() as f32;
        // One large response excludes its site, since it has to be sent again.
        pace.length = if length > LARGE { length } else { pace.length + (length - pace.length) / RESPONSES };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(host: &str, path: &str) -> Site {
        Site::of(&Request::get(path).header(header::HOST, host).body(()).expect("a request"))
    }

    #[test]
    fn paths_with_the_same_first_segment_are_one_site() {
        let api = site("a.test", "/api/slow?x=/y");
        assert_eq!(api.0, site("a.test", "/api/fast").0);
        assert_eq!(site("a.test", "/a.css").0, site("a.test", "/b.css").0);
        let others = (0..100).filter(|number| site("a.test", &format!("/{number}/x")).0 == api.0);
        assert!(others.count() < 20);
    }

    #[test]
    fn slow_and_large_responses_do_not_suit_until_others_outweigh_them() {
        let site = site("a.test", "/");
        let [short, long, late] = [300, 20_000, 150_000].map(Duration::from_micros);
        let cases = [
            (Time::Delay(long), 11, 10, short, 0..30),
            (Time::Delay(late), 1, 10, short, 1..30),
            (Time::First, 1, 10 << 20, short, 30..200),
            // A server that is slow for all requests is tried again from time to time.
            (Time::Delay(late), 1, 10, long, 150..1000),
        ];
        for (time, times, length, alone, tries) in cases {
            let mut paces = Paces::default();
            for _ in 0..times {
                assert!(paces.suits(site));
                paces.note(site, time, Some(length));
            }
            assert!(!paces.suits(site));
            let needed = (0..1000).take_while(|_| {
                paces.note(site, Time::Alone(alone), Some(10));
                !paces.suits(site)
            });
            assert!(tries.contains(&needed.count()), "{time:?} {length} {alone:?}");
        }
    }
}
