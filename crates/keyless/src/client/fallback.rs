//! An engine that asks another when the first has no result.

use std::sync::Arc;

use brisk_keys::{KeyOperation, PendingOperation, PrivateKeyEngine};

use super::RemoteEngine;

/// Key servers, and an engine with the same keys in this process for when none of them answers.
#[derive(Debug)]
pub struct Fallback {
    remote: Arc<RemoteEngine>,
    local: Arc<dyn PrivateKeyEngine>,
}

impl Fallback {
    /// Asks `remote`, and `local` when no server can be reached or none has a result.
    pub fn new(remote: Arc<RemoteEngine>, local: Arc<dyn PrivateKeyEngine>) -> Self {
        Self { remote, local }
    }
}

impl PrivateKeyEngine for Fallback {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        if self.remote.trouble().is_some() {
            return self.local.submit(operation);
        }
        let remote = self.remote.submit(operation.clone());
        let local = Arc::clone(&self.local);
        PendingOperation::from_future(async move {
            match remote.await {
                Ok(result) => Ok(result),
                Err(_) => local.submit(operation).await,
            }
        })
    }
}
