//! TLS of connections to services of the operator, such as Redis.

use std::io;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::{suites, system_roots};

/// The configuration of a client that trusts the authorities in `pem`, or without it those of the system, for which it blocks
/// on files.
///
/// # Errors
///
/// An authority that cannot be read, or none.
pub fn service_config(pem: Option<&[u8]>) -> io::Result<Arc<ClientConfig>> {
    let roots = match pem {
        None => system_roots().map_err(io::Error::other)?,
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
            }
            roots
        }
    };
    let provider = CryptoProvider { cipher_suites: suites().to_vec(), ..aws_lc_rs::default_provider() };
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
