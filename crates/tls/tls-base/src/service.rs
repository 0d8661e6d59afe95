//! TLS of connections to services of the operator, such as Redis.

use std::io;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use crate::{suites, system_roots};

/// The configuration of a client that trusts `authorities`, or without them those of the system, for which it blocks on files.
///
/// # Errors
///
/// An authority that cannot be parsed, or a system without any. With an empty list, handshakes fail later.
pub fn service_config(authorities: Option<&[CertificateDer<'static>]>) -> io::Result<Arc<ClientConfig>> {
    let roots = match authorities {
        None => system_roots().map_err(io::Error::other)?,
        Some(authorities) => {
            let mut roots = RootCertStore::empty();
            for certificate in authorities {
                roots.add(certificate.clone()).map_err(io::Error::other)?;
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
