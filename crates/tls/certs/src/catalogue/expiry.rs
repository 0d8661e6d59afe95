//! Expiry of all certificates of a [`Catalogue`], including those of names that no client requests.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::Catalogue;
use crate::chain::Chain;
use crate::error::CertError;

/// Names in a [`FolderExpiry`].
const LISTED: usize = 100;

/// Time between two readings of the folder: a renewed certificate is noticed after an hour.
const INTERVAL: Duration = Duration::from_hours(1);

/// Pause after each name. 100,000 names take two to three minutes, and 6 % of a core in that time.
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

/// The thread that reads all chains of all folders of a process, one after the other. Starts with the first folder, and
/// ends when this and all folders are dropped.
#[derive(Debug, Default)]
pub(super) struct Surveyor(Mutex<Option<Sender<Weak<Catalogue>>>>);

impl Surveyor {
    /// Reads the chains of `catalogue` now and then once an hour.
    pub(super) fn follow(&self, catalogue: &Arc<Catalogue>) -> io::Result<()> {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = match &mut *sender {
            Some(sender) => sender,
            none => {
                let (sender, started) = channel();
                let run = move || run(&started);
                thread::Builder::new().name("certificate-expiry".to_owned()).spawn(run)?;
                none.insert(sender)
            }
        };
        // Fails only if the thread has panicked.
        let _ = sender.send(Arc::downgrade(catalogue));
        Ok(())
    }
}

fn run(started: &Receiver<Weak<Catalogue>>) {
    let mut due: Vec<(Instant, Weak<Catalogue>)> = Vec::new();
    loop {
        due.retain(|(_, catalogue)| catalogue.strong_count() > 0);
        let next = due.iter().map(|(at, _)| at.saturating_duration_since(Instant::now())).min();
        match started.recv_timeout(next.unwrap_or(INTERVAL)) {
            Ok(catalogue) => due.push((Instant::now(), catalogue)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some((at, catalogue)) = due.iter_mut().min_by_key(|(at, _)| *at) else { continue };
        if *at > Instant::now() {
            continue;
        }
        // Upgraded after the survey, which does not keep the catalogue alive.
        if let Some(expiry) = survey(catalogue)
            && let Some(catalogue) = catalogue.upgrade()
        {
            catalogue.expiry.store(Arc::new(expiry));
        }
        *at = Instant::now() + INTERVAL;
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
        // Bounds the memory without sorting after each of perhaps 100,000 names.
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
        // Links are not followed: a link without a target is an unreadable chain and no removed name.
        let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
        let ends = chains
            .iter()
            .filter(|chain| is_there(chain))
            .map(|chain| Chain::read(chain).map(|chain| chain.not_after()));
        ends.reduce(|one, other| Ok(one?.min(other?)))
    }
}
