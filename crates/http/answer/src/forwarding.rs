//! Headers that describe the client to upstreams: `X-Forwarded-For`, `-Proto` and `-Host`, `Forwarded` (RFC 7239) and
//! `X-Request-Id`.
//!
//! From a trusted proxy these headers are accepted: its list of clients is extended, the other values are kept. From
//! all other clients they are replaced, and every other header that [claims] an identity is removed.
//!
//! An arbitrary name that reached the default host is not vouched for: it appears neither in `X-Forwarded-Host` nor in
//! `Forwarded`. An application that builds links from these headers would otherwise send its users to that name.
//!
//! [claims]: brisk_http::claims

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use brisk_http::claims;
use brisk_http::claims::Underscores;
use brisk_http_connection::Connection;
use brisk_http_connection::forwarded::ForwardedValues;
use brisk_telemetry::RequestId;
use brisk_transform::names::Names;
use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Maximum length in bytes of a request id from a trusted proxy.
const MAX_REQUEST_ID: usize = 128;

/// Writes the forwarding headers.
#[derive(Debug)]
pub(crate) struct Forwarding {
    trusted: Vec<IpNet>,
    underscores: Underscores,
}

/// Properties of a request for its forwarding headers, besides the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardedRequest<'a> {
    /// Host and port from the client; may be empty.
    pub(crate) authority: &'a str,
    pub(crate) id: RequestId,
    /// Names of the responding host.
    pub(crate) names: &'a Names,
}

impl Forwarding {
    /// Trusts the proxies in `trusted`.
    pub(crate) fn new(trusted: Vec<IpNet>, underscores: Underscores) -> Self {
        Self { trusted, underscores }
    }

    /// Sets the forwarding headers of a request for an upstream.
    pub(crate) fn apply(
        &self,
        headers: &mut HeaderMap,
        connection: &Connection,
        request: &ForwardedRequest<'_>,
    ) {
        let client = connection.client.record.borrow().client;
        let mut kept = connection.client.forwarded.borrow_mut();
        let values = match &mut *kept {
            Some(values) if *values.authority == *request.authority => values,
            other => other.insert(Box::new(values_of(client, connection.client.secure, request))),
        };
        if self.trusts(client.ip()) {
            claims::remove_forged(headers, self.underscores);
            extend(headers, values);
            keep_request_id(headers, request.id);
        } else {
            claims::remove(headers, self.underscores);
            replace(headers, values);
            headers.insert(REQUEST_ID, request_id(request.id));
        }
    }

    /// The address of the client: that of the connection, or the last address in `X-Forwarded-For` that is not a proxy's if
    /// the connection is that of a trusted proxy. `None` if the proxy states no address.
    pub(crate) fn client(&self, connection: &Connection, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = connection.client.record.borrow().client.ip();
        if !self.trusts(peer) {
            return Some(peer);
        }
        let lines = headers.get_all(FOR).iter().rev().filter_map(|line| line.to_str().ok());
        let addresses = lines.flat_map(|line| line.rsplit(',')).map(address);
        // An entry that is no address ends the list: those before it are not vouched for by a trusted proxy.
        addresses.map_while(|address| address).find(|address| !self.trusts(*address))
    }

    fn trusts(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.trusted.iter().any(|network| network.contains(&client))
    }
}

/// The address in an element of `X-Forwarded-For`, which may have a port.
fn address(element: &str) -> Option<IpAddr> {
    let element = element.trim();
    let with_port = || element.parse::<SocketAddr>().map(|address| address.ip());
    element.parse().or_else(|_| with_port()).ok()
}

/// The value of `X-Request-Id`.
pub(crate) fn request_id(id: RequestId) -> HeaderValue {
    HeaderValue::from_bytes(&id.digits()).expect("hexadecimal digits")
}

fn keep_request_id(headers: &mut HeaderMap, id: RequestId) {
    if headers.get(REQUEST_ID).is_none_or(|given| given.is_empty() || given.len() > MAX_REQUEST_ID) {
        headers.insert(REQUEST_ID, request_id(id));
    }
}

/// The values for a client and the authority of its request.
fn values_of(client: SocketAddr, secure: bool, request: &ForwardedRequest<'_>) -> ForwardedValues {
    let ip = client.ip().to_canonical();
    let authority = request.authority;
    let host = Some(authority).filter(|authority| request.names.include(authority));
    let proto = if secure { "https" } else { "http" };
    ForwardedValues {
        authority: authority.into(),
        client: value(ip.to_string()),
        proto: HeaderValue::from_static(proto),
        host: host.map(|host| value(host.to_owned())),
        element: value(element(ip, proto, host.unwrap_or_default())),
    }
}

fn replace(headers: &mut HeaderMap, values: &ForwardedValues) {
    headers.insert(FOR, values.client.clone());
    headers.insert(PROTO, values.proto.clone());
    if let Some(host) = &values.host {
        headers.insert(HOST, host.clone());
    }
    headers.insert(header::FORWARDED, values.element.clone());
}

fn extend(headers: &mut HeaderMap, values: &ForwardedValues) {
    append(headers, FOR, &values.client);
    append(headers, header::FORWARDED, &values.element);
    headers.entry(PROTO).or_insert_with(|| values.proto.clone());
    if let Some(host) = &values.host {
        headers.entry(HOST).or_insert_with(|| host.clone());
    }
}

