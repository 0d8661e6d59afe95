//! Which certificate to show: chains and keys read from files, the choice by name and by what the client can verify.
//!
//! Everything a handshake asks is answered from memory. Private keys are not here: a [`Certificate`] names its key by
//! [`KeyId`](brisk_keys::KeyId), the operations are done by an engine of `brisk-keys`.

pub mod certificate;
pub mod chain;
pub mod challenge;
pub mod crl;
pub mod development;
pub mod error;
pub mod private_ca;
pub mod resolver;
pub mod slot;
pub mod store;
pub mod watch;
mod x509;

pub use certificate::{Certificate, Loaded, load};
pub use chain::Chain;
pub use challenge::Challenges;
pub use crl::Crl;
pub use development::DevelopmentCa;
pub use error::{CertError, Warning};
pub use private_ca::{Issued, PrivateCa, Purpose};
pub use resolver::{ClientAbilities, HostMap, Match, UnknownName, choose};
pub use slot::{Publish, Served, Slot};
pub use store::{Store, StoreError};
pub use watch::FileWatch;
pub use x509::{common_name, issuer, not_after, subject};
