//! [`PrivateKeyEngine`], the trait of everything that performs private-key operations, and [`Performer`].

use std::{fmt, sync::Arc};

use brisk_lanes::rsa_lanes::Instructions;

use crate::{KeyOperation, PendingOperation};

/// Performs private-key operations without revealing the key or its location.
///
/// Engines wrap engines: one measures another, falls back to another, or gathers operations into batches for another.
/// A caller uses the outermost engine only. Every engine completes every operation exactly once; an engine that is
/// dropped completes the remaining operations with [`KeyError::Failed`](crate::KeyError::Failed).
pub trait PrivateKeyEngine: fmt::Debug + Send + Sync + 'static {
    /// Starts `operation` and returns at once.
    ///
    /// Never blocks: if the queue is full, the operation fails with
    /// [`KeyError::Overloaded`](crate::KeyError::Overloaded). An operation that is cheaper than handing it to a
    /// thread (ECDSA, about 12 µs) may be performed before this returns; [`PendingOperation::try_take`] then returns
    /// the result at once. An operation whose deadline has passed is not performed.
    fn submit(&self, operation: KeyOperation) -> PendingOperation;

    /// Names of the holders of the keys, each of which should have every key: the key servers of a set, for example, any
    /// of which performs an operation. Default: one holder without a name, which is this engine.
    fn holders(&self) -> Vec<String> {
        vec![String::new()]
    }

    /// Like [`submit`](Self::submit), but only the [holder](Self::holders) with this index performs the operation.
    /// Default: `submit`.
    fn submit_to(&self, holder: usize, operation: KeyOperation) -> PendingOperation {
        let _ = holder;
        self.submit(operation)
    }

    /// The reason for which the [holder](Self::holders) with this index performs no operation at present. Must not
    /// block. Default: `None`.
    fn holder_trouble(&self, holder: usize) -> Option<String> {
        let _ = holder;
        None
    }
}

/// Name of the code and hardware that performs an operation. Engines of other crates define their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Performer(&'static str);

impl Performer {
    /// AWS-LC on this processor, one operation at a time.
    pub const AWS_LC: Self = Self("aws-lc");
    /// Lanes of AVX-512 IFMA on this processor, up to four operations at a time.
    pub const IFMA: Self = Self("ifma");
    /// Lanes of AVX-512 and FMA on this processor, up to four operations at a time.
    pub const FMA_512: Self = Self("fma512");
    /// Lanes of AVX2 and FMA on this processor, up to two operations at a time.
    pub const FMA: Self = Self("fma");

    /// Creates a performer with this name, in lower case.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The `performer` label of metrics, in lower case.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl From<Instructions> for Performer {
    /// The performer of batches with these instructions.
    fn from(instructions: Instructions) -> Self {
        match instructions {
            Instructions::Ifma => Self::IFMA,
            Instructions::Fma512 => Self::FMA_512,
            Instructions::Fma => Self::FMA,
        }
    }
}

impl<E: PrivateKeyEngine + ?Sized> PrivateKeyEngine for Arc<E> {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        (**self).submit(operation)
    }

    fn holders(&self) -> Vec<String> {
        (**self).holders()
    }

    fn submit_to(&self, holder: usize, operation: KeyOperation) -> PendingOperation {
        (**self).submit_to(holder, operation)
    }

    fn holder_trouble(&self, holder: usize) -> Option<String> {
        (**self).holder_trouble(holder)
    }
}

impl<E: PrivateKeyEngine + ?Sized> PrivateKeyEngine for Box<E> {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        (**self).submit(operation)
    }

    fn holders(&self) -> Vec<String> {
        (**self).holders()
    }

    fn submit_to(&self, holder: usize, operation: KeyOperation) -> PendingOperation {
        (**self).submit_to(holder, operation)
    }

    fn holder_trouble(&self, holder: usize) -> Option<String> {
        (**self).holder_trouble(holder)
    }
}
