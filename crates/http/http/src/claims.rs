//! Removal of headers by which a client could claim an identity, or another target of its request, as only a proxy may.
//!
//! CGI, `FastCGI` and WSGI replace each character of a header name that is neither a letter nor a digit by `_`, so an
//! application cannot distinguish `X_Forwarded_For` from `X-Forwarded-For`. Names are therefore compared with all these
//! characters equal, and names with `_` pass only if the operator permits it.

use http::HeaderMap;
use http::header::{self, HeaderName};

use crate::message::HeaderList;

/// Treatment of request headers with `_` in their names, which many upstreams confuse with `-`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Underscores {
    /// Remove these headers.
    #[default]
    Drop,
    /// Forward these headers, except those that stand for a claim.
    Pass,
}

/// Names of claims, in alphabetical order for binary search. Includes names of products, because applications that once ran
/// behind a product often still read them.
///
/// Not included are names by which clients request something for themselves: `X-HTTP-Method-Override` and its relatives,
/// which applications offer to clients that cannot send other methods; `X-Client-Version` and similar; `Via`, `X-Amzn-Trace-Id`
/// and other traces, which grant nothing; and assertions that an issuer signs, such as `X-Goog-IAP-JWT-Assertion`.
const CLAIMS: &[&str] = &[
    "cdn-src-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-ipcountry",
    "cf-pseudo-ipv4",
    "cf-visitor",
    // RFC 9440.
    "client-cert",
    "client-cert-chain",
    "client-ip",
    "disguised-host",
    "do-connecting-ip",
    "fastly-client-ip",
    "fastly-ssl",
    "fly-client-ip",
    "forwarded",
    "forwarded-for",
    "forwarded-host",
    "forwarded-proto",
    "front-end-https",
    "incap-client-ip",
    "oam-remote-user",
    // CGI variables that WSGI servers take from headers.
    "path-info",
    "proxy-client-ip",
    "proxy-remote-user",
    "script-name",
    "true-client-ip",
    // Instructions for Rack::Sendfile about files that the proxy is to send.
    "x-accel-mapping",
    "x-appengine-user-ip",
    "x-arr-clientcert",
    "x-arr-ssl",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-dn",
    "x-client-ip",
    "x-client-verify",
    "x-cluster-client-ip",
    "x-forwarded",
    "x-host",
    "x-http-host-override",
    "x-https",
    // Requests that a server sends to itself.
    "x-middleware-subrequest",
    "x-nf-client-connection-ip",
    "x-original-args",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-method",
    "x-original-path",
    "x-original-proto",
    "x-original-remote-addr",
    "x-original-request-uri",
    "x-original-scheme",
    "x-original-uri",
    "x-original-url",
    "x-originating-ip",
    "x-override-url",
    "x-proxyuser-ip",
    "x-real-host",
    "x-real-ip",
    "x-real-port",
    "x-real-uri",
    "x-real-url",
    "x-replaced-path",
    "x-request-id",
    "x-request-uri",
    "x-rewrite-path",
    "x-rewrite-url",
    "x-scheme",
    "x-script-name",
    "x-sendfile-type",
    "x-sucuri-clientip",
    "x-true-client-ip",
    "x-url-scheme",
    "x-userinfo",
    "x-waws-unencoded-url",
];

/// Prefixes of further claims, in alphabetical order for binary search; none is a prefix of another.
const PREFIXES: &[&str] = &[
    // `$WSRA`, `$WSRU` and others, which WebSphere takes from its plug-in.
    "-ws",
    "cf-access-",
    "cf-client-cert-",
    "cloudfront-",
    "iv-",
    "oidc-claim-",
    "remote-",
    "shib-",
    "sm-user",
    "ssl-",
    "tailscale-",
    "wl-proxy-",
    "x-amzn-mtls-",
    "x-amzn-oidc-",
    "x-appengine-inbound-",
    "x-auth-request-",
    "x-authenticated-",
    "x-authentik-",
    "x-client-cert",
    "x-client-ssl",
    "x-consumer-",
    "x-envoy-",
    "x-forwarded-",
    "x-goog-authenticated-user-",
    "x-ms-client-principal",
    "x-pomerium-claim-",
    "x-remote-",
    "x-ssl-",
    "x-tls-client-",
    "x-vercel-",
    "x-webauth-",
];

/// Headers of framing and connections that the gateway writes itself, in alphabetical order. An upstream must not find them in
/// another spelling beside those.
const FRAMING: &[&str] = &[
    "content-length",
    "early-data",
    "http2-settings",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "transfer-encoding",
];

/// `Proxy`, which a CGI program reads as `HTTP_PROXY`, the proxy for its own requests (CVE-2016-5385, "httpoxy"). Neither
/// clients nor proxies send it legitimately.
const PROXY: &str = "proxy";

/// Maximum length, in bytes, of a name that is compared: all names above are shorter.
const LONGEST: usize = 64;

/// Headers of W3C Trace Context, which the gateway may write into the head.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];

