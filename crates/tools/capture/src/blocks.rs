//! Blocks of pcapng (draft-ietf-opsawg-pcapng).

use std::ops::Range;

use pcap_parser::pcapng::{Block, SecretsType};
use pcap_parser::{Linktype, PcapNGOption, parse_block_be, parse_block_le};

use crate::pcap::four;
use crate::time::Nanos;

/// First bytes of a section header block in both byte orders, and its type.
pub(crate) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Maximum number of [`Interface`]s of a [`Section`].
const INTERFACES: usize = 4096;

/// Types of blocks that are known to contain nothing for the analysis: names of addresses, and statistics.
const WITHOUT_PACKETS: [u32; 2] = [4, 5];

/// Interface of a section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interface {
    link: Linktype,
    /// `if_tsresol`.
    resolution: u8,
    /// `if_tsoffset`: seconds added to times.
    offset: i64,
    /// Longest captured length (`SnapLen`); `0` is no limit.
    snap_length: u32,
    /// Bytes of the frame check sequence behind each packet.
    fcs: u8,
}

/// A packet in a block.
#[derive(Clone, Debug)]
pub(crate) struct BlockPacket {
    /// `None` for simple packet blocks.
    pub(crate) time: Option<Nanos>,
    pub(crate) link: Linktype,
    /// Place of the captured bytes in the block, without the frame check sequence.
    pub(crate) place: Range<usize>,
}

/// Content of a block.
#[derive(Debug)]
pub(crate) enum Content {
    Packet(BlockPacket),
    /// Place of a TLS key log in the block.
    Secrets(Range<usize>),
    /// Nothing for the analysis.
    Nothing,
    /// A block of this type, which is not analysed.
    Other(u32),
}

/// State of the current section.
#[derive(Debug, Default)]
pub(crate) struct Section {
    pub(crate) is_big_endian: bool,
    interfaces: Vec<Interface>,
}

