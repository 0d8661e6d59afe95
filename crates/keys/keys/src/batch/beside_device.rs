//! Interface of [`BatchEngine`] for an engine with a device, such as a GPU, that hands over operations the device
//! does not perform.

use std::sync::Arc;

use super::{BatchEngine, class::Class, perform::Job};
use crate::{KeyError, KeyOperation, Keystore, PendingOperation, Performer, private_key::PrivateKey};

impl BatchEngine {
    /// Keys of this engine.
    pub const fn keystore(&self) -> &Arc<Keystore> {
        &self.keystore
    }

    /// Number of threads that perform RSA and capacity of their queue; `None` if callers perform RSA themselves.
    pub fn capacity(&self) -> Option<(usize, usize)> {
        let pool = self.pool.as_ref().filter(|pool| pool.offload.rsa)?;
        Some((pool.threads.get(), pool.queue.capacity().unwrap_or(usize::MAX)))
    }

    /// Creates the job for a device from `operation`, already encoded and padded: only the private operation remains.
    /// The engine can take it over at any time with [`take_over`](Self::take_over).
    ///
    /// # Errors
    ///
    /// Fails if `key` does not support the operation or is not an RSA key.
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

    /// Performs a job that was created for a device. If the queue is full, the operation fails with
    /// [`KeyError::Overloaded`]. Without threads, the job is performed before this returns.
    pub fn take_over(&self, mut job: Job) {
        let Some(pool) = &self.pool else {
            if job.begin() {
                job.perform_alone();
            }
            return;
        };
        // Counted before the job is sent, as in `Pool::submit`.
        self.statistics.arrived();
        if let Err(error) = pool.queue.try_send(job) {
            self.statistics.left(1);
            job = error.into_inner();
            job.complete(Err(KeyError::Overloaded), Performer::AWS_LC);
        }
    }
}
