//! [`Problems`] of the last [`MINUTES`] by cause, each with counts and the latest example.
//!
//! Clients cannot raise the memory above a bound: a number of causes per worker, texts of bounded length, and one
//! example a second.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::metrics::PerWorker;
use crate::named;

/// Number of minutes with separate counts; older counts are dropped.
pub const MINUTES: usize = 15;

/// Maximum number of [`Cause`]s per worker; the cause not seen for the longest time is dropped first.
const CAUSES: usize = 64;

/// The longest cause and the longest example, in bytes.
const LONGEST_CAUSE: usize = 400;
const LONGEST_EXAMPLE: usize = 400;

/// The least time between two examples of one cause.
const EXAMPLES: Duration = Duration::from_secs(1);

named! {
    /// Origin of a [`Problem`].
    Source {
        /// A handshake.
        Handshake = "handshake",
        /// A request with an error of the client.
        Client = "client",
        /// A request with an error of the upstream.
        Upstream = "upstream",
        /// A request with an internal error of brisk.
        Internal = "internal",
        /// A warning in the program's own log.
        Warning = "warning",
        /// An error in the program's own log.
        Error = "error",
    }
}

/// Problems of the last [`MINUTES`].
#[derive(Debug)]
pub struct Problems {
    started: Instant,
    shelves: PerWorker<Mutex<Vec<Cause>>>,
}

#[derive(Clone, Debug)]
struct Cause {
    source: Source,
    reason: Box<str>,
    /// The minute of the last count, from the start.
    minute: u64,
    /// Counts by minute modulo [`MINUTES`].
    counts: [u64; MINUTES],
    last: Instant,
    last_time: SystemTime,
    example: Box<str>,
}

/// One cause, with the number of its occurrences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Origin, which is a part of the cause: one `reason` of two origins makes two problems.
    pub source: Source,
    /// Cause in a few words. A cause from the log may contain text sent by clients.
    pub reason: Box<str>,
    /// Counts for each of the last [`MINUTES`], the current one last.
    pub counts: [u64; MINUTES],
    /// Time of the last occurrence.
    pub last: SystemTime,
    /// One of the latest occurrences. May contain text sent by clients.
    pub example: Box<str>,
}

impl Default for Problems {
    fn default() -> Self {
        Self { started: Instant::now(), shelves: PerWorker::new(Mutex::default) }
    }
}

impl Problem {
    /// Number of occurrences in all [`MINUTES`].
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Problems {
    /// Counts a problem. `example` is called at most once a second for one cause. Takes a lock that is free unless the
    /// problems are read now.
    pub fn note(&self, source: Source, reason: &str, example: impl FnOnce() -> String) {
        self.note_at(Instant::now(), source, reason, example);
    }

    fn note_at(&self, now: Instant, source: Source, reason: &str, example: impl FnOnce() -> String) {
        // Warnings of the log may contain text of clients: without these bounds, a
        // client could fill the memory.
        let reason = shortened(reason, LONGEST_CAUSE);
        // Before the lock, so that a minute may arrive late; `advance` then counts for the latest one.
        let minute = self.minute(now);
        let mut shelf = self.shelves.mine().lock().unwrap_or_else(PoisonError::into_inner);
        let place = shelf.iter().position(|cause| cause.source == source && *cause.reason == *reason);
        if let Some(cause) = place.and_then(|place| shelf.get_mut(place)) {
            cause.count(minute);
            // Formatting an example allocates, so frequent causes do it at most once per interval.
            if now.saturating_duration_since(cause.last) >= EXAMPLES {
                (cause.last, cause.last_time) = (now, SystemTime::now());
                cause.example = shortened(&example(), LONGEST_EXAMPLE).into();
            }
            return;
        }
        if shelf.len() == CAUSES
            && let Some(oldest) = (0..CAUSES).min_by_key(|place| shelf[*place].last)
        {
            shelf.swap_remove(oldest);
        }
        let mut cause = Cause {
            source,
            reason: reason.into(),
            minute,
            counts: [0; MINUTES],
            last: now,
            last_time: SystemTime::now(),
            example: shortened(&example(), LONGEST_EXAMPLE).into(),
        };
        cause.count(minute);
        shelf.push(cause);
    }

    /// Problems of all workers, the most frequent first.
    pub fn latest(&self) -> Vec<Problem> {
        self.latest_at(Instant::now())
    }

    fn latest_at(&self, now: Instant) -> Vec<Problem> {
        let minute = self.minute(now);
        let mut all: HashMap<(Source, Box<str>), Problem> = HashMap::new();
        for shelf in self.shelves.all() {
            // Copied, so that a worker waits for a copy only and not for the merge of all shelves.
            let causes = shelf.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for mut cause in causes {
                cause.advance(minute);
                let problem = cause.problem();
                all.entry((cause.source, cause.reason))
                    .and_modify(|sum| sum.add(&problem))
                    .or_insert(problem);
            }
        }
        let mut all: Vec<_> = all.into_values().filter(|problem| problem.total() > 0).collect();
        all.sort_by(|a, b| b.total().cmp(&a.total()).then_with(|| a.reason.cmp(&b.reason)));
        all
    }

    fn minute(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_secs() / 60
    }
}

impl Cause {
    fn count(&mut self, minute: u64) {
        self.advance(minute);
        self.counts[(self.minute % MINUTES as u64) as usize] += 1;
    }

