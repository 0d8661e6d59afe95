//! Client certificates: their keys, and their form towards upstreams. `brisk-config` resolves the demands on handshakes.

mod client_cert;
mod keys;
pub(crate) mod stage;

use super::{Context, HostFeature, HostScope};
pub use client_cert::ClientCert;
pub(crate) use client_cert::NAMES;
pub use keys::{
    ClientCertificateMode, ClientCertificates, ClientCertificatesKeys, CrlMode, ForwardCertificate,
};

/// `client_certificates` of hosts.
#[derive(Debug)]
pub struct ClientCertificatesFeature;

impl HostFeature for ClientCertificatesFeature {
    type Keys = ClientCertificatesKeys;
    type Settings = ClientCert;

    fn resolve(keys: &ClientCertificatesKeys, _: &HostScope<'_>, _: &mut Context<'_>) -> ClientCert {
        match keys.client_certificates.as_ref().and_then(|clients| clients.forward) {
            Some(ForwardCertificate::Certificate) => ClientCert::Certificate,
            Some(ForwardCertificate::Chain) => ClientCert::Chain,
            Some(ForwardCertificate::No) | None => ClientCert::None,
        }
    }
}
