//! Access control: the clients that may use a route, by [`NetworkRules`], [`CertificateRules`], [`Passwords`] and
//! [`LinkKeys`].
//!
//! The rules here examine facts of a request that `brisk-answer` passes to them. They perform no I/O on a worker, and
//! no operation that takes long.

pub mod certificates;
pub mod networks;
pub mod passwords;
pub mod signed_links;

pub use certificates::CertificateRules;
pub use networks::NetworkRules;
pub use passwords::{Credentials, PasswordFiles, PasswordThreads, Passwords};
pub use signed_links::LinkKeys;
