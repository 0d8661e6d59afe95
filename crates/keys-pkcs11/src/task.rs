//! Tasks of a token's threads.

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

/// A queued operation.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) key: Arc<TokenKey>,
    pub(crate) kind: OperationKind,
    pub(crate) completion: Completion,
    pub(crate) deadline: Instant,
    /// The operation failed once in an unusable session.
    pub(crate) again: bool,
}

/// A query that runs in a session. Dropped without a call if the token is unreachable.
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

/// The next task of a thread.
#[derive(Debug)]
pub(crate) enum Task {
    /// Connect as connection `epoch`, after closing the `stale` sessions.
    Connect {
        epoch: u64,
        stale: Vec<OpenSession>,
    },
    Perform(Job, OpenSession),
    Ask(Question, OpenSession, Facts),
    /// Close these sessions and end.
    Stop(Vec<OpenSession>),
}

/// Change of the connection, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Connected for the first time.
    Found,
    /// Reconnected after this time.
    Back(Duration),
    /// Lost.
    Lost,
    /// Still unreachable.
    None,
}
