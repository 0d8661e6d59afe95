//! The form of networks in which addresses of clients are compared.

use ipnet::IpNet;

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
