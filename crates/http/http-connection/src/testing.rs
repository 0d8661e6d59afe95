//! Connections that tests of other crates use.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use brisk_telemetry::{ConnectionRecord, Resumption, ResumptionFailure, Timeline, TlsFacts};
use brisk_wire::registry::{CipherSuite, ProtocolVersion};

use crate::Connection;

/// A connection over TLS of a client of the documentation's network.
pub fn connection() -> Rc<Connection> {
    let address = SocketAddr::from(([192, 0, 2, 1], 40000));
    Connection::new(ConnectionRecord::new(1, address, address, Timeline::start()), true)
}

/// A full handshake of TLS 1.3.
pub fn tls_facts() -> TlsFacts {
    TlsFacts {
        version: ProtocolVersion::TLS1_3,
        suite: CipherSuite(0x1301),
        group: None,
        scheme: None,
        resumption: Resumption::Full,
        resumption_failure: Some(ResumptionFailure::Expired),
        early_data: None,
        server_name: None,
        alpn: None,
        client_subject: None,
        client_chain: Box::default(),
        fingerprints: None,
        hello_retry: false,
        handshake_time: Duration::from_micros(12_345),
    }
}
