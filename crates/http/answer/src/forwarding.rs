//! Headers that describe the client to upstreams: `X-Forwarded-For`, `-Proto` and `-Host`, `Forwarded` (RFC 7239) and
//! `X-Request-Id`.
//!
//! From a trusted proxy these headers are accepted: its [list](client_address) of clients is extended, the other values are kept. From
//! all other clients they are replaced, and every other header that [claims] an identity is removed.
//!
//! An arbitrary name that reached the default host is not vouched for: it appears neither in `X-Forwarded-Host` nor in
//! `Forwarded`. An application that builds links from these headers would otherwise send its users to that name.
//!
//! [claims]: brisk_http::claims

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use brisk_http::claims::{self, Underscores};
use brisk_http::message::HeaderList;
use brisk_http::validate;
use brisk_http_connection::forwarded::ForwardedValues;
use brisk_telemetry::RequestId;
use brisk_transform::names::Names;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{self, HeaderName};
use ipnet::IpNet;

use crate::client_address::{self, ClientAddress, ClientSource, Hop};
use crate::exchange::Exchange;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Maximum length in bytes of a request id from a trusted proxy.
const MAX_REQUEST_ID: usize = 128;

/// Writes the forwarding headers.
#[derive(Debug)]
pub(crate) struct Forwarding {
    trusted: Vec<IpNet>,
    underscores: Underscores,
    /// Header in which proxies name the client, in place of the usual ones.
    client_header: Option<HeaderName>,
}

impl Forwarding {
    /// Trusts the proxies in `trusted`.
    pub(crate) fn new(trusted: Vec<IpNet>, underscores: Underscores) -> Self {
        Self { trusted, underscores, client_header: None }
    }

    /// Reads the address of the client in `header` in place of `X-Forwarded-For` and `Forwarded`.
    pub(crate) fn reading(self, header: Option<HeaderName>) -> Self {
        Self { client_header: header, ..self }
    }

    /// Header in which trusted proxies name the client, which no other client may send.
    pub(crate) fn client_header(&self) -> Option<&HeaderName> {
        self.client_header.as_ref()
    }

    /// Determines the client of a request, once.
    pub(crate) fn name_client(&self, exchange: &mut Exchange, headers: &HeaderList) {
        let connected = exchange.client();
        // Other clients choose their lists themselves, so these are not read.
        if !self.trusts(connected.ip()) {
            return;
        }
        let hops = client_address::stated(headers, self.client_header.as_ref());
        // In a chain of trusted proxies only, the first is the client.
        let named = hops.iter().rev().find(|hop| !self.trusts(hop.address.ip())).or(hops.first());
        let client = match named {
            Some(hop) => ClientAddress {
                address: hop.address,
                // Packets with an invented source could have that of the proxy.
                source: match connected.source {
                    ClientSource::Unproven => ClientSource::Unproven,
                    _ => ClientSource::Header,
                },
                is_proxy: self.trusts(hop.address.ip()),
            },
            None => ClientAddress { is_proxy: true, ..connected },
        };
        exchange.name_client(client, hops);
    }

    /// Sets the forwarding headers of a request for an upstream to `values`, which [`described`] returns for the request.
    pub(crate) fn apply(&self, headers: &mut HeaderList, exchange: &Exchange, values: &ForwardedValues) {
        let client = exchange.connection().client.record.borrow().client;
        if self.trusts(client.ip()) {
            // A trusted proxy may have passed on spellings of these names that it does not read itself.
            claims::remove_forged(headers, self.underscores);
            if let Some(own) = &self.client_header {
                keep_spelling(headers, own);
            }
            extend(headers, exchange.hops(), values);
            keep_request_id(headers, exchange.id());
        } else {
            claims::remove(headers, self.underscores);
            if let Some(own) = &self.client_header {
                claims::remove_named(headers, own);
            }
            add(headers, values);
            // A claim too, so that no line of the client is left.
            headers.append(REQUEST_ID, request_id(exchange.id()));
        }
    }

