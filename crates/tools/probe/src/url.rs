//! Parts of the probed `https` URL.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;

/// An `https` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Host in the form for TLS and DNS: a name in lower case, or an address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query.
    pub path: String,
}

impl Url {
    /// The address, if the host is an IP address.
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Host in the form for `Host` and `:authority`.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == 443 { host } else { format!("{host}:{}", self.port) }
    }
}

impl FromStr for Url {
    type Err = String;

    /// Parses `https://host:port/path`; scheme, port and path are optional. Another scheme is an `Err`.
    fn from_str(text: &str) -> Result<Self, String> {
        let shown = without_user(text);
        let wrong = |why: &str| format!("{shown:?}: {why}; write a URL, e.g. https://example.com/");
        let whole = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let uri: Uri = whole.parse().map_err(|error| wrong(&format!("{error}")))?;
        match uri.scheme_str() {
            Some("https") => {}
            _ => return Err(wrong("only https can be probed")),
        }
        let authority = uri.authority().ok_or_else(|| wrong("there is no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("a user name has no place here"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_lowercase();
        // RFC 6066 section 3: a name goes without the dot at its end.
        let host = host.strip_suffix('.').map_or(host.clone(), str::to_owned);
        if host.is_empty() || host.ends_with('.') {
            return Err(wrong("there is no host"));
        }
        let port = authority.as_str().rsplit_once(':').filter(|(_, port)| !port.contains(']'));
        let port = match port {
            None => 443,
            Some((_, port)) => {
                port.parse().ok().filter(|port| *port > 0).ok_or_else(|| wrong("wrong port"))?
            }
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        // RFC 9112 section 3.2.1: a query alone has an empty path, which is sent as a slash.
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { host, port, path })
    }
}

/// URL for messages: without user name and password.
fn without_user(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    match rest.rsplit_once('@') {
        None => text.to_owned(),
        Some((_, rest)) if scheme.is_empty() => format!("…@{rest}"),
        Some((_, rest)) => format!("{scheme}://…@{rest}"),
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "https://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_with_what_is_missing() {
        for (text, host, port, path, whole) in [
            ("https://Example.com", "example.com", 443, "/", "https://example.com/"),
            ("example.com:8443/a?b", "example.com", 8443, "/a?b", "https://example.com:8443/a?b"),
            ("https://[::1]:1/", "::1", 1, "/", "https://[::1]:1/"),
            ("https://[::1]", "::1", 443, "/", "https://[::1]/"),
            ("127.0.0.1", "127.0.0.1", 443, "/", "https://127.0.0.1/"),
            ("https://a?q=1", "a", 443, "/?q=1", "https://a/?q=1"),
            ("https://a.test.:1/", "a.test", 1, "/", "https://a.test:1/"),
        ] {
            let url: Url = text.parse().expect(text);
            assert_eq!((url.host.as_str(), url.port, url.path.as_str()), (host, port, path));
            assert_eq!(url.to_string(), whole);
        }
    }

    #[test]
    fn what_is_no_url_is_refused_with_an_example() {
        for text in [
            "",
            "http://a/",
            "ftp://a",
            "https://",
            "a b",
            "https://u@a/",
            "a:0",
            "a:99999",
            "https://a:x/",
            "https://./",
            "a..",
        ] {
            let error = text.parse::<Url>().expect_err(text);
            assert!(error.contains("https://example.com/"), "{error}");
        }
    }

    #[test]
    fn a_password_is_not_repeated() {
        for text in
            ["https://user:secret@a/", "user:secret@a", "https://user:sec/secret@a/", "ftp://u:secret@a b/"]
        {
            let error = text.parse::<Url>().expect_err(text);
            assert!(!error.contains("secret") && error.contains("…@a"), "{error}");
        }
    }
}
