//! Errors of tickets, of their keys, and of each [`KeySource`](crate::KeySource).

use std::{io, path::PathBuf, time::Duration};

/// Reasons why a ticket cannot be opened. In each case the client gets a full handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No key has the ticket's name: the key was wiped, or the ticket belongs to another server.
    #[error("the ticket was sealed with a key that is not on the keyring")]
    UnknownKey,
    /// The ticket is authentic but expired.
    #[error("the ticket is older than its lifetime")]
    Expired,
    /// Authentication failed: the ticket was modified, or its name matches by chance.
    #[error("the ticket is forged or damaged")]
    Forged,
}

/// Invalid arguments of [`RotationSettings::new`](crate::RotationSettings::new).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RotationError {
    /// RFC 8446 section 4.6.1 limits the lifetime to seven days.
    #[error("tickets cannot live for {0:?}: the longest lifetime that TLS allows is 7 days")]
    LifetimeTooLong(Duration),
    /// Times have a resolution of one second.
    #[error("the lifetime of tickets and the rotation interval of their keys are at least 1 second")]
    TooShort,
    /// The number of keys is limited, because opening a ticket searches all of them.
    #[error(
        "the rotation interval is too short: with a ticket lifetime of {lifetime:?} it is at least {least:?}"
    )]
    TooManyKeys {
        /// Requested lifetime.
        lifetime: Duration,
        /// Minimum interval for this lifetime.
        least: Duration,
    },
    /// A key would have to be created before its predecessor seals.
    #[error("a ticket key cannot be made {lead:?} before it seals when keys rotate every {interval:?}")]
    LeadTooLong {
        /// Requested lead.
        lead: Duration,
        /// Requested interval.
        interval: Duration,
    },
}

/// Invalid length of a [`FleetSecret`](crate::FleetSecret).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretLength {
    /// Shorter than 32 bytes, so an attacker could guess it.
    #[error("a fleet secret has 32 to 4096 bytes, not {0}; `openssl rand -base64 48` makes a good one")]
    TooShort(usize),
    /// Longer than 4 KiB: probably another file than intended.
    #[error("a fleet secret has 32 to 4096 bytes, not more; `openssl rand -base64 48` makes a good one")]
    TooLong,
}

/// Errors of reading ticket keys or the fleet secret from a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeySourceError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file does not contain a fleet secret.
    #[error("{}: {source}", path.display())]
    Secret {
        /// Path of the file.
        path: PathBuf,
        /// The fault.
        source: SecretLength,
    },
    /// A file does not contain a ticket key.
    #[error("{}: {source}", path.display())]
    TicketKey {
        /// Path of the file.
        path: PathBuf,
        /// The fault.
        source: TicketKeyLength,
    },
}

/// Invalid length of a [`TicketKeyFile`](crate::TicketKeyFile).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a ticket key file has 48 or 80 bytes, as `openssl rand 80` writes them; this one has {length}{hint}"
)]
pub struct TicketKeyLength {
    length: usize,
    hint: &'static str,
}

impl TicketKeyLength {
    /// The error for `contents`, of which at most the first 4096 bytes are needed.
    pub(crate) fn of(contents: &[u8]) -> Self {
        let is_text =
            contents.len() > 48 && contents.iter().all(|byte| matches!(byte, b'\n' | b'\r' | b' '..=b'~'));
        let hint = match contents.len() {
            4096.. => " or more",
            _ if is_text => " and is text: leave out -hex and -base64",
            _ => "",
        };
        Self { length: contents.len(), hint }
    }
}

/// Reasons for an error of [`TicketKeyring::force_rotation`](crate::TicketKeyring::force_rotation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForceError {
    /// The source is [`KeySource::Derived`](crate::KeySource::Derived).
    #[error(
        "the ticket keys are derived from the fleet's secret: put a new secret on every gateway and reload them"
    )]
    Derived,
    /// The source is [`KeySource::Files`](crate::KeySource::Files).
    #[error("the ticket keys are in files: put a new key first, on every gateway, and reload them")]
    Files,
}
