//! The trait of everything that performs private-key operations, and the names of what computes them.

use std::{fmt, sync::Arc};

use brisk_lanes::rsa_lanes::Instructions;

use crate::{KeyOperation, PendingOperation};

/// Performs private-key operations without revealing the key or where it lives.
///
/// Engines wrap engines: one measures another, one falls back to another, one gathers operations into batches for
/// another. A caller sees the outermost only. Every engine answers every operation once; an engine that goes away
/// answers what it still holds with [`KeyError::Failed`](crate::KeyError::Failed).
pub trait PrivateKeyEngine: fmt::Debug + Send + Sync + 'static {
    /// Starts `operation` and returns at once.
    ///
    /// Never blocks: a full queue is [`KeyError::Overloaded`](crate::KeyError::Overloaded). An operation that costs no
    /// more than passing it on (ECDSA, some 12 us) may be performed before this returns; the result is then there to
    /// take with [`PendingOperation::try_take`]. An operation whose deadline has passed is not begun.
    fn submit(&self, operation: KeyOperation) -> PendingOperation;
}

/// Which code performs an operation, on which hardware. Engines of other crates have names of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Performer(&'static str);

impl Performer {
    /// aws-lc on this processor, one operation at a time.
    pub const AWS_LC: Self = Self("aws-lc");
    /// Lanes of AVX-512 IFMA on this processor, up to four operations at a time.
    pub const IFMA: Self = Self("ifma");
    /// Lanes of AVX2 and FMA on this processor, up to two operations at a time.
    pub const FMA: Self = Self("fma");

    /// A performer with this name, in lower case.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// In lower case: a label for metrics.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl From<Instructions> for Performer {
    /// The code that performs batches with these instructions.
    fn from(instructions: Instructions) -> Self {
        match instructions {
            Instructions::Ifma => Self::IFMA,
            Instructions::Fma => Self::FMA,
        }
    }
}

impl<E: PrivateKeyEngine + ?Sized> PrivateKeyEngine for Arc<E> {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        (**self).submit(operation)
    }
}

impl<E: PrivateKeyEngine + ?Sized> PrivateKeyEngine for Box<E> {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        (**self).submit(operation)
    }
}
