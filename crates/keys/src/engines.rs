//! Where engines come from: what a process starts once, and what each set of keys needs.

use std::{fmt, num::NonZeroUsize, sync::Arc};

use crate::{Keystore, PrivateKeyEngine};

/// Makes engines. Started once in the life of a process, by the program that composes it; whatever serves with private
/// keys gets this trait and does not know how operations are performed.
///
/// Threads, a GPU, connections to key servers and the counts of operations belong to the implementation, and the engines
/// that it makes share them. An engine for old keys finishes what it began.
pub trait Engines: fmt::Debug + Send + Sync + 'static {
    /// An engine for the keys in `keystore` and those that it [notes](Keystore::add_elsewhere), whose operations are counted.
    /// Called at the start and when a reload changes keys. It makes keys ready, which takes about an operation for each new
    /// key.
    fn for_keys(&self, keystore: Arc<Keystore>) -> Arc<dyn PrivateKeyEngine>;

    /// How many operations may wait for the engines together. One client's share is a part of it.
    fn queue(&self) -> NonZeroUsize;

    /// Why operations with some keys cannot be performed now, in one line for the operator. Must not block. Default: all can.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// What waits for the engines and how operations were performed together, for who shows it. Must not block. Default:
    /// nothing is known.
    fn figures(&self) -> EngineFigures {
        EngineFigures::default()
    }
}

/// The queue of engines, and the batches that were performed since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineFigures {
    /// Operations in the queue.
    pub waiting: u64,
    /// Operations that the engine's threads performed, by the size of their batch, 1 first.
    pub batches: Vec<u64>,
    /// What workers gathered in a turn of their event loop.
    pub gathered: Vec<Gathered>,
}

/// Operations of one kind that workers gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// The kind: `signature`.
    pub operation: &'static str,
    /// Operations performed in vector lanes, several at once.
    pub in_lanes: u64,
    /// Operations performed one by one.
    pub alone: u64,
    /// Batches of those in lanes.
    pub batches: u64,
}
