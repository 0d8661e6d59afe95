//! Destinations of requests: public addresses, and others that the configuration names.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use brisk_net::{Target, canonical_network};
use http::Uri;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::target::RequestTarget;

/// IPv4 networks that are not part of the public internet (IANA special-purpose registry, RFC 6890), with multicast.
const SPECIAL_V4: [(Ipv4Addr, u8); 16] = [
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    (Ipv4Addr::BROADCAST, 32),
];

/// The allocated part of IPv6; the special networks in it: protocol assignments with Teredo, documentation.
const GLOBAL_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const SPECIAL_V6: [(Ipv6Addr, u8); 3] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Whether `address` is part of the public internet: not loopback, link-local, private, unique-local, shared (CGNAT),
/// unspecified, multicast, reserved, or for documentation.
///
/// An IPv6 address that contains an IPv4 address (mapped, compatible, NAT64 with the prefix of RFC 6052, 6to4) counts as
/// that address.
pub fn is_public(address: IpAddr) -> bool {
    let is_in_v4 = |address: Ipv4Addr, (network, length)| {
        Ipv4Net::new(network, length).is_ok_and(|network| network.contains(&address))
    };
    let is_in_v6 = |address: Ipv6Addr, (network, length)| {
        Ipv6Net::new(network, length).is_ok_and(|network| network.contains(&address))
    };
    match inner(address) {
        IpAddr::V4(address) => !SPECIAL_V4.into_iter().any(|network| is_in_v4(address, network)),
        IpAddr::V6(address) => {
            is_in_v6(address, GLOBAL_V6) && !SPECIAL_V6.into_iter().any(|network| is_in_v6(address, network))
        }
    }
}

/// The IPv4 address to which packets for `address` go in the end, if there is one; otherwise `address`.
fn inner(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let octets = v6.octets();
    let from = |at: usize| Ipv4Addr::new(octets[at], octets[at + 1], octets[at + 2], octets[at + 3]).into();
    match v6.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => from(12),
        [0x2002, ..] => from(2),
        _ => address,
    }
}

/// A host outside of the public internet that requests may reach: a network, an address, or a host name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateHost(Form);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Network(IpNet),
    /// In lower case.
    Name(Box<str>),
}

impl FromStr for PrivateHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        if let Ok(network) = text.parse::<IpNet>().or_else(|_| address()) {
            return Ok(Self(Form::Network(canonical_network(network))));
        }
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        // A name that ends with a number would be an address in an unusual form.
        let ends_with_letter =
            text.rsplit('.').next().is_some_and(|last| last.contains(|c: char| c.is_ascii_alphabetic()));
        if text.bytes().all(is_part) && ends_with_letter {
            return Ok(Self(Form::Name(text.to_ascii_lowercase().into())));
        }
        Err(format!(
            "{text:?} is neither an address, a network nor a host name: write \"127.0.0.1\", \"10.0.0.0/8\" or \
             \"ocsp.internal\""
        ))
    }
}

impl PrivateHost {
    fn permits(&self, name: &str, address: IpAddr) -> bool {
        match &self.0 {
            // Both forms, because the operator may have written the network of either.
            Form::Network(network) => network.contains(&address) || network.contains(&inner(address)),
            Form::Name(own) => own.eq_ignore_ascii_case(name.strip_suffix('.').unwrap_or(name)),
        }
    }
}

/// Destinations that a client may connect to. Default: public addresses only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    private: Arc<[PrivateHost]>,
    /// Host and port of a URL in the configuration.
    configured: Option<Target>,
}

impl Destinations {
    /// Public addresses, and the addresses that `private` permits.
    pub fn new(private: Arc<[PrivateHost]>) -> Self {
        Self { private, configured: None }
    }

    /// Permits also the host and port of `url`, which the operator wrote. An invalid URL permits nothing.
    #[must_use]
    pub fn with_url(self, url: &str) -> Self {
        // Permitted by host and port and not by address, which may change while the gateway runs.
        let target = url.parse::<Uri>().ok().and_then(|url| RequestTarget::of(&url).ok());
        Self { configured: target.map(|target| target.dial), ..self }
    }

