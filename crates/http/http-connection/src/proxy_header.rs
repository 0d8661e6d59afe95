//! PROXY headers of connections to servers: the client's addresses, and facts about its TLS connection.

use std::net::{IpAddr, SocketAddr};

use brisk_certs::common_name;
use brisk_telemetry::{ConnectionRecord, Resumption, TlsFacts};
use brisk_wire::registry::{CipherSuite, ProtocolVersion};
use ppp::v2::{Builder, Command, Protocol, Type, Version};
use ppp::{v1, v2};
use rustls_pki_types::CertificateDer;

use crate::Connection;

/// Version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// Version 1: a line with the addresses of the client's connection.
    V1,
    /// Version 2: the addresses, and facts about the client's TLS connection.
    V2,
}

/// Maximum length of a common name in the header. X.520 permits 64 characters.
const COMMON_NAME: usize = 256;

/// Bits of the `client` field of `PP2_TYPE_SSL` (specification, section 2.2.6): the client connected over TLS, and
/// presented a certificate on this connection, or in an earlier one of its session.
const OVER_TLS: u8 = 1;
const CERTIFICATE_NOW: u8 = 2;
const CERTIFICATE_IN_SESSION: u8 = 4;

/// The header of a connection for requests of the client with this `address` on the connection `client`: another address than that
/// of the connection is one that a trusted proxy states.
pub fn header(client: &Connection, address: SocketAddr, version: ProxyVersion) -> Vec<u8> {
    header_of(&client.client.record.borrow(), address, version)
}

/// Like [`header`], for the connection with this record.
pub fn header_of(record: &ConnectionRecord, address: SocketAddr, version: ProxyVersion) -> Vec<u8> {
    let addresses = same_family(address, record.local);
    match version {
        ProxyVersion::V1 => v1::Addresses::from(addresses).to_string().into_bytes(),
        ProxyVersion::V2 => {
            let builder = Builder::with_addresses(Version::Two | Command::Proxy, Protocol::Stream, addresses);
            let facts = record.tls.as_deref().map(extensions).unwrap_or_default();
            written(builder.write_payload(&*facts))
        }
    }
}

/// The header of a connection for the gateway itself, such as that of a health check.
pub fn own_header(version: ProxyVersion) -> Vec<u8> {
    match version {
        ProxyVersion::V1 => v1::Addresses::Unknown.to_string().into_bytes(),
        ProxyVersion::V2 => {
            let addresses = v2::Addresses::Unspecified;
            written(
                // Command `LOCAL`: the receiver has to use the addresses of the socket, since no client is
                // behind a health check.
                Builder::with_addresses(Version::Two | Command::Local, Protocol::Unspecified, addresses)
                    .write_payload(&[][..]),
            )
        }
    }
}

fn written(builder: std::io::Result<Builder>) -> Vec<u8> {
    builder.and_then(Builder::build).expect("names and addresses are shorter than 64 KiB")
}

/// Both addresses in one family, as the protocol requires: IPv4 if both have such an address.
fn same_family(client: SocketAddr, local: SocketAddr) -> (SocketAddr, SocketAddr) {
    // RFC 4291 section 2.5.5.2: an IPv4 address has a mapped IPv6 form, whereas most IPv6 addresses have no
    // IPv4 form.
    let ips = match (client.ip().to_canonical(), local.ip().to_canonical()) {
        (IpAddr::V4(client), IpAddr::V6(local)) => (client.to_ipv6_mapped().into(), local.into()),
        (IpAddr::V6(client), IpAddr::V4(local)) => (client.into(), local.to_ipv6_mapped().into()),
        same => same,
    };
    (SocketAddr::new(ips.0, client.port()), SocketAddr::new(ips.1, local.port()))
}

