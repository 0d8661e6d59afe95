//! Names of pages: hosts with paths, limited in number although clients choose the paths.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of names per kind.
pub(crate) const MOST: u16 = 8_192;

/// A host with `n` pages gets another one while more than `ROOM * n` are free. So one host has at most 482 pages, and
/// twenty hosts that take all they can leave a hundred and more to the next one.
const ROOM: usize = 16;

/// The known pages by host.
#[derive(Debug, Default)]
pub(crate) struct Pages(Mutex<HashMap<Box<str>, HashSet<Arc<str>>>>);

impl Pages {
    /// The name of the page at `path` of `host`. `None` if the page is unknown and either the host has its share ([`ROOM`]) or
    /// `may_add` forbids another name.
    pub(crate) fn name(&self, host: &str, path: &str, may_add: impl FnOnce() -> bool) -> Option<Arc<str>> {
        let name = [host, path].concat();
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = hosts.get(host).and_then(|pages| pages.get(name.as_str())) {
            return Some(Arc::clone(known));
        }
        let free = usize::from(MOST).saturating_sub(hosts.values().map(HashSet::len).sum());
        // `may_add` is called last: it takes a permit of the client, which a full host must not cost.
        if hosts.get(host).map_or(0, HashSet::len) * ROOM >= free || !may_add() {
            return None;
        }
        let name: Arc<str> = name.into();
        hosts.entry(host.into()).or_default().insert(Arc::clone(&name));
        Some(name)
    }

    /// Replaces all pages with those of the database.
    pub(crate) fn replace(&self, names: Vec<String>) {
        let mut hosts = HashMap::<Box<str>, HashSet<Arc<str>>>::new();
        for name in names {
            // A host has no slash, and each path begins with one.
            let host = name.split('/').next().unwrap_or_default();
            hosts.entry(host.into()).or_default().insert(name.into());
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = hosts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_share_the_table() {
        let pages = Pages::default();
        let added = |host: &str| {
            (0..20_000).filter(|number| pages.name(host, &format!("/{number}"), || true).is_some()).count()
        };
        let first = added("a.test");
        assert_eq!(first, usize::from(MOST) / (ROOM + 1) + 1);
        let others: Vec<_> = (0..20).map(|number| added(&format!("{number}.test"))).collect();
        assert!(others.iter().all(|count| *count >= 100), "{others:?}");
        assert!(first + others.iter().sum::<usize>() < usize::from(MOST));
        assert_eq!(pages.name("a.test", "/1", || false).as_deref(), Some("a.test/1"), "it is known");
        assert_eq!(pages.name("new.test", "/1", || false), None);
    }

    #[test]
    fn pages_of_the_database_are_known() {
        let pages = Pages::default();
        assert!(pages.name("a.test", "/old", || true).is_some());
        pages.replace(vec!["a.test/x/*".to_owned(), "b.test/".to_owned()]);
        assert_eq!(pages.name("a.test", "/x/*", || false).as_deref(), Some("a.test/x/*"));
        assert!(pages.name("b.test", "/", || false).is_some());
        assert_eq!(pages.name("a.test", "/old", || false), None);
    }
}
