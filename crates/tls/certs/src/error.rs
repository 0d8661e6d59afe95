//! Errors and warnings about certificates and their files. Each message states the fault, its location and the
//! correction.

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
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file or folder of a CA cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The PEM encoding of a file is damaged.
    #[error("{}: damaged PEM: {reason}", path.display())]
    Pem {
        /// Path of the file.
        path: PathBuf,
        /// The fault with its line and the correction.
        reason: String,
    },
    /// A chain file contains no certificate.
    #[error("{}: holds no certificate ({found}); a chain file begins with -----BEGIN CERTIFICATE-----", path.display())]
    NoCertificate {
        /// Path of the file.
        path: PathBuf,
        /// Its contents: other PEM sections or no PEM.
        found: &'static str,
    },
    /// A certificate in a file is not valid X.509.
    #[error("{}: certificate number {number} is not valid X.509: {reason}", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Position of the certificate in the file, counted from 1.
        number: usize,
        /// Error of the parser.
        reason: String,
    },
    /// A chain file contains more than one server certificate.
    #[error("{}: holds two server certificates, \"{first}\" and \"{second}\"; give each its own file", path.display())]
    SeveralLeaves {
        /// Path of the file.
        path: PathBuf,
        /// Subject of the first.
        first: String,
        /// Subject of the second.
        second: String,
    },
    /// A chain file lacks the issuer of its server certificate and contains other certificates.
    #[error(
        "{}: the chain breaks after \"{subject}\": its issuer is \"{issuer}\", but the file goes on with \"{found}\"; \
         put the certificate of that issuer there", path.display()
    )]
    BrokenChain {
        /// Path of the file.
        path: PathBuf,
        /// Subject of the last certificate of the chain.
        subject: String,
        /// Its issuer, which is missing.
        issuer: String,
        /// Subject of a certificate in the file that is not part of the chain.
        found: String,
    },
    /// The server certificate's key has an unsupported type.
    #[error(
        "{}: the certificate's key is {algorithm}; use ECDSA P-256 or P-384, RSA of 2048 to 8192 bits, Ed25519 or ML-DSA",
        path.display()
    )]
    UnsupportedKey {
        /// Path of the file.
        path: PathBuf,
        /// The type of the key.
        algorithm: String,
    },
    /// A private key cannot be used.
    #[error("{}: {source}", path.display())]
    Key {
        /// Path of the file.
        path: PathBuf,
        /// Error of the keystore.
        source: KeyError,
    },
    /// A private key does not belong to the certificate.
    #[error(
        "the key in {} does not fit the certificate in {}, which is for \"{subject}\"; \
         the two files must be made as a pair",
        key.display(), chain.display()
    )]
    KeyMismatch {
        /// Path of the chain file.
        chain: PathBuf,
        /// Path of the key file.
        key: PathBuf,
        /// Subject of the certificate.
        subject: String,
    },
    /// A configured host name is invalid.
    #[error("\"{name}\" is not a host name: {reason}")]
    InvalidName {
        /// The name as written.
        name: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// Two hosts have the same name.
    #[error("the name \"{name}\" belongs to two hosts; keep it in one of them")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// The development CA in a folder cannot be used.
    #[error("{}: {reason}; remove the folder to have a new development CA made, then trust that one", path.display())]
    Development {
        /// Path of the faulty file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// A file to be created exists already.
    #[error("{} is there already, and is not overwritten; remove it first, or name another folder", path.display())]
    Exists {
        /// Path of the file.
        path: PathBuf,
    },
    /// A CA cannot issue certificates.
    #[error("{}: no CA that can issue certificates: {reason}", path.display())]
    Authority {
        /// Path of the faulty file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// A certificate could not be issued.
    #[error("cannot issue the certificate \"{subject}\": {source}")]
    Issue {
        /// Subject of the certificate.
        subject: String,
        /// Error of the library.
        source: rcgen::Error,
    },
    /// A file with revocation lists cannot be used.
    #[error("{}: no revocation list to use: {reason}", path.display())]
    Crl {
        /// Path of the file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// A staple file cannot be used.
    #[error("{}: no staple for the certificate in {}: {reason}", path.display(), chain.display())]
    Staple {
        /// Path of the file.
        path: PathBuf,
        /// Path of the certificate's chain file.
        chain: PathBuf,
        /// The fault.
        reason: String,
        /// Whether the response is valid apart from being expired.
        expired: bool,
    },
    /// A must-staple certificate (RFC 7633) has no staple, so clients refuse it.
    #[error(
        "{}: clients refuse the certificate of \"{title}\" without a staple (must-staple, RFC 7633), but {reason}",
        path.display()
    )]
    MustStaple {
        /// Path of the chain file.
        path: PathBuf,
        /// First name of the certificate.
        title: String,
        /// The cause and the correction.
        reason: &'static str,
    },
    /// The maintenance thread could not be started.
    #[error("cannot start to look after certificates: {0}")]
    Maintenance(io::Error),
    /// The thread that watches files could not be started.
    #[error("cannot start to watch files: {0}")]
    Watch(io::Error),
}

/// Warnings about certificates that are served nevertheless.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A certificate of the chain is expired.
    Expired {
        /// Path of the chain file.
        path: PathBuf,
        /// Subject of the certificate.
        subject: String,
        /// End of its validity.
        since: SystemTime,
    },
    /// The renewal of a certificate of the chain is late.
    ExpiresSoon {
        /// Path of the chain file.
        path: PathBuf,
        /// Subject of the certificate.
        subject: String,
        /// End of its validity.
        at: SystemTime,
    },
    /// A certificate of the chain is weak, so clients may refuse it.
    Weak {
        /// Path of the chain file.
        path: PathBuf,
        /// Subject of the certificate.
        subject: String,
        /// The weakness, for example `its key is RSA of 1024 bits`.
        weakness: String,
    },
    /// A certificate of the chain is not valid yet.
    NotYetValid {
        /// Path of the chain file.
        path: PathBuf,
        /// Subject of the certificate.
        subject: String,
        /// Start of its validity.
        until: SystemTime,
    },
    /// The server certificate has no subject alternative names, so current clients accept it for no host.
    NoNames {
        /// Path of the chain file.
        path: PathBuf,
        /// Subject of the certificate.
        subject: String,
    },
    /// The chain file lacks the intermediate that issued the server certificate.
    NoIntermediate {
        /// Path of the chain file.
        path: PathBuf,
        /// Subject of the missing intermediate.
        issuer: String,
        /// Address of its certificate.
        address: String,
    },
    /// A certificate of the file is not part of the chain and is not sent.
    Unused {
        /// Path of the chain file.
        path: PathBuf,
        /// Subject of the certificate.
        subject: String,
    },
    /// A revocation list is expired.
    CrlExpired {
        /// Path of the file.
        path: PathBuf,
        /// Issuer of the list.
        issuer: String,
        /// Its `nextUpdate`.
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

/// Formats a time, for example `2026-03-01 12:00:00 UTC`.
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
