//! [`ClientError`], the errors of client connections: one message for each cause.

use std::io;
use std::time::Duration;

use rustls::{AlertDescription, InvalidMessage};
use thiserror::Error;

/// Why a connection or its handshake failed. [`name`](Self::name) groups errors.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The [`ClientSettings`](crate::ClientSettings) are invalid, or a file that they name.
    #[error("{0}")]
    Settings(String),
    /// TCP cannot connect.
    #[error("cannot connect to {address}: {reason}")]
    Unreachable {
        /// The address as written by the caller.
        address: String,
        /// Error of the operating system.
        reason: io::Error,
    },
    /// The TCP connection was not established within `limit`.
    #[error("no connection to {address} within {limit:?}")]
    ConnectTimeout {
        /// The address as written by the caller.
        address: String,
        /// The timeout.
        limit: Duration,
    },
    /// The handshake was not complete within its timeout.
    #[error("the TLS handshake was not complete within {0:?}")]
    HandshakeTimeout(Duration),
    /// The server reset the connection.
    #[error("the server reset the connection")]
    Reset,
    /// The server closed the connection before the end of the handshake.
    #[error("the server closed the connection before the handshake was complete")]
    Closed,
    /// The server does not speak TLS: its first bytes are no record (RFC 8446 section 5.1).
    #[error("the server does not speak TLS")]
    NotTls,
    /// The server sent an alert that has no variant of its own.
    #[error("the server refused with alert {0}")]
    Alert(String),
    /// The server supports none of the protocols offered by ALPN.
    #[error("the server speaks none of the application protocols offered (alert no_application_protocol)")]
    ProtocolRefused,
    /// Client and server support no common version, suite, group or signature scheme.
    #[error("client and server have nothing in common: {0}")]
    NothingInCommon(String),
    /// The certificate is not valid for [`ClientSettings::server_name`](crate::ClientSettings::server_name).
    #[error("the server's certificate is not valid for {0}")]
    WrongName(String),
    /// The certificate is expired.
    #[error("the server's certificate has expired")]
    Expired,
    /// The certificate is not valid yet.
    #[error("the server's certificate is not valid yet")]
    NotYetValid,
    /// The certificate is not signed by a trusted authority.
    #[error("the server's certificate is not signed by an authority that is trusted")]
    UnknownIssuer,
    /// The certificate is invalid for another reason, or the server does not have its key.
    #[error("the server's certificate cannot be verified: {0}")]
    Certificate(String),
    /// The server violated the protocol.
    #[error("the server broke the TLS protocol: {0}")]
    Protocol(String),
    /// Another error of the system.
    #[error("{0}")]
    Io(io::Error),
}

impl ClientError {
    /// A short name of the cause, for counting; one for each variant.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Settings(_) => "settings",
            Self::Unreachable { .. } => "unreachable",
            Self::ConnectTimeout { .. } => "connect-timeout",
            Self::HandshakeTimeout(_) => "handshake-timeout",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::NotTls => "not-tls",
            Self::Alert(_) => "alert",
            Self::ProtocolRefused => "protocol-refused",
            Self::NothingInCommon(_) => "nothing-in-common",
            Self::WrongName(_) => "wrong-name",
            Self::Expired => "expired",
            Self::NotYetValid => "not-yet-valid",
            Self::UnknownIssuer => "unknown-issuer",
            Self::Certificate(_) => "certificate",
            Self::Protocol(_) => "protocol",
            Self::Io(_) => "io",
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
    pub(super) fn settings(reason: impl ToString) -> Self {
        Self::Settings(reason.to_string())
    }

    /// Classifies `reason`, an error of the handshake with the server `name`.
    pub(super) fn of_handshake(reason: &rustls::Error, name: &str) -> Self {
        use rustls::{CertificateError as Wrong, Error};
        match reason {
            Error::AlertReceived(alert) => Self::of_alert(*alert),
            Error::InvalidCertificate(wrong) => match wrong {
                Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                    Self::WrongName(name.to_owned())
                }
                Wrong::Expired | Wrong::ExpiredContext { .. } => Self::Expired,
                Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => Self::NotYetValid,
                Wrong::UnknownIssuer => Self::UnknownIssuer,
                other => Self::Certificate(other.to_string()),
            },
            Error::NoCertificatesPresented => Self::Certificate("it sent none".to_owned()),
            Error::PeerIncompatible(what) => Self::NothingInCommon(format!("{what:?}")),
            // Servers without TLS, such as those of plain HTTP, send text, whose first byte is no content
            // type.
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::NotTls,
            other => Self::Protocol(other.to_string()),
        }
    }

    pub(super) fn of_alert(alert: AlertDescription) -> Self {
        let name = alert_name(alert);
        match alert {
            AlertDescription::NoApplicationProtocol => Self::ProtocolRefused,
            AlertDescription::HandshakeFailure
            | AlertDescription::ProtocolVersion
            | AlertDescription::InsufficientSecurity => {
                Self::NothingInCommon(format!("the server refused with alert {name}"))
            }
            AlertDescription::CloseNotify => Self::Closed,
            _ => Self::Alert(name),
        }
    }
}

impl From<io::Error> for ClientError {
    /// Classifies an error of reading from or writing to a connection.
    fn from(error: io::Error) -> Self {
        if let Some(reason) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return match reason {
                rustls::Error::AlertReceived(alert) => Self::Alert(alert_name(*alert)),
                other => Self::Protocol(other.to_string()),
            };
        }
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
                Self::Reset
            }
            io::ErrorKind::UnexpectedEof => Self::Closed,
            io::ErrorKind::InvalidData => Self::Protocol(error.to_string()),
            _ => Self::Io(error),
        }
    }
}

/// An error of [`rustls`] as an [`io::Error`].
pub(super) fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The name of an alert in RFC 8446 section 6.
fn alert_name(alert: AlertDescription) -> String {
    let known = format!("{alert:?}");
    let letters: Vec<char> = known.chars().collect();
    // The debug form of an unknown alert contains parentheses; the number is its name.
    if !letters.iter().all(char::is_ascii_alphanumeric) {
        return u8::from(alert).to_string();
    }
    let mut name = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let starts = letter.is_ascii_uppercase()
            && index > 0
            && (letters[index - 1].is_ascii_lowercase()
                || letters.get(index + 1).is_some_and(char::is_ascii_lowercase));
        if starts {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_have_the_names_of_the_standard() {
        let cases = [
            (AlertDescription::NoApplicationProtocol, "no_application_protocol"),
            (AlertDescription::UnknownCA, "unknown_ca"),
            (AlertDescription::UnknownPSKIdentity, "unknown_psk_identity"),
            (AlertDescription::Unknown(200), "200"),
        ];
        for (alert, name) in cases {
            assert_eq!(alert_name(alert), name);
        }
    }
}