/// The extensions (TLVs) with the facts of the client's TLS connection.
fn extensions(tls: &TlsFacts) -> Vec<u8> {
    let mut all = Vec::new();
    if let Some(version) = tls.alpn {
        extension(&mut all, Type::ALPN, version.alpn().as_bytes());
    }
    if let Some(name) = &tls.server_name {
        extension(&mut all, Type::Authority, name.as_bytes());
    }
    let has_certificate = tls.client_subject.is_some();
    let certificate = match (has_certificate, &tls.resumption) {
        (false, _) => 0,
        (true, Resumption::Full) => CERTIFICATE_NOW | CERTIFICATE_IN_SESSION,
        (true, _) => CERTIFICATE_IN_SESSION,
    };
    let mut details = vec![OVER_TLS | certificate];
    // 0: the certificate was presented and verified.
    details.extend(u32::from(!has_certificate).to_be_bytes());
    if let Some(name) = version_name(tls.version) {
        extension(&mut details, Type::SSLVersion, name.as_bytes());
    }
    if let Some(name) = cipher_name(tls.suite) {
        extension(&mut details, Type::SSLCipher, name.as_bytes());
    }
    let certificate = tls.client_chain.first().map(|der| CertificateDer::from(&**der));
    let name = certificate.and_then(|certificate| common_name(&certificate));
    // A longer name is left out, not cut: the cut name could be that of another client.
    if let Some(name) = name.filter(|name| name.len() <= COMMON_NAME) {
        extension(&mut details, Type::SSLCommonName, name.as_bytes());
    }
    extension(&mut all, Type::SSL, &details);
    all
}

fn extension(to: &mut Vec<u8>, kind: Type, value: &[u8]) {
    let length = u16::try_from(value.len()).expect("values are short");
    to.push(kind.into());
    to.extend(length.to_be_bytes());
    to.extend_from_slice(value);
}

/// The name of a version as OpenSSL writes it, such as `TLSv1.3`, which servers expect.
fn version_name(version: ProtocolVersion) -> Option<&'static str> {
    match version {
        ProtocolVersion::TLS1_2 => Some("TLSv1.2"),
        ProtocolVersion::TLS1_3 => Some("TLSv1.3"),
        _ => None,
    }
}

/// The name of a suite as OpenSSL writes it: `ECDHE-RSA-AES128-GCM-SHA256` for TLS 1.2, the registered name for TLS 1.3.
fn cipher_name(suite: CipherSuite) -> Option<String> {
    let name = suite.name()?;
    let Some((exchange, cipher)) = name.strip_prefix("TLS_")?.split_once("_WITH_") else {
        return Some(name.to_owned());
    };
    let cipher = cipher.replace("AES_", "AES");
    let cipher = if cipher.contains("POLY1305") { cipher.trim_end_matches("_SHA256") } else { &cipher };
    Some(format!("{exchange}-{cipher}").replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_have_the_names_of_openssl() {
        for (suite, name) in [
            (CipherSuite::TLS_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256"),
            (CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, "ECDHE-RSA-AES128-GCM-SHA256"),
            (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "ECDHE-ECDSA-AES256-GCM-SHA384"),
            (CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-RSA-CHACHA20-POLY1305"),
        ] {
            assert_eq!(cipher_name(suite).as_deref(), Some(name));
        }
    }

    #[test]
    fn both_addresses_have_one_family() {
        for (client, local, expected) in [
            ("192.0.2.1:5", "10.0.0.1:443", ["192.0.2.1:5", "10.0.0.1:443"]),
            ("[::ffff:192.0.2.1]:5", "[::ffff:10.0.0.1]:443", ["192.0.2.1:5", "10.0.0.1:443"]),
            ("[2001:db8::1]:5", "[2001:db8::2]:443", ["[2001:db8::1]:5", "[2001:db8::2]:443"]),
            ("192.0.2.1:5", "[2001:db8::2]:443", ["[::ffff:192.0.2.1]:5", "[2001:db8::2]:443"]),
        ] {
            let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
            let found = same_family(address(client), address(local));
            assert_eq!([found.0, found.1].map(|address| address.to_string()), expected);
        }
    }

    #[test]
    fn a_header_for_the_gateway_itself_is_local() {
        use brisk_net::proxy_protocol::{Progress, parse};
        for (version, length) in [(ProxyVersion::V1, 15), (ProxyVersion::V2, 16)] {
            let header = own_header(version);
            assert_eq!(parse(&header).expect("a header"), Progress::Local { consumed: length });
        }
    }
}