    /// Drops `counts` that are older than [`MINUTES`] at `minute`.
    fn advance(&mut self, minute: u64) {
        let passed = minute.saturating_sub(self.minute).min(MINUTES as u64);
        for later in 1..=passed {
            self.counts[((self.minute + later) % MINUTES as u64) as usize] = 0;
        }
        if passed == MINUTES as u64 {
            self.counts = [0; MINUTES];
        }
        // Never back: the order of `counts` is that of the latest minute.
        self.minute = self.minute.max(minute);
    }

    fn problem(&self) -> Problem {
        let counts = std::array::from_fn(|place| {
            let place = self.minute + 1 + place as u64;
            self.counts[(place % MINUTES as u64) as usize]
        });
        let (last, example) = (self.last_time, self.example.clone());
        Problem { source: self.source, reason: self.reason.clone(), counts, last, example }
    }
}

impl Problem {
    fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        if other.last > self.last {
            self.last = other.last;
            self.example.clone_from(&other.example);
        }
    }
}

fn shortened(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn causes_are_counted_by_minute_and_forgotten_after_the_last() {
        let problems = Problems::default();
        let start = problems.started;
        for minute in [0, 0, 2] {
            problems.note_at(start + minute * MINUTE, Source::Upstream, "upstream-timeout", String::new);
        }
        problems.note_at(start + 2 * MINUTE, Source::Client, "client-gone", String::new);
        let seen = problems.latest_at(start + 3 * MINUTE);
        let counts: Vec<_> = seen.iter().map(|problem| (&*problem.reason, problem.total())).collect();
        assert_eq!(counts, [("upstream-timeout", 3), ("client-gone", 1)]);
        assert_eq!(seen[0].counts[MINUTES - 4..], [2, 0, 1, 0]);
        let later = problems.latest_at(start + 15 * MINUTE);
        assert_eq!(later.iter().map(Problem::total).collect::<Vec<_>>(), [1, 1]);
        assert!(problems.latest_at(start + 17 * MINUTE).is_empty());
        assert!(problems.latest_at(start + 1000 * MINUTE).is_empty());
    }

    #[test]
    fn one_example_a_second_is_made_and_texts_are_cut() {
        let problems = Problems::default();
        let start = problems.started;
        let example = "\u{e9}".repeat(LONGEST_EXAMPLE);
        problems.note_at(start, Source::Error, &example, || example.clone());
        problems.note_at(start, Source::Error, &example, || panic!("too early for another one"));
        problems.note_at(start + EXAMPLES, Source::Error, &example, || "the next".to_owned());
        let seen = problems.latest_at(start);
        assert_eq!((seen.len(), seen[0].total()), (1, 3));
        assert!(seen[0].reason.len() <= LONGEST_CAUSE);
        assert_eq!(&*seen[0].example, "the next");
    }

    #[test]
    fn the_number_of_causes_is_bounded_and_the_oldest_gives_way() {
        let problems = Problems::default();
        for number in 0..10 * CAUSES as u32 {
            let now = problems.started + number * Duration::from_millis(1);
            problems.note_at(now, Source::Warning, &number.to_string(), String::new);
        }
        let seen = problems.latest();
        assert_eq!(seen.len(), CAUSES);
        assert!(seen.iter().any(|problem| *problem.reason == *(10 * CAUSES - 1).to_string()));
    }

    #[test]
    fn what_several_threads_met_adds_up() {
        let problems = Problems::default();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                scope.spawn(|| problems.note(Source::Handshake, "not-tls", || "192.0.2.1".to_owned()));
            });
        }
        let seen = problems.latest();
        assert_eq!((seen.len(), seen[0].total(), &*seen[0].example), (1, 3, "192.0.2.1"));
    }
}
