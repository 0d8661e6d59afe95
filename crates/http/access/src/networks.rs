//! Networks whose clients are permitted or denied.

use std::net::IpAddr;

use brisk_net::Networks;
use ipnet::IpNet;

/// The networks of `allow` and `deny`.
///
/// Of the networks that contain a client's address, the one with the longest prefix decides; the order in the lists is
/// irrelevant. An address in no network is permitted unless some network is allowed. [`Networks`] states the cost of a decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkRules {
    /// Whether clients of a network are permitted.
    networks: Networks<bool>,
    /// Whether clients of all other networks are denied.
    is_closed: bool,
}

impl NetworkRules {
    /// Rules that permit `allow` and deny `deny`. Bits of a network beyond its prefix are ignored.
    ///
    /// # Errors
    ///
    /// The [`IpNet`] that is in both lists.
    pub fn new(
        allow: impl IntoIterator<Item = IpNet>,
        deny: impl IntoIterator<Item = IpNet>,
    ) -> Result<Self, IpNet> {
        let mut rules = Self::default();
        for network in allow {
            rules.networks.insert(network, true);
            rules.is_closed = true;
        }
        for network in deny {
            if rules.networks.insert(network, false) == Some(true) {
                return Err(network.trunc());
            }
        }
        Ok(rules)
    }

    /// Whether the rules permit every client.
    pub fn is_open(&self) -> bool {
        self.networks.is_empty()
    }

    /// Whether `client` is permitted. An IPv4 address in the form of IPv6 (`::ffff:192.0.2.1`) is an IPv4 address.
    pub fn permits(&self, client: IpAddr) -> bool {
        self.networks.get(client).copied().unwrap_or(!self.is_closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().expect("a network")).collect()
    }

    fn rules(allow: &[&str], deny: &[&str]) -> NetworkRules {
        NetworkRules::new(networks(allow), networks(deny)).expect("rules without a contradiction")
    }

    #[test]
    fn the_most_specific_network_decides() {
        let rules =
            rules(&["10.0.0.0/8", "10.1.2.0/24", "2001:db8::/32"], &["10.1.0.0/16", "2001:db8::7/128"]);
        for (client, is_permitted) in [
            ("10.9.9.9", true),
            ("10.1.9.9", false),
            ("10.1.2.9", true),
            ("::ffff:10.1.2.9", true),
            ("::ffff:10.1.9.9", false),
            ("192.0.2.1", false),
            ("2001:db8::8", true),
            ("2001:db8::7", false),
            ("2001:db9::", false),
        ] {
            assert_eq!(rules.permits(client.parse().expect("an address")), is_permitted, "{client}");
        }
    }

    #[test]
    fn without_a_match_a_list_of_allowed_networks_denies_and_one_of_denied_networks_permits() {
        let client = IpAddr::from([192, 0, 2, 1]);
        assert!(!rules(&["10.0.0.0/8"], &[]).permits(client));
        assert!(!rules(&["10.0.0.0/8"], &["10.1.0.0/16"]).permits(client));
        assert!(rules(&[], &["10.0.0.0/8"]).permits(client));
        assert!(rules(&[], &[]).is_open() && rules(&[], &[]).permits(client));
        assert!(!rules(&[], &["10.0.0.0/8"]).is_open() && !rules(&["0.0.0.0/0"], &[]).is_open());
    }

    #[test]
    fn bits_behind_the_prefix_are_ignored_and_a_contradiction_is_found() {
        assert!(rules(&["10.1.2.3/8"], &[]).permits(IpAddr::from([10, 9, 9, 9])));
        let contradiction = NetworkRules::new(networks(&["10.1.2.3/8"]), networks(&["10.0.0.0/8"]));
        assert_eq!(contradiction, Err(networks(&["10.0.0.0/8"])[0]));
    }

    #[test]
    fn the_networks_of_one_version_contain_no_address_of_the_other() {
        assert!(!rules(&["::/0"], &[]).permits(IpAddr::from([192, 0, 2, 1])));
        assert!(rules(&[], &["0.0.0.0/0"]).permits("2001:db8::1".parse().expect("an address")));
    }
}
