//! A batch engine beside a card: what it does where the card does not.

use std::sync::Arc;

use super::{BatchEngine, class::Class, perform::Job};
use crate::{Completion, KeyError, Keystore, OperationKind, Performer, private_key::PrivateKey};

impl BatchEngine {
    pub(crate) const fn keystore(&self) -> &Arc<Keystore> {
        &self.keystore
    }

    /// How many threads perform RSA, and how many operations may wait for them; `None` if the callers perform it.
    pub(crate) fn capacity(&self) -> Option<(usize, usize)> {
        let pool = self.pool.as_ref().filter(|pool| pool.offload.rsa)?;
        Some((pool.threads.get(), pool.queue.capacity().unwrap_or(usize::MAX)))
    }

    /// An operation that this engine can take over.
    pub(crate) fn job(&self, key: &Arc<PrivateKey>, kind: OperationKind, completion: Completion) -> Job {
        let class = self.pool.as_ref().map_or(Class::Alone, |pool| pool.class(key));
        Job::new(key, kind, class, completion)
    }

    /// Performs and answers an operation that was meant for a card. Without threads that takes its time, here and now.
    pub(crate) fn take_over(&self, mut job: Job) {
        let Some(pool) = &self.pool else {
            if job.begin() {
                job.perform_alone();
            }
            return;
        };
        self.statistics.arrived();
        if let Err(error) = pool.queue.try_send(job) {
            self.statistics.left(1);
            job = error.into_inner();
            job.complete(Err(KeyError::Overloaded), Performer::AwsLc);
        }
    }
}
