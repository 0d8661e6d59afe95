//! [`ServerError`], the reason for which a server cannot start or continue.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

/// Reason for which a server cannot start or continue.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A listener's address cannot be bound.
    #[error("cannot listen on {address}: {source}{}", hint(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refuses a thread or a runtime.
    #[error("cannot start a thread: {0}")]
    Threads(#[source] io::Error),
    /// The program's signals cannot be received.
    #[error("cannot receive signals: {0}")]
    Signals(#[source] io::Error),
    /// The service manager cannot be notified of the start, or the addresses cannot be reported.
    #[error("cannot report the start: {0}")]
    Report(#[source] io::Error),
    /// A worker cannot go on: the thread or one of its tasks panicked, or
    /// [`Service::start_worker`](crate::Service::start_worker) or the runtime failed.
    #[error("worker {number} failed: {reason}. The process ends, so that its supervisor restarts it")]
    Worker {
        /// The number of the worker.
        number: usize,
        /// The panic, or the error.
        reason: String,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another program has it, or another brisk",
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need root or the capability CAP_NET_BIND_SERVICE"
        }
        io::ErrorKind::AddrNotAvailable => "; no interface of this machine has that address",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_that_cannot_be_had_says_why_and_what_would_help() {
        for (kind, help) in [
            (io::ErrorKind::AddrInUse, "another program"),
            (io::ErrorKind::PermissionDenied, "CAP_NET_BIND_SERVICE"),
            (io::ErrorKind::AddrNotAvailable, "no interface"),
        ] {
            let address = SocketAddr::from(([127, 0, 0, 1], 443));
            let message = ServerError::Listen { address, source: kind.into() }.to_string();
            assert!(message.starts_with("cannot listen on 127.0.0.1:443: "), "{message}");
            assert!(message.contains(help), "{message}");
        }
    }
}
