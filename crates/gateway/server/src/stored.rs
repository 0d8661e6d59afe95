//! [`Stored`], copies of the sockets for the descriptor store of the service manager (`FDSTORE`), from which the next process
//! gets them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use brisk_supervisor::Notifier;

use crate::ServerError;
use crate::sockets::Bound;

/// Copies of all sockets of a server in the order of binding, by [`Listen::name`](crate::Listen::name), until the [`Notifier`] has
/// passed them.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// [`Notifier::stores`].
    capacity: usize,
    sockets: Vec<(&'static str, Vec<OwnedFd>)>,
    /// Names of passed sockets that no listener has taken.
    removed: Vec<String>,
}

impl Stored {
    /// For a store of `capacity` descriptors.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Adds [`Bound::copies`] of a listener, if there is a store.
    pub(crate) fn add<L>(&mut self, name: &'static str, bound: &Bound<L>) -> Result<(), ServerError> {
        if self.capacity > 0 {
            // Copies, because the workers get the sockets before all other preparations are complete.
            let copies = bound.copies();
            let copies = copies.map_err(|source| ServerError::Listen { address: bound.address, source })?;
            self.sockets.push((name, copies));
        }
        Ok(())
    }

    /// Removes (`FDSTOREREMOVE`) a passed socket that no listener has taken: the store would keep its port open.
    pub(crate) fn remove(&mut self, name: &str) {
        if self.capacity > 0 && !name.is_empty() {
            self.removed.push(name.to_owned());
        }
    }

    /// Passes the sockets to the store. If there is not enough room for all of them, none is stored, with a warning.
    pub(crate) fn pass_to(self, manager: &Notifier) -> io::Result<()> {
        // First, since a name can be that of a socket which stays.
        self.removed.iter().try_for_each(|name| manager.remove(name))?;
        let wanted: usize = self.sockets.iter().map(|(_, sockets)| sockets.len()).sum();
        if wanted > self.capacity {
            tracing::warn!(
                "the sockets are not stored: there are {wanted}, and the store has room for {}; write \
                 FileDescriptorStoreMax={wanted} in the unit of systemd",
                self.capacity
            );
            return Ok(());
        }
        for (name, sockets) in &self.sockets {
            sockets.iter().try_for_each(|socket| manager.store(name, socket.as_fd()))?;
        }
        Ok(())
    }
}
