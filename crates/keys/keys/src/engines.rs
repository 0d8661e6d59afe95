//! [`Engines`], the factory of engines: shared resources are started once per process, engines are created per set of
//! keys.

use std::{fmt, num::NonZeroUsize, sync::Arc};

use crate::{Keystore, PrivateKeyEngine};

/// Factory of engines. Created once per process by the program that composes it; servers receive this trait and do
/// not depend on how operations are performed.
///
/// Threads, a GPU, connections to key servers and counters belong to the implementation and are shared by the engines
/// that it creates. An engine for replaced keys finishes the operations that it has accepted.
pub trait Engines: fmt::Debug + Send + Sync + 'static {
    /// Creates an engine for the keys in `keystore`, including keys registered with
    /// [`add_elsewhere`](Keystore::add_elsewhere), and counts its operations. Called at the start and when a reload
    /// changes keys. Preparing a new key takes about as long as one operation.
    fn for_keys(&self, keystore: Arc<Keystore>) -> Arc<dyn PrivateKeyEngine>;

    /// Total capacity of the engines' queues, in operations. The limit per client is a share of it.
    fn queue(&self) -> NonZeroUsize;

    /// One line for the operator if operations with some keys cannot be performed now, with the reason. Must not
    /// block. Default: `None`.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Length of the queue and sizes of batches, for the dashboard and metrics. Must not block. Default: empty
    /// [`EngineFigures`].
    fn figures(&self) -> EngineFigures {
        EngineFigures::default()
    }
}

/// Length of the engines' queue and the batches performed since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineFigures {
    /// Operations in the queue.
    pub waiting: u64,
    /// Operations performed by the engine's threads; the first element is for batches of one, the second for batches of two.
    pub batches: Vec<u64>,
    /// Operations that workers gathered within a turn of their event loop.
    pub gathered: Vec<Gathered>,
}

/// Operations of one kind that workers gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// Kind of operation, for example `signature`.
    pub operation: &'static str,
    /// Operations performed in vector lanes, several at once.
    pub in_lanes: u64,
    /// Operations performed one by one.
    pub alone: u64,
    /// Number of batches of the operations in lanes.
    pub batches: u64,
}
