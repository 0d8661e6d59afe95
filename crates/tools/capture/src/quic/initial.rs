//! Initial packets of QUIC (RFC 9000 section 17.2.2, RFC 9001 section 5, RFC 9369), whose keys follow from the packets.

use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use brisk_handshake_view::Party;
use brisk_handshake_view::open::expand;
use brisk_wire::h3::varint::split;

/// Longest connection ID (RFC 9000 section 17.2).
const ID: usize = 20;

/// Versions of QUIC with Initial packets that can be opened.
const VERSIONS: [(u32, [u8; 20], &str); 2] = [
    (
        1,
        [
            0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad,
            0xcc, 0xbb, 0x7f, 0x0a,
        ],
        "quic",
    ),
    (
        0x6b33_43cf,
        [
            0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d, 0xcb,
            0xf9, 0xbd, 0x2e, 0xd9,
        ],
        "quicv2",
    ),
];

/// Type of a packet with a long header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Initial,
    EarlyData,
    Handshake,
    Retry,
    VersionNegotiation,
}

/// Long header of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct LongHeader<'a> {
    pub(super) kind: Kind,
    pub(super) version: u32,
    pub(super) destination: &'a [u8],
    pub(super) source: &'a [u8],
    /// Token of an Initial packet.
    pub(super) token: &'a [u8],
    /// The packet from its first byte to its end.
    packet: &'a [u8],
    /// Length of the header before the packet number.
    header: usize,
}

/// Reads the [`LongHeader`] of the first packet of a datagram and returns the rest; `None` without a long header, or if it is
/// malformed.
pub(super) fn read(datagram: &[u8]) -> Option<(LongHeader<'_>, &[u8])> {
    let (&first, rest) = datagram.split_first()?;
    let (version, rest) = rest.split_first_chunk::<4>()?;
    let version = u32::from_be_bytes(*version);
    let id = |rest: &'_ [u8]| -> Option<usize> {
        let length = usize::from(*rest.first()?);
        (length <= ID && rest.len() > length).then_some(length)
    };
    let (destination, rest) = rest.get(1..)?.split_at_checked(id(rest)?)?;
    let (source, rest) = rest.get(1..)?.split_at_checked(id(rest)?)?;
    // RFC 9000 section 17.2.1: in a Version Negotiation packet, the second bit is arbitrary.
    if first & 0x80 == 0 || first & 0x40 == 0 && version != 0 {
        return None;
    }
    // RFC 9369 section 3.2: version 2 has other numbers of types, each higher by one (modulo 4).
    let number = match first >> 4 & 3 {
        number if version == VERSIONS[1].0 => number.wrapping_sub(1) & 3,
        number => number,
    };
    let kind = match (version, number) {
        (0, _) => Kind::VersionNegotiation,
        (_, 0) => Kind::Initial,
        (_, 1) => Kind::EarlyData,
        (_, 2) => Kind::Handshake,
        _ => Kind::Retry,
    };
    let mut header =
        LongHeader { kind, version, destination, source, token: &[], packet: datagram, header: 0 };
    if matches!(kind, Kind::VersionNegotiation | Kind::Retry) {
        header.token = rest;
        return Some((header, &[]));
    }
    let mut rest = rest;
    if kind == Kind::Initial {
        let (length, after) = split(rest)?;
        (header.token, rest) = after.split_at_checked(usize::try_from(length).ok()?)?;
    }
    let (length, rest) = split(rest)?;
    let begin = datagram.len() - rest.len();
    let end = begin.checked_add(usize::try_from(length).ok()?)?;
    (header.packet, header.header) = (datagram.get(..end)?, begin);
    Some((header, &datagram[end..]))
}

