//! Selection of packets to record.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use etherparse::IpNumber;
use pcap_parser::Linktype;

use crate::decode::{self, FragmentKey, Packet};

/// Conditions that all have to be met, a part of the language of tcpdump: `[not] port NUMBER`, `[not] host ADDRESS`, `[not] tcp`,
/// `[not] udp`, joined by `and`. The default accepts all packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(Vec<Condition>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Condition {
    is_negated: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Port(u16),
    Host(IpAddr),
    Tcp,
    Udp,
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let condition = |part: &[&str]| {
            let (is_negated, rest) = match part {
                ["not", rest @ ..] => (true, rest),
                rest => (false, rest),
            };
            let kind = match rest {
                ["port", number] => number.parse().ok().map(Kind::Port),
                ["host", address] => address.parse().ok().map(Kind::Host),
                ["tcp"] => Some(Kind::Tcp),
                ["udp"] => Some(Kind::Udp),
                _ => None,
            };
            let fault = || {
                format!(
                    "{:?} is no condition: write port NUMBER, host ADDRESS, tcp or udp, with not in front, joined by and",
                    part.join(" ")
                )
            };
            kind.map(|kind| Condition { is_negated, kind }).ok_or_else(fault)
        };
        let words: Vec<_> = text.split_whitespace().collect();
        words.split(|word| *word == "and").map(condition).collect::<Result<_, _>>().map(Self)
    }
}

impl Filter {
    /// Whether a packet is to be recorded. Conditions see the innermost packet of a tunnel. No condition holds for a packet of
    /// another protocol than TCP and UDP, so those with `not` are met; one that a fragment leaves open is met too.
    pub(super) fn accepts(&self, link: Linktype, bytes: &[u8]) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let packet = decode::packet(link, bytes);
        self.0.iter().all(|condition| condition.is_met(packet.as_ref().ok()))
    }
}

impl Condition {
    /// `packet` is `None` if it could not be decoded.
    fn is_met(self, packet: Option<&Packet<'_>>) -> bool {
        let is_met = match packet {
            Some(Packet::Tcp(segment)) => Some(self.kind.fits([segment.source, segment.destination], true)),
            Some(Packet::Udp(datagram)) => {
                Some(self.kind.fits([datagram.source, datagram.destination], false))
            }
            Some(Packet::Fragment(fragment)) => self.kind.fits_fragment(&fragment.key),
            None => Some(false),
        };
        // In doubt the packet is recorded: it can be ignored later, but not be recovered.
        is_met.is_none_or(|is_met| is_met != self.is_negated)
    }
}

impl Kind {
    fn fits(self, ends: [SocketAddr; 2], is_tcp: bool) -> bool {
        match self {
            Self::Port(port) => ends.iter().any(|end| end.port() == port),
            Self::Host(address) => ends.iter().any(|end| end.ip() == address),
            Self::Tcp => is_tcp,
            Self::Udp => !is_tcp,
        }
    }

    /// `None` for the ports of a fragment, and for all of a fragment that may contain a tunnel: VXLAN in UDP, or others.
    fn fits_fragment(self, key: &FragmentKey) -> Option<bool> {
        match self {
            _ if key.number != IpNumber::TCP => None,
            Self::Port(_) => None,
            Self::Host(address) => Some([key.source, key.destination].contains(&address)),
            Self::Tcp => Some(true),
            Self::Udp => Some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    #[test]
    fn packets_are_selected_by_conditions() {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64).tcp(5000, 443, 7, 1024);
        builder.write(&mut packet, b"").expect("memory");
        for (text, accepted) in [
            ("port 443", true),
            ("port 80", false),
            ("tcp and host 192.0.2.1", true),
            ("tcp and not host 192.0.2.1", false),
            ("not udp and not port 22", true),
            ("udp", false),
        ] {
            let filter: Filter = text.parse().expect(text);
            assert_eq!(filter.accepts(Linktype::RAW, &packet), accepted, "{text}");
        }
        // Further fragments follow, of TCP or of UDP; a message of ICMP (1); and a packet that was cut off.
        let [mut tcp, mut udp, mut other] = [packet.clone(), packet.clone(), packet.clone()];
        (tcp[6], udp[6], udp[9], other[9]) = (0x20, 0x20, 17, 1);
        for (text, accepted) in [
            ("port 443", [true, true, false, false]),
            ("not port 443", [true, true, true, true]),
            ("tcp and host 192.0.2.9", [false, true, false, false]),
            ("not host 192.0.2.1", [false, true, true, true]),
            ("udp", [false, true, false, false]),
            ("not udp and not port 22", [true, true, true, true]),
            ("not udp and tcp", [true, true, false, false]),
        ] {
            let filter: Filter = text.parse().expect(text);
            let packets = [&tcp[..], &udp, &other, &packet[..30]];
            assert_eq!(packets.map(|packet| filter.accepts(Linktype::RAW, packet)), accepted, "{text}");
        }
        assert!(Filter::default().accepts(Linktype::RAW, b""));
        for text in ["", "port", "port x", "port 1 or port 2", "and tcp", "not", "host name"] {
            let error = text.parse::<Filter>().expect_err(text);
            assert!(error.contains("port NUMBER"), "{error}");
        }
    }
}
