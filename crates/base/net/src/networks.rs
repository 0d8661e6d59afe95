//! Values by network, and the form of networks in which addresses of clients are compared.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

/// Values by network. Of the networks that contain an address, the one with the longest prefix decides. A look-up costs one step
/// for each distinct prefix length, regardless of the number of networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks<T> {
    values: HashMap<IpNet, T>,
    /// Prefix lengths of `values`, the longest first. IPv4 and IPv6 share the list.
    lengths: Vec<u8>,
}

impl<T> Networks<T> {
    /// Sets the value of a network, and returns its former one. Bits of the network beyond its prefix are ignored.
    pub fn insert(&mut self, network: IpNet, value: T) -> Option<T> {
        let length = network.prefix_len();
        if let Err(place) = self.lengths.binary_search_by(|own| length.cmp(own)) {
            self.lengths.insert(place, length);
        }
        self.values.insert(network.trunc(), value)
    }

    /// Whether no network has a value.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The values of all networks, in no order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.values.values()
    }

    /// The value for an address; `None` for an address in no network. An IPv4 address in the form of IPv6 (`::ffff:192.0.2.1`) is
    /// an IPv4 address.
    pub fn get(&self, address: IpAddr) -> Option<&T> {
        // A socket of IPv6 reports clients with IPv4 as mapped addresses.
        let address = address.to_canonical();
        // Lengths above 32 are none of an IPv4 network.
        let network = |length: &u8| Some(IpNet::new(address, *length).ok()?.trunc());
        self.lengths.iter().filter_map(network).find_map(|network| self.values.get(&network))
    }
}

/// The IPv4 network of a network of IPv4-mapped addresses (RFC 4291 section 2.5.5.2), and any other network as it is. Addresses of
/// clients are compared in their canonical form, so that a mapped network contains no client.
pub fn canonical_network(network: IpNet) -> IpNet {
    let mapped = || {
        let IpNet::V6(network) = network else { return None };
        let length = network.prefix_len().checked_sub(96)?;
        IpNet::new(network.network().to_ipv4_mapped()?.into(), length).ok()
    };
    mapped().unwrap_or(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides() {
        let mut networks = Networks::default();
        let lines = [
            ("10.1.0.7/32", "d"),
            ("10.0.0.0/8", "e"),
            ("::/0", "c"),
            ("10.1.2.3/16", "b"),
            ("10.9.9.9/8", "a"),
        ];
        let former = lines.map(|(network, value)| networks.insert(network.parse().expect(network), value));
        assert_eq!(former, [None, None, None, None, Some("e")]);
        assert_eq!(networks.lengths, [32, 16, 8, 0]);
        for (address, expected) in [
            ("10.9.0.1", Some("a")),
            ("10.1.0.1", Some("b")),
            ("::ffff:10.1.0.7", Some("d")),
            ("2001:db8::1", Some("c")),
            ("192.0.2.1", None),
        ] {
            assert_eq!(networks.get(address.parse().expect(address)).copied(), expected, "{address}");
        }
        assert!(Networks::<()>::default().is_empty());
    }

    #[test]
    fn only_networks_of_mapped_addresses_become_ipv4() {
        for (text, expected) in [
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:192.0.2.1/128", "192.0.2.1/32"),
            ("::ffff:0.0.0.0/96", "0.0.0.0/0"),
            ("::ffff:0.0.0.0/95", "::ffff:0.0.0.0/95"),
            ("::/0", "::/0"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
        ] {
            let parse = |text: &str| text.parse::<IpNet>().expect(text);
            assert_eq!(canonical_network(parse(text)), parse(expected), "{text}");
        }
    }
}
