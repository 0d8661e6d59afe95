//! The versions of HTTP, under the names that ALPN and logs have for them.

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HttpVersion {
    /// HTTP/1.0, RFC 1945.
    Http10,
    /// HTTP/1.1, RFC 9112.
    Http11,
    /// HTTP/2, RFC 9113.
    Http2,
}

impl HttpVersion {
    /// All versions, the latest first: the order in which a server prefers them.
    pub const ALL: [Self; 3] = [Self::Http2, Self::Http11, Self::Http10];

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
        }
    }

    /// Name in logs, always with a minor version: `HTTP/1.1`, `HTTP/2.0`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
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
}
