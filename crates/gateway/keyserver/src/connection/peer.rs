//! Identity of the client of a connection.

use std::time::SystemTime;

use brisk_certs::{common_name, not_after};
use brisk_tls::mutual::MutualStream;

/// Name of the only client of a key process.
pub(crate) const GATEWAY: &str = "gateway";

/// The client of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    /// Common name of the client's certificate; [`GATEWAY`] in a key process.
    pub(super) client: String,
    /// Address of the client, for the log.
    pub(super) address: String,
    /// End of validity of the client's certificate; `None` for the gateway of a key process, which has none.
    pub(super) valid_until: Option<SystemTime>,
}

impl Peer {
    /// A client with a verified certificate.
    pub(super) fn of_certificate(address: String, stream: &MutualStream) -> Self {
        Self {
            client: common_name(stream.client()).unwrap_or_default(),
            address,
            // A time that cannot be read counts as expired: without a time, the connection would never end.
            valid_until: Some(not_after(stream.client()).unwrap_or(SystemTime::UNIX_EPOCH)),
        }
    }

    /// The gateway that started this process.
    pub(super) fn local() -> Self {
        Self { client: GATEWAY.to_owned(), address: "this machine".to_owned(), valid_until: None }
    }
}
