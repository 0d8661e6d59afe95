//! Certificates from authorities by ACME (RFC 8555): orders, challenges, renewal, and what is kept of them.
//!
//! A thread of its own, the [`Keeper`], looks after the certificates of hosts: it orders what is missing, renews what is due,
//! and publishes what it has. All that it knows is in a [store](brisk_certs::Store), so that a restart goes on where it was, and
//! a fleet that shares the store orders once. No worker waits for any of it.

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
pub use keeper::{Keeper, WantedHost};
pub use operator::Operator;
pub use persist::Standing;
pub use records::{Advice, Issued, Records, Status};
pub use revoked::Revoked;
pub use settings::{AcmeSettings, AuthoritySettings, ChallengeKind, ExternalAccount, KeyKind, Wanted};
