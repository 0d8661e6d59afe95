//! Headers that only a proxy may send: in them a client claims an identity, or that it asked for something else.
//!
//! CGI, `FastCGI` and WSGI turn every character of a header's name that is neither letter nor digit into `_`, so that
//! `X_Forwarded_For` reaches an application as `X-Forwarded-For` does. Hence names are compared with all these characters
//! alike, and names with `_` do not pass at all unless the operator wants them.

use http::HeaderMap;
use http::header::{self, HeaderName};

/// What is done with request headers that have `_` in their names: many upstreams take them for those with `-`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Underscores {
    /// They are removed.
    #[default]
    Drop,
    /// They are passed on, unless they stand for a header that claims an identity.
    Pass,
}

/// Names of one meaning each, in alphabetical order. Those of products are here because applications that once ran
/// behind them still read them.
const CLAIMS: &[&str] = &[
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    // RFC 9440.
    "client-cert",
    "client-cert-chain",
    "client-ip",
    "fastly-client-ip",
    "forwarded",
    "front-end-https",
    "proxy-client-ip",
    "remote-addr",
    "remote-user",
    "true-client-ip",
    "wl-proxy-client-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-forwarded",
    "x-host",
    "x-http-host-override",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-proto",
    "x-original-url",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-remote-user",
    "x-request-id",
    "x-rewrite-url",
    "x-scheme",
    "x-url-scheme",
];

/// Beginnings of further names.
const PREFIXES: &[&str] = &["x-forwarded-", "x-ssl-client-", "ssl-client-"];

/// What a CGI program takes for the proxy that it is to use itself (CVE-2016-5385). Neither clients nor proxies
/// may send it.
const PROXY: &str = "proxy";

/// The most bytes of a name that are compared: all names above are shorter.
const LONGEST: usize = 64;

/// The kind of a header's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Plain,
    /// A claim as proxies write it.
    Claim,
    /// Has an underscore.
    Underscored,
    /// Spelled so that it becomes a claim only beyond the upstream's gateway, or has no rightful sender.
    Forged,
}

impl Name {
    /// Costs a look at each byte; names with anything but letters, digits and hyphens cost more.
    fn of(name: &str, underscores: Underscores) -> Self {
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Self::of_odd(name, underscores);
        }
        match name {
            PROXY => Self::Forged,
            name if is_claim(name) => Self::Claim,
            _ => Self::Plain,
        }
    }

    fn of_odd(name: &str, underscores: Underscores) -> Self {
        if underscores == Underscores::Drop && name.contains('_') {
            return Self::Underscored;
        }
        let mut folded = [0; LONGEST];
        let folded = &mut folded[..name.len().min(LONGEST)];
        for (to, from) in folded.iter_mut().zip(name.bytes()) {
            *to = if from.is_ascii_alphanumeric() { from } else { b'-' };
        }
        let is_forged = std::str::from_utf8(folded).is_ok_and(|name| name == PROXY || is_claim(name));
        if is_forged { Self::Forged } else { Self::Plain }
    }
}