/// Joins all values of a list and `last` into a single line, because many upstreams read only one line.
fn append(headers: &mut HeaderMap, name: HeaderName, last: &HeaderValue) {
    let mut list: Vec<_> = headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
    list.push(last.as_bytes());
    let joined = list.join(&b", "[..]);
    headers.insert(name, value(joined));
}

/// A `Forwarded` element (RFC 7239 section 4): `for=192.0.2.1;host=example.com;proto=https`.
fn element(ip: IpAddr, proto: &str, authority: &str) -> String {
    let mut element = match ip {
        IpAddr::V4(ip) => format!("for={ip}"),
        // RFC 7239 section 6: IPv6 addresses are in brackets and therefore quoted.
        IpAddr::V6(ip) => format!("for=\"[{ip}]\""),
    };
    let is_token =
        authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
    let quote = if is_token { "" } else { "\"" };
    if !authority.is_empty() {
        write!(element, ";host={quote}{authority}{quote}").expect("a string takes all");
    }
    element.push_str(";proto=");
    element.push_str(proto);
    element
}

fn value(text: impl Into<Bytes>) -> HeaderValue {
    HeaderValue::from_maybe_shared(text.into())
        .expect("addresses, checked authorities and header values joined")
}

#[cfg(test)]
mod tests {
    use brisk_telemetry::{ConnectionRecord, Timeline};

    use super::*;

    fn connection(client: &str) -> std::rc::Rc<Connection> {
        let local = SocketAddr::from(([127, 0, 0, 1], 443));
        let client = SocketAddr::new(client.parse().expect("an address"), 40000);
        Connection::new(ConnectionRecord::new(1, client, local, Timeline::start()), true)
    }

    fn names() -> Names {
        Names::new(&["a.example".to_owned(), "b.example".to_owned()]).expect("names")
    }

    fn applied(client: &str, headers: &[(&'static str, &'static str)]) -> HeaderMap {
        applied_for("a.example", client, headers)
    }

    fn applied_for(authority: &str, client: &str, headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        let trusted = vec!["10.0.0.0/8".parse().expect("a network")];
        Forwarding::new(trusted, Underscores::Drop).apply(
            &mut map,
            &connection(client),
            &ForwardedRequest { authority, id: RequestId(0xab), names: &names() },
        );
        map
    }

    const CLAIMS: &[(&str, &str)] = &[
        ("x-forwarded-for", "192.0.2.9"),
        ("x-forwarded-for", "192.0.2.8"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "b.example"),
        ("x-forwarded-port", "80"),
        ("x-real-ip", "192.0.2.9"),
        ("x_forwarded_for", "192.0.2.9"),
        ("true-client-ip", "192.0.2.9"),
        ("client-cert", ":AAAA:"),
        ("forwarded", "for=192.0.2.9"),
        ("x-request-id", "given"),
    ];

    #[test]
    fn the_claims_of_a_stranger_are_replaced() {
        let headers = applied("203.0.113.5", CLAIMS);
        assert_eq!(headers["x-forwarded-for"], "203.0.113.5");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "a.example");
        assert_eq!(headers["forwarded"], "for=203.0.113.5;host=a.example;proto=https");
        assert_eq!(headers["x-request-id"], "00000000000000ab");
        assert_eq!(headers.len(), 5, "{headers:?}");
    }

    #[test]
    fn the_claims_of_a_trusted_proxy_are_extended() {
        let headers = applied("10.1.2.3", CLAIMS);
        assert_eq!(headers["x-forwarded-for"], "192.0.2.9, 192.0.2.8, 10.1.2.3");
        assert_eq!(headers.get_all("x-forwarded-for").iter().count(), 1);
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert_eq!(headers["x-forwarded-host"], "b.example");
        assert_eq!(headers["forwarded"], "for=192.0.2.9, for=10.1.2.3;host=a.example;proto=https");
        assert_eq!(headers["x-request-id"], "given");
        assert_eq!(headers["client-cert"], ":AAAA:");
        assert_eq!(headers["true-client-ip"], "192.0.2.9");
        assert!(!headers.contains_key("x_forwarded_for"));
    }

    #[test]
    fn a_name_that_no_host_has_is_not_vouched_for() {
        for client in ["203.0.113.5", "10.1.2.3"] {
            let headers = applied_for("evil.example", client, &[]);
            assert_eq!(headers.get("x-forwarded-host"), None);
            assert_eq!(headers["forwarded"], format!("for={client};proto=https"));
        }
        assert_eq!(applied_for("evil.example", "203.0.113.5", CLAIMS).get("x-forwarded-host"), None);
    }

    #[test]
    fn addresses_are_written_as_rfc_7239_wants_them() {
        assert_eq!(
            applied("2001:db8::1", &[])["forwarded"],
            "for=\"[2001:db8::1]\";host=a.example;proto=https"
        );
        assert_eq!(applied("::ffff:192.0.2.1", &[])["x-forwarded-for"], "192.0.2.1");
        let with_port = element("192.0.2.1".parse().expect("an address"), "http", "a:8443");
        assert_eq!(with_port, "for=192.0.2.1;host=\"a:8443\";proto=http");
    }

    #[test]
    fn kept_values_are_not_used_for_another_authority() {
        let forwarding = Forwarding::new(Vec::new(), Underscores::Drop);
        let connection = connection("192.0.2.1");
        for authority in ["a.example", "b.example"] {
            let mut headers = HeaderMap::new();
            let asked = ForwardedRequest { authority, id: RequestId(1), names: &names() };
            forwarding.apply(&mut headers, &connection, &asked);
            assert_eq!(headers["x-forwarded-host"], authority);
        }
    }
}
