//! Private-key operations, the engines that perform them, and the store of keys.
//!
//! A caller passes a [`KeyOperation`] with a [`KeyId`] and a deadline to a [`PrivateKeyEngine`] and awaits the
//! [`PendingOperation`]. It never sees the key, and the interface is the same for a key in this process, in an HSM or
//! on another machine.

mod algorithm;
mod batch;
pub mod device;
mod elsewhere;
mod engine;
mod engines;
mod error;
mod keystore;
mod local;
mod metered;
mod operation;
mod pem_sections;
mod pending;
mod points;
mod premaster;
mod private_key;
mod probe;
mod public_key;
mod randomness;
mod rsa;
#[cfg(test)]
mod testing;
mod text_fault;
pub mod turn;

pub use brisk_lanes::{Encapsulation, Exchange, KeyPair, LanesUse};

pub use algorithm::KeyAlgorithm;
pub use batch::{BatchChoice, BatchEngine, BatchSettings, BatchStatistics, Offload, Threads};
pub use engine::{Performer, PrivateKeyEngine};
pub use engines::{EngineFigures, Engines, Gathered};
pub use error::KeyError;
pub use keystore::Keystore;
pub use local::LocalEngine;
pub use metered::{Metered, OperationObserver, OperationOutcome, OperationReport};
pub use operation::{KeyId, KeyOperation, OperationKind};
pub use pem_sections::{pem_certificates, pem_sections};
pub use pending::{Completion, KeyResult, PendingOperation};
pub use points::is_point_of;
pub use premaster::{PREMASTER, PremasterEngine};
pub use probe::{KeyElsewhere, ProbeAnswer};
pub use public_key::{PublicKey, verification};
pub use randomness::prepare_randomness;
pub use text_fault::{encoding_fault, pem_fault};
