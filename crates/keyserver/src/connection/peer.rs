//! Who is at the other end of a connection.

use std::time::SystemTime;

use brisk_certs::{common_name, not_after};
use brisk_tls::mutual::MutualStream;

/// The name by which a key process knows its only client.
pub(crate) const GATEWAY: &str = "gateway";

/// The client of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    /// The common name of its certificate.
    pub(super) client: String,
    /// Its address, for the log.
    pub(super) address: String,
    /// Until when its certificate is valid; `None` if it has none and needs none.
    pub(super) valid_until: Option<SystemTime>,
}

impl Peer {
    /// Who has shown its certificate.
    pub(super) fn of_certificate(address: String, stream: &MutualStream) -> Self {
        Self {
            client: common_name(stream.client()).unwrap_or_default(),
            address,
            valid_until: Some(not_after(stream.client()).unwrap_or(SystemTime::UNIX_EPOCH)),
        }
    }

    /// The gateway that has started this process.
    pub(super) fn beside() -> Self {
        Self { client: GATEWAY.to_owned(), address: "this machine".to_owned(), valid_until: None }
    }
}
