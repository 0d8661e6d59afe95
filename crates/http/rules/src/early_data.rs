//! Requests in early data: which requests get a response before the handshake is complete.
//!
//! Early data comes from the client of the resumed session, but it may be a replay (RFC 8446 section 8). A session is
//! used only once, so at most one copy is accepted. Only the client's `Finished` proves that the client itself sent the
//! request now, as opposed to an attacker that delayed it. Each route therefore decides which requests need not wait
//! for `Finished`.

use std::str::FromStr;

use brisk_http::message::RequestParts;
use http::{Method, header};

/// Requests of a route that get a response before the handshake is complete (RFC 8470). Other requests wait for its
/// end, which takes a round trip. Requests with `Upgrade` always wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EarlyDataPolicy {
    /// No requests.
    #[default]
    Hold,
    /// Requests with `GET`, `HEAD` or `OPTIONS` and without a body.
    Safe,
    /// Requests to these paths, with any method. They must be harmless at any time.
    Paths(Vec<EarlyPath>),
}

/// Paths whose requests may get an early response. The path of a request is compared without percent-encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlyPath {
    /// This path only.
    Exact(String),
    /// Paths with this prefix, compared byte by byte.
    Prefix(String),
}

/// Reason for rejecting a text as [`EarlyPath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EarlyPathError {
    /// The path does not begin with `/`.
    #[error("a path begins with a slash")]
    Slash,
    /// A `*` that is not the last character.
    #[error("a path has no \"*\" but at its end, where it stands for whatever follows")]
    Star,
}

impl FromStr for EarlyPath {
    type Err = EarlyPathError;

    /// Parses `/api/search` as one path, and `/img/*` as the prefix `/img/`.
    fn from_str(text: &str) -> Result<Self, EarlyPathError> {
        let (path, is_prefix) = text.strip_suffix('*').map_or((text, false), |prefix| (prefix, true));
        if !path.starts_with('/') {
            return Err(EarlyPathError::Slash);
        }
        if path.contains('*') {
            return Err(EarlyPathError::Star);
        }
        Ok(if is_prefix { Self::Prefix(path.to_owned()) } else { Self::Exact(path.to_owned()) })
    }
}

impl EarlyPath {
    fn takes(&self, path: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => path == exact.as_bytes(),
            Self::Prefix(prefix) => path.starts_with(prefix.as_bytes()),
        }
    }
}

impl EarlyDataPolicy {
    /// Whether a request to `path` (without percent-encoding) gets an early response.
    pub fn lets_pass(&self, head: &RequestParts, path: &[u8], bodyless: bool) -> bool {
        if head.headers.contains_key(header::UPGRADE) {
            return false;
        }
        match self {
            Self::Hold => false,
            // RFC 8470 section 4: safe methods only. PUT and DELETE are idempotent but not safe.
            Self::Safe => bodyless && matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS),
            Self::Paths(paths) => paths.iter().any(|early| early.takes(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use brisk_http::message::Request;

    use super::*;

    fn head(method: &str) -> RequestParts {
        Request::builder().method(method).body(()).expect("a request").into_parts().0
    }

    fn paths(texts: &[&str]) -> EarlyDataPolicy {
        EarlyDataPolicy::Paths(texts.iter().map(|text| text.parse().expect("a path")).collect())
    }

    #[test]
    fn nothing_passes_unless_it_is_allowed() {
        assert!(!EarlyDataPolicy::default().lets_pass(&head("GET"), b"/", true));
    }

    #[test]
    fn only_safe_methods_without_a_body_are_safe() {
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert!(EarlyDataPolicy::Safe.lets_pass(&head(method), b"/", true), "{method}");
            assert!(!EarlyDataPolicy::Safe.lets_pass(&head(method), b"/", false), "{method}");
        }
        for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "get"] {
            assert!(!EarlyDataPolicy::Safe.lets_pass(&head(method), b"/", true), "{method}");
        }
    }

    #[test]
    fn paths_pass_with_any_method() {
        let policy = paths(&["/api/search", "/img/*"]);
        for path in ["/api/search", "/img/", "/img/a/b"] {
            assert!(policy.lets_pass(&head("POST"), path.as_bytes(), false), "{path}");
        }
        for path in ["/api/search/x", "/api", "/img", "/"] {
            assert!(!policy.lets_pass(&head("GET"), path.as_bytes(), true), "{path}");
        }
    }

    #[test]
    fn switching_protocols_always_waits() {
        let mut head = head("GET");
        head.headers.insert(header::UPGRADE, "websocket".parse().expect("a value"));
        assert!(!EarlyDataPolicy::Safe.lets_pass(&head, b"/ws", true));
        assert!(!paths(&["/*"]).lets_pass(&head, b"/ws", true));
    }

    #[test]
    fn a_path_begins_with_a_slash_and_has_a_star_only_at_its_end() {
        assert_eq!("/*".parse(), Ok(EarlyPath::Prefix("/".to_owned())));
        assert_eq!("api".parse::<EarlyPath>(), Err(EarlyPathError::Slash));
        assert_eq!("*".parse::<EarlyPath>(), Err(EarlyPathError::Slash));
        assert_eq!("/a*/b".parse::<EarlyPath>(), Err(EarlyPathError::Star));
        assert_eq!("/a**".parse::<EarlyPath>(), Err(EarlyPathError::Star));
    }
}
