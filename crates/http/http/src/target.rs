//! Targets of requests over HTTP/1.1: the server as a whole, and characters that a client should have encoded.
//!
//! RFC 3986 permits `"`, `<`, `>` and a backtick in no URL, but many programs send them unencoded. They are encoded here, once,
//! before anything else reads the target: routes compare the decoded path in any case, and upstreams, redirects and logs
//! contain the valid form only. So no reader of a URL further on can end it at one of these characters.

use bytes::Bytes;
use http::Method;
use http::uri::{PathAndQuery, Uri};

/// The target with these characters encoded; `None` if it contains none, or is not a path with a query.
pub(crate) fn encoded(target: &[u8]) -> Option<Bytes> {
    let is_raw = |byte: &u8| matches!(byte, b'"' | b'<' | b'>' | b'`');
    // `*` and the authority form have no path.
    let has_path = target.starts_with(b"/") || memchr::memmem::find(target, b"://").is_some();
    if !has_path || !target.iter().any(is_raw) {
        return None;
    }
    let mut encoded = Vec::with_capacity(target.len() + 16);
    for byte in target {
        match byte {
            b'"' => encoded.extend_from_slice(b"%22"),
            b'<' => encoded.extend_from_slice(b"%3C"),
            b'>' => encoded.extend_from_slice(b"%3E"),
            b'`' => encoded.extend_from_slice(b"%60"),
            other => encoded.push(*other),
        }
    }
    Some(encoded.into())
}

/// Whether the target of a request is the server as a whole in absolute form: `OPTIONS` with neither path nor query (RFC 9112
/// section 3.2.4). `http::Uri` does not distinguish an absent path from `/`.
pub(crate) fn names_server(method: &Method, target: &[u8]) -> bool {
    let authority = memchr::memmem::find(target, b"://").map(|at| &target[at + 3..]);
    *method == Method::OPTIONS
        && !target.starts_with(b"/")
        && authority.is_some_and(|authority| !authority.iter().any(|byte| matches!(byte, b'/' | b'?' | b'#')))
}

/// The target with the path `*`, as in HTTP/2 and HTTP/3 (RFC 9113 section 8.3.1).
pub(crate) fn of_server(target: Uri) -> Uri {
    let mut parts = target.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::from_static("*"));
    Uri::from_parts(parts).unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_with_such_characters_are_changed() {
        let text = |target: &str| {
            encoded(target.as_bytes()).map(|bytes| String::from_utf8(bytes.into()).expect("text"))
        };
        assert_eq!(text("/a<b>`c?q=\"x\"&r=<>`").as_deref(), Some("/a%3Cb%3E%60c?q=%22x%22&r=%3C%3E%60"));
        assert_eq!(text("https://a.example/<").as_deref(), Some("https://a.example/%3C"));
        for other in ["/a?b=%22", "*", "a.example:443", "<"] {
            assert_eq!(text(other), None, "{other}");
        }
    }
}