    pub(crate) fn permit(&self, target: &RequestTarget, address: IpAddr) -> bool {
        is_public(address)
            || self.configured.as_ref() == Some(&target.dial)
            || self.private.iter().any(|host| host.permits(&target.host, address))
    }
}

/// The name and the address of a refused destination, for the message of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub(crate) host: String,
    pub(crate) address: IpAddr,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        let Self { address, .. } = self;
        if bare.parse::<IpAddr>().is_ok() {
            write!(f, "{address} is not a public address")?;
        } else {
            write!(f, "{bare} has the address {address}, which is not public")?;
        }
        write!(f, "; if the request is intended, add {bare:?} to certificates.allow_private")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn addresses_of_every_special_network_are_not_public() {
        let v4 = "127.0.0.1 127.255.255.254 0.0.0.0 0.1.2.3 10.1.2.3 172.16.0.1 172.31.255.255 192.168.0.1 \
                  169.254.169.254 100.64.0.1 100.127.255.255 224.0.0.1 239.1.2.3 255.255.255.255 240.0.0.1 192.0.2.1 \
                  198.51.100.1 203.0.113.1 198.18.0.1 192.0.0.8";
        let v6 = ":: ::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::7f00:1 64:ff9b::10.0.0.1 64:ff9b:1::1 2002:7f00:1::1 \
                  2002:a00:1:: fe80::1 febf::1 fc00::1 fd12::1 fec0::1 ff02::1 2001:db8::1 3fff::1 2001::1 100::1 5f00::1";
        for text in v4.split(' ').chain(v6.split(' ')) {
            assert!(!is_public(address(text)), "{text}");
        }
        let public = "1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 172.15.0.1 172.32.0.1 192.167.0.1 \
                      223.255.255.255 2606:4700::1 2a00::1 ::ffff:1.1.1.1 64:ff9b::1.1.1.1 2002:101:101::1";
        for text in public.split(' ') {
            assert!(is_public(address(text)), "{text}");
        }
    }

    #[test]
    fn only_what_the_configuration_names_is_permitted_beside_public_addresses() {
        let private = ["127.0.0.1", "10.0.0.0/8", "OCSP.internal"].map(|host| host.parse().expect(host));
        let destinations = Destinations::new(private.into()).with_url("https://192.168.0.9:14000/dir");
        let permits = |url: &str, at: &str| {
            let target = RequestTarget::of(&url.parse().expect("a URL")).expect("a target");
            destinations.permit(&target, address(at))
        };
        assert!(permits("http://a.test/", "1.1.1.1") && permits("http://a.test/", "10.2.3.4"));
        assert!(
            permits("http://127.0.0.1:8080/", "127.0.0.1") && permits("http://a.test/", "::ffff:10.1.1.1")
        );
        assert!(permits("http://ocsp.INTERNAL./", "192.168.0.1"));
        assert!(permits("https://192.168.0.9:14000/order", "192.168.0.9"));
        for (url, at) in [
            ("http://a.test/", "127.0.0.2"),
            ("http://a.test/", "::1"),
            ("http://x.ocsp.internal/", "192.168.0.1"),
            ("https://192.168.0.9/", "192.168.0.9"),
        ] {
            assert!(!permits(url, at), "{url} {at}");
        }
    }

    #[test]
    fn networks_of_mapped_addresses_permit_ipv4() {
        for text in ["::ffff:10.0.0.0/104", "::ffff:10.2.3.4"] {
            let host = text.parse::<PrivateHost>().expect(text);
            assert!(host.permits("a.test", address("10.2.3.4")), "{text}");
            assert!(!host.permits("a.test", address("11.2.3.4")), "{text}");
        }
    }

    #[test]
    fn hosts_are_networks_addresses_or_names() {
        for text in ["127.0.0.1", "::1", "10.0.0.0/8", "fd00::/8", "ocsp.internal", "ca", "x1.y2"] {
            assert!(text.parse::<PrivateHost>().is_ok(), "{text}");
        }
        for text in ["", "10.0.0.0/33", "a b", "http://a", "a:80", "127.1", "*.internal", "[::1]"] {
            assert!(text.parse::<PrivateHost>().is_err(), "{text:?}");
        }
    }
}
