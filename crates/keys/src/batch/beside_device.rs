//! A batch engine beside a device such as a GPU: what it does where the device does not.

use std::sync::Arc;

use super::{BatchEngine, class::Class, perform::Job};
use crate::{KeyError, KeyOperation, Keystore, PendingOperation, Performer, private_key::PrivateKey};

impl BatchEngine {
    /// The keys that it performs operations with.
    pub const fn keystore(&self) -> &Arc<Keystore> {
        &self.keystore
    }

    /// How many threads perform RSA, and how many operations may wait for them; `None` if the callers perform it.
    pub fn capacity(&self) -> Option<(usize, usize)> {
        let pool = self.pool.as_ref().filter(|pool| pool.offload.rsa)?;
        Some((pool.threads.get(), pool.queue.capacity().unwrap_or(usize::MAX)))
    }

    /// An operation for a device, that this engine can take over: encoded and padded, so that only the private operation
    /// itself is left to be done. An error if the key cannot do it, or is not an RSA key.
    pub fn encoded_job(
        &self,
        key: &Arc<PrivateKey>,
        operation: KeyOperation,
    ) -> Result<(Job, PendingOperation), KeyError> {
        key.check(&operation.kind)?;
        let rsa = key.rsa().ok_or(KeyError::Failed("a device performs RSA only"))?;
        let input = rsa.representative(&operation.kind)?;
        let (pending, completion) = PendingOperation::with_completion(operation.deadline);
        let class = self.pool.as_ref().map_or(Class::Alone, |pool| pool.class(key));
        Ok((Job::new(key, operation.kind, class, completion).with_input(input), pending))
    }

    /// Performs and answers an operation that was meant for a device; one that finds the queue full is refused as
    /// overloaded. Without threads it is performed before this returns.
    pub fn take_over(&self, mut job: Job) {
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
            job.complete(Err(KeyError::Overloaded), Performer::AWS_LC);
        }
    }
}
