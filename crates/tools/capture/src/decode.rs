//! TCP segments and UDP datagrams in captured packets: link layer, IP, TCP and UDP headers.

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    EtherType, IpFragOffset, IpNumber, Ipv6ExtensionSlice, LaxIpPayloadSlice, LaxNetSlice, LaxSlicedPacket,
};
use pcap_parser::Linktype;

use crate::options::Options;

/// Shortest TCP header.
const TCP_HEADER: usize = 20;

/// Length of a UDP header.
const UDP_HEADER: usize = 8;

/// Maximum number of tunnels within each other; a packet with more counts as [`Ignored::OtherProtocol`].
const TUNNELS: usize = 4;

/// Port of VXLAN (RFC 7348 section 8).
const VXLAN: u16 = 4789;

/// `EtherType` of IPv4.
const IPV4: u16 = 0x0800;
/// `EtherType` of IPv6.
const IPV6: u16 = 0x86dd;

/// Control bits of a TCP header (RFC 9293 section 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Control(pub(crate) u8);

impl Control {
    pub(crate) const FIN: u8 = 1;
    pub(crate) const SYN: u8 = 2;
    pub(crate) const RST: u8 = 4;
    pub(crate) const ACK: u8 = 16;

    /// Whether any of these bits is set.
    pub(crate) fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }

    /// Whether this is the first packet of a connection: `SYN` without `ACK`.
    pub(crate) fn is_open(self) -> bool {
        self.0 & (Self::SYN | Self::ACK) == Self::SYN
    }

    /// Names of the set bits, as `SYN, ACK`.
    pub(crate) fn names(self) -> String {
        const NAMES: [(u8, &str); 4] =
            [(Control::SYN, "SYN"), (Control::FIN, "FIN"), (Control::RST, "RST"), (Control::ACK, "ACK")];
        let set = NAMES.iter().filter(|(bit, _)| self.has(*bit)).map(|(_, name)| *name);
        set.collect::<Vec<_>>().join(", ")
    }
}

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// Sequence number.
    pub(crate) seq: u32,
    /// Acknowledgement number, valid with [`Control::ACK`].
    pub(crate) ack: u32,
    pub(crate) control: Control,
    /// Window as in the header, without scaling.
    pub(crate) window: u16,
    pub(crate) options: Options,
    /// Payload bytes on the network.
    pub(crate) len: u32,
    /// Captured payload bytes, at most `len`.
    pub(crate) payload: &'a [u8],
}

impl Segment<'_> {
    /// Sequence numbers that the segment uses: its payload, and one each for `SYN` and `FIN`.
    pub(crate) fn next(&self) -> u32 {
        let control = u32::from(self.control.has(Control::SYN | Control::FIN));
        self.seq.wrapping_add(self.len).wrapping_add(control)
    }
}

/// Reason why a packet is not analysed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ignored {
    /// Another protocol than TCP and QUIC.
    OtherProtocol,
    /// Headers that are malformed or not completely captured.
    Malformed,
    /// An unsupported link layer.
    Link(i32),
}

/// A UDP datagram (RFC 768).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// Payload bytes on the network.
    pub(crate) len: u32,
    /// Captured payload bytes, at most `len`.
    pub(crate) payload: &'a [u8],
}

impl Datagram<'_> {
    /// Whether all bytes were captured.
    pub(crate) fn is_whole(&self) -> bool {
        self.payload.len() == self.len as usize
    }
}

/// A fragment of an IP packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment<'a> {
    pub(crate) key: FragmentKey,
    pub(crate) offset: IpFragOffset,
    /// Whether further bytes follow (`MF`).
    pub(crate) has_more: bool,
    pub(crate) payload: &'a [u8],
    /// The end of the payload was not captured.
    pub(crate) is_truncated: bool,
}

/// Common fields of the fragments of a packet (RFC 791, RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FragmentKey {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) number: IpNumber,
    pub(crate) id: u32,
}

