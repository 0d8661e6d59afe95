//! The URL of a load.

use brisk_net::Target;
use http::uri::{PathAndQuery, Scheme, Uri};

use crate::error::BenchError;

/// The parts of a URL.
#[derive(Clone, Debug)]
pub(super) struct UrlParts {
    pub(super) scheme: Scheme,
    pub(super) host: String,
    pub(super) authority: http::uri::Authority,
    pub(super) target: Target,
    pub(super) path: PathAndQuery,
}

impl UrlParts {
    pub(super) fn of(url: &str) -> Result<Self, BenchError> {
        let wrong = |why: &str| BenchError::settings(format!("{url:?} {why}, as https://localhost:8443/"));
        let uri: Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
        let (scheme, port) = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => (Scheme::HTTPS, 443),
            Some(scheme) if *scheme == Scheme::HTTP => (Scheme::HTTP, 80),
            _ => return Err(wrong("does not begin with https:// or http://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
        // `Authority::host` would drop user and password silently.
        if authority.as_str().contains('@') {
            return Err(wrong("has a user name, which brisk bench does not send"));
        }
        let target = Target::new(authority.host(), authority.port_u16().unwrap_or(port));
        // Names in certificates and in SNI have no brackets, unlike `Host`.
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        Ok(Self { scheme, host, authority: authority.clone(), target, path })
    }

    /// Whether connections are without TLS: the scheme is `http`.
    pub(super) fn is_plain(&self) -> bool {
        self.scheme == Scheme::HTTP
    }
}
