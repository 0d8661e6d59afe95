//! Sessions of one thread for one kind of handshake.

use std::cell::RefCell;
use std::collections::VecDeque;

use brisk_tls_client::SavedSession;

/// A bounded queue of sessions, the oldest first.
#[derive(Debug)]
pub(crate) struct Sessions {
    kept: RefCell<VecDeque<SavedSession>>,
    most: usize,
}

impl Sessions {
    /// A queue for `most` sessions; further ones replace the oldest.
    pub(crate) fn new(most: usize) -> Self {
        Self { kept: RefCell::default(), most }
    }

    /// Number of sessions.
    pub(crate) fn len(&self) -> usize {
        self.kept.borrow().len()
    }

    /// Whether the queue is full.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.most
    }

    /// Maximum number of sessions.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The oldest session; `None` for an empty queue. One that may be resumed again returns to the end of the queue, so that
    /// all are used equally.
    pub(crate) fn take(&self) -> Option<SavedSession> {
        let mut kept = self.kept.borrow_mut();
        let session = kept.pop_front()?;
        kept.extend(session.try_clone());
        Some(session)
    }

    /// Adds sessions from a server.
    pub(crate) fn put(&self, sessions: impl IntoIterator<Item = SavedSession>) {
        let mut kept = self.kept.borrow_mut();
        for session in sessions {
            if kept.len() == self.most {
                kept.pop_front();
            }
            kept.push_back(session);
        }
    }

    /// Removes all sessions: the server did not know one, and the others are probably as old.
    pub(crate) fn clear(&self) {
        self.kept.borrow_mut().clear();
    }
}
