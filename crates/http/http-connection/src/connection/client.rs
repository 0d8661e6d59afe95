//! Facts about the client of a connection.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;

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
    pub forwarded: RefCell<Option<Box<ForwardedValues>>>,
    /// Whether the client's address represents many clients, so that no limit per client applies.
    is_many: Cell<bool>,
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
            handshake,
        }
    }

    /// Records that the client's address represents many clients, such as the address of a proxy.
    pub fn set_many(&self) {
        self.is_many.set(true);
    }

    /// The address to which limits per client apply; `None` if it represents many clients.
    pub fn address(&self) -> Option<IpAddr> {
        (!self.is_many.get()).then(|| self.record.borrow().client.ip())
    }

    /// Whether the handshake is complete. Requests that arrive from then on, or waited for it, are not replays.
    pub fn is_confirmed(&self) -> bool {
        self.handshake().is_none()
    }

    /// The handshake, while it is incomplete.
    pub fn handshake(&self) -> Option<&Handshake> {
        self.handshake.as_deref().filter(|handshake| !handshake.is_complete())
    }
}