fn is_claim(name: &str) -> bool {
    // Most names end here.
    matches!(name.as_bytes().first(), Some(b'c' | b'f' | b'p' | b'r' | b's' | b't' | b'w' | b'x'))
        && (CLAIMS.binary_search(&name).is_ok() || PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
}

/// Removes what an untrusted client must not send.
pub fn remove(headers: &mut HeaderMap, underscores: Underscores) {
    remove_if(headers, |name| Name::of(name.as_str(), underscores) != Name::Plain);
}

/// Removes what even a trusted proxy does not write, but may pass on.
pub fn remove_forged(headers: &mut HeaderMap, underscores: Underscores) {
    remove_if(headers, |name| {
        matches!(Name::of(name.as_str(), underscores), Name::Forged | Name::Underscored)
    });
}

/// Removes all claims but those of these names: what is known of a client here is not for everyone.
pub fn remove_but(headers: &mut HeaderMap, kept: &[HeaderName]) {
    remove_if(headers, |name| {
        !kept.contains(name) && !matches!(Name::of(name.as_str(), Underscores::Pass), Name::Plain)
    });
}

/// Removes from the trailers of a request what they may not hold: claims from any sender, since proxies write these
/// into the head; names with underscores; and what decides on framing, routing, authentication and the meaning of the
/// body (RFC 9110 section 6.5.1), which an upstream may merge into the head.
pub fn clean_trailers(trailers: &mut HeaderMap) {
    remove_if(trailers, |name| {
        Name::of(name.as_str(), Underscores::Drop) != Name::Plain || belongs_to_head(name)
    });
}

/// Whether a header says something about the message itself, its sender or its connection, so that a trailer must not.
pub(crate) fn belongs_to_head(name: &HeaderName) -> bool {
    [
        header::AUTHORIZATION,
        header::CACHE_CONTROL,
        header::CONNECTION,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::COOKIE,
        header::EXPECT,
        header::HOST,
        header::MAX_FORWARDS,
        header::ORIGIN,
        header::PROXY_AUTHORIZATION,
        header::RANGE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ]
    .contains(name)
        || name.as_str() == "early-data"
        || name.as_str() == "keep-alive"
        || name.as_str() == "proxy-connection"
}

fn remove_if(headers: &mut HeaderMap, is_unwanted: impl Fn(&HeaderName) -> bool) {
    let unwanted: Vec<_> = headers.keys().filter(|name| is_unwanted(name)).cloned().collect();
    for name in unwanted {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn left(names: &[&'static str], remove: impl Fn(&mut HeaderMap)) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for name in names {
            headers.append(*name, HeaderValue::from_static("x"));
        }
        remove(&mut headers);
        let mut left: Vec<_> = headers.keys().map(ToString::to_string).collect();
        left.sort();
        left
    }

    const SPELLINGS: &[&str] =
        &["x-real-ip", "x_real_ip", "x.real.ip", "x-real_ip", "x~real!ip", "x_own", "x-own", "proxy"];

    #[test]
    fn the_table_can_be_searched() {
        assert!(CLAIMS.is_sorted());
        assert!(CLAIMS.iter().chain(PREFIXES).all(|name| name.len() < LONGEST && is_claim(name)));
    }

    #[test]
    fn a_stranger_claims_nothing_in_any_spelling() {
        assert_eq!(left(SPELLINGS, |headers| remove(headers, Underscores::Drop)), ["x-own"]);
        assert_eq!(left(SPELLINGS, |headers| remove(headers, Underscores::Pass)), ["x-own", "x_own"]);
    }

    #[test]
    fn a_trusted_proxy_speaks_in_its_own_spelling_only() {
        assert_eq!(
            left(SPELLINGS, |headers| remove_forged(headers, Underscores::Drop)),
            ["x-own", "x-real-ip"]
        );
        assert_eq!(
            left(SPELLINGS, |headers| remove_forged(headers, Underscores::Pass)),
            ["x-own", "x-real-ip", "x_own"]
        );
    }

    #[test]
    fn no_name_is_too_long_to_be_a_claim() {
        let mut headers = HeaderMap::new();
        let name = HeaderName::from_bytes(format!("x.forwarded-{}", "a".repeat(100)).as_bytes());
        headers.insert(name.expect("a name"), HeaderValue::from_static("x"));
        remove(&mut headers, Underscores::Drop);
        assert!(headers.is_empty());
    }

    #[test]
    fn names_that_only_resemble_claims_pass() {
        let names = ["x-forwardedx", "x-real-ipx", "x-requested-with", "client-certificate", "proxy-status"];
        assert_eq!(left(&names, |headers| remove(headers, Underscores::Drop)).len(), names.len());
    }

    #[test]
    fn trailers_hold_neither_claims_nor_what_belongs_to_the_head() {
        let names = [
            "x-forwarded-for",
            "x-checksum",
            "x_own",
            "content-length",
            "cookie",
            "early-data",
            "grpc-status",
        ];
        assert_eq!(left(&names, clean_trailers), ["grpc-status", "x-checksum"]);
    }
}
