//! Private keys as something one asks: operations on them, the engines that perform these, and where keys are kept.
//!
//! A caller names a key by its [`KeyId`], states the operation and a deadline, and waits; it never sees the key and
//! does not learn whether it lies in this process, in an HSM or on another machine.

mod algorithm;
mod batch;
pub mod device;
mod ec_lanes;
mod elsewhere;
mod engine;
mod engines;
mod error;
mod keystore;
mod lanes;
mod local;
mod metered;
mod mlkem_lanes;
mod operation;
mod pending;
mod points;
mod premaster;
mod private_key;
mod rsa;
mod rsa_lanes;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod timing;
pub mod turn;

pub use algorithm::KeyAlgorithm;
pub use batch::{BatchChoice, BatchEngine, BatchSettings, BatchStatistics, Offload, Threads};
pub use ec_lanes::{Exchange, KeyPair, LanesUse};
pub use engine::{Performer, PrivateKeyEngine};
pub use engines::{EngineFigures, Engines, Gathered};
pub use error::KeyError;
pub use keystore::Keystore;
pub use local::LocalEngine;
pub use metered::{Metered, OperationObserver, OperationOutcome, OperationReport};
pub use mlkem_lanes::Encapsulation;
pub use operation::{KeyId, KeyOperation, OperationKind};
pub use pending::{Completion, KeyResult, PendingOperation};
pub use points::is_point_of;
pub use premaster::{PREMASTER, PremasterEngine};
