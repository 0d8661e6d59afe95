//! What the threads of a token have to do.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use brisk_keys::{Completion, OperationKind};

use crate::{
    connection::{Facts, OpenSession},
    key::TokenKey,
};

/// An operation that waits.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) key: Arc<TokenKey>,
    pub(crate) kind: OperationKind,
    pub(crate) completion: Completion,
    pub(crate) deadline: Instant,
    /// It was begun before, in a session that turned out to be of no use.
    pub(crate) again: bool,
}

/// A question about the token, asked in one of its sessions. Dropped unasked if the token cannot be reached.
pub(crate) struct Question(Box<Asked>);

type Asked = dyn FnOnce(&OpenSession, &Facts) + Send;

impl Question {
    pub(crate) fn new(ask: impl FnOnce(&OpenSession, &Facts) + Send + 'static) -> Self {
        Self(Box::new(ask))
    }

    pub(crate) fn ask(self, session: &OpenSession, facts: &Facts) {
        (self.0)(session, facts);
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Question")
    }
}

/// What a thread of the token does next.
#[derive(Debug)]
pub(crate) enum Task {
    /// Reach the token: open sessions as the connection of this number, after closing these.
    Connect {
        epoch: u64,
        stale: Vec<OpenSession>,
    },
    Perform(Job, OpenSession),
    Ask(Question, OpenSession, Facts),
    /// Close these sessions and end.
    Stop(Vec<OpenSession>),
}

/// The outcome of an attempt to reach the token, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has been reached for the first time.
    Found,
    /// It is back, after this time.
    Back(Duration),
    /// It cannot be reached any more.
    Lost,
    /// It still cannot be reached.
    None,
}
