//! Certificates by ACME (RFC 8555): accounts, orders, challenges, renewal and revocation.
//!
//! [`AcmeThread`] runs one background thread that orders missing certificates of hosts, renews due certificates and
//! publishes them. Workers never wait for it. All state is kept in a [`Store`](brisk_certs::Store): after a restart
//! orders continue where they stopped, and gateways that share a [`FleetStore`] order each certificate once.
//!
//! The protocol itself, JSON Web Signatures included, is implemented by `instant-acme`.

mod account;
mod advice;
mod answers;
mod attempt;
mod certify;
mod common;
mod demand;
pub mod dns;
mod error;
mod fleet;
mod host;
mod http;
mod keeper;
mod operator;
mod order;
mod persist;
mod prove;
mod records;
mod renewal;
mod revoked;
mod running;
pub mod settings;

pub use attempt::rfc3339;
pub use common::{HostStatus, KeyStatus};
pub use demand::{DemandSettings, DemandedHost, Pace};
pub use dns::DnsSettings;
pub use error::AcmeError;
pub use fleet::FleetStore;
pub use keeper::{Keeper, PreparedDemands, WantedHost};
pub use operator::Operator;
pub use persist::Standing;
pub use records::{Advice, Issued, Records, Status};
pub use revoked::Revoked;
pub use settings::{AcmeSettings, AuthoritySettings, ChallengeKind, ExternalAccount, KeyKind, Wanted};
