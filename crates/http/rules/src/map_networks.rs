//! [`MapNetworks`], results of a [`Map`](crate::Map) by the network of an address.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

/// Results by network, of which the one with the longest prefix decides. A look-up costs one step for each distinct prefix length.
#[derive(Clone, Debug, Default)]
pub struct MapNetworks {
    results: HashMap<IpNet, String>,
    /// Prefix lengths of `results`, the longest first, as [`IpNet::prefix_len`] returns them.
    lengths: Vec<u8>,
}

impl FromIterator<(IpNet, String)> for MapNetworks {
    /// Bits of an [`IpNet`] beyond its prefix are ignored.
    fn from_iter<I: IntoIterator<Item = (IpNet, String)>>(results: I) -> Self {
        let results: HashMap<_, _> =
            results.into_iter().map(|(network, result)| (network.trunc(), result)).collect();
        let mut lengths: Vec<_> = results.keys().map(IpNet::prefix_len).collect();
        lengths.sort_unstable_by(|one, other| other.cmp(one));
        lengths.dedup();
        Self { results, lengths }
    }
}

impl MapNetworks {
    /// The result for an address; `None` for an address in no network, and for another text.
    pub(crate) fn result(&self, text: &[u8]) -> Option<&str> {
        if self.lengths.is_empty() {
            return None;
        }
        let address: IpAddr = std::str::from_utf8(text).ok()?.parse().ok()?;
        let address = address.to_canonical();
        // Lengths above 32 are none of an IPv4 network.
        let networks =
            self.lengths.iter().filter_map(|length| Some(IpNet::new(address, *length).ok()?.trunc()));
        let mut results = networks.filter_map(|network| self.results.get(&network));
        results.next().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides() {
        let lines = [("10.0.0.0/8", "a"), ("10.1.2.3/16", "b"), ("::/0", "c"), ("10.1.0.7/32", "d")];
        let networks: MapNetworks = lines
            .iter()
            .map(|(network, result)| (network.parse().expect("a network"), (*result).to_owned()))
            .collect();
        for (text, expected) in [
            ("10.9.0.1", Some("a")),
            ("10.1.0.1", Some("b")),
            ("::ffff:10.1.0.7", Some("d")),
            ("2001:db8::1", Some("c")),
            ("192.0.2.1", None),
            ("10.0.0.1:80", None),
            ("", None),
        ] {
            assert_eq!(networks.result(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(MapNetworks::default().result(b"10.0.0.1"), None);
    }
}
