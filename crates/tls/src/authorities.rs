//! Authorities in files, with errors that name the line of a fault.

use std::fs;
use std::path::Path;

use brisk_keys::{encoding_fault, pem_fault};
use brisk_tls_base::{RootsError, file_roots};
use rustls::RootCertStore;

/// The authorities in a PEM file; at least one. Blocks on the file.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, RootsError> {
    let pem = fs::read(path).unwrap_or_default();
    let wrong = |reason| RootsError::File { path: path.to_owned(), reason };
    // The parser would skip the first authority because of a byte order mark.
    if let Some(fault) = encoding_fault(&pem) {
        return Err(wrong(fault.to_owned()));
    }
    file_roots(path).map_err(|error| pem_fault(&pem).map_or(error, wrong))
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
            authorities(file.path()).expect_err("a refusal").to_string()
        };
        assert!(refusal(&format!("\u{feff}{pem}{pem}")).contains("line 1 begins with a byte order mark"));
        assert!(refusal(&pem.replacen('\n', "\n> ", 1)).contains("line 2: not base64"));
        assert!(refusal("").contains("no certificate in PEM form"));
    }
}