/// Content of a captured packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packet<'a> {
    Tcp(Segment<'a>),
    Udp(Datagram<'a>),
    Fragment(Fragment<'a>),
}

/// Finds the [`Segment`], [`Datagram`] or [`Fragment`] in a captured packet, also within GRE, VXLAN and IP tunnels. Does not
/// allocate.
pub(crate) fn packet(link: Linktype, bytes: &[u8]) -> Result<Packet<'_>, Ignored> {
    content(&sliced(link, bytes)?, 0)
}

/// Content of an IP packet behind `depth` tunnels, at most [`TUNNELS`].
fn content<'a>(packet: &LaxSlicedPacket<'a>, depth: usize) -> Result<Packet<'a>, Ignored> {
    let (source, destination, total) = match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            let options = header.slice().len();
            let total = usize::from(header.total_len()).saturating_sub(options);
            (IpAddr::V4(header.source_addr()), IpAddr::V4(header.destination_addr()), total)
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            let extensions = ip.extensions().slice().len();
            let total = usize::from(header.payload_length()).saturating_sub(extensions);
            (IpAddr::V6(header.source_addr()), IpAddr::V6(header.destination_addr()), total)
        }
        None if packet.stop_err.is_some() => return Err(Ignored::Malformed),
        Some(LaxNetSlice::Arp(_)) | None => return Err(Ignored::OtherProtocol),
    };
    let payload = packet.net.as_ref().and_then(LaxNetSlice::ip_payload_ref).ok_or(Ignored::Malformed)?;
    let key = FragmentKey { source, destination, number: payload.ip_number, id: 0 };
    if payload.fragmented {
        return fragment(packet, key, payload).map(Packet::Fragment).ok_or(Ignored::Malformed);
    }
    // Packets recorded before segmentation by the network device have a length of 0.
    transport(key, payload.payload, total.max(payload.payload.len()), depth)
}

/// Content of the payload of an IP packet, which may have been reassembled. `total` is its length on the network.
pub(crate) fn transport(
    key: FragmentKey,
    bytes: &[u8],
    total: usize,
    depth: usize,
) -> Result<Packet<'_>, Ignored> {
    let FragmentKey { source, destination, number, .. } = key;
    let inner = match number {
        IpNumber::TCP => {
            return tcp(source, destination, bytes, total).map(Packet::Tcp).ok_or(Ignored::Malformed);
        }
        IpNumber::UDP => {
            let datagram = udp(source, destination, bytes, total).ok_or(Ignored::Malformed)?;
            match vxlan(&datagram) {
                Some(frame) if depth < TUNNELS => frame,
                _ => return Ok(Packet::Udp(datagram)),
            }
        }
        IpNumber::GRE => gre(bytes).ok_or(Ignored::OtherProtocol)?,
        IpNumber::IPV4 => LaxSlicedPacket::from_ether_type(EtherType(IPV4), bytes),
        IpNumber::IPV6 => LaxSlicedPacket::from_ether_type(EtherType(IPV6), bytes),
        _ => return Err(Ignored::OtherProtocol),
    };
    // Without a limit, a forged packet of many headers would exhaust the stack by recursion.
    if depth == TUNNELS {
        return Err(Ignored::OtherProtocol);
    }
    content(&inner, depth + 1)
}

fn fragment<'a>(
    packet: &LaxSlicedPacket<'a>,
    key: FragmentKey,
    payload: &LaxIpPayloadSlice<'a>,
) -> Option<Fragment<'a>> {
    let (id, offset, has_more) = match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            (header.identification().into(), header.fragments_offset(), header.more_fragments())
        }
        LaxNetSlice::Ipv6(ip) => {
            ip.extensions().clone().into_iter().find_map(|extension| match extension {
                Ipv6ExtensionSlice::Fragment(header) => {
                    Some((header.identification(), header.fragment_offset(), header.more_fragments()))
                }
                _ => None,
            })?
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let (payload, is_truncated) = (payload.payload, payload.incomplete);
    Some(Fragment { key: FragmentKey { id, ..key }, offset, has_more, payload, is_truncated })
}

/// Ethernet frame in a datagram of VXLAN (RFC 7348 section 5).
fn vxlan<'a>(datagram: &Datagram<'a>) -> Option<LaxSlicedPacket<'a>> {
    let (header, frame) = datagram.payload.split_first_chunk::<8>()?;
    // The flag of a valid network identifier distinguishes VXLAN from other data at this port.
    let is_vxlan = datagram.destination.port() == VXLAN && header[0] & 0x08 != 0;
    LaxSlicedPacket::from_ethernet(frame).ok().filter(|_| is_vxlan)
}

/// Packet in the payload of GRE (RFC 2784, RFC 2890).
fn gre(bytes: &[u8]) -> Option<LaxSlicedPacket<'_>> {
    let header = bytes.first_chunk::<4>()?;
    let (flags, kind) = (header[0], u16::from_be_bytes([header[2], header[3]]));
    // Version 0 without routing, which RFC 2784 removed.
    if header[1] & 7 != 0 || flags & 0x40 != 0 {
        return None;
    }
    // Checksum, key and sequence number.
    let options = [0x80, 0x20, 0x10].into_iter().filter(|flag| flags & flag != 0).count();
    let rest = bytes.get(4 + 4 * options..)?;
    match kind {
        // Transparent Ethernet bridging.
        0x6558 => LaxSlicedPacket::from_ethernet(rest).ok(),
        _ => Some(LaxSlicedPacket::from_ether_type(EtherType(kind), rest)),
    }
}

