//! Tasks of a token's threads.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use brisk_keys::{Completion, OperationKind};

use crate::{
    connection::{OpenSession, TokenProperties},
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

/// A query that runs in an [`OpenSession`]. Dropped without a call if the token is unreachable.
pub(crate) struct SessionQuery(Box<QueryFn>);

type QueryFn = dyn FnOnce(&OpenSession, &TokenProperties) + Send;

impl SessionQuery {
    pub(crate) fn new(ask: impl FnOnce(&OpenSession, &TokenProperties) + Send + 'static) -> Self {
        Self(Box::new(ask))
    }

    pub(crate) fn ask(self, session: &OpenSession, facts: &TokenProperties) {
        (self.0)(session, facts);
    }
}

impl fmt::Debug for SessionQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Question")
    }
}

/// The next task of a thread.
#[derive(Debug)]
pub(crate) enum WorkerTask {
    /// Connect as connection `epoch`, after closing the `stale` sessions.
    Connect {
        epoch: u64,
        stale: Vec<OpenSession>,
    },
    Perform(Job, OpenSession),
    Ask(SessionQuery, OpenSession, TokenProperties),
    /// Close these sessions and end.
    Stop(Vec<OpenSession>),
}

/// Change of the connection, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConnectionChange {
    /// Connected for the first time.
    Found,
    /// Reconnected after this time.
    Back(Duration),
    /// Lost.
    Lost,
    /// Still unreachable.
    None,
}
