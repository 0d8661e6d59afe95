//! Certificate authorities trusted by a client.

use std::fmt;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

/// Reasons why trusted authorities cannot be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RootsError {
    /// A file cannot be read or contains no usable certificate.
    #[error("cannot read authorities from {}: {reason}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// The system has no authorities.
    #[error("the system has no certificate authorities ({0}); install ca-certificates or name a ca file")]
    System(String),
}

/// The authorities in a PEM file; at least one. Blocks on the file.
pub fn file_roots(path: &Path) -> Result<RootCertStore, RootsError> {
    let wrong =
        |reason: &dyn fmt::Display| RootsError::File { path: path.to_owned(), reason: reason.to_string() };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"it holds no certificate in PEM form"));
    }
    Ok(roots)
}

/// The authorities that the system trusts; at least one. Blocks on files.
pub fn system_roots() -> Result<RootCertStore, RootsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    let reasons: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
    Err(RootsError::System(reasons.join("; ")))
}
