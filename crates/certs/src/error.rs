//! What can be wrong with certificates and their files, said so that an operator can put it right.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use brisk_keys::KeyError;
use thiserror::Error;
use time::OffsetDateTime;

/// Errors of certificates, keys and their files.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CertError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file or folder of a CA cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The PEM armour of a file is damaged.
    #[error("{}: damaged PEM: {reason}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        reason: String,
    },
    /// A chain file has no certificate in it.
    #[error("{}: holds no certificate ({found}); a chain file begins with -----BEGIN CERTIFICATE-----", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
        /// What it holds instead.
        found: &'static str,
    },
    /// One of the certificates is not valid X.509.
    #[error("{}: certificate number {number} is not valid X.509: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Its place in the file, counted from 1.
        number: usize,
        /// The error of the parser.
        reason: String,
    },
    /// A chain file holds more than one server certificate.
    #[error("{}: holds two server certificates, \"{first}\" and \"{second}\"; give each its own file", path.display())]
    SeveralLeaves {
        /// The file.
        path: PathBuf,
        /// Subject of one.
        first: String,
        /// Subject of the other.
        second: String,
    },
    /// The certificates of a file do not lead from one to the next.
    #[error(
        "{}: the chain breaks after \"{subject}\": its issuer is \"{issuer}\", but the file goes on with \"{found}\"; \
         put the certificate of that issuer there", path.display()
    )]
    BrokenChain {
        /// The file.
        path: PathBuf,
        /// The last certificate that fits.
        subject: String,
        /// Who issued it.
        issuer: String,
        /// What is in the file instead.
        found: String,
    },
    /// The server certificate has a kind of key that is not supported.
    #[error(
        "{}: the certificate's key is {algorithm}; use ECDSA P-256 or P-384, RSA of 2048 to 8192 bits, Ed25519 or ML-DSA",
        path.display()
    )]
    UnsupportedKey {
        /// The file.
        path: PathBuf,
        /// What was found.
        algorithm: String,
    },
    /// A private key cannot be used.
    #[error("{}: {source}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        source: KeyError,
    },
    /// A private key belongs to another certificate.
    #[error(
        "the key in {} does not fit the certificate in {}, which is for \"{subject}\"; \
         the two files must be made as a pair",
        key.display(), chain.display()
    )]
    KeyMismatch {
        /// The chain file.
        chain: PathBuf,
        /// The key file.
        key: PathBuf,
        /// Subject of the certificate.
        subject: String,
    },
    /// A host name cannot be one.
    #[error("\"{name}\" is not a host name: {reason}")]
    InvalidName {
        /// As written.
        name: String,
        /// What would be right.
        reason: &'static str,
    },
    /// Two hosts claim the same name.
    #[error("the name \"{name}\" belongs to two hosts; keep it in one of them")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// The development CA in a folder cannot be used.
    #[error("{}: {reason}; remove the folder to have a new development CA made, then trust that one", path.display())]
    Development {
        /// The file that is at fault.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file that is to be made is there already.
    #[error("{} is there already, and is not overwritten; remove it first, or name another folder", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A CA cannot be used.
    #[error("{}: no CA that can issue certificates: {reason}", path.display())]
    Authority {
        /// The file that is at fault.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A certificate could not be issued.
    #[error("cannot issue the certificate \"{subject}\": {source}")]
    Issue {
        /// Whose certificate.
        subject: String,
        /// What the issuing library said.
        source: rcgen::Error,
    },
    /// A file of revocation lists cannot be used.
    #[error("{}: no revocation list to use: {reason}", path.display())]
    Crl {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A staple file cannot be used.
    #[error("{}: no staple for the certificate in {}: {reason}", path.display(), chain.display())]
    Staple {
        /// The file.
        path: PathBuf,
        /// The chain file of the certificate.
        chain: PathBuf,
        /// Why.
        reason: String,
        /// It was right, and its time is over.
        expired: bool,
    },
    /// A certificate that clients refuse without a staple, for which there is none.
    #[error(
        "{}: clients refuse the certificate of \"{title}\" without a staple (must-staple, RFC 7633), but {reason}",
        path.display()
    )]
    MustStaple {
        /// The chain file.
        path: PathBuf,
        /// The first of its names.
        title: String,
        /// Why there is none, and what would help.
        reason: &'static str,
    },
    /// The thread that looks after certificates could not be started.
    #[error("cannot start to look after certificates: {0}")]
    Care(io::Error),
    /// The thread that watches files could not be started.
    #[error("cannot start to watch files: {0}")]
    Watch(io::Error),
}

