//! Header of a pcap file and of its packets, in the known variants of the format (draft-ietf-opsawg-pcap).

use pcap_parser::Linktype;

use crate::error::CaptureError;
use crate::time::Nanos;

/// Length of the header of a pcap file in bytes.
pub(crate) const FILE_HEADER: usize = 24;

/// Magic number of files whose times are in microseconds.
const MICROS: u32 = 0xa1b2_c3d4;
/// Magic number of files whose times are in nanoseconds.
const NANOS: u32 = 0xa1b2_3c4d;
/// Headers of packets have 24 bytes, with the interface and the protocol (Kuznetzov's libpcap).
const MODIFIED: u32 = 0xa1b2_cd34;
/// Other variants: Fmesquita, Navtel, and two of Ixia.
const OTHERS: [u32; 4] = [0xa1b2_34cd, 0xa12b_3c4d, 0x1c00_01ab, 0x1c00_01ac];

/// Properties of a pcap file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PcapFile {
    /// Type of the link layer header.
    pub(crate) link: Linktype,
    /// Bytes of the frame check sequence behind each packet.
    pub(crate) fcs: u8,
    is_big_endian: bool,
    is_modified: bool,
    /// The captured length may be behind the length on the network, as before version 2.4.
    is_old: bool,
    nanos_per_unit: u64,
}

/// Number of four bytes.
pub(crate) fn four(bytes: &[u8], at: usize, is_big_endian: bool) -> u32 {
    let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

impl PcapFile {
    /// Reads the header of a file. A known variant that is not supported is [`CaptureError::UnsupportedVariant`].
    pub(crate) fn read(header: &[u8; FILE_HEADER]) -> Result<Self, CaptureError> {
        let is_known = |magic: &u32| [MICROS, NANOS, MODIFIED].contains(magic);
        let orders = [false, true];
        // Files have the byte order of the machine that wrote them; the magic number shows it.
        let magics = orders.map(|is_big_endian| four(header, 0, is_big_endian));
        let Some((magic, is_big_endian)) = magics.into_iter().zip(orders).find(|(magic, _)| is_known(magic))
        else {
            let other = magics.into_iter().find(|magic| OTHERS.contains(magic));
            return Err(
                other.map_or(CaptureError::NotCapture, |magic| CaptureError::UnsupportedVariant { magic })
            );
        };
        // Section 4, "LinkType": 16 bits. The four highest bits are the length of the frame check sequence in units of two
        // bytes, if bit 26 is set; readers ignore the others.
        let link = four(header, 20, is_big_endian);
        let has_fcs = link & 0x0400_0000 != 0;
        let version = if is_big_endian {
            [header[4], header[5], header[6], header[7]]
        } else {
            [header[5], header[4], header[7], header[6]]
        };
        Ok(Self {
            link: Linktype((link & 0xffff).cast_signed()),
            fcs: if has_fcs { (link >> 28) as u8 * 2 } else { 0 },
            is_big_endian,
            is_modified: magic == MODIFIED,
            is_old: version < [0, 2, 0, 4],
            nanos_per_unit: if magic == NANOS { 1 } else { 1000 },
        })
    }

    /// Length of a packet's header.
    pub(crate) fn packet_header(self) -> usize {
        if self.is_modified { 24 } else { 16 }
    }

    /// Captured bytes (`CapLen`), and bytes on the network (`OrigLen`). `header` has at least 16 bytes.
    pub(crate) fn lengths(self, header: &[u8]) -> (u32, u32) {
        let (captured, original) =
            (four(header, 8, self.is_big_endian), four(header, 12, self.is_big_endian));
        // Versions before 2.3 have the lengths in the other order, and 2.3 has both; no packet has more
        // captured bytes than original ones.
        if self.is_old { (captured.min(original), captured.max(original)) } else { (captured, original) }
    }

    /// Time of a packet. `header` has at least 16 bytes.
    pub(crate) fn time(self, header: &[u8]) -> Nanos {
        let number = |at| u64::from(four(header, at, self.is_big_endian));
        Nanos(number(0) * 1_000_000_000 + number(4) * self.nanos_per_unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(magic: u32, link: u32, is_big_endian: bool) -> [u8; FILE_HEADER] {
        let mut header = [0; FILE_HEADER];
        let bytes = |number: u32| if is_big_endian { number.to_be_bytes() } else { number.to_le_bytes() };
        header[..4].copy_from_slice(&bytes(magic));
        header[4..8].copy_from_slice(if is_big_endian { &[0, 2, 0, 4] } else { &[2, 0, 4, 0] });
        header[20..].copy_from_slice(&bytes(link));
        header
    }

    #[test]
    fn all_variants_are_read_or_named() {
        for is_big_endian in [false, true] {
            let read = |magic, link| PcapFile::read(&header(magic, link, is_big_endian));
            let usual = read(MICROS, 1).expect("a header");
            assert_eq!((usual.link, usual.fcs, usual.packet_header()), (Linktype(1), 0, 16));
            assert_eq!(usual.nanos_per_unit, 1000);
            assert_eq!(read(NANOS, 101).expect("a header").nanos_per_unit, 1);
            assert_eq!(read(MODIFIED, 1).expect("a header").packet_header(), 24);
            for magic in OTHERS {
                let error = read(magic, 1).expect_err("not supported");
                assert!(error.to_string().contains(&format!("{magic:#010x}")), "{error}");
            }
            assert!(matches!(read(7, 1), Err(CaptureError::NotCapture)));
        }
    }

    #[test]
    fn the_upper_bits_of_the_link_type_are_a_check_sequence() {
        let read = |link| PcapFile::read(&header(MICROS, link, false)).expect("a header");
        let found = [0x2400_0001, 0x1400_0071, 0xf400_0001, 0x0000_0001, 0x2000_0001, 0x0800_0001];
        let found = found.map(|link| (read(link).link.0, read(link).fcs));
        assert_eq!(found, [(1, 4), (113, 2), (1, 30), (1, 0), (1, 0), (1, 0)]);
    }

    #[test]
    fn lengths_of_old_versions_are_read_in_either_order() {
        let mut bytes = header(MICROS, 1, false);
        let mut packet = [0; 16];
        (packet[8], packet[12]) = (90, 60);
        let lengths = |bytes: &[u8; 24]| PcapFile::read(bytes).expect("a header").lengths(&packet);
        assert_eq!(lengths(&bytes), (90, 60));
        bytes[6] = 2;
        assert_eq!(lengths(&bytes), (60, 90));
    }
}