/// The byte that a server such as CGI sees in place of `byte` of a name in lower case: one for all that are neither letters
/// nor digits.
const fn folded(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte } else { b'-' }
}

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
        let mut buffer = [0; LONGEST];
        // The beginning of a longer name is enough, since all compared names and prefixes are shorter.
        let start = &mut buffer[..name.len().min(LONGEST)];
        for (to, from) in start.iter_mut().zip(name.bytes()) {
            *to = folded(from);
        }
        let is_forged = std::str::from_utf8(start)
            .is_ok_and(|name| name == PROXY || is_claim(name) || FRAMING.binary_search(&name).is_ok());
        if is_forged { Self::Forged } else { Self::Plain }
    }
}

fn is_claim(name: &str) -> bool {
    // Excludes most names by their first letter.
    let first = name.as_bytes().first();
    let may_be = first.is_some_and(|first| !matches!(first, b'a' | b'b' | b'e' | b'h' | b'l' | b'u'));
    may_be && (CLAIMS.binary_search(&name).is_ok() || has_prefix_of_claims(name))
}

fn has_prefix_of_claims(name: &str) -> bool {
    // A prefix of the name sorts before the name, and nothing sorts between them.
    let after = PREFIXES.partition_point(|prefix| *prefix <= name);
    after.checked_sub(1).is_some_and(|last| name.starts_with(PREFIXES[last]))
}

/// Whether the gateway removes headers with this name from requests of untrusted clients.
pub fn is_fixed(name: &HeaderName) -> bool {
    Name::of(name.as_str(), Underscores::Pass) != Name::Plain
}

/// Names of headers that only the gateway sets in the requests of a route, in addition to the fixed claims: those that its
/// configuration sets, removes or forms of facts. Requests, trailers and questions of forward authentication lose the client's
/// headers with these names.
///
/// Names are equal if servers such as CGI cannot distinguish them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnNames(Box<[Box<[u8]>]>);

impl OwnNames {
    /// These names and `more`.
    #[must_use]
    pub fn with(&self, more: &[HeaderName]) -> Self {
        let more = more.iter().map(|name| name.as_str().bytes().map(folded).collect());
        Self(self.0.iter().cloned().chain(more).collect())
    }

    /// Whether `name` is one of the names, in any spelling. Costs a comparison of lengths for each name.
    pub fn include(&self, name: &HeaderName) -> bool {
        let name = name.as_str().as_bytes();
        let is_same =
            |own: &[u8]| own.len() == name.len() && name.iter().copied().map(folded).eq(own.iter().copied());
        self.0.iter().any(|own| is_same(own))
    }

    /// Removes all headers with these names.
    pub fn remove_from(&self, headers: &mut HeaderList) {
        if !self.0.is_empty() {
            remove_if(headers, |name| self.include(name));
        }
    }
}

impl<'a> FromIterator<&'a HeaderName> for OwnNames {
    fn from_iter<I: IntoIterator<Item = &'a HeaderName>>(names: I) -> Self {
        let mut all: Vec<Box<[u8]>> =
            names.into_iter().map(|name| name.as_str().bytes().map(folded).collect()).collect();
        all.sort_unstable();
        all.dedup();
        Self(all.into())
    }
}

/// Removes all headers that an untrusted client must not send: claims in any spelling, `Proxy`, and names with `_` as
/// `underscores` says.
pub fn remove(headers: &mut HeaderList, underscores: Underscores) {
    remove_if(headers, |name| Name::of(name.as_str(), underscores) != Name::Plain);
}

/// Removes the headers that a trusted proxy does not write itself, but may forward from its client.
pub fn remove_forged(headers: &mut HeaderList, underscores: Underscores) {
    remove_if(headers, |name| {
        matches!(Name::of(name.as_str(), underscores), Name::Forged | Name::Underscored)
    });
}

/// Removes all claims except for those in `kept`, because not every recipient may see the data about a client.
pub fn remove_but(headers: &mut HeaderList, kept: &[HeaderName]) {
    // `kept` matches exact spellings only, so that a client cannot add a kept claim in another one.
    remove_if(headers, |name| {
        !kept.contains(name) && !matches!(Name::of(name.as_str(), Underscores::Pass), Name::Plain)
    });
}

/// Removes the headers called `name`, in every spelling that CGI does not distinguish.
pub fn remove_named(headers: &mut HeaderList, name: &HeaderName) {
    let own = name.as_str().as_bytes();
    remove_if(headers, |other| {
        let other = other.as_str().as_bytes();
        own.len() == other.len() && own.iter().copied().map(folded).eq(other.iter().copied().map(folded))
    });
}

