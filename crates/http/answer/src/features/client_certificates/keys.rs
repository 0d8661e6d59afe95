//! Keys of client certificates.

use std::path::PathBuf;

use serde::Deserialize;

/// Client certificates of a host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientCertificatesKeys {
    /// Client certificates, see [below](#client-certificates).
    pub client_certificates: Option<ClientCertificates>,
}

/// `client_certificates`: authentication of clients.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificates {
    /// Treatment of clients without a certificate: accepted or refused. A client with an invalid certificate is always refused.
    pub mode: ClientCertificateMode,
    /// PEM file with the accepted authorities.
    pub ca: PathBuf,
    /// Certificate revocation lists (RFC 5280): files with one list in DER, or any number in PEM. If the client's certificate
    /// or an intermediate is on a list, the client is refused with the alert `certificate_revoked`.
    #[serde(default)]
    pub crl: Vec<PathBuf>,
    /// Treatment of missing and expired lists. `"strict"`: every certificate of the client's chain below the root needs an
    /// unexpired list of its issuer (`nextUpdate`); otherwise the client is refused (`unknown_ca`). `"lenient"`: only
    /// certificates on a list, even an expired one, are refused.
    pub crl_mode: Option<CrlMode>,
    /// Headers for upstreams (RFC 9440), see below.
    pub forward: Option<ForwardCertificate>,
}

/// Form in which upstreams receive a client's certificate.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ForwardCertificate {
    /// No certificate.
    No,
    /// The certificate of the client.
    Certificate,
    /// The certificate and its intermediate certificates.
    Chain,
}

/// The treatment of certificates whose revocation is unknown.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum CrlMode {
    /// Refuse the certificate.
    Strict,
    /// Accept the certificate.
    Lenient,
}

/// Whether a client without a certificate is let in.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ClientCertificateMode {
    /// Accept clients without a certificate.
    Optional,
    /// Refuse clients without a certificate.
    Required,
}