impl Section {
    /// Reads the byte order, if a section begins, and the length of the block. `block` has at least 12 bytes.
    pub(crate) fn begin(&mut self, block: &[u8]) -> Result<u32, &'static str> {
        if block.starts_with(&SECTION) {
            self.is_big_endian = match four(block, 8, true) {
                0x1a2b_3c4d => true,
                0x4d3c_2b1a => false,
                _ => return Err("the byte order of a section"),
            };
        }
        let length = self.four(block, 4);
        if length < 12 {
            return Err("a block is shorter than its header");
        }
        // Section 3.1: blocks are padded to 32 bits.
        if !length.is_multiple_of(4) {
            return Err("the length of a block is no multiple of 4");
        }
        Ok(length)
    }

    /// Reads a whole block.
    pub(crate) fn read(&mut self, block: &[u8]) -> Result<Content, &'static str> {
        if self.four(block, block.len() - 4) as usize != block.len() {
            return Err("the lengths at the begin and at the end of a block differ");
        }
        match self.four(block, 0) {
            0x0a0d_0d0a => self.section(block),
            2 => self.old_packet(block),
            1 | 3 | 6 | 10 => self.parsed(block),
            kind if WITHOUT_PACKETS.contains(&kind) => Ok(Content::Nothing),
            kind => Ok(Content::Other(kind)),
        }
    }

    fn four(&self, block: &[u8], at: usize) -> u32 {
        four(block, at, self.is_big_endian)
    }

    fn section(&mut self, block: &[u8]) -> Result<Content, &'static str> {
        let major = block.get(12..14).ok_or("a section header")?;
        // Both byte orders are accepted, since there is no version 256.
        if major != [1, 0] && major != [0, 1] {
            return Err("a section of an unknown version of pcapng");
        }
        // Section 4.1: numbers of interfaces begin anew with each section.
        self.interfaces.clear();
        Ok(Content::Nothing)
    }

    /// Interfaces, packets and secrets.
    fn parsed(&mut self, block: &[u8]) -> Result<Content, &'static str> {
        let parsed = if self.is_big_endian { parse_block_be(block) } else { parse_block_le(block) };
        let Ok((_, parsed)) = parsed else { return Err("a block of pcapng") };
        match parsed {
            Block::InterfaceDescription(found) => {
                if self.interfaces.len() == INTERFACES {
                    return Err("more than 4,096 interfaces in a section");
                }
                let (link, snap_length) = (found.linktype, found.snaplen);
                // Section 4.2: without `if_tsresol`, times are in microseconds.
                let mut interface = Interface { link, resolution: 6, offset: 0, snap_length, fcs: 0 };
                options(&found.options).for_each(|option| interface.option(option, self.is_big_endian));
                self.interfaces.push(interface);
                Ok(Content::Nothing)
            }
            Block::EnhancedPacket(found) => {
                let flags = options(&found.options).find(|option| option.code.0 == 2 && option.len >= 4);
                // Section 4.3.1, bits 5 to 8 of `epb_flags`: length of the frame check sequence, 0 if unknown.
                let fcs = flags.map_or(0, |flags| (self.four(&flags.value, 0) >> 5 & 15) as u8);
                let units = u64::from(found.ts_high) << 32 | u64::from(found.ts_low);
                self.packet((found.if_id, units), (28, found.caplen, found.origlen), fcs)
            }
            Block::SimplePacket(found) => {
                let interface = self.interfaces.first().ok_or("a packet without an interface")?;
                // Section 4.4: the captured length is not in the block.
                let most = if interface.snap_length == 0 { u32::MAX } else { interface.snap_length };
                let captured = found.origlen.min(most).min(found.data.len() as u32);
                Ok(interface.packet(None, (12, captured, found.origlen), 0))
            }
            Block::DecryptionSecrets(found) if found.secrets_type == SecretsType::TlsKeyLog => {
                // 16 bytes precede the secrets; with 20, the first secret of a file was lost.
                Ok(Content::Secrets(16..16 + (found.secrets_len as usize).min(found.data.len())))
            }
            _ => Ok(Content::Other(self.four(block, 0))),
        }
    }

    /// The obsolete packet block.
    fn old_packet(&self, block: &[u8]) -> Result<Content, &'static str> {
        if block.len() < 32 {
            return Err("a block is shorter than its header");
        }
        let interface = if self.is_big_endian { [block[8], block[9]] } else { [block[9], block[8]] };
        let units = u64::from(self.four(block, 12)) << 32 | u64::from(self.four(block, 16));
        let (captured, original) = (self.four(block, 20), self.four(block, 24));
        // 28 bytes of header and 4 of the length at the end. The sum may exceed 32 bits.
        if u64::from(captured) + 32 > block.len() as u64 {
            return Err("a packet is longer than its block");
        }
        self.packet((u16::from_be_bytes(interface).into(), units), (28, captured, original), 0)
    }

    fn packet(
        &self,
        (interface, units): (u32, u64),
        lengths: (usize, u32, u32),
        fcs: u8,
    ) -> Result<Content, &'static str> {
        let interface = self.interfaces.get(interface as usize).ok_or("a packet of an unknown interface")?;
        let time = Nanos::from_units(units, interface.resolution, interface.offset);
        Ok(interface.packet(Some(time), lengths, fcs))
    }
}

impl Interface {
    fn option(&mut self, option: &PcapNGOption<'_>, is_big_endian: bool) {
        // `pcap_parser` leaves the padding in the value.
        let value = option.value.get(..usize::from(option.len)).unwrap_or_default();
        match (option.code.0, value) {
            (9, [resolution]) => self.resolution = *resolution,
            // Section 4.2 defines bits; programs also write bytes, which are fewer than 8.
            (13, [length]) => self.fcs = if *length < 8 { *length } else { length / 8 },
            (14, value) => {
                if let Ok(bytes) = <[u8; 8]>::try_from(value) {
                    self.offset =
                        if is_big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
                }
            }
            _ => {}
        }
    }

    /// A packet behind `header` bytes of its block. `fcs` is the length of its check sequence, if the block contains it.
    fn packet(
        &self,
        time: Option<Nanos>,
        (header, captured, original): (usize, u32, u32),
        fcs: u8,
    ) -> Content {
        let fcs = if fcs == 0 { self.fcs } else { fcs };
        let end = header + without_fcs(captured, original, fcs);
        Content::Packet(BlockPacket { time, link: self.link, place: header..end })
    }
}

