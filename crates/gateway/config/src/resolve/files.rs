//! The file that caused an error of a certificate.

use std::path::Path;

use brisk_certs::CertError;

/// The key of the file, certificate or private key, that caused `error`.
pub(super) fn blamed(error: &CertError, key: &Path) -> &'static str {
    match error {
        CertError::Read { path, .. } if path == key => "key",
        CertError::Key { .. } | CertError::KeyMismatch { .. } => "key",
        _ => "chain",
    }
}
