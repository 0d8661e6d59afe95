//! An engine with a local substitute.

use std::sync::Arc;

use brisk_keys::{KeyOperation, PendingOperation, PrivateKeyEngine};

use super::RemoteEngine;

/// Key servers, with a [`PrivateKeyEngine`] in this process that has the same keys and replaces them when none responds.
#[derive(Debug)]
pub struct Fallback {
    remote: Arc<RemoteEngine>,
    local: Arc<dyn PrivateKeyEngine>,
}

impl Fallback {
    /// An engine that uses `remote`, and `local` if no server is reachable or the operation fails there.
    pub fn new(remote: Arc<RemoteEngine>, local: Arc<dyn PrivateKeyEngine>) -> Self {
        Self { remote, local }
    }
}

impl PrivateKeyEngine for Fallback {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        // Without any connection, each handshake would first wait for the deadline of the servers.
        if self.remote.trouble().is_some() {
            return self.local.submit(operation);
        }
        let remote = self.remote.submit(operation.clone());
        let local = Arc::clone(&self.local);
        PendingOperation::from_future(async move {
            match remote.await {
                Ok(result) => Ok(result),
                // After any error, including a refusal: the key in this process is subject to no policy of
                // a server.
                Err(_) => local.submit(operation).await,
            }
        })
    }

    /// The servers, and the key in this process after them.
    fn holders(&self) -> Vec<String> {
        self.remote.holders().into_iter().chain(["fallback_key".to_owned()]).collect()
    }

    fn submit_to(&self, holder: usize, operation: KeyOperation) -> PendingOperation {
        if holder < self.remote.settings().servers.len() {
            self.remote.submit_to(holder, operation)
        } else {
            self.local.submit(operation)
        }
    }

    fn holder_trouble(&self, holder: usize) -> Option<String> {
        // The index after the servers is the key in this process, for which this is `None`.
        self.remote.holder_trouble(holder)
    }
}
