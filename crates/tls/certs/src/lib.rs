//! Certificates of a TLS server: loading of chains and keys, choice by server name and client abilities, staples,
//! revocation and renewal.
//!
//! Handshakes find everything in memory. Private keys are not part of this crate: a [`Certificate`] refers to its key
//! by [`KeyId`](brisk_keys::KeyId), and an engine of `brisk-keys` performs the key operations.

pub mod catalogue;
pub mod certificate;
pub mod chain;
pub mod challenge;
pub mod crl;
mod der;
pub mod development;
pub mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod identity;
pub mod issuers;
pub mod maintenance;
pub mod ocsp;
pub mod on_demand;
pub mod private_ca;
mod refused;
pub mod resolver;
mod signature;
pub mod slot;
pub mod store;
pub mod watch;
mod x509;

pub use catalogue::{Catalogue, CatalogueLookup, Catalogues, FolderExpiry};
pub use certificate::{Certificate, Fingerprint, InvalidFingerprint, Loaded, load};
pub use chain::Chain;
pub use challenge::Challenges;
pub use crl::Crl;
pub use development::DevelopmentCa;
pub use error::{CertError, Warning};
pub use identity::Identity;
pub use maintenance::{Maintenance, MaintenanceSettings};
pub use ocsp::{OcspError, Staple};
pub use on_demand::{FailedName, OnDemand, OnDemandHosts, OnDemandSettings};
pub use private_ca::{Issued, PrivateCa, Purpose};
pub use refused::{RefusedKey, RefusedKeys};
pub use resolver::{ClientAbilities, HostMap, Match, Names, Precedence, UnknownName, choose};
pub use slot::{Publish, Served, Slot};
pub use store::{Store, StoreError};
pub use watch::FileWatch;
pub use x509::{Services, common_name, issuer, not_after, subject};
