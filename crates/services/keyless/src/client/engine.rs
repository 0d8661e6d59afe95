//! The engine: passes operations to the thread that owns the connections.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use std::{fmt, io, thread};

use brisk_keys::{
    Completion, KeyError, KeyId, KeyOperation, OperationKind, PendingOperation, Performer, PrivateKeyEngine,
    PublicKey,
};
use brisk_tls::TlsError;
use brisk_tls::connector::{Connector, ConnectorSettings, Versions};
use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::address::KeyServerAddress;
use super::pool;
use super::settings::{MOST_SERVERS, RemoteSettings};
use super::statistics::{RemoteMetrics, Statistics};
use crate::ALPN;
use crate::frame::LONGEST_MESSAGE;

/// Name of the [`RemoteEngine`] in metrics and logs.
pub(super) const PERFORMER: Performer = Performer::new("keyserver");

/// An engine that has key servers perform its operations. Callers must only submit operations for keys that the servers
/// hold.
///
/// Nothing is connected before [`start`](Self::start). The thread ends when the engine has been dropped and its
/// operations have ended.
pub struct RemoteEngine {
    settings: Arc<RemoteSettings>,
    statistics: Arc<Statistics>,
    jobs: OnceLock<UnboundedSender<Job>>,
}

/// An operation on its way to the thread.
pub(super) struct Job {
    pub(super) key: KeyId,
    pub(super) scheme: SignatureScheme,
    pub(super) message: Bytes,
    pub(super) deadline: Instant,
    pub(super) public_key: Option<PublicKey>,
    pub(super) completion: Completion,
    pub(super) counted: InProgress,
    /// Servers that must not get the operation, as a bit set of indices.
    pub(super) excluded: u64,
}

/// Counts an operation as in progress until dropped.
pub(super) struct InProgress(Arc<Statistics>);

impl InProgress {
    pub(super) fn new(statistics: &Arc<Statistics>) -> Self {
        statistics.under_way.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(statistics))
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RemoteMetrics {
    /// Shows the set of `engine`, instead of others of its name, as long as the engine exists.
    pub fn show(&self, engine: &RemoteEngine) {
        self.add(&engine.statistics);
    }
}

impl RemoteEngine {
    /// A `RemoteEngine` without connections. Servers beyond the first 64 are ignored.
    pub fn new(mut settings: RemoteSettings) -> Self {
        settings.servers.truncate(MOST_SERVERS);
        let statistics = Statistics::new(&settings);
        Self { settings: Arc::new(settings), statistics, jobs: OnceLock::new() }
    }

    /// The `RemoteSettings` of the `RemoteEngine`.
    pub fn settings(&self) -> &RemoteSettings {
        &self.settings
    }

    /// Starts the thread and its connections. Further calls have no effect. No metrics show the engine before
    /// [`RemoteMetrics::show`]. Blocks on reading certificates.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a certificate cannot be used or the thread cannot be started.
    pub fn start(&self) -> Result<(), TlsError> {
        if self.jobs.get().is_some() {
            return Ok(());
        }
        let connector = self.connector()?;
        // The length is bounded by `RemoteSettings::queue` in `job`, which counts operations until they
        // end, not only until the thread has taken them.
        let (jobs, received) = unbounded_channel();
        let (settings, statistics) = (Arc::clone(&self.settings), Arc::clone(&self.statistics));
        // One thread with a runtime of its own, so that connections, timers and operations need no locks.
        let run = move || {
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
            match runtime {
                Ok(runtime) => runtime.block_on(pool::run(settings, statistics, connector, received)),
                Err(error) => tracing::error!(%error, "no connections to key servers"),
            }
        };
        thread::Builder::new()
            .name("keyless".to_owned())
            .spawn(run)
            .map_err(|error| thread_refused(&error))?;
        // If a concurrent call was first, its thread stays, and this one ends because its sender is dropped.
        let _ = self.jobs.set(jobs);
        Ok(())
    }

    /// TLS connector for servers on the network; `None` if there are none.
    fn connector(&self) -> Result<Option<Connector>, TlsError> {
        let is_on_network = |place: &KeyServerAddress| matches!(place, KeyServerAddress::Network(_));
        if !self.settings.servers.iter().any(is_on_network) {
            return Ok(None);
        }
        let tls = ConnectorSettings {
            protocols: vec![ALPN],
            versions: Versions::Tls13,
            ..self.settings.tls.clone()
        };
        Connector::new(&tls).map(Some)
    }

    /// The reason for which no operation can be performed now; `None` while any server responds.
    pub fn trouble(&self) -> Option<String> {
        self.statistics.trouble()
    }

    fn job(
        &self,
        operation: KeyOperation,
        excluded: u64,
    ) -> Result<(UnboundedSender<Job>, Job, PendingOperation), KeyError> {
        let OperationKind::Sign { scheme, message } = operation.kind else {
            return Err(KeyError::Failed("key servers do not decrypt"));
        };
        if message.len() > LONGEST_MESSAGE {
            return Err(KeyError::Failed("the message exceeds the limit of the protocol"));
        }
        let jobs =
            self.jobs.get().ok_or(KeyError::Failed("the connections to key servers are not started"))?;
        // Two workers may pass this check together; the limit need not be exact.
        if self.statistics.under_way.load(Ordering::Relaxed) >= self.settings.queue.get() {
            return Err(KeyError::Overloaded);
        }
        // Shorter than the deadline of a handshake, so that time is left for a `Fallback`.
        let deadline = operation.deadline.min(Instant::now() + self.settings.deadline);
        let (pending, completion) = PendingOperation::with_completion(deadline);
        let counted = InProgress::new(&self.statistics);
        let KeyOperation { key, public_key, .. } = operation;
        let job = Job { key, scheme, message, deadline, public_key, completion, counted, excluded };
        Ok((jobs.clone(), job, pending))
    }

    fn submit_without(&self, excluded: u64, operation: KeyOperation) -> PendingOperation {
        match self.job(operation, excluded) {
            Ok((jobs, job, pending)) => {
                // An error means that the thread has ended. The job is dropped then, and its completion reports the
                // failure.
                let _ = jobs.send(job);
                pending
            }
            Err(error) => PendingOperation::refused(error),
        }
    }
}

impl PrivateKeyEngine for RemoteEngine {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        self.submit_without(0, operation)
    }

    /// The addresses of the servers.
    fn holders(&self) -> Vec<String> {
        self.settings.servers.iter().map(ToString::to_string).collect()
    }

    fn submit_to(&self, holder: usize, operation: KeyOperation) -> PendingOperation {
        self.submit_without(!(1 << holder), operation)
    }

    fn holder_trouble(&self, holder: usize) -> Option<String> {
        self.statistics.servers.get(holder)?.trouble()
    }
}

fn thread_refused(error: &io::Error) -> TlsError {
    TlsError::Connector(format!("cannot start the thread of the key servers: {error}"))
}

impl fmt::Debug for RemoteEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteEngine").field(&self.settings.name).finish()
    }
}
