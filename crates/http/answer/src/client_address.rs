//! The address of the client of a request: one for all features, with the source of the knowledge.
//!
//! The connection states an address: that of its socket, or that in its PROXY header. If it is the address of a trusted proxy,
//! a header of the proxy states the addresses before it: `X-Forwarded-For`, or else `Forwarded` (RFC 7239). The list is read
//! from its end, because each proxy appends the address of its peer, and the beginning is the client's to choose. An element
//! that is no address ends the list. [`ServiceSettings::client_header`](crate::settings::ServiceSettings::client_header) is read in
//! place of both. The client is the last address that is not a trusted proxy's; the first one, if all are;
//! and the proxy itself, if the list has no address.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use brisk_http::message::HeaderList;
use brisk_http_connection::Connection;
use http::HeaderValue;
use http::header::{self, HeaderName};

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Maximum number of elements that are read of a list, from its end. Chains of proxies are shorter.
const LONGEST: usize = 100;

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientAddress {
    /// The address of the client, in canonical form. The port is 0 if it is unknown.
    pub(crate) address: SocketAddr,
    /// Source of the address.
    pub(crate) source: ClientSource,
    /// Whether the address is that of a trusted proxy, which has many clients.
    pub(crate) is_proxy: bool,
}

/// Source of the address of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientSource {
    /// The socket: the client receives packets at this address.
    Socket,
    /// A PROXY header, from a peer that is permitted to send one.
    ProxyProtocol,
    /// A header of a trusted proxy.
    Header,
    /// Packets whose sender has not shown that it receives others at this address: early data over QUIC.
    Unproven,
}

/// One address in the list of a trusted proxy, with the scheme of its request where the list has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) address: SocketAddr,
    /// `http` or `https`.
    pub(crate) proto: Option<&'static str>,
}

impl ClientAddress {
    /// The address of the client of a connection.
    pub(crate) fn of(connection: &Connection) -> Self {
        let record = connection.client.record.borrow();
        let source = match record.client == record.peer {
            // First: early data over QUIC may have the address of another client as its source.
            _ if connection.client.is_unproven() => ClientSource::Unproven,
            true => ClientSource::Socket,
            false => ClientSource::ProxyProtocol,
        };
        Self { address: canonical(record.client), source, is_proxy: false }
    }

    /// The IP address.
    pub(crate) fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// The address to which limits per client apply; `None` if it represents many clients.
    pub(crate) fn one_client(&self) -> Option<IpAddr> {
        (!self.is_proxy).then_some(self.ip())
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address.port() {
            0 => self.ip().fmt(f),
            _ => self.address.fmt(f),
        }
    }
}

/// The addresses that the headers of a trusted proxy state, in the order of the list. `own` is read in place of the usual headers.
pub(crate) fn stated(headers: &HeaderList, own: Option<&HeaderName>) -> Vec<Hop> {
    // Many proxies know `X-Forwarded-For` only, and pass on the `Forwarded` of their clients.
    let list = own.cloned().or_else(|| headers.contains_key(FOR).then_some(FOR));
    let mut hops: Vec<_> = match list {
        Some(name) => elements(headers, name).map_while(forwarded_for).take(LONGEST).collect(),
        None => elements(headers, header::FORWARDED).map_while(forwarded).take(LONGEST).collect(),
    };
    hops.reverse();
    hops
}