/// Captured bytes without those of the frame check sequence, which follows the packet on the network.
pub(crate) fn without_fcs(captured: u32, original: u32, fcs: u8) -> usize {
    captured.min(original.saturating_sub(fcs.into())) as usize
}

/// Options before the end of options (section 3.5).
fn options<'a>(options: &'a [PcapNGOption<'a>]) -> impl Iterator<Item = &'a PcapNGOption<'a>> {
    options.iter().take_while(|option| option.code.0 != 0)
}

#[cfg(test)]
mod tests {
    use crate::analysis::Settings;
    use crate::reader::PacketReader;
    use crate::testing::{Results, handshake, results};

    /// Writer of a pcapng file in one byte order.
    struct File {
        is_big_endian: bool,
        bytes: Vec<u8>,
    }

    impl File {
        fn new(is_big_endian: bool) -> Self {
            let mut file = Self { is_big_endian, bytes: Vec::new() };
            file.section();
            file
        }

        fn number(&self, number: u32) -> [u8; 4] {
            if self.is_big_endian { number.to_be_bytes() } else { number.to_le_bytes() }
        }

        fn pair(&self, one: u16, two: u16) -> Vec<u8> {
            [one, two]
                .map(|one| if self.is_big_endian { one.to_be_bytes() } else { one.to_le_bytes() })
                .concat()
        }

        fn block(&mut self, kind: u32, body: &[u8]) {
            let body = [body, &vec![0; body.len().next_multiple_of(4) - body.len()]].concat();
            let length = self.number(body.len() as u32 + 12);
            self.bytes.extend([&self.number(kind)[..], &length, &body, &length].concat());
        }

        fn section(&mut self) {
            let body = [&self.number(0x1a2b_3c4d)[..], &self.pair(1, 0), &[0xff; 8]].concat();
            self.block(0x0a0d_0d0a, &body);
        }

        /// An interface with raw IP packets.
        fn interface(&mut self, snap_length: u32, options: &[(u16, &[u8])]) {
            let mut body = [&self.pair(101, 0)[..], &self.number(snap_length)].concat();
            for (code, value) in options {
                body.extend(self.pair(*code, value.len() as u16));
                body.extend_from_slice(value);
                body.resize(body.len().next_multiple_of(4), 0);
            }
            self.block(1, &body);
        }

        fn packet(&mut self, interface: u32, units: u64, packet: &[u8]) {
            let length = packet.len() as u32;
            let numbers = [interface, (units >> 32) as u32, units as u32, length, length];
            let body = [&numbers.map(|number| self.number(number)).concat()[..], packet].concat();
            self.block(6, &body);
        }

        fn results(&self) -> (Results, crate::Summary) {
            results(&self.bytes, Settings::default())
        }
    }

    /// Times of the packets in milliseconds.
    fn times(results: &Results) -> Vec<u64> {
        results.packets.iter().map(|packet| packet.time.0 / 1_000_000).collect()
    }

    #[test]
    fn secrets_begin_behind_their_type_and_length() {
        for is_big_endian in [false, true] {
            let mut file = File::new(is_big_endian);
            let numbers = [0x544c_534b, 7].map(|number| file.number(number)).concat();
            file.block(10, &[&numbers[..], b"SERVER\n"].concat());
            let mut reader = PacketReader::new(&file.bytes[..]).expect("a capture");
            assert!(reader.next().expect("blocks").is_none());
            assert_eq!(reader.take_secrets().as_deref(), Some(&b"SERVER\n"[..]));
        }
    }

    #[test]
    fn times_have_any_resolution_and_offset_in_both_byte_orders() {
        for is_big_endian in [false, true] {
            for (resolution, per_second) in
                [(6, 1e6), (9, 1e9), (3, 1e3), (0x94, f64::from(1 << 20)), (0xa0, 2_f64.powi(32))]
            {
                let mut file = File::new(is_big_endian);
                let offset = if is_big_endian { 100_i64.to_be_bytes() } else { 100_i64.to_le_bytes() };
                // An option without meaning for the analysis, and options behind the end.
                let options: [(u16, &[u8]); 5] =
                    [(4242, b"x"), (9, &[resolution]), (14, &offset), (0, b""), (9, &[77])];
                file.interface(0, &options);
                for packet in handshake() {
                    let units = packet.micros as f64 / 1e6 * per_second;
                    file.packet(0, units.ceil() as u64, &packet.ip());
                }
                let (results, summary) = file.results();
                assert_eq!(times(&results), [100_000, 100_020, 100_030], "{resolution:#x}");
                assert_eq!((summary.connections, summary.damage), (1, None));
            }
        }
    }

