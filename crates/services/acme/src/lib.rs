//! Certificates by ACME (RFC 8555): accounts, orders, challenges, renewal and revocation.
//!
//! [`AcmeThread`] runs one background thread that orders missing certificates of hosts, renews due certificates and
//! publishes them. Workers never wait for it. All state is kept in a [`Store`](brisk_certs::Store): after a restart
//! orders continue where they stopped, and gateways that share a [`FleetStore`] order each certificate once.
//!
//! The protocol itself, JSON Web Signatures included, is implemented by `instant-acme`.

mod account;
mod acme_thread;
mod advice;
mod attempt;
mod certify;
mod context;
mod demand;
pub mod dns;
mod error;
mod fleet;
mod host;
mod http;
mod operator;
mod order;
mod owned_task;
mod persist;
mod prove;
mod records;
mod renewal;
mod responses;
mod revoked;
pub mod settings;

pub use acme_thread::{AcmeHost, AcmeThread, PreparedDemandThread, StoredPublication};
pub use attempt::rfc3339;
pub use context::{HostStatus, KeyStatus};
pub use demand::{DemandSettings, OnDemandHost, OrderRate};
pub use dns::DnsSettings;
pub use error::AcmeError;
pub use fleet::FleetStore;
pub use operator::Operator;
pub use persist::PersistentRecord;
pub use records::{AttemptStatus, IssuedCertificate, Records, RenewalAdvice};
pub use revoked::Revoked;
pub use settings::{
    AcmeSettings, AuthoritySettings, CertificateSpec, ChallengeKind, ExternalAccount, KeyKind,
};
