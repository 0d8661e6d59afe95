//! What is known of names that are not in memory: those that are being decided, with who waits, and those that are refused.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use brisk_certs::Served;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Names that are refused at most; of those beyond, the ones that end first are forgotten.
const REFUSED: usize = 10_000;

/// Names that are being decided at a time.
const BUSY: usize = 256;

/// Names that have certificates in the store, which are loaded, beside those.
const LOADED: usize = 1024;

/// Handshakes that wait for one name.
const WAITING: usize = 1000;

/// Where an answer goes.
pub(super) type Waiter = oneshot::Sender<Arc<Vec<Served>>>;

/// What becomes of a handshake that asks for a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing is known of the name.
    New,
    /// It waits with others, or was refused.
    Done,
}

/// The names.
#[derive(Debug, Default)]
pub(super) struct Table {
    busy: HashMap<String, Vec<Waiter>>,
    refused: HashMap<String, Instant>,
}

impl Table {
    /// Joins `waiter` to the others of `name`, or drops it where the name is refused. It is left in its place where neither is so.
    pub(super) fn join(&mut self, name: &str, waiter: &mut Option<Waiter>, now: Instant) -> Next {
        if let Some(waiters) = self.busy.get_mut(name) {
            // Those that have given up first.
            if waiters.len() >= WAITING {
                waiters.retain(|waiter| !waiter.is_closed());
            }
            if waiters.len() < WAITING {
                waiters.extend(waiter.take());
            }
            return Next::Done;
        }
        match self.refused.get(name) {
            Some(until) if *until > now => Next::Done,
            _ => Next::New,
        }
    }

    /// Notes that `name` is being decided. `false`: too many are. What strangers ask for takes no place of names that are kept.
    pub(super) fn begin(&mut self, name: &str, waiter: Option<Waiter>, is_kept: bool) -> bool {
        let most = if is_kept { BUSY + LOADED } else { BUSY };
        if self.busy.len() >= most {
            return false;
        }
        self.refused.remove(name);
        self.busy.insert(name.to_owned(), waiter.into_iter().collect());
        true
    }

    /// Answers all who wait for `name`.
    pub(super) fn answer(&mut self, name: &str, served: &Arc<Vec<Served>>) {
        for waiter in self.busy.remove(name).unwrap_or_default() {
            // One that is gone waits no more.
            let _ = waiter.send(Arc::clone(served));
        }
    }

    /// Refuses all who wait for `name`, and those who ask for it within `pause`.
    pub(super) fn refuse(&mut self, name: &str, pause: Duration, now: Instant) {
        self.busy.remove(name);
        if self.refused.len() >= REFUSED {
            self.forget(now);
        }
        self.refused.insert(name.to_owned(), now + pause);
    }

    /// Forgets what is over; half of the rest, if that is nearly everything.
    fn forget(&mut self, now: Instant) {
        self.refused.retain(|_, until| *until > now);
        if self.refused.len() > REFUSED * 3 / 4 {
            let mut ends: Vec<_> = self.refused.values().copied().collect();
            let half = ends.len() / 2;
            let (_, &mut limit, _) = ends.select_nth_unstable(half);
            self.refused.retain(|_, until| *until > limit);
        }
    }

    /// Whether `name` is being decided.
    pub(super) fn is_busy(&self, name: &str) -> bool {
        self.busy.contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(table: &mut Table, name: &str, now: Instant) -> Next {
        table.join(name, &mut Some(oneshot::channel().0), now)
    }

    #[test]
    fn a_name_is_decided_once_and_refused_for_a_while() {
        let (mut table, now) = (Table::default(), Instant::now());
        assert_eq!(join(&mut table, "a.test", now), Next::New);
        assert!(table.begin("a.test", None, false));
        assert!(table.is_busy("a.test"));
        assert_eq!(join(&mut table, "a.test", now), Next::Done);
        table.refuse("a.test", Duration::from_secs(10), now);
        assert_eq!(join(&mut table, "a.test", now), Next::Done);
        assert_eq!(join(&mut table, "a.test", now + Duration::from_secs(10)), Next::New);
        assert!(!table.is_busy("a.test"));
    }

    #[test]
    fn what_strangers_invent_takes_no_more_memory_than_it_may() {
        let (mut table, now) = (Table::default(), Instant::now());
        for number in 0..REFUSED * 3 {
            table.refuse(&format!("{number}.test"), Duration::from_mins(5), now);
        }
        assert!(table.refused.len() <= REFUSED);
        let begun =
            (0..BUSY * 2).filter(|number| table.begin(&format!("{number}.test"), None, false)).count();
        assert_eq!(begun, BUSY);
        let kept = (0..LOADED * 2).filter(|number| table.begin(&format!("{number}.kept.test"), None, true));
        assert_eq!(kept.count(), LOADED);
        let (mut all, name) = (Vec::new(), "0.test");
        for _ in 0..WAITING * 2 {
            let (waiter, waits) = oneshot::channel();
            table.join(name, &mut Some(waiter), now);
            all.push(waits);
        }
        assert_eq!(table.busy[name].len(), WAITING);
        // Those who have given up make place.
        drop(all);
        join(&mut table, name, now);
        assert_eq!(table.busy[name].len(), 1);
    }
}