    #[test]
    fn sections_may_change_the_byte_order_and_unknown_blocks_are_counted() {
        let mut all = Vec::new();
        for (is_big_endian, packet) in [false, true, false].into_iter().zip(handshake()) {
            let mut file = File::new(is_big_endian);
            file.block(5, &[0; 12]);
            file.interface(0, &[(9, &[3])]);
            file.interface(0, &[]);
            file.block(0x0bad, &[1; 9]);
            file.packet(1, packet.micros, &packet.ip());
            file.block(0x7777_0000, b"");
            all.extend(file.bytes);
        }
        let (results, summary) = results(&all, Settings::default());
        assert_eq!(times(&results), [0, 20, 30]);
        assert_eq!((summary.unknown_blocks, summary.unknown_block_types), (6, vec![0x0bad, 0x7777_0000]));
    }

    #[test]
    fn simple_and_obsolete_packet_blocks_are_read() {
        let packets = handshake();
        let ip: Vec<_> = packets.iter().map(crate::testing::Written::ip).collect();
        let mut file = File::new(false);
        file.interface(39, &[]);
        file.interface(0, &[]);
        let numbers = [0, 5_000_000, ip[0].len() as u32, ip[0].len() as u32].map(u32::to_le_bytes).concat();
        file.block(2, &[&[1, 0, 0, 0], &numbers[..], &ip[0]].concat());
        // The captured length of a simple packet block is that of the interface: here the TCP header is incomplete.
        file.block(3, &[&40_u32.to_le_bytes()[..], &ip[1][..39]].concat());
        let mut other = File::new(false);
        other.interface(0, &[]);
        other.block(3, &[&40_u32.to_le_bytes()[..], &ip[1]].concat());
        file.bytes.extend(other.bytes);
        let (results, summary) = file.results();
        assert_eq!(times(&results), [5000, 5000]);
        assert_eq!((summary.packets, summary.malformed, summary.untimed), (3, 1, 2));
    }

    #[test]
    fn a_truncated_or_damaged_block_keeps_the_packets_before() {
        let mut file = File::new(false);
        file.interface(0, &[]);
        let packets = handshake();
        file.packet(0, 0, &packets[0].ip());
        let offset = file.bytes.len() as u64;
        file.packet(0, 20_000, &packets[1].ip());
        let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = file.bytes.clone();
            change(&mut bytes);
            let (results, summary) = results(&bytes, Settings::default());
            assert_eq!(results.packets.len(), 1);
            summary
        };
        let cut = damaged(&|bytes| bytes.truncate(bytes.len() - 1));
        assert_eq!((cut.cut_at, cut.damage), (Some(offset), None));
        let at = offset as usize;
        let unlike = damaged(&|bytes| *bytes.last_mut().expect("bytes") = 1).damage.expect("a fault");
        assert!(unlike.contains(&format!("offset {offset}: the lengths")), "{unlike}");
        let odd = damaged(&|bytes| bytes[at + 4] += 1).damage.expect("a fault");
        assert!(odd.contains("no multiple of 4"), "{odd}");
        let unknown = damaged(&|bytes| bytes[at + 8] = 9).damage.expect("a fault");
        assert!(unknown.contains("a packet of an unknown interface"), "{unknown}");
    }

    #[test]
    fn check_sequences_are_no_part_of_packets() {
        // Packets with a length of 0, recorded before segmentation by the device, end with the captured bytes.
        let mut ip = handshake()[0].ip();
        (ip[2], ip[3]) = (0, 0);
        ip.extend([7; 4]);
        let lengths = |options: &[(u16, &[u8])]| {
            let mut file = File::new(false);
            file.interface(0, options);
            file.packet(0, 0, &ip);
            file.results().0.packets[0].len
        };
        assert_eq!([lengths(&[]), lengths(&[(13, &[4])]), lengths(&[(13, &[32])])], [4, 0, 0]);
    }
}
