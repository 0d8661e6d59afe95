//! Removal of headers by which a client could claim an identity, or another target of its request, as only a proxy may.
//!
//! CGI, `FastCGI` and WSGI replace each character of a header name that is neither a letter nor a digit by `_`, so an
//! application cannot distinguish `X_Forwarded_For` from `X-Forwarded-For`. Names are therefore compared with all these
//! characters equal, and names with `_` pass only if the operator permits it.

use http::HeaderMap;
use http::header::{self, HeaderName};

/// Treatment of request headers with `_` in their names, which many upstreams confuse with `-`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Underscores {
    /// Remove them.
    #[default]
    Drop,
    /// Forward them, unless they stand for a claim.
    Pass,
}

/// Names of claims, in alphabetical order for binary search. Includes names of products, because applications that once ran
/// behind a product often still read them.
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

/// Prefixes of further claims.
const PREFIXES: &[&str] = &["x-forwarded-", "x-ssl-client-", "ssl-client-"];

/// `Proxy`, which a CGI program reads as `HTTP_PROXY`, the proxy for its own requests (CVE-2016-5385, "httpoxy"). Neither
/// clients nor proxies send it legitimately.
const PROXY: &str = "proxy";

/// Maximum length, in bytes, of a name that is compared: all names above are shorter.
const LONGEST: usize = 64;

/// Classes of header names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Plain,
    /// Claim in the form that proxies write.
    Claim,
    /// Name with an underscore.
    Underscored,
    /// Name that becomes a claim only in a CGI-like upstream, or that has no legitimate sender.
    Forged,
}

impl Name {
    /// Classifies a name. Costs one check per byte; names with other characters than letters, digits and hyphens cost more.
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
    // Excludes most names by their first letter.
    matches!(name.as_bytes().first(), Some(b'c' | b'f' | b'p' | b'r' | b's' | b't' | b'w' | b'x'))
        && (CLAIMS.binary_search(&name).is_ok() || PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
}

/// Removes all headers that an untrusted client must not send.
pub fn remove(headers: &mut HeaderMap, underscores: Underscores) {
    remove_if(headers, |name| Name::of(name.as_str(), underscores) != Name::Plain);
}

/// Removes the headers that a trusted proxy does not write itself, but may forward from its client.
pub fn remove_forged(headers: &mut HeaderMap, underscores: Underscores) {
    remove_if(headers, |name| {
        matches!(Name::of(name.as_str(), underscores), Name::Forged | Name::Underscored)
    });
}

/// Removes all claims except for `kept`, because not every recipient may see the data about a client.
pub fn remove_but(headers: &mut HeaderMap, kept: &[HeaderName]) {
    remove_if(headers, |name| {
        !kept.contains(name) && !matches!(Name::of(name.as_str(), Underscores::Pass), Name::Plain)
    });
}

/// Removes the headers called `names`, in every spelling that CGI does not distinguish.
pub fn remove_named(headers: &mut HeaderMap, names: &[HeaderName]) {
    let folded = |byte: u8| if byte.is_ascii_alphanumeric() { byte } else { b'-' };
    let is_same = |one: &HeaderName, other: &HeaderName| {
        one.as_str().bytes().map(folded).eq(other.as_str().bytes().map(folded))
    };
    remove_if(headers, |name| names.iter().any(|unwanted| is_same(name, unwanted)));
}

/// Removes invalid fields from the trailers of a request: claims, which proxies write into the head only; names with
/// underscores; and fields for framing, routing, authentication and content (RFC 9110 section 6.5.1), because an upstream
/// may merge trailers into the head.
pub fn clean_trailers(trailers: &mut HeaderMap) {
    remove_if(trailers, |name| {
        Name::of(name.as_str(), Underscores::Drop) != Name::Plain || belongs_to_head(name)
    });
}

/// Whether a field describes the message, its sender or its connection, and is therefore invalid in trailers.
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
    fn named_headers_are_removed_in_every_spelling() {
        let names = [HeaderName::from_static("x-real-ip"), HeaderName::from_static("x_own")];
        assert_eq!(left(SPELLINGS, |headers| remove_named(headers, &names)), ["proxy"]);
        assert_eq!(left(SPELLINGS, |headers| remove_named(headers, &[])).len(), SPELLINGS.len());
        let longer = [HeaderName::from_static("x-real"), HeaderName::from_static("prox")];
        assert_eq!(left(SPELLINGS, |headers| remove_named(headers, &longer)).len(), SPELLINGS.len());
    }

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