/// IP packet behind the link layer header.
fn sliced(link: Linktype, bytes: &[u8]) -> Result<LaxSlicedPacket<'_>, Ignored> {
    // The lax parser accepts packets that were cut by the snapshot length: headers suffice for most results.
    let after = |header: usize, kind: Option<u16>| {
        let (rest, kind) = bytes.get(header..).zip(kind).ok_or(Ignored::Malformed)?;
        Ok(LaxSlicedPacket::from_ether_type(EtherType(kind), rest))
    };
    let two = |at: usize| bytes.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    match link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(bytes).map_err(|_| Ignored::Malformed),
        Linktype::LINUX_SLL => after(16, two(14)),
        Linktype::LINUX_SLL2 => after(20, two(0)),
        Linktype::NULL | Linktype::LOOP => after(4, bytes.get(..4).map(family)),
        // 12 and 14 are the numbers of raw IP on BSD systems, which some programs write.
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 | Linktype(12 | 14) => {
            after(0, bytes.first().map(|first| if first >> 4 == 6 { IPV6 } else { IPV4 }))
        }
        Linktype(other) => Err(Ignored::Link(other)),
    }
}

/// `EtherType` of an address family in the byte order of any machine. The number of IPv6 depends on the system.
fn family(bytes: &[u8]) -> u16 {
    // The number fits into one byte, so the other three are zero in either byte order.
    match bytes.iter().fold(0, |family, byte| family | byte) {
        2 => IPV4,
        10 | 24 | 28 | 30 => IPV6,
        _ => 0,
    }
}

/// Datagram in an IP payload of `total` bytes, of which `bytes` were captured.
fn udp(source: IpAddr, destination: IpAddr, bytes: &[u8], total: usize) -> Option<Datagram<'_>> {
    let (header, payload) = bytes.split_first_chunk::<UDP_HEADER>()?;
    let two = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let len = total.checked_sub(UDP_HEADER)?;
    Some(Datagram {
        source: SocketAddr::new(source, two(0)),
        destination: SocketAddr::new(destination, two(2)),
        len: u32::try_from(len).ok()?,
        payload: &payload[..payload.len().min(len)],
    })
}

/// Segment in an IP payload of `total` bytes, of which `bytes` were captured.
fn tcp(source: IpAddr, destination: IpAddr, bytes: &[u8], total: usize) -> Option<Segment<'_>> {
    let header = bytes.first_chunk::<TCP_HEADER>()?;
    let two = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let four = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let length = usize::from(header[12] >> 4) * 4;
    // The length on the network, not the captured one: sequence numbers have to fit although bytes are
    // missing.
    let len = total.checked_sub(length).filter(|_| length >= TCP_HEADER)?;
    let options = &bytes[TCP_HEADER..length.min(bytes.len())];
    Some(Segment {
        source: SocketAddr::new(source, two(0)),
        destination: SocketAddr::new(destination, two(2)),
        seq: four(4),
        ack: four(8),
        control: Control(header[13]),
        window: two(14),
        options: Options::read(options),
        len: u32::try_from(len).ok()?,
        payload: bytes.get(length..).unwrap_or_default(),
    })
}

