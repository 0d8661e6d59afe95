//! Parts of a URL that a request needs.

use http::uri::Scheme;
use http::{HeaderValue, Uri};
use url::Url;

use brisk_net::dial::Target;

use crate::error::Reason;

/// Destination of a request.
#[derive(Debug)]
pub(crate) struct RequestTarget {
    pub(crate) tls: bool,
    /// Host name; an IPv6 address in brackets.
    pub(crate) host: String,
    pub(crate) dial: Target,
    /// Value of the `Host` header; with the port unless it is the default of the scheme.
    pub(crate) header: HeaderValue,
    /// Path and query.
    pub(crate) path: Uri,
}

impl RequestTarget {
    /// Parses an absolute URL with scheme `http` or `https`.
    ///
    /// # Errors
    ///
    /// [`Reason::Url`] for any other URI, and for one with user information.
    pub(crate) fn of(uri: &Uri) -> Result<Self, Reason> {
        let wrong = |what: &str| Reason::Url(format!("{uri} {what}"));
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(wrong("begins with neither https:// nor http://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
        // RFC 9110 section 4.2.4: user information is an error, because it is likely to hide the real host.
        if authority.host().is_empty() || authority.as_str().contains('@') {
            return Err(wrong("has no bare host name"));
        }
        let usual = if tls { 443 } else { 80 };
        let port = authority.port_u16().unwrap_or(usual);
        let host = authority.host().to_owned();
        let shown = if port == usual { host.clone() } else { format!("{host}:{port}") };
        // RFC 9110 section 4.2.3: an empty path is equivalent to "/", also before a query. `to_string` adds the slash.
        let path = uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        Ok(Self {
            tls,
            dial: Target::new(&host, port),
            header: HeaderValue::from_str(&shown).map_err(|_| wrong("has no host name"))?,
            path: path.parse().map_err(|_| wrong("has an invalid path"))?,
            host,
        })
    }

    /// Whether both have the same scheme, host and port (RFC 9110 section 4.3.1).
    pub(crate) fn has_origin_of(&self, other: &Self) -> bool {
        let is_same_host = self.header.as_bytes().eq_ignore_ascii_case(other.header.as_bytes());
        self.tls == other.tls && is_same_host
    }
}

/// Resolves a `Location`, which may be relative, against `from` (RFC 9110 section 10.2.2, RFC 3986 section 5.2). `None` if the
/// redirect is not followed: malformed, neither `https` nor `http`, or a change from `https` to `http`.
pub(crate) fn redirected(from: &Uri, location: &str) -> Option<Uri> {
    // `http::Uri` cannot resolve relative references.
    let next = Url::parse(&from.to_string()).ok()?.join(location).ok()?;
    let is_followed = match next.scheme() {
        "https" => true,
        // Otherwise an attacker on the path could replace a response that the operator expects from an
        // authenticated server.
        "http" => from.scheme() == Some(&Scheme::HTTP),
        _ => false,
    };
    // The parser drops the fragment.
    if is_followed { next.as_str().parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().expect("an address")
    }

    #[test]
    fn the_port_of_the_scheme_is_not_written_out() {
        for (text, header, dial, path) in [
            ("https://ca.test/a?b=c", "ca.test", "ca.test:443", "/a?b=c"),
            ("http://ca.test:80", "ca.test", "ca.test:80", "/"),
            ("https://ca.test:14000/dir", "ca.test:14000", "ca.test:14000", "/dir"),
            ("http://[::1]:8080/", "[::1]:8080", "[::1]:8080", "/"),
            ("https://id.test?format=jwks", "id.test", "id.test:443", "/?format=jwks"),
        ] {
            let target = RequestTarget::of(&uri(text)).expect(text);
            assert_eq!(
                (target.header.to_str().expect("text"), target.dial.to_string()),
                (header, dial.to_owned())
            );
            assert_eq!(target.path.to_string(), path);
            assert_eq!(target.tls, text.starts_with("https"));
        }
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for text in ["/path", "ftp://ca.test/", "https://user:word@ca.test/", "ca.test:443"] {
            assert!(matches!(RequestTarget::of(&uri(text)), Err(Reason::Url(_))), "{text}");
        }
    }

    #[test]
    fn redirects_may_be_relative_but_never_lead_out_of_https() {
        let from = uri("https://a.test:8443/d/x?y");
        for (location, to) in [
            ("/z?q", Some("https://a.test:8443/z?q")),
            ("https://b.test/", Some("https://b.test/")),
            ("HTTPS://b.test?q", Some("https://b.test/?q")),
            ("//b.test/c", Some("https://b.test/c")),
            ("new.crl", Some("https://a.test:8443/d/new.crl")),
            ("../z", Some("https://a.test:8443/z")),
            ("../../../z", Some("https://a.test:8443/z")),
            ("?q", Some("https://a.test:8443/d/x?q")),
            ("", Some("https://a.test:8443/d/x?y")),
            ("z#part", Some("https://a.test:8443/d/z")),
            ("http://a.test/", None),
            ("https://", None),
            ("mailto:a", None),
            ("ftp://a.test/", None),
        ] {
            assert_eq!(redirected(&from, location).map(|uri| uri.to_string()).as_deref(), to, "{location}");
        }
        let plain = uri("http://a.test?y");
        for (location, to) in [("http://b.test/c", "http://b.test/c"), ("c", "http://a.test/c")] {
            assert_eq!(redirected(&plain, location).expect("followed").to_string(), to);
        }
    }
}
