//! On-demand names that are not in memory: pending names with their waiting handshakes, and refused names.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use brisk_certs::Served;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Maximum number of refused names; the half that would end first is removed beyond it.
const REFUSED: usize = 10_000;

/// Maximum number of pending names that have no stored certificate.
const BUSY: usize = 256;

/// Additional pending names that have a stored certificate.
const LOADED: usize = 1024;

/// Maximum number of handshakes that wait for one name; further ones fail at once.
const WAITING: usize = 1000;

/// Channel to a waiting handshake. Dropping it refuses the handshake.
pub(super) type Waiter = oneshot::Sender<Arc<Vec<Served>>>;

/// Result of looking up an on-demand name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NameLookup {
    /// The name is neither pending nor refused.
    Unknown,
    /// The handshake waits for the pending decision, or was refused.
    Handled,
}

/// Pending and refused names of one host.
#[derive(Debug, Default)]
pub(super) struct Table {
    busy: HashMap<String, Vec<Waiter>>,
    refused: HashMap<String, Instant>,
}

impl Table {
    /// Adds `waiter` to a pending name, or drops it if the name is refused. In the case of [`NameLookup::Unknown`],
    /// `waiter` keeps its value.
    pub(super) fn join(&mut self, name: &str, waiter: &mut Option<Waiter>, now: Instant) -> NameLookup {
        if let Some(waiters) = self.busy.get_mut(name) {
            // Slots of handshakes that timed out are reused first.
            if waiters.len() >= WAITING {
                waiters.retain(|waiter| !waiter.is_closed());
            }
            if waiters.len() < WAITING {
                waiters.extend(waiter.take());
            }
            return NameLookup::Handled;
        }
        match self.refused.get(name) {
            Some(until) if *until > now => NameLookup::Handled,
            _ => NameLookup::Unknown,
        }
    }

    /// Marks `name` as pending. Returns `false` if too many names are pending; names without a stored certificate
    /// cannot use the slots of names with one.
    pub(super) fn begin(&mut self, name: &str, waiter: Option<Waiter>, is_kept: bool) -> bool {
        let most = if is_kept { BUSY + LOADED } else { BUSY };
        if self.busy.len() >= most {
            return false;
        }
        self.refused.remove(name);
        self.busy.insert(name.to_owned(), waiter.into_iter().collect());
        true
    }

    /// Sends `served` to all handshakes that wait for `name`.
    pub(super) fn answer(&mut self, name: &str, served: &Arc<Vec<Served>>) {
        for waiter in self.busy.remove(name).unwrap_or_default() {
            // An error means that the handshake has ended.
            let _ = waiter.send(Arc::clone(served));
        }
    }

    /// Refuses the handshakes that wait for `name`, and all that arrive within `pause`.
    pub(super) fn refuse(&mut self, name: &str, pause: Duration, now: Instant) {
        self.busy.remove(name);
        if self.refused.len() >= REFUSED {
            self.forget(now);
        }
        self.refused.insert(name.to_owned(), now + pause);
    }

    /// Removes expired refusals; if more than three quarters remain, the half that ends first too.
    fn forget(&mut self, now: Instant) {
        self.refused.retain(|_, until| *until > now);
        if self.refused.len() > REFUSED * 3 / 4 {
            let mut ends: Vec<_> = self.refused.values().copied().collect();
            let half = ends.len() / 2;
            let (_, &mut limit, _) = ends.select_nth_unstable(half);
            self.refused.retain(|_, until| *until > limit);
        }
    }

    /// Returns whether `name` is pending.
    pub(super) fn is_busy(&self, name: &str) -> bool {
        self.busy.contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(table: &mut Table, name: &str, now: Instant) -> NameLookup {
        table.join(name, &mut Some(oneshot::channel().0), now)
    }

    #[test]
    fn a_name_is_decided_once_and_refused_for_a_while() {
        let (mut table, now) = (Table::default(), Instant::now());
        assert_eq!(join(&mut table, "a.test", now), NameLookup::Unknown);
        assert!(table.begin("a.test", None, false));
        assert!(table.is_busy("a.test"));
        assert_eq!(join(&mut table, "a.test", now), NameLookup::Handled);
        table.refuse("a.test", Duration::from_secs(10), now);
        assert_eq!(join(&mut table, "a.test", now), NameLookup::Handled);
        assert_eq!(join(&mut table, "a.test", now + Duration::from_secs(10)), NameLookup::Unknown);
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
        // Handshakes that timed out free their slots.
        drop(all);
        join(&mut table, name, now);
        assert_eq!(table.busy[name].len(), 1);
    }
}
