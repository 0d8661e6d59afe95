//! The drivers of a group of sockets, which pass one another the datagrams that reached the wrong socket.
//!
//! The kernel distributes datagrams by connection ID, so this is rare: before the program of the group is attached, and where
//! the system refuses it.

use std::sync::{Arc, Mutex, PoisonError};

use brisk_quic_socket::Datagram;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Datagrams that wait for one driver; further ones are dropped, as by a full socket.
const QUEUE: usize = 256;

/// The queues between the drivers of a group. Clones share them.
#[derive(Clone, Debug)]
pub struct Group(Arc<Queues>);

#[derive(Debug)]
struct Queues {
    senders: Vec<Sender<Datagram>>,
    receivers: Mutex<Vec<Option<Receiver<Datagram>>>>,
}

impl Group {
    /// Queues for a group of `count` sockets.
    pub fn new(count: usize) -> Self {
        let (senders, receivers) = (0..count).map(|_| mpsc::channel(QUEUE)).unzip();
        let receivers: Vec<Receiver<Datagram>> = receivers;
        Self(Arc::new(Queues { senders, receivers: Mutex::new(receivers.into_iter().map(Some).collect()) }))
    }

    /// Number of sockets.
    pub(crate) fn len(&self) -> usize {
        self.0.senders.len()
    }

    /// The queue of one driver, once.
    pub(crate) fn take(&self, index: usize) -> Option<Receiver<Datagram>> {
        let mut receivers = self.0.receivers.lock().unwrap_or_else(PoisonError::into_inner);
        receivers.get_mut(index)?.take()
    }

    /// Passes a datagram to the driver of another socket.
    pub(crate) fn pass(&self, index: usize, datagram: Datagram) {
        if let Some(sender) = self.0.senders.get(index) {
            // A full queue drops the datagram, whose sender repeats it.
            let _ = sender.try_send(datagram);
        }
    }
}
