//! Messages of FastCGI, uwsgi and SCGI, without I/O: [`Variables`] of a request, their encoding, and the records of a FastCGI
//! response.
//!
//! The head of a response is read by [`ResponseHead::take_cgi`](crate::http1::response::ResponseHead::take_cgi). No crate
//! suits: those for FastCGI send a whole request before they read, or are for the other side of the protocol, and the encodings
//! of uwsgi and SCGI have a few lines each.

pub mod fastcgi;
pub mod packets;
mod variables;

use thiserror::Error;

pub use variables::Variables;

/// Protocol of an application server that gets a request as variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CgiProtocol {
    /// FastCGI 1.0, role `RESPONDER`.
    FastCgi,
    /// uwsgi, the binary protocol of the server uWSGI.
    Uwsgi,
    /// SCGI 1.
    Scgi,
}

impl CgiProtocol {
    /// The protocol as the scheme of a URL.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::FastCgi => "fastcgi",
            Self::Uwsgi => "uwsgi",
            Self::Scgi => "scgi",
        }
    }

    /// The port of a server whose URL has none.
    pub(crate) fn port(self) -> u16 {
        match self {
            Self::FastCgi => 9000,
            Self::Uwsgi => 3031,
            Self::Scgi => 4000,
        }
    }
}

/// Error: the variables of a request exceed the 65,535 bytes that a packet of uwsgi can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the head of the request is too large for uwsgi, whose limit is 64 KiB")]
pub struct TooManyVariables;
