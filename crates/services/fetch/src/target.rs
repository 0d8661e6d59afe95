//! Parts of a URL that a request needs.

use http::uri::Scheme;
use http::{HeaderValue, Uri};

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
        if authority.host().is_empty() || authority.as_str().contains('@') {
            return Err(wrong("has no bare host name"));
        }
        let usual = if tls { 443 } else { 80 };
        let port = authority.port_u16().unwrap_or(usual);
        let host = authority.host().to_owned();
        let shown = if port == usual { host.clone() } else { format!("{host}:{port}") };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            tls,
            dial: Target::new(&host, port),
            header: HeaderValue::from_str(&shown).map_err(|_| wrong("has no host name"))?,
            path: path.parse().map_err(|_| wrong("has an invalid path"))?,
            host,
        })
    }
}

/// Resolves a `Location` against `from` (RFC 9110 section 10.2.2). `None` if it is not followed: neither an absolute
/// URL nor an absolute path, or a change from `https` to `http`.
pub(crate) fn redirected(from: &Uri, location: &str) -> Option<Uri> {
    let mut parts = from.clone().into_parts();
    let next = if location.starts_with('/') && !location.starts_with("//") {
        parts.path_and_query = Some(location.parse().ok()?);
        Uri::from_parts(parts).ok()?
    } else {
        location.parse::<Uri>().ok()?
    };
    let downgrade = from.scheme() == Some(&Scheme::HTTPS) && next.scheme() != Some(&Scheme::HTTPS);
    (!downgrade && next.scheme().is_some()).then_some(next)
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
    fn redirects_lead_to_paths_and_to_absolute_addresses_but_never_out_of_https() {
        let from = uri("https://a.test/x?y");
        for (location, to) in [
            ("/z?q", Some("https://a.test/z?q")),
            ("https://b.test/", Some("https://b.test/")),
            ("http://a.test/", None),
            ("//b.test/", None),
            ("z", None),
            ("", None),
            ("mailto:a", None),
        ] {
            assert_eq!(redirected(&from, location).map(|uri| uri.to_string()).as_deref(), to, "{location}");
        }
        let plain = uri("http://a.test/");
        assert_eq!(redirected(&plain, "http://b.test/c").expect("followed").to_string(), "http://b.test/c");
    }
}
