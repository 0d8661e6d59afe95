//! Errors of a run, and failures of single operations.

use std::path::{Path, PathBuf};

use brisk_tls_client::ClientError;
use thiserror::Error;

use crate::result::Cause;

/// Why [`run`](crate::run()) failed as a whole. The message has one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The [`Options`](crate::options::Options) are invalid.
    #[error("{0}")]
    Settings(String),
    /// A file of the settings cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        reason: std::io::Error,
    },
    /// The first connection failed, so nothing was measured.
    #[error("{target}: {failure}")]
    Target {
        /// Address of the target.
        target: String,
        /// The failure.
        failure: Failure,
    },
    /// The system has no threads or timers left.
    #[error("cannot start: {0}")]
    System(std::io::Error),
}

impl From<std::io::Error> for BenchError {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}

impl BenchError {
    /// Whether the settings are wrong, as opposed to the target or the system.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Settings(_) | Self::File { .. })
    }

    pub(crate) fn settings(text: impl Into<String>) -> Self {
        Self::Settings(text.into())
    }

    pub(crate) fn file(path: &Path, reason: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), reason }
    }
}

/// The failure of one operation. It ends the run only within [`BenchError::Target`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Failure {
    /// The [`Cause`] under which the failure is counted.
    pub cause: Cause,
    /// The message, in one line.
    pub message: String,
    /// The TLS alert of the server, if it sent one.
    pub alert: Option<String>,
}

impl Failure {
    pub(crate) fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into(), alert: None }
    }

    /// A failure to read from or write to a connection. `doing` describes the operation: `waiting for the response`.
    pub(crate) fn io(error: &std::io::Error, doing: &str) -> Self {
        use std::io::ErrorKind as Kind;
        match error.kind() {
            Kind::ConnectionReset | Kind::BrokenPipe | Kind::ConnectionAborted => {
                Self::new(Cause::Reset, format!("the server reset the connection while {doing}"))
            }
            Kind::UnexpectedEof => {
                Self::new(Cause::Closed, format!("the server closed the connection while {doing}"))
            }
            _ => Self::new(Cause::Response, format!("{error}, while {doing}")),
        }
    }

    /// A failure to connect to `address`.
    pub(crate) fn connect(error: &std::io::Error, address: std::net::SocketAddr) -> Self {
        use std::io::ErrorKind as Kind;
        let cause = match error.kind() {
            Kind::ConnectionRefused => Cause::Refused,
            // Without a free port, Linux reports `EADDRNOTAVAIL` from `connect`, and `EADDRINUSE` from `bind` to port 0.
            Kind::AddrNotAvailable | Kind::AddrInUse => Cause::Exhausted,
            Kind::ConnectionReset => Cause::Reset,
            Kind::TimedOut => Cause::Timeout,
            // `io::ErrorKind` has no kind for a lack of descriptors.
            _ if is_exhausted(error) => Cause::Exhausted,
            _ => Cause::Unreachable,
        };
        Self::new(cause, format!("cannot connect to {address}: {error}"))
    }
}

/// Whether the process or the machine has no file descriptors left (`EMFILE`, `ENFILE`).
fn is_exhausted(error: &std::io::Error) -> bool {
    [libc::EMFILE, libc::ENFILE].map(Some).contains(&error.raw_os_error())
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::from(&error)
    }
}

impl From<&ClientError> for Failure {
    fn from(error: &ClientError) -> Self {
        let cause = match error {
            ClientError::Unreachable { .. } => Cause::Unreachable,
            ClientError::ConnectTimeout { .. } | ClientError::HandshakeTimeout(_) => Cause::Timeout,
            ClientError::Reset => Cause::Reset,
            ClientError::Closed => Cause::Closed,
            ClientError::Alert(_) => Cause::Alert,
            ClientError::ProtocolRefused => Cause::Alpn,
            ClientError::WrongName(_) => Cause::WrongName,
            ClientError::Expired | ClientError::NotYetValid => Cause::Expired,
            ClientError::UnknownIssuer => Cause::UnknownAuthority,
            ClientError::Certificate(_) => Cause::Certificate,
            _ => Cause::Handshake,
        };
        let alert = match error {
            ClientError::Alert(name) => Some(name.clone()),
            ClientError::ProtocolRefused => Some("no_application_protocol".to_owned()),
            _ => None,
        };
        let message = match error {
            ClientError::UnknownIssuer => {
                format!("{error}; name its file with --ca, or do without verification with --insecure")
            }
            _ => error.to_string(),
        };
        Self { cause, message, alert }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_ports_is_a_cause_of_its_own() {
        let address = ([192, 0, 2, 1], 443).into();
        for code in [libc::EADDRINUSE, libc::EADDRNOTAVAIL, libc::EMFILE] {
            let failure = Failure::connect(&std::io::Error::from_raw_os_error(code), address);
            assert_eq!(failure.cause, Cause::Exhausted, "{failure}");
        }
    }
}