    fn trusts(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.trusted.iter().any(|network| network.contains(&client))
    }
}

/// The values that describe the client in a request for `authority`, which is host and port from the client and may be empty, to
/// the host with `names`.
pub(crate) fn described(exchange: &Exchange, authority: &str, names: &Names) -> Rc<ForwardedValues> {
    let client = &exchange.connection().client;
    let mut kept = client.forwarded.borrow_mut();
    // Most requests of a connection have one authority, so the values are formed once.
    match &mut *kept {
        Some(values) if values.authority == *authority => Rc::clone(values),
        other => {
            let address = client.record.borrow().client;
            Rc::clone(other.insert(Rc::new(values_of(address, client.secure, authority, names))))
        }
    }
}

/// The value of `X-Request-Id`.
pub(crate) fn request_id(id: RequestId) -> HeaderValue {
    HeaderValue::from_bytes(&id.digits()).expect("hexadecimal digits")
}

/// Removes the headers that servers such as CGI confuse with `name`. Those with this spelling move to the end.
fn keep_spelling(headers: &mut HeaderList, name: &HeaderName) {
    let values = headers.take_all(name);
    claims::remove_named(headers, name);
    headers.extend(values.into_iter().map(|value| (name.clone(), value)));
}

fn keep_request_id(headers: &mut HeaderList, id: RequestId) {
    if headers.get(REQUEST_ID).is_none_or(|given| given.is_empty() || given.len() > MAX_REQUEST_ID) {
        headers.insert(REQUEST_ID, request_id(id));
    }
}

/// The values for a client and the authority of its request to the host with `names`.
fn values_of(client: SocketAddr, secure: bool, authority: &str, names: &Names) -> ForwardedValues {
    let ip = client.ip().to_canonical();
    let is_own = names.include(authority);
    let proto = if secure { "https" } else { "http" };
    let element = element(ip, proto, if is_own { authority } else { "" });
    let authority = value(authority.to_owned());
    ForwardedValues {
        client: value(ip.to_string()),
        proto: HeaderValue::from_static(proto),
        host: is_own.then(|| authority.clone()),
        element: value(element),
        authority,
    }
}

/// Adds the values to `headers`, which must have no claims.
fn add(headers: &mut HeaderList, values: &ForwardedValues) {
    headers.append(FOR, values.client.clone());
    headers.append(PROTO, values.proto.clone());
    if let Some(host) = &values.host {
        headers.append(HOST, host.clone());
    }
    headers.append(header::FORWARDED, values.element.clone());
}

/// Writes the addresses that the proxy states, and its own, into both lists, which therefore agree. Each is a single line, because
/// many upstreams read only one line.
fn extend(headers: &mut HeaderList, hops: &[Hop], values: &ForwardedValues) {
    let proto = hops.first().and_then(|hop| hop.proto).map(HeaderValue::from_static);
    headers.insert_missing(PROTO, || proto.unwrap_or_else(|| values.proto.clone()));
    // Without an address, the text of the list may be that of a client, and is not continued.
    if hops.is_empty() {
        headers.insert(FOR, values.client.clone());
        headers.insert(header::FORWARDED, values.element.clone());
    } else {
        let (list, forwarded) = lists(headers, hops);
        headers.insert(FOR, value([list.as_bytes(), values.client.as_bytes()].concat()));
        headers.insert(header::FORWARDED, value([forwarded.as_bytes(), values.element.as_bytes()].concat()));
    }
    if let Some(host) = &values.host {
        headers.insert_missing(HOST, || host.clone());
    }
}