/// Removes invalid fields from the trailers of a request: claims, which proxies write into the head only; names with
/// underscores; the trace context; the `own` names of the route; and fields for framing, routing, authentication and content (RFC 9110 section
/// 6.5.1), because an upstream may merge trailers into the head.
pub fn clean_trailers(trailers: &mut HeaderMap, own: &OwnNames) {
    let is_unwanted = |name: &&HeaderName| {
        Name::of(name.as_str(), Underscores::Drop) != Name::Plain
            || belongs_to_head(name)
            || TRACE.contains(&name.as_str())
            || own.include(name)
    };
    // `HeaderMap` has no `retain`.
    let unwanted: Vec<_> = trailers.keys().filter(is_unwanted).cloned().collect();
    for name in unwanted {
        trailers.remove(name);
    }
}

/// Whether a field may be a trailer of a response: it does not belong to the head, and is no control of the response,
/// challenge, cookie or policy (RFC 9110 section 6.5.1).
pub fn may_be_trailer(name: &HeaderName) -> bool {
    let of_response = [
        header::AGE,
        header::ALT_SVC,
        header::CONTENT_SECURITY_POLICY,
        header::DATE,
        header::EXPIRES,
        header::LOCATION,
        header::PROXY_AUTHENTICATE,
        header::REFRESH,
        header::RETRY_AFTER,
        header::SET_COOKIE,
        header::STRICT_TRANSPORT_SECURITY,
        header::VARY,
        header::WARNING,
        header::WWW_AUTHENTICATE,
    ];
    !belongs_to_head(name) && !of_response.contains(name) && name.as_str() != "clear-site-data"
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
        header::IF_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_NONE_MATCH,
        header::IF_RANGE,
        header::IF_UNMODIFIED_SINCE,
        header::MAX_FORWARDS,
        header::ORIGIN,
        header::PRAGMA,
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

fn remove_if(headers: &mut HeaderList, is_unwanted: impl Fn(&HeaderName) -> bool) {
    headers.retain(|name, _| !is_unwanted(name));
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn left(names: &[&'static str], remove: impl Fn(&mut HeaderList)) -> Vec<String> {
        let mut headers = HeaderList::new();
        for name in names {
            headers.append(*name, HeaderValue::from_static("x"));
        }
        remove(&mut headers);
        let mut left: Vec<_> = headers.names().map(ToString::to_string).collect();
        left.sort();
        left
    }

    fn left_of_trailers(names: &[&'static str], own: &OwnNames) -> Vec<String> {
        let line = |name: &&'static str| (HeaderName::from_static(name), HeaderValue::from_static("x"));
        let mut trailers: HeaderMap = names.iter().map(line).collect();
        clean_trailers(&mut trailers, own);
        let mut left: Vec<_> = trailers.keys().map(ToString::to_string).collect();
        left.sort();
        left
    }

    const SPELLINGS: &[&str] =
        &["x-real-ip", "x_real_ip", "x.real.ip", "x-real_ip", "x~real!ip", "x_own", "x-own", "proxy"];

    fn own(names: &[&'static str]) -> OwnNames {
        let names: Vec<_> = names.iter().map(|name| HeaderName::from_static(name)).collect();
        names.iter().collect()
    }

    #[test]
    fn named_headers_are_removed_in_every_spelling() {
        let names = own(&["x-real-ip", "x_own", "x.own"]);
        assert_eq!(left(SPELLINGS, |headers| names.remove_from(headers)), ["proxy"]);
        let longer = own(&["x-real", "prox"]);
        for names in [own(&[]), longer] {
            assert_eq!(left(SPELLINGS, |headers| names.remove_from(headers)).len(), SPELLINGS.len());
        }
        let name = HeaderName::from_static("x.real~ip");
        assert_eq!(left(SPELLINGS, |headers| remove_named(headers, &name)), ["proxy", "x-own", "x_own"]);
    }

    #[test]
    fn the_tables_can_be_searched() {
        assert!(CLAIMS.is_sorted() && PREFIXES.is_sorted() && FRAMING.is_sorted());
        assert!(CLAIMS.iter().chain(PREFIXES).all(|name| name.len() < LONGEST && is_claim(name)));
        let is_free = |name: &&str| !PREFIXES.iter().any(|prefix| prefix != name && name.starts_with(prefix));
        assert!(CLAIMS.iter().chain(PREFIXES).all(is_free), "a prefix includes another name");
    }

    #[test]
    fn names_that_begin_like_claims_are_claims() {
        for name in [
            "x-envoy-original-path",
            "x-forwarded-x",
            "ssl-session-id",
            "remote-user",
            "$wsra",
            "x-ssl-cipher",
        ] {
            assert!(is_fixed(&HeaderName::from_static(name)), "{name}");
        }
        for name in [
            "x-envoy",
            "x-http-method-override",
            "x-client-version",
            "accept",
            "content-length",
            "x-auth-token",
        ] {
            assert!(!is_fixed(&HeaderName::from_static(name)), "{name}");
        }
        assert!(is_fixed(&HeaderName::from_static("content_length")));
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
        let mut headers = HeaderList::new();
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
        assert_eq!(left_of_trailers(&names, &own(&[])), ["grpc-status", "x-checksum"]);
        assert_eq!(left_of_trailers(&names, &own(&["x.checksum"])), ["grpc-status"]);
    }
}
