//! Expiry of all certificates of a [`Catalogue`], including those of names that no client requests.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, SystemTime};

use super::Catalogue;
use crate::chain::Chain;
use crate::error::CertError;

/// Names in a [`FolderExpiry`].
const LISTED: usize = 100;

/// Time between two readings of the folder: a renewed certificate is noticed after an hour.
const INTERVAL: Duration = Duration::from_hours(1);

/// Pause after each name. 100,000 names take two minutes, and a small part of a core.
const PAUSE: Duration = Duration::from_millis(1);

/// The certificates of a folder that expire first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderExpiry {
    /// Time at which all files were read; `None` until then.
    pub read_at: Option<SystemTime>,
    /// Names and the ends of their validity, at most 100, the first to expire first.
    pub first: Vec<(SystemTime, String)>,
    /// Names without a readable chain.
    pub unreadable: usize,
}

/// The thread that reads all chains; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Survey {
    _end: SyncSender<()>,
}

impl Survey {
    pub(super) fn start(catalogue: &Arc<Catalogue>) -> io::Result<Self> {
        let (end, ended) = sync_channel(0);
        let catalogue = Arc::downgrade(catalogue);
        thread::Builder::new()
            .name("certificate-expiry".to_owned())
            .spawn(move || run(&catalogue, &ended))?;
        Ok(Self { _end: end })
    }
}

fn run(catalogue: &Weak<Catalogue>, ended: &Receiver<()>) {
    while let Some(expiry) = survey(catalogue) {
        let Some(catalogue) = catalogue.upgrade() else { return };
        catalogue.expiry.store(Arc::new(expiry));
        drop(catalogue);
        if ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

/// Reads the chains of all names; `None` if the catalogue was dropped.
fn survey(catalogue: &Weak<Catalogue>) -> Option<FolderExpiry> {
    let names: Vec<_> = catalogue.upgrade()?.index.names().flatten().collect();
    let mut expiry = FolderExpiry::default();
    for name in names {
        // Upgraded for each name, so that the catalogue can be dropped meanwhile.
        match catalogue.upgrade()?.not_after(&name) {
            Some(Ok(not_after)) => expiry.first.push((not_after, name.into())),
            Some(Err(_)) => expiry.unreadable += 1,
            None => {}
        }
        if expiry.first.len() >= 2 * LISTED {
            expiry.shorten();
        }
        thread::sleep(PAUSE);
    }
    expiry.shorten();
    expiry.read_at = Some(SystemTime::now());
    Some(expiry)
}

impl FolderExpiry {
    fn shorten(&mut self) {
        self.first.sort();
        self.first.truncate(LISTED);
    }
}

impl Catalogue {
    /// The certificates that expire first, as of the last hour.
    pub fn expiry(&self) -> Arc<FolderExpiry> {
        self.expiry.load_full()
    }

    /// End of the validity of the certificates of `name`, the earlier one of two; `None` if it was removed.
    fn not_after(&self, name: &str) -> Option<Result<SystemTime, CertError>> {
        let chains = self.files(name).map(|(chain, _)| chain);
        let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
        let ends = chains
            .iter()
            .filter(|chain| is_there(chain))
            .map(|chain| Chain::read(chain).map(|chain| chain.not_after()));
        ends.reduce(|one, other| Ok(one?.min(other?)))
    }
}