/// The beginnings of `X-Forwarded-For` and `Forwarded`. The first element of the latter has the scheme and host of the client's
/// request, as the proxy states them: readers of `Forwarded` take those of the first element.
fn lists(headers: &HeaderList, hops: &[Hop]) -> (String, String) {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let (mut proto, mut host) = (
        text(PROTO).filter(|proto| ["http", "https"].contains(proto)),
        // The host becomes a quoted string without escapes, so it must have no quotes.
        text(HOST).filter(|host| validate::host_of(host).is_some()),
    );
    let (mut list, mut forwarded) = (String::new(), String::new());
    for hop in hops {
        let ip = hop.address.ip();
        write!(list, "{ip}, ").expect("a string takes all");
        let (proto, host) = (proto.take().or(hop.proto).unwrap_or_default(), host.take().unwrap_or_default());
        forwarded.push_str(&element(ip, proto, host));
        forwarded.push_str(", ");
    }
    (list, forwarded)
}

/// A `Forwarded` element (RFC 7239 section 4): `for=192.0.2.1;host=example.com;proto=https`.
fn element(ip: IpAddr, proto: &str, authority: &str) -> String {
    let mut element = match ip {
        IpAddr::V4(ip) => format!("for={ip}"),
        // RFC 7239 section 6: IPv6 addresses are in brackets and therefore quoted.
        IpAddr::V6(ip) => format!("for=\"[{ip}]\""),
    };
    // RFC 7239 section 4: a value that is no token, such as one with a port, is quoted.
    let is_token =
        authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
    let quote = if is_token { "" } else { "\"" };
    if !authority.is_empty() {
        write!(element, ";host={quote}{authority}{quote}").expect("a string takes all");
    }
    if !proto.is_empty() {
        element.push_str(";proto=");
        element.push_str(proto);
    }
    element
}

