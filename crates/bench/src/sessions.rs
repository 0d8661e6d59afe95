//! Sessions to resume: those of one thread, for one kind of handshake.

use std::cell::RefCell;
use std::collections::VecDeque;

use brisk_tls_client::SavedSession;

/// Sessions kept, the oldest first.
#[derive(Debug)]
pub(crate) struct Sessions {
    kept: RefCell<VecDeque<SavedSession>>,
    most: usize,
}

impl Sessions {
    /// Room for `most`; further ones push out the oldest.
    pub(crate) fn new(most: usize) -> Self {
        Self { kept: RefCell::default(), most }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.kept.borrow().len()
    }

    /// Whether there is no room for more.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.most
    }

    /// How many there is room for.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The oldest session. One that may be resumed again goes to the end of the queue, so that all are used alike.
    pub(crate) fn take(&self) -> Option<SavedSession> {
        let mut kept = self.kept.borrow_mut();
        let session = kept.pop_front()?;
        kept.extend(session.try_clone());
        Some(session)
    }

    /// Keeps what a server gave.
    pub(crate) fn put(&self, sessions: impl IntoIterator<Item = SavedSession>) {
        let mut kept = self.kept.borrow_mut();
        for session in sessions {
            if kept.len() == self.most {
                kept.pop_front();
            }
            kept.push_back(session);
        }
    }

    /// Forgets all of them: the server did not know one, so the others are likely to be as old.
    pub(crate) fn clear(&self) {
        self.kept.borrow_mut().clear();
    }
}
