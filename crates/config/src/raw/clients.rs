//! `client_certificates` of hosts.

use std::path::PathBuf;

use serde::Deserialize;

/// `client_certificates`: authentication of clients.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientCertificates {
    pub(crate) mode: ClientCertificateMode,
    pub(crate) ca: PathBuf,
    #[serde(default)]
    pub(crate) crl: Vec<PathBuf>,
    pub(crate) crl_mode: Option<CrlMode>,
    pub(crate) forward: Option<ForwardCertificate>,
}

/// Form in which upstreams receive a client's certificate.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ForwardCertificate {
    No,
    Certificate,
    Chain,
}

/// The treatment of certificates whose revocation is unknown.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CrlMode {
    Strict,
    Lenient,
}

/// Whether a client without a certificate is let in.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClientCertificateMode {
    Optional,
    Required,
}