/// A warning about a certificate that is served nevertheless.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A certificate of the chain is past its end.
    Expired {
        /// The chain file.
        path: PathBuf,
        /// Which certificate.
        subject: String,
        /// When it ended.
        since: SystemTime,
    },
    /// A certificate of the chain should have been renewed by now.
    ExpiresSoon {
        /// The chain file.
        path: PathBuf,
        /// Which certificate.
        subject: String,
        /// When it ends.
        at: SystemTime,
    },
    /// A certificate of the chain is one that clients may refuse.
    Weak {
        /// The chain file.
        path: PathBuf,
        /// Which certificate.
        subject: String,
        /// In which way: `its key is RSA of 1024 bits`.
        weakness: String,
    },
    /// A certificate of the chain is not valid yet.
    NotYetValid {
        /// The chain file.
        path: PathBuf,
        /// Which certificate.
        subject: String,
        /// When it begins.
        until: SystemTime,
    },
    /// The server certificate carries no subject alternative name, so no current client accepts it for any host.
    NoNames {
        /// The chain file.
        path: PathBuf,
        /// Which certificate.
        subject: String,
    },
    /// The server certificate stands alone although its issuer is an intermediate.
    NoIntermediate {
        /// The chain file.
        path: PathBuf,
        /// The issuer that is missing.
        issuer: String,
        /// Where its certificate is.
        address: String,
    },
    /// A certificate of the file is no part of the chain and is not sent.
    Unused {
        /// The chain file.
        path: PathBuf,
        /// Which certificate.
        subject: String,
    },
    /// A revocation list should have been replaced by a newer one.
    CrlExpired {
        /// The file.
        path: PathBuf,
        /// Whose list.
        issuer: String,
        /// When the next one was due.
        since: SystemTime,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { path, subject, since } => {
                write!(
                    f,
                    "{}: the certificate \"{subject}\" expired on {}; renew it",
                    path.display(),
                    day(*since)
                )
            }
            Self::ExpiresSoon { path, subject, at } => write!(
                f,
                "{}: the certificate \"{subject}\" expires on {}; renew it now, it should have been renewed before",
                path.display(),
                day(*at)
            ),
            Self::Weak { path, subject, weakness } => write!(
                f,
                "{}: the certificate \"{subject}\" is weak: {weakness}; current clients refuse such certificates, have a new \
                 one issued",
                path.display()
            ),
            Self::NotYetValid { path, subject, until } => write!(
                f,
                "{}: the certificate \"{subject}\" is not valid before {}; is this machine's clock right?",
                path.display(),
                day(*until)
            ),
            Self::NoNames { path, subject } => write!(
                f,
                "{}: the certificate \"{subject}\" has no subject alternative names; \
                 clients will refuse it for every host",
                path.display()
            ),
            Self::NoIntermediate { path, issuer, address } => write!(
                f,
                "{}: the intermediate \"{issuer}\" is missing; append its certificate (the CA's \"full chain\" file has it): \
                 until brisk serve has it from {address}, clients that do not fetch it themselves will fail",
                path.display()
            ),
            Self::Unused { path, subject } => {
                write!(
                    f,
                    "{}: the certificate \"{subject}\" is no part of the chain and is left out",
                    path.display()
                )
            }
            Self::CrlExpired { path, issuer, since } => {
                write!(
                    f,
                    "{}: the revocation list of \"{issuer}\" expired on {}; fetch the current one",
                    path.display(),
                    day(*since)
                )
            }
        }
    }
}

/// `2026-03-01 12:00:00 UTC`.
pub(crate) fn day(at: SystemTime) -> String {
    let at = OffsetDateTime::from(at);
    format!("{} {:02}:{:02}:{:02} UTC", at.date(), at.hour(), at.minute(), at.second())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_warning_names_file_certificate_and_day() {
        let warning = Warning::Expired {
            path: "a.pem".into(),
            subject: "CN=a".into(),
            since: UNIX_EPOCH + Duration::from_hours(24),
        };
        assert_eq!(
            warning.to_string(),
            "a.pem: the certificate \"CN=a\" expired on 1970-01-02 00:00:00 UTC; renew it"
        );
    }

    #[test]
    fn a_mismatch_names_both_files() {
        let error =
            CertError::KeyMismatch { chain: "a.pem".into(), key: "b.key".into(), subject: "CN=a".into() };
        let text = error.to_string();
        assert!(text.contains("a.pem") && text.contains("b.key"), "{text}");
    }
}
