//! [`Stored`], copies of the sockets for the descriptor store of the service manager (`FDSTORE`), from which the next process
//! gets them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use brisk_net::listener;
use brisk_supervisor::{Notifier, is_supervised};

use crate::ServerError;
use crate::sockets::Bound;

/// Copies of all sockets of a server in the order of binding, until the [`Notifier`] has passed them.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// [`Notifier::stores`].
    capacity: usize,
    sockets: Vec<StoredSocket>,
    /// Names of passed sockets that no listener has taken.
    removed: Vec<String>,
}

#[derive(Debug)]
struct StoredSocket {
    name: String,
    socket: OwnedFd,
    /// Of a listening socket; `None` for a datagram socket.
    backlog: Option<i32>,
}

/// The name of a socket in the store. A store may return its sockets in another order, and a changed configuration may have another
/// address for the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredName {
    /// [`Listen::name`](crate::Listen::name).
    pub(crate) listener: String,
    /// Place of the socket among those of the listener, in the order of binding.
    pub(crate) index: usize,
    /// The address in the configuration for which the socket was bound; `None` for a socket of an operator.
    pub(crate) configured: Option<SocketAddr>,
}

impl StoredName {
    /// The form for `LISTEN_FDNAMES`, whose separator is the colon: `https.0@127.0.0.1,443`.
    pub(crate) fn to_text(&self) -> String {
        let address =
            self.configured.map(|address| address.to_string().replace(':', ",")).unwrap_or_default();
        format!("{}.{}@{address}", self.listener, self.index)
    }

    /// Reads [`to_text`](Self::to_text). `None` for other names, such as those of an operator.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (place, address) = text.rsplit_once('@')?;
        let (listener, index) = place.rsplit_once('.')?;
        let configured = match address {
            "" => None,
            written => Some(written.replace(',', ":").parse().ok()?),
        };
        Some(Self { listener: listener.to_owned(), index: index.parse().ok()?, configured })
    }
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
            let wrong = |source| ServerError::Listen { address: bound.address, source };
            let (streams, datagrams) = bound.copies().map_err(wrong)?;
            let streams = streams.into_iter().map(|socket| (socket, bound.configured, Some(bound.backlog)));
            let datagrams = datagrams.into_iter().map(|socket| (socket, bound.datagrams_configured, None));
            for (index, (socket, configured, backlog)) in streams.chain(datagrams).enumerate() {
                let name = StoredName { listener: name.to_owned(), index, configured }.to_text();
                self.sockets.push(StoredSocket { name, socket, backlog });
            }
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
    pub(crate) fn pass_to(&self, manager: &Notifier) -> io::Result<()> {
        // First, since a name can be that of a socket which stays.
        self.removed.iter().try_for_each(|name| manager.remove(name))?;
        let wanted = self.sockets.len();
        if wanted > self.capacity {
            tracing::warn!("{}", without_room(wanted, self.capacity, is_supervised()));
            return Ok(());
        }
        self.sockets.iter().try_for_each(|stored| manager.store(&stored.name, stored.socket.as_fd()))
    }

    /// Puts all listening sockets into service: the predecessor may have paused those of a stuck worker since they were inherited.
    pub(crate) fn resume(&self) {
        for StoredSocket { name, socket, backlog } in &self.sockets {
            if let Some(Err(error)) = backlog.map(|backlog| listener::resume(socket, backlog)) {
                tracing::error!(name, %error, "cannot put a listener into service");
            }
        }
    }
}

/// Message about a store that is too small, with the correction.
fn without_room(wanted: usize, capacity: usize, is_supervised: bool) -> String {
    let correction = if is_supervised {
        "use fewer workers (server.workers) or listeners, or connections are lost during an upgrade"
            .to_owned()
    } else {
        format!("write FileDescriptorStoreMax={wanted} in the unit of systemd")
    };
    format!(
        "the sockets are not stored: there are {wanted}, and the store has room for {capacity}; {correction}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_without_room_is_named_with_the_correction_for_its_manager() {
        let message = |is_supervised| without_room(3000, 2048, is_supervised);
        assert!(message(false).ends_with("; write FileDescriptorStoreMax=3000 in the unit of systemd"));
        let supervised = message(true);
        assert!(
            supervised.contains("there are 3000, and the store has room for 2048; use fewer workers"),
            "{supervised}"
        );
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for (address, text) in [
            (Some("127.0.0.1:443"), "https.7@127.0.0.1,443"),
            (Some("[::1]:0"), "https.7@[,,1],0"),
            (None, "https.7@"),
        ] {
            let configured = address.map(|address| address.parse().expect("an address"));
            let name = StoredName { listener: "https".to_owned(), index: 7, configured };
            assert_eq!(name.to_text(), text);
            assert_eq!(StoredName::read(text), Some(name));
        }
        for other in ["https", "https.0", "https@", "https.a@", "https.0@a", "https.0@127.0.0.1"] {
            assert_eq!(StoredName::read(other), None, "{other}");
        }
    }
}
