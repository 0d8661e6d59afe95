//! Why a ticket does not open, and why its keys cannot be had or changed as wished.

use std::{io, path::PathBuf, time::Duration};

/// Why a ticket cannot be opened. In each case the client gets a full handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No key of that name: it has been wiped since, or the ticket is another server's.
    #[error("the ticket was sealed with a key that is not on the keyring")]
    UnknownKey,
    /// Genuine, but older than tickets live.
    #[error("the ticket is older than its lifetime")]
    Expired,
    /// Not sealed with the key it names, or changed since, or no ticket of ours at all.
    #[error("the ticket is forged or damaged")]
    Forged,
}

/// Invalid rotation settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RotationError {
    /// RFC 8446 section 4.6.1 allows seven days.
    #[error("tickets cannot live for {0:?}: the longest lifetime that TLS allows is 7 days")]
    LifetimeTooLong(Duration),
    /// Times are kept in whole seconds.
    #[error("the lifetime of tickets and the rotation interval of their keys are at least 1 second")]
    TooShort,
    /// Every key costs a little at every ticket that is opened.
    #[error(
        "the rotation interval is too short: with a ticket lifetime of {lifetime:?} it is at least {least:?}"
    )]
    TooManyKeys {
        /// The lifetime asked for.
        lifetime: Duration,
        /// The shortest interval that goes with it.
        least: Duration,
    },
    /// A key would have to be made before its predecessor seals.
    #[error("a ticket key cannot be made {lead:?} before it seals when keys rotate every {interval:?}")]
    LeadTooLong {
        /// The lead asked for.
        lead: Duration,
        /// The interval asked for.
        interval: Duration,
    },
}

/// Invalid length of a fleet's secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretLength {
    /// What can be guessed is no secret.
    #[error("a fleet secret has 32 to 4096 bytes, not {0}; `openssl rand -base64 48` makes a good one")]
    TooShort(usize),
    /// More than 4 KiB: most likely not the file that was meant.
    #[error("a fleet secret has 32 to 4096 bytes, not more; `openssl rand -base64 48` makes a good one")]
    TooLong,
}

/// Errors of reading ticket keys or the fleet's secret from a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeySourceError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file does not hold a fleet's secret.
    #[error("{}: {source}", path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: SecretLength,
    },
    /// A file does not hold a ticket key.
    #[error("{}: {source}", path.display())]
    TicketKey {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: TicketKeyLength,
    },
}

/// Why bytes do not do as a ticket key of nginx's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a ticket key file has 48 or 80 bytes, as `openssl rand 80` writes them; this one has {length}{hint}"
)]
pub struct TicketKeyLength {
    length: usize,
    hint: &'static str,
}

impl TicketKeyLength {
    /// For a file of these contents; no more than the first 4096 bytes need be given.
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

/// Why a rotation cannot be forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForceError {
    /// The keys are the secret's.
    #[error(
        "the ticket keys are derived from the fleet's secret: put a new secret on every gateway and reload them"
    )]
    Derived,
    /// The keys are the operator's.
    #[error("the ticket keys are in files: put a new key first, on every gateway, and reload them")]
    Files,
}