/// The [`Segment`] in a captured packet.
#[cfg(test)]
pub(crate) fn segment(link: Linktype, bytes: &[u8]) -> Result<Segment<'_>, Ignored> {
    match packet(link, bytes)? {
        Packet::Tcp(segment) => Ok(segment),
        Packet::Udp(_) | Packet::Fragment(_) => Err(Ignored::OtherProtocol),
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    fn written(builder: etherparse::PacketBuilderStep<etherparse::TcpHeader>) -> Vec<u8> {
        let mut packet = Vec::new();
        builder.write(&mut packet, b"payload").expect("memory");
        packet
    }

    fn v4() -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
        PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64)
    }

    #[test]
    fn a_segment_is_found_behind_every_link_layer() {
        let ip = written(v4().tcp(5000, 443, 7, 1024).ack(9));
        let before = |header: &[u8]| [header, &ip].concat();
        let sll = [&[0; 14][..], &[8, 0]].concat();
        let sll2 = [&[8, 0][..], &[0; 18]].concat();
        let vlan = [&[1; 12][..], &[0x81, 0, 0, 5, 8, 0]].concat();
        let ethernet = [&[1; 12][..], &[8, 0]].concat();
        for (link, bytes) in [
            (Linktype::ETHERNET, before(&ethernet)),
            (Linktype::ETHERNET, before(&vlan)),
            (Linktype::LINUX_SLL, before(&sll)),
            (Linktype::LINUX_SLL2, before(&sll2)),
            (Linktype::NULL, before(&[2, 0, 0, 0])),
            (Linktype::LOOP, before(&[0, 0, 0, 2])),
            (Linktype::RAW, ip.clone()),
            (Linktype::IPV4, ip.clone()),
            (Linktype(12), ip.clone()),
        ] {
            let segment = segment(link, &bytes).unwrap_or_else(|reason| panic!("{link}: {reason:?}"));
            assert_eq!(segment.source.to_string(), "192.0.2.1:5000");
            assert_eq!(segment.destination.to_string(), "192.0.2.2:443");
            assert_eq!((segment.seq, segment.ack, segment.window), (7, 9, 1024));
            assert_eq!((segment.len, segment.payload), (7, &b"payload"[..]));
            assert_eq!((segment.next(), segment.control.names()), (14, "ACK".to_owned()));
        }
        assert_eq!(segment(Linktype(147), &ip).err(), Some(Ignored::Link(147)));
    }

    #[test]
    fn truncated_packets_keep_the_length_on_the_network() {
        let ip = written(v4().tcp(5000, 443, 7, 1024));
        for cut in 20 + TCP_HEADER..ip.len() {
            let segment = segment(Linktype::RAW, &ip[..cut]).expect("the headers are complete");
            assert_eq!((segment.len, segment.payload.len()), (7, cut - 20 - TCP_HEADER));
        }
        assert_eq!(segment(Linktype::RAW, &ip[..30]).err(), Some(Ignored::Malformed));
    }

    #[test]
    fn ipv6_with_extension_headers_is_read() {
        let plain = written(PacketBuilder::ipv6([1; 16], [2; 16], 64).tcp(1, 2, 3, 4));
        // Destination options (60) of 8 bytes before TCP.
        let mut extended = plain.clone();
        extended[6] = 60;
        extended[5] += 8;
        extended.splice(40..40, [6, 0, 1, 4, 0, 0, 0, 0]);
        let segment = segment(Linktype::RAW, &extended).expect("a segment");
        assert_eq!((segment.len, segment.payload), (7, &b"payload"[..]));
        let mut other = plain.clone();
        other[6] = 132;
        assert_eq!(super::segment(Linktype::RAW, &other).err(), Some(Ignored::OtherProtocol));
        let mut udp = plain;
        udp[6] = 17;
        let Ok(Packet::Udp(datagram)) = packet(Linktype::RAW, &udp) else { panic!("no datagram") };
        assert_eq!((datagram.len, datagram.source.port(), datagram.is_whole()), (19, 1, true));
    }

    /// An IPv4 packet with this payload.
    fn around(number: u8, payload: &[u8]) -> Vec<u8> {
        let total = (20 + payload.len()) as u16;
        let mut packet = vec![0x45, 0];
        packet.extend(total.to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, number, 0, 0, 198, 51, 100, 1, 198, 51, 100, 2]);
        packet.extend(payload);
        packet
    }

    #[test]
    fn segments_in_tunnels_are_found_up_to_a_depth() {
        let ip = written(v4().tcp(5000, 443, 7, 1024));
        let ethernet = [&[1; 12][..], &[8, 0], &ip].concat();
        let keyed = [&[0x30, 0, 8, 0, 0, 0, 0, 7, 0, 0, 0, 1][..], &ip].concat();
        let bridged = [&[0, 0, 0x65, 0x58][..], &ethernet].concat();
        let vxlan = [&[0x30, 0x39, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 5, 0][..], &ethernet].concat();
        let tunnels = [around(47, &keyed), around(47, &bridged), around(17, &vxlan), around(4, &ip)];
        for (index, bytes) in tunnels.iter().enumerate() {
            let segment =
                segment(Linktype::RAW, bytes).unwrap_or_else(|reason| panic!("{index}: {reason:?}"));
            assert_eq!(
                (segment.source.to_string(), segment.len),
                ("192.0.2.1:5000".to_owned(), 7),
                "{index}"
            );
        }
        let nested = |depth: usize| (0..depth).fold(ip.clone(), |inner, _| around(4, &inner));
        assert!(segment(Linktype::RAW, &nested(TUNNELS)).is_ok());
        assert_eq!(segment(Linktype::RAW, &nested(TUNNELS + 1)).err(), Some(Ignored::OtherProtocol));
        // Another version of GRE, and a datagram of another protocol to the port of VXLAN.
        assert_eq!(segment(Linktype::RAW, &around(47, &[0, 1, 8, 0])).err(), Some(Ignored::OtherProtocol));
        let other = around(17, &[0x30, 0x39, 0x12, 0xb5, 0, 0, 0, 0, 1, 2, 3]);
        assert!(matches!(packet(Linktype::RAW, &other), Ok(Packet::Udp(_))));
    }
}
