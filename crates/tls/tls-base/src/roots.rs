//! Certificate authorities trusted by a client.

use std::fs;
use std::path::{Path, PathBuf};

use brisk_keys::pem_certificates;
use rustls::RootCertStore;
use thiserror::Error;

/// Reasons why a [`RootCertStore`] cannot be loaded.
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

/// The authorities in a PEM file; at least one. [`RootsError::File`] names the fault, in PEM with its line. Blocks on the file.
pub fn file_roots(path: &Path) -> Result<RootCertStore, RootsError> {
    let wrong = |reason: String| RootsError::File { path: path.to_owned(), reason };
    let pem = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in pem_certificates(&pem).map_err(wrong)? {
        // Unlike the store of the system, a file of the operator must be right as a whole: an authority
        // that is skipped would be noticed by failed handshakes only.
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("it holds no certificate in PEM form".to_owned()));
    }
    Ok(roots)
}

/// The authorities that the system trusts; at least one, otherwise [`RootsError::System`]. Blocks on files.
pub fn system_roots() -> Result<RootCertStore, RootsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Stores of systems often contain old certificates that cannot be parsed; one of them must not disable all others.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    // Errors matter only without any authority: one unreadable file beside good ones is usual.
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
