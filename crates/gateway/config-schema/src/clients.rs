//! `client_certificates` of hosts.

use std::path::PathBuf;

use serde::Deserialize;

/// `client_certificates`: authentication of clients.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificates {
    pub mode: ClientCertificateMode,
    pub ca: PathBuf,
    #[serde(default)]
    pub crl: Vec<PathBuf>,
    pub crl_mode: Option<CrlMode>,
    pub forward: Option<ForwardCertificate>,
}

/// Form in which upstreams receive a client's certificate.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ForwardCertificate {
    No,
    Certificate,
    Chain,
}

/// The treatment of certificates whose revocation is unknown.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum CrlMode {
    Strict,
    Lenient,
}

/// Whether a client without a certificate is let in.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ClientCertificateMode {
    Optional,
    Required,
}