/// The elements of a list, the last first.
fn elements(headers: &HeaderList, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    // From the end, so that a long beginning, which the client chooses, is never read.
    let lines = headers.get_all(name).rev().map(HeaderValue::as_bytes);
    lines.flat_map(|line| line.rsplit(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

/// The address in an element of `X-Forwarded-For`, which may have a port.
fn forwarded_for(element: &[u8]) -> Option<Hop> {
    Some(Hop { address: address(std::str::from_utf8(element).ok()?)?, proto: None })
}

/// The address in an element of `Forwarded`.
///
/// Lists are split at commas before quotes are read, so that an unbalanced quote of a client does not swallow the element of
/// the proxy. A comma in a quoted value splits its element, whose last part has a quote in a place that is not permitted here,
/// and so ends the list.
fn forwarded(element: &[u8]) -> Option<Hop> {
    let (mut address, mut proto) = (None, None);
    for pair in std::str::from_utf8(element).ok()?.split(';') {
        // RFC 7239 section 4: no space around the characters ";" and "=".
        let (name, value) = pair.trim().split_once('=')?;
        let value = match value.strip_prefix('"') {
            Some(quoted) => quoted.strip_suffix('"')?,
            None => value,
        };
        if value.is_empty() || value.contains(['"', '\\', ' ']) {
            return None;
        }
        if name.eq_ignore_ascii_case("for") {
            // RFC 7239 section 4: a parameter occurs once at most. Of two addresses, one is invented.
            if address.is_some() {
                return None;
            }
            address = Some(self::address(value)?);
        } else if name.eq_ignore_ascii_case("proto") {
            proto = ["http", "https"].into_iter().find(|proto| value.eq_ignore_ascii_case(proto));
        }
    }
    Some(Hop { address: address?, proto })
}

/// An address, an address in brackets, or either with a port.
fn address(text: &str) -> Option<SocketAddr> {
    let without_port = || {
        let ip = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        Some(SocketAddr::new(ip.parse().ok()?, 0))
    };
    text.parse().ok().or_else(without_port).map(canonical)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    // One form of an address: limits, networks and logs must not distinguish
    // `::ffff:192.0.2.1` from `192.0.2.1`.
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[(&'static str, &[u8])]) -> Vec<String> {
        let mut headers = HeaderList::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value).expect("a value"));
        }
        stated(&headers, None).iter().map(|hop| hop.address.to_string()).collect()
    }

    #[test]
    fn a_list_is_read_from_its_end_to_the_first_element_that_is_no_address() {
        const NAME: &str = "x-forwarded-for";
        for (value, addresses) in [
            (&b"192.0.2.1, 192.0.2.2:80"[..], &["192.0.2.1:0", "192.0.2.2:80"][..]),
            (
                b"[2001:db8::1],[2001:db8::2]:1, ::ffff:192.0.2.3",
                &["[2001:db8::1]:0", "[2001:db8::2]:1", "192.0.2.3:0"],
            ),
            (b"192.0.2.1, unknown, 192.0.2.2", &["192.0.2.2:0"]),
            (b"192.0.2.1, \xff, 192.0.2.2", &["192.0.2.2:0"]),
            (b"192.0.2.1,, 192.0.2.2", &["192.0.2.2:0"]),
            (b"192.0.2.1, 192.0.2.2,", &[]),
            (b"192.0.2.1, [192.0.2.2", &[]),
            (b"", &[]),
        ] {
            assert_eq!(read(&[(NAME, value)]), addresses, "{}", String::from_utf8_lossy(value));
        }
        assert_eq!(read(&[(NAME, b"192.0.2.1"), (NAME, b"192.0.2.2")]), ["192.0.2.1:0", "192.0.2.2:0"]);
        assert_eq!(read(&[(NAME, b"192.0.2.1"), (NAME, b"\xff, 192.0.2.2")]), ["192.0.2.2:0"]);
        let many = vec!["192.0.2.1"; LONGEST + 1].join(",");
        assert_eq!(read(&[(NAME, many.as_bytes())]).len(), LONGEST);
    }

    #[test]
    fn no_quote_of_a_client_hides_or_forges_the_element_of_a_proxy() {
        const NAME: &str = "forwarded";
        for (value, addresses) in [
            (
                &b"for=192.0.2.1;proto=http, For=\"[2001:db8::1]:80\";by=x"[..],
                &["192.0.2.1:0", "[2001:db8::1]:80"][..],
            ),
            (b"for=\", for=192.0.2.2", &["192.0.2.2:0"]),
            (b"for=192.0.2.1;host=\"a\", for=192.0.2.2", &["192.0.2.1:0", "192.0.2.2:0"]),
            (b"for=192.0.2.1;host=\"a, for=192.0.2.9\"", &[]),
            (b"for=192.0.2.1;host=\"a, for=192.0.2.9;b=c\"", &[]),
            (b"for=192.0.2.1;host=\"a\\\", for=192.0.2.9;b=\\\"c\"", &[]),
            (b"for=192.0.2.1;for=192.0.2.2", &[]),
            (b"for=_hidden", &[]),
            (b"for=unknown", &[]),
            (b"proto=https", &[]),
            (b"for=192.0.2.1; x", &[]),
        ] {
            assert_eq!(read(&[(NAME, value)]), addresses, "{}", String::from_utf8_lossy(value));
        }
        let both: [(&str, &[u8]); 2] = [(NAME, b"for=192.0.2.1"), ("x-forwarded-for", b"192.0.2.2")];
        assert_eq!(read(&both), ["192.0.2.2:0"]);
        let mut headers = HeaderList::new();
        headers.append(NAME, HeaderValue::from_static("for=192.0.2.1;proto=HTTP"));
        assert_eq!(stated(&headers, None)[0].proto, Some("http"));
        let own = HeaderName::from_static("x-real-ip");
        assert!(stated(&headers, Some(&own)).is_empty());
        headers.append("x-real-ip", HeaderValue::from_static("192.0.2.9"));
        assert_eq!(stated(&headers, Some(&own))[0].address.to_string(), "192.0.2.9:0");
    }
}
