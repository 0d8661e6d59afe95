//! Origins: scheme, host and port.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// An origin (RFC 6454 section 4): `http` or `https`, a host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    is_secure: bool,
    host: String,
    port: u16,
}

/// Reasons for which a text is not an [`Origin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OriginError {
    /// The scheme is neither `https` nor `http`.
    #[error("it begins with https:// or http://, as \"https://static.example\"")]
    Scheme,
    /// A path, query or fragment follows.
    #[error("it ends after host and port, without a path")]
    Path,
    /// The host or the port is invalid.
    #[error("it has the ASCII name of one host, or its address, and a port where that is not the usual one")]
    Host,
}

impl Origin {
    /// Host and port; the port only if it is not the default of the scheme.
    pub fn authority(&self) -> String {
        let usual = if self.is_secure { 443 } else { 80 };
        if self.port == usual { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// The host in lower case; an IPv6 address in brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns whether the scheme is `https`.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn is(&self, is_secure: bool, host: &str, port: u16) -> bool {
        self.is_secure == is_secure && self.port == port && self.host == host
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let lower = text.to_ascii_lowercase();
        let (is_secure, rest) = match (lower.strip_prefix("https://"), lower.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(OriginError::Scheme),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            return Err(OriginError::Path);
        }
        let (host, port) = split_port(authority, is_secure).ok_or(OriginError::Host)?;
        Ok(Self { is_secure, host: host.to_owned(), port })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.is_secure { "https" } else { "http" }, self.authority())
    }
}

/// Splits an authority without user into host and port. `None` if it is invalid.
pub(crate) fn split_port(authority: &str, is_secure: bool) -> Option<(&str, u16)> {
    let usual = if is_secure { 443 } else { 80 };
    // The colons of an IPv6 address are no separators of a port.
    let end = authority.strip_prefix('[').and_then(|rest| rest.find(']')).map_or(0, |end| end + 2);
    let (host, port) = match authority.get(end..)?.find(':') {
        Some(colon) => (&authority[..end + colon], &authority[end + colon + 1..]),
        None => (authority, ""),
    };
    let is_address = |text: &str| text.parse::<std::net::Ipv6Addr>().is_ok();
    let is_host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => is_address(address),
        None => !host.is_empty() && host.len() <= 253 && host.bytes().all(is_host_byte),
    };
    if !is_host {
        return None;
    }
    match port {
        "" => Some((host, usual)),
        // `parse` would accept a sign.
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some((host, digits.parse().ok()?)),
        _ => None,
    }
}

/// Whether a host name may have this byte.
pub(crate) fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_read_or_refused() {
        let origin = |text: &str| text.parse::<Origin>().map(|origin| origin.to_string());
        assert_eq!(origin("HTTPS://A.example:443/").as_deref(), Ok("https://a.example"));
        assert_eq!(origin("http://a.example:443").as_deref(), Ok("http://a.example:443"));
        assert_eq!(origin("a.example"), Err(OriginError::Scheme));
        assert_eq!(origin("https://a.example/x"), Err(OriginError::Path));
        for wrong in
            ["https://", "https://a b", "https://*.example", "https://u@a", "https://a:99999", "https://[x]"]
        {
            assert_eq!(origin(wrong), Err(OriginError::Host), "{wrong}");
        }
    }
}
