//! Reasons why a connection over QUIC, or a request on it, has failed.

use std::io;
use std::sync::Arc;

use brisk_tls_client::{ClientError, QuicHandshake};
use brisk_wire::h3::error::Code;
use quinn_proto::{ConnectionError, TransportErrorCode};
use thiserror::Error;

/// Reason why a connection over QUIC, or a request on it, has failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Http3Error {
    /// The network reports that no program receives datagrams at this port, or that there is no route.
    #[error("no datagram reaches the server over UDP: {0}")]
    Unreachable(Arc<io::Error>),
    /// The TLS handshake failed.
    #[error(transparent)]
    Tls(Arc<ClientError>),
    /// The server supports no common version of QUIC: its `Version Negotiation` packet has none.
    #[error("the server does not support version 1 of QUIC")]
    Version,
    /// The server has closed the connection with `CONNECTION_CLOSE`.
    #[error("the server closed the connection: {0}")]
    Closed(String),
    /// The server does not know the connection any more (stateless reset), or does not respond any more.
    #[error("the server has lost the connection: {0}")]
    Lost(String),
    /// The server has ended the request by `RESET_STREAM`, with this code.
    #[error("the server gave up the request: {0}")]
    Cancelled(String),
    /// The server violated QUIC or HTTP/3.
    #[error("the response is not HTTP/3: {0}")]
    Protocol(String),
}

impl Http3Error {
    /// The reason for which quinn-proto has lost a connection.
    pub(super) fn of(reason: &ConnectionError, handshake: &QuicHandshake) -> Self {
        match reason {
            ConnectionError::VersionMismatch => Self::Version,
            ConnectionError::TransportError(error) => match handshake.take_failure() {
                Some(failure) => Self::Tls(Arc::new(failure)),
                None => Self::Protocol(error.to_string()),
            },
            ConnectionError::ConnectionClosed(close) => match alert(close.error_code) {
                Some(error) => Self::Tls(Arc::new(error)),
                None => Self::Closed(close.to_string()),
            },
            ConnectionError::ApplicationClosed(close) => {
                let code = describe(close.error_code.into_inner());
                Self::Closed(if close.reason.is_empty() { code } else { format!("{code}, {close}") })
            }
            ConnectionError::Reset | ConnectionError::TimedOut => Self::Lost(reason.to_string()),
            ConnectionError::LocallyClosed | ConnectionError::CidsExhausted => {
                Self::Closed("by this side".to_owned())
            }
        }
    }

    /// A violation for which this side has closed the connection.
    pub(super) fn violation(code: Code) -> Self {
        Self::Protocol(describe(code.0))
    }

    /// The end of a stream by the server.
    pub(super) fn reset(code: u64) -> Self {
        Self::Cancelled(describe(code))
    }
}

fn alert(code: TransportErrorCode) -> Option<ClientError> {
    QuicHandshake::alert(code.into())
}

fn describe(code: u64) -> String {
    Code(code).name().map_or_else(|| format!("error {code:#x}"), |name| format!("H3_{name}"))
}
