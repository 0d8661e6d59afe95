//! Versions of HTTP: their names in ALPN and logs, and the properties in which they differ.
//!
//! Code that depends on the version calls a method of [`HttpVersion`]. The methods match every version, so that a further
//! version does not compile until each of them has an answer for it.

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0, RFC 1945.
    Http10,
    /// HTTP/1.1, RFC 9112.
    Http11,
    /// HTTP/2, RFC 9113.
    Http2,
    /// HTTP/3, RFC 9114, which is not served yet.
    Http3,
}

impl HttpVersion {
    /// All versions, the latest first.
    pub const ALL: [Self; 4] = [Self::Http3, Self::Http2, Self::Http11, Self::Http10];

    /// The versions over TLS and TCP, the latest first: the order in which a server prefers them.
    pub const OVER_TCP: [Self; 3] = [Self::Http2, Self::Http11, Self::Http10];

    /// The version with this name in the registry of ALPN protocols (RFC 7301 section 6); `None` for other protocols.
    pub fn from_alpn(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.alpn().as_bytes() == name)
    }

    /// Name in the registry of ALPN protocols.
    pub fn alpn(self) -> &'static str {
        match self {
            Self::Http10 => "http/1.0",
            Self::Http11 => "http/1.1",
            Self::Http2 => "h2",
            Self::Http3 => "h3",
        }
    }

    /// Name in logs, always with a minor version: `HTTP/1.1`, `HTTP/2.0`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
            Self::Http3 => "HTTP/3.0",
        }
    }

    /// Whether messages have a `Connection` header, by which a server announces that the connection closes. Later versions
    /// forbid it and have GOAWAY (RFC 9113 section 8.2.2, RFC 9114 section 4.2).
    pub fn has_connection_header(self) -> bool {
        match self {
            Self::Http10 | Self::Http11 => true,
            Self::Http2 | Self::Http3 => false,
        }
    }

    /// Whether clients may ask for another protocol with `Upgrade` (RFC 9110 section 7.8).
    pub fn has_upgrade_header(self) -> bool {
        match self {
            Self::Http11 => true,
            Self::Http10 | Self::Http2 | Self::Http3 => false,
        }
    }

    /// Whether heads are compressed, so that their size is known after decoding only (RFC 9113 section 6.5.2, RFC 9114 section
    /// 4.2.2).
    pub fn compresses_heads(self) -> bool {
        match self {
            Self::Http10 | Self::Http11 => false,
            Self::Http2 | Self::Http3 => true,
        }
    }

    /// Whether a client may send its cookies as several fields (RFC 9113 section 8.2.3, RFC 9114 section 4.2.1).
    pub fn splits_cookies(self) -> bool {
        match self {
            Self::Http10 | Self::Http11 => false,
            Self::Http2 | Self::Http3 => true,
        }
    }

    /// Whether clients are known to handle interim responses such as 103 (Early Hints).
    pub fn takes_interim_responses(self) -> bool {
        match self {
            Self::Http10 | Self::Http11 => false,
            Self::Http2 | Self::Http3 => true,
        }
    }

    /// Whether every request names its host (RFC 9112 section 3.2).
    pub fn requires_host(self) -> bool {
        match self {
            Self::Http10 => false,
            Self::Http11 | Self::Http2 | Self::Http3 => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_found_by_its_own_name_alone() {
        for version in HttpVersion::ALL {
            assert_eq!(HttpVersion::from_alpn(version.alpn().as_bytes()), Some(version));
        }
        for other in [&b"h2c"[..], b"H2", b"", b"http/1", b"HTTP/1.1", b"acme-tls/1"] {
            assert_eq!(HttpVersion::from_alpn(other), None, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn every_rule_has_an_answer_for_every_version() {
        use HttpVersion::{Http2, Http3, Http10, Http11};
        let versions = |rule: fn(HttpVersion) -> bool| {
            let holds = [Http10, Http11, Http2, Http3].into_iter().filter(|version| rule(*version));
            holds.collect::<Vec<_>>()
        };
        assert_eq!(versions(HttpVersion::has_connection_header), [Http10, Http11]);
        assert_eq!(versions(HttpVersion::has_upgrade_header), [Http11]);
        assert_eq!(versions(HttpVersion::compresses_heads), [Http2, Http3]);
        assert_eq!(versions(HttpVersion::splits_cookies), [Http2, Http3]);
        assert_eq!(versions(HttpVersion::takes_interim_responses), [Http2, Http3]);
        assert_eq!(versions(HttpVersion::requires_host), [Http11, Http2, Http3]);
    }

    #[test]
    fn a_connection_over_tcp_offers_every_version_but_the_one_over_udp() {
        let others = HttpVersion::ALL.into_iter().filter(|version| !HttpVersion::OVER_TCP.contains(version));
        assert_eq!(others.collect::<Vec<_>>(), [HttpVersion::Http3]);
    }
}