/// A header value of `text`, which has no control characters.
pub(crate) fn value(text: impl Into<Bytes>) -> HeaderValue {
    HeaderValue::from_maybe_shared(text.into())
        .expect("addresses, checked authorities and header values joined")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use brisk_http::message::Request;
    use brisk_http_connection::Connection;
    use brisk_telemetry::{ConnectionRecord, Metrics, Timeline};
    use brisk_tls::Confirmation;

    use super::*;
    use crate::exchange::Telemetry;

    fn connection(client: &str) -> Rc<Connection> {
        let local = SocketAddr::from(([127, 0, 0, 1], 443));
        let client = SocketAddr::new(client.parse().expect("an address"), 40000);
        Connection::new(ConnectionRecord::new(1, client, local, Timeline::start()), true)
    }

    fn exchange(connection: &Rc<Connection>) -> Box<Exchange> {
        let telemetry = Rc::new(Telemetry { metrics: Metrics::new(), access_log: None });
        let (head, ()) = Request::new(()).into_parts();
        Exchange::begin(&telemetry, connection, RequestId(0xab), &head)
    }

    fn names() -> Names {
        Names::new(&["a.example".to_owned(), "b.example".to_owned()]).expect("names")
    }

    fn applied(client: &str, headers: &[(&'static str, &'static str)]) -> HeaderList {
        applied_for("a.example", client, headers)
    }

    fn applied_for(authority: &str, client: &str, headers: &[(&'static str, &'static str)]) -> HeaderList {
        applied_by(&forwarding(Underscores::Drop), authority, client, headers)
    }

    fn forwarding(underscores: Underscores) -> Forwarding {
        Forwarding::new(vec!["10.0.0.0/8".parse().expect("a network")], underscores)
    }

    fn applied_by(
        forwarding: &Forwarding,
        authority: &str,
        client: &str,
        headers: &[(&'static str, &'static str)],
    ) -> HeaderList {
        let mut list = HeaderList::new();
        for (name, value) in headers {
            list.append(*name, HeaderValue::from_static(value));
        }
        let mut exchange = exchange(&connection(client));
        forwarding.name_client(&mut exchange, &list);
        forwarding.apply(&mut list, &exchange, &described(&exchange, authority, &names()));
        list
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
        assert_eq!(headers.get_all("x-forwarded-for").count(), 1);
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert_eq!(headers["x-forwarded-host"], "b.example");
        assert_eq!(
            headers["forwarded"],
            "for=192.0.2.9;host=b.example;proto=http, for=192.0.2.8, for=10.1.2.3;host=a.example;proto=https"
        );
        assert_eq!(headers["x-request-id"], "given");
        assert_eq!(headers["client-cert"], ":AAAA:");
        assert_eq!(headers["true-client-ip"], "192.0.2.9");
        assert!(!headers.contains_key("x_forwarded_for"));
    }

    #[test]
    fn no_spelling_of_the_client_header_stands_for_that_of_a_proxy() {
        let sent = [
            ("x.visitor.address", "192.0.2.9"),
            ("x-visitor-address", "192.0.2.1"),
            ("x_visitor_address", "192.0.2.8"),
            ("x-visitor", "kept"),
        ];
        let own = HeaderName::from_static("x-visitor-address");
        let forwarding = forwarding(Underscores::Pass).reading(Some(own));
        for (client, address, list, lines) in [
            ("203.0.113.5", None, "203.0.113.5", 1),
            ("10.1.2.3", Some("192.0.2.1"), "192.0.2.1, 10.1.2.3", 2),
        ] {
            let headers = applied_by(&forwarding, "a.example", client, &sent);
            let given = headers.get("x-visitor-address").and_then(|value| value.to_str().ok());
            assert_eq!((given, &headers["x-forwarded-for"]), (address, &HeaderValue::from_static(list)));
            let names = headers.names().filter(|name| name.as_str().contains("visitor"));
            assert_eq!(names.count(), lines, "{headers:?}");
        }
        let proxy = applied_by(&forwarding, "a.example", "10.1.2.3", &sent[..1]);
        assert_eq!(proxy["x-forwarded-for"], "10.1.2.3");
        assert!(!proxy.contains_key("x.visitor.address"), "{proxy:?}");
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
    fn a_list_has_the_source_of_the_proxy_and_one_client() {
        let trusted = vec!["10.0.0.0/8".parse().expect("a network")];
        let forwarding = Forwarding::new(trusted, Underscores::Drop);
        let named = |connection: &Rc<Connection>, list: &'static str| {
            let headers = HeaderList::from_iter([(FOR, HeaderValue::from_static(list))]);
            let mut exchange = exchange(connection);
            forwarding.name_client(&mut exchange, &headers);
            let client = exchange.client();
            (client.to_string(), client.source, client.is_proxy)
        };
        let proxy = connection("10.1.2.3");
        for (list, client, source, is_proxy) in [
            ("192.0.2.1", "192.0.2.1", ClientSource::Header, false),
            ("192.0.2.1:80, 10.0.0.1", "192.0.2.1:80", ClientSource::Header, false),
            ("10.0.0.2, 10.0.0.1", "10.0.0.2", ClientSource::Header, true),
            ("unknown", "10.1.2.3:40000", ClientSource::Socket, true),
        ] {
            assert_eq!(named(&proxy, list), (client.to_owned(), source, is_proxy), "{list}");
        }
        let stranger = named(&connection("192.0.2.9"), "10.0.0.1");
        assert_eq!(stranger, ("192.0.2.9:40000".to_owned(), ClientSource::Socket, false));
        // Packets with an invented source can have that of the proxy.
        let address = SocketAddr::from(([10, 1, 2, 3], 40000));
        let record = ConnectionRecord::new(1, address, address, Timeline::start());
        let early = Connection::with_early_data(record, Confirmation::default(), Instant::now());
        early.client.set_claimed();
        assert_eq!(named(&early, "192.0.2.1"), ("192.0.2.1".to_owned(), ClientSource::Unproven, false));
    }

    #[test]
    fn kept_values_are_not_used_for_another_authority() {
        let forwarding = Forwarding::new(Vec::new(), Underscores::Drop);
        let connection = connection("192.0.2.1");
        for authority in ["a.example", "b.example"] {
            let mut headers = HeaderList::new();
            let exchange = exchange(&connection);
            let values = described(&exchange, authority, &names());
            assert!(Rc::ptr_eq(&values, &described(&exchange, authority, &names())), "formed once");
            forwarding.apply(&mut headers, &exchange, &values);
            assert_eq!(headers["x-forwarded-host"], authority);
        }
    }
}
