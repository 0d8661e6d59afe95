//! The drivers of a [`Group`] of sockets, which pass one another the datagrams that reached the wrong socket.
//!
//! The kernel distributes datagrams by connection ID, so this is rare: before the program of the group is attached, and where
//! the system refuses it.

use std::sync::{Arc, Mutex, PoisonError};

use brisk_quic_socket::Datagram;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Datagrams that wait for one [`Driver`](crate::Driver); further ones are dropped, as by a full socket.
const QUEUE: usize = 256;

/// The queues between the drivers of a group, of 256 datagrams each. Clones share them.
#[derive(Clone, Debug)]
pub struct Group {
    queues: Arc<Queues>,
    half: Option<bool>,
}

#[derive(Debug)]
struct Queues {
    senders: Vec<Sender<Datagram>>,
    receivers: Mutex<Vec<Option<Receiver<Datagram>>>>,
}

impl Group {
    /// Queues for a group of `count` sockets. `half` is the half of the sockets of this process, if a successor may use the
    /// other one (`brisk_net::datagram::Halves`).
    pub fn new(count: usize, half: Option<bool>) -> Self {
        let (senders, receivers) = (0..count).map(|_| mpsc::channel(QUEUE)).unzip();
        let receivers: Vec<Receiver<Datagram>> = receivers;
        let receivers = Mutex::new(receivers.into_iter().map(Some).collect());
        Self { queues: Arc::new(Queues { senders, receivers }), half }
    }

    /// Number of sockets: the `count` of [`Self::new`].
    pub(crate) fn len(&self) -> usize {
        self.queues.senders.len()
    }

    /// Whether the sockets are the second half, which makes the `generation` of [`Place`](crate::ids::Place) true.
    pub(crate) fn is_second(&self) -> bool {
        self.half == Some(true)
    }

    /// Whether a successor of this process can receive packets of the same clients.
    pub(crate) fn has_successor(&self) -> bool {
        self.half.is_some()
    }

    /// The queue of one driver. `None` if it was taken before, or if `index` is not below [`Self::len`].
    pub(crate) fn take(&self, index: usize) -> Option<Receiver<Datagram>> {
        let mut receivers = self.queues.receivers.lock().unwrap_or_else(PoisonError::into_inner);
        receivers.get_mut(index)?.take()
    }

    /// Passes a [`Datagram`] to the driver of another socket.
    pub(crate) fn pass(&self, index: usize, datagram: Datagram) {
        if let Some(sender) = self.queues.senders.get(index) {
            // A full queue drops the datagram, whose sender repeats it.
            let _ = sender.try_send(datagram);
        }
    }
}