/// Opens an Initial packet from `from`; `id` is the destination connection ID of the client's first packet. `None` for unknown
/// versions and damaged packets.
pub(super) fn open(header: &LongHeader<'_>, id: &[u8], from: Party) -> Option<Vec<u8>> {
    let (_, salt, label) = VERSIONS.iter().find(|(version, ..)| *version == header.version)?;
    let hash = hmac::HMAC_SHA256;
    // RFC 9001 section 5.2
    let initial = hmac::sign(&hmac::Key::new(hash, salt), id);
    let side: &[u8] = if from == Party::Client { b"client in" } else { b"server in" };
    let secret = expand(hash, initial.as_ref(), side, &[], 32);
    let derive = |name: &str, len| expand(hash, &secret, format!("{label} {name}").as_bytes(), &[], len);
    let protection = HeaderProtectionKey::new(&AES_128, &derive("hp", 16)).ok()?;
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &derive("key", 16)).ok()?);
    let mut nonce: [u8; 12] = derive("iv", 12).try_into().ok()?;
    // RFC 9001 section 5.4
    let mut packet = header.packet.to_vec();
    let sample = packet.get(header.header + 4..header.header + 20)?;
    let mask = protection.new_mask(sample).ok()?;
    packet[0] ^= mask[0] & 0x0f;
    let length = usize::from(packet[0] & 3) + 1;
    let mut number = 0;
    for (byte, mask) in packet[header.header..header.header + length].iter_mut().zip(&mask[1..]) {
        *byte ^= mask;
        number = number << 8 | u64::from(*byte);
    }
    // Numbers of Initial packets are small, so none was shortened.
    for (byte, part) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
        *byte ^= part;
    }
    // RFC 9001 section 5.3: the tag covers the header without its protection.
    let (aad, sealed) = packet.split_at_mut(header.header + length);
    let opened = key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(&*aad), sealed).ok()?;
    Some(opened.to_vec())
}

/// Name of a version.
pub(super) fn version_name(version: u32) -> String {
    match version {
        1 => "QUIC v1".to_owned(),
        0x6b33_43cf => "QUIC v2".to_owned(),
        0xff00_0000..=0xff00_00ff => format!("draft-{}", version & 0xff),
        _ => format!("{version:#010x}"),
    }
}

/// Parts of the `CRYPTO` frames in the payload of an Initial packet: offset and bytes. Ends before the first other frame than
/// `PADDING`, `PING` and `ACK`.
pub(super) fn crypto(payload: &[u8]) -> Vec<(u64, &[u8])> {
    let (mut found, mut rest) = (Vec::new(), payload);
    while let Some(next) = frame(rest, &mut found) {
        rest = next;
    }
    found
}

/// Takes one frame and returns the bytes behind it.
fn frame<'a>(bytes: &'a [u8], found: &mut Vec<(u64, &'a [u8])>) -> Option<&'a [u8]> {
    let (kind, rest) = bytes.split_first()?;
    match kind {
        0 | 1 => Some(rest),
        // ACK: largest, delay, number of ranges, first range, then two numbers for each range (RFC 9000 section 19.3).
        2 | 3 => {
            let (_, rest) = split(rest)?;
            let (_, rest) = split(rest)?;
            let (ranges, mut rest) = split(rest)?;
            let counts = if *kind == 3 { 3 } else { 0 };
            // A larger number is forged: an Initial packet of usual size has no room for 1000 ranges.
            for _ in 0..1 + 2 * ranges.min(1000) + counts {
                rest = split(rest)?.1;
            }
            Some(rest)
        }
        6 => {
            let (offset, rest) = split(rest)?;
            let (length, rest) = split(rest)?;
            let (content, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            found.push((offset, content));
            Some(rest)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let hex: String = hex.split_whitespace().collect();
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
    }

    /// RFC 9001 appendix A.3: the server's Initial packet.
    #[test]
    fn the_initial_packet_of_the_rfc_is_opened() {
        let packet = bytes(
            "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a5816b6394100f37a1c69797554780bb3
             8cc5a99f5ede4cf73c3ec2493a1839b3dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb8
             4022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc42158407dd074ee",
        );
        let (header, rest) = read(&packet).expect("a long header");
        assert_eq!((header.kind, header.version, rest.len()), (Kind::Initial, 1, 0));
        assert_eq!((header.destination, header.source), (&b""[..], &bytes("f067a5502a4262b5")[..]));
        let payload = open(&header, &bytes("8394c8f03e515708"), Party::Server).expect("opened");
        let crypto = crypto(&payload);
        let [(0, hello)] = crypto[..] else { panic!("{crypto:?}") };
        assert!(hello.starts_with(&[2, 0, 0, 0x56, 3, 3]));
        assert_eq!(open(&header, b"other", Party::Server), None);
        for cut in 0..packet.len() {
            assert!(
                read(&packet[..cut]).is_none_or(|(header, _)| open(&header, b"", Party::Client).is_none())
            );
        }
    }
}
