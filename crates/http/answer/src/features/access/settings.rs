//! Settings of access control and authentication.

use std::sync::Arc;

use brisk_access::{CertificateRules, NetworkRules, PasswordThreads, Passwords};
use brisk_jwt::TokenCheck;
use http::HeaderValue;

/// Clients that may use a route.
#[derive(Clone, Debug, Default)]
pub struct AccessSettings {
    /// Networks of clients. Default: those of the host.
    pub networks: Option<Arc<NetworkRules>>,
    /// Certificates of clients. The host must [keep](brisk_tls::settings::ClientCertificates::keep) them. Default: not
    /// required.
    pub certificates: Option<Arc<CertificateRules>>,
    /// Users with passwords. Default: not required.
    pub basic_auth: Option<BasicAuth>,
    /// Tokens of an issuer. Default: not required.
    pub tokens: Option<TokenAuth>,
    /// Whether one of the restrictions above is sufficient, as opposed to all of them. Default: `false`.
    pub is_any_sufficient: bool,
}

/// Basic authentication (RFC 7617).
#[derive(Clone, Debug)]
pub struct BasicAuth {
    /// The users.
    pub passwords: Arc<Passwords>,
    /// The threads that verify passwords.
    pub threads: PasswordThreads,
    /// Value of `WWW-Authenticate`.
    pub challenge: HeaderValue,
    /// Whether upstreams get the credentials.
    pub forwards: bool,
}

/// Authentication by tokens (RFC 7519).
#[derive(Clone, Debug)]
pub struct TokenAuth {
    /// Rules, keys and headers for the upstream.
    pub check: Arc<TokenCheck>,
    /// Cookie with the token; `None` for `Authorization: Bearer` (RFC 6750 section 2.1).
    pub cookie: Option<String>,
    /// Whether upstreams get the header `Authorization`.
    pub forwards: bool,
}

impl BasicAuth {
    /// The value of `WWW-Authenticate` for a realm; `None` unless the realm is printable ASCII.
    pub fn challenge(realm: &str) -> Option<HeaderValue> {
        let is_printable = realm.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        // RFC 9110 section 5.6.4: a quoted string.
        let quoted = realm.replace('\\', "\\\\").replace('"', "\\\"");
        let value = format!("Basic realm=\"{quoted}\", charset=\"UTF-8\"");
        HeaderValue::try_from(value).ok().filter(|_| is_printable)
    }
}
