//! Certificate authorities trusted by a client.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use brisk_keys::{encoding_fault, pem_fault};
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

/// The authorities in a PEM file; at least one. The error names the line of a fault. Blocks on the file.
pub fn file_roots(path: &Path) -> Result<RootCertStore, RootsError> {
    let wrong = |reason: String| RootsError::File { path: path.to_owned(), reason };
    let pem = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    // The parser would skip the first authority because of a byte order mark.
    if let Some(fault) = encoding_fault(&pem) {
        return Err(wrong(fault.to_owned()));
    }
    let refused = |error: &dyn fmt::Display| wrong(pem_fault(&pem).unwrap_or_else(|| error.to_string()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| refused(&error))?;
        roots.add(certificate).map_err(|error| refused(&error))?;
    }
    if roots.is_empty() {
        return Err(refused(&"it holds no certificate in PEM form"));
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

#[cfg(test)]
mod tests {
    use brisk_testkit::ca::TestCa;

    use super::*;

    #[test]
    fn a_damaged_file_is_refused_with_line_and_correction() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let pem = TestCa::new().root_pem();
        let refusal = |text: &str| {
            fs::write(file.path(), text).unwrap();
            file_roots(file.path()).expect_err("a refusal").to_string()
        };
        assert!(refusal(&format!("\u{feff}{pem}{pem}")).contains("line 1 begins with a byte order mark"));
        assert!(refusal(&pem.replacen('\n', "\n> ", 1)).contains("line 2: not base64"));
        assert!(refusal("").contains("no certificate in PEM form"));
    }
}
