//! Facts about the client of a connection.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use brisk_telemetry::ConnectionRecord;
use brisk_tls::Demands;

use crate::forwarded::ForwardedValues;
use crate::handshake::Handshake;

/// The client of a connection, and the security of the connection.
#[derive(Debug)]
pub struct ClientFacts {
    /// Facts for the log, the metrics and the built-in page.
    pub record: RefCell<ConnectionRecord>,
    /// Whether the connection is HTTPS, as opposed to plain HTTP.
    pub secure: bool,
    /// Requirements of its host that the client met in the handshake.
    pub demands: Demands,
    /// Headers that describe the client to upstreams. Kept between requests, and released while the connection is idle.
    pub forwarded: RefCell<Option<Rc<ForwardedValues>>>,
    /// Whether the client's address represents many clients, so that no limit per client applies.
    is_many: Cell<bool>,
    /// Whether nothing but the handshake proves that the client receives packets at its address.
    is_claimed: Cell<bool>,
    /// The handshake, if the connection started with early data.
    handshake: Option<Box<Handshake>>,
}

impl ClientFacts {
    /// A client without a certificate; with a `handshake` if its connection started with early data.
    pub(super) fn new(record: ConnectionRecord, secure: bool, handshake: Option<Box<Handshake>>) -> Self {
        let record = RefCell::new(record);
        Self {
            record,
            secure,
            demands: Demands::default(),
            forwarded: RefCell::new(None),
            is_many: Cell::new(false),
            is_claimed: Cell::new(false),
            handshake,
        }
    }

    /// Records that the client's address represents many clients, such as the address of a proxy.
    pub fn set_many(&self) {
        self.is_many.set(true);
    }

    /// The address to which limits per client apply; `None` if it represents many clients (`trusted_proxies`).
    pub fn address(&self) -> Option<IpAddr> {
        (!self.is_many.get()).then(|| self.record.borrow().client.ip())
    }

    /// Records that the sender of the first packets may have invented their address (RFC 9000 section 8.1). The end of the
    /// handshake proves it.
    pub fn set_claimed(&self) {
        self.is_claimed.set(true);
    }

    /// Whether the address of the client may be invented: early data over QUIC whose address is validated by a token of an
    /// earlier connection only.
    pub fn is_unproven(&self) -> bool {
        self.is_claimed.get() && !self.is_confirmed()
    }

    /// Whether the handshake is complete. Requests that arrive from then on, or waited for it, are not replays.
    pub fn is_confirmed(&self) -> bool {
        self.handshake().is_none()
    }

    /// The [`Handshake`] of a connection with early data, while it is incomplete.
    pub fn handshake(&self) -> Option<&Handshake> {
        self.handshake.as_deref().filter(|handshake| !handshake.is_complete())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Instant;

    use brisk_telemetry::Timeline;
    use brisk_tls::Confirmation;

    use super::*;
    use crate::Connection;

    #[test]
    fn an_address_is_unproven_until_the_handshake_is_complete() {
        let address = SocketAddr::from(([192, 0, 2, 1], 40000));
        let record = || ConnectionRecord::new(1, address, address, Timeline::start());
        let confirmation = Confirmation::default();
        let connection = Connection::with_early_data(record(), confirmation.clone(), Instant::now());
        assert!(!connection.client.is_unproven(), "TCP proves it");
        connection.client.set_claimed();
        assert!(connection.client.is_unproven());
        confirmation.confirm();
        assert!(!connection.client.is_unproven());
        let connection = Connection::new(record(), true);
        connection.client.set_claimed();
        assert!(!connection.client.is_unproven(), "without early data");
    }
}
