//! Packets of a capture in the formats pcap and pcapng, read as a stream.

use std::io::{ErrorKind, Read};
use std::ops::Range;

use pcap_parser::pcapng::{Block, SecretsType};
use pcap_parser::{
    Linktype, parse_block_be, parse_block_le, parse_pcap_frame, parse_pcap_frame_be,
    parse_pcap_frame_modified, parse_pcap_header,
};

use crate::error::CaptureError;
use crate::source::Source;
use crate::time::Nanos;

/// Size of the buffer in bytes, unless a block is longer.
const ROOM: usize = 256 * 1024;

/// Longest accepted packet or block in bytes. Larger ones contain no packets of networks.
const LONGEST: usize = 16 * 1024 * 1024;

/// Interfaces per section; packets of further interfaces are malformed.
const INTERFACES: usize = 4096;

/// Header of a pcap file.
const FILE_HEADER: usize = 24;

/// First bytes of a section header block of pcapng, in both byte orders.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// A packet in the buffer of [`PacketReader`].
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// Number in the capture, from 1, as in Wireshark.
    pub(crate) number: u64,
    /// Time of the capture.
    pub(crate) time: Nanos,
    /// Type of the link layer header.
    pub(crate) link: Linktype,
    /// Place of the captured bytes in the buffer, see [`PacketReader::bytes`].
    place: Range<usize>,
}

/// Interface of a pcapng section.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    /// Time units per second.
    resolution: u64,
    /// Seconds added to times.
    offset: i64,
}

#[derive(Clone, Copy)]
enum Format {
    Pcap { link: Linktype, is_big_endian: bool, is_modified: bool, nanos_per_unit: u64 },
    PcapNg { is_big_endian: bool },
}

/// Reader of packets. Holds one block in memory.
pub(crate) struct PacketReader<R> {
    source: Source<R>,
    format: Format,
    interfaces: Vec<Interface>,
    buffer: Vec<u8>,
    /// Unused bytes of the buffer.
    unused: Range<usize>,
    /// Offset of `unused.start` in the uncompressed input.
    offset: u64,
    packets: u64,
    is_ended: bool,
    /// The input ended within a block.
    is_cut: bool,
    /// TLS key logs in the capture, not yet taken.
    secrets: Vec<u8>,
}

impl<R: Read> PacketReader<R> {
    /// Recognises compression and format.
    pub(crate) fn new(input: R) -> Result<Self, CaptureError> {
        let source = Source::new(input).map_err(CaptureError::Unreadable)?;
        let mut reader = Self {
            source,
            format: Format::PcapNg { is_big_endian: false },
            interfaces: Vec::new(),
            buffer: vec![0; ROOM],
            unused: 0..0,
            offset: 0,
            packets: 0,
            is_ended: false,
            is_cut: false,
            secrets: Vec::new(),
        };
        if !reader.fill(4)? {
            return Err(CaptureError::NotCapture);
        }
        if reader.buffer.starts_with(&SECTION) {
            return Ok(reader);
        }
        if !reader.fill(FILE_HEADER)? {
            return Err(CaptureError::NotCapture);
        }
        let Ok((_, header)) = parse_pcap_header(&reader.buffer[..FILE_HEADER]) else {
            return Err(CaptureError::NotCapture);
        };
        reader.format = Format::Pcap {
            // The upper bits describe frame check sequences.
            link: Linktype(header.network.0 & 0x0fff_ffff),
            is_big_endian: header.is_bigendian(),
            is_modified: header.is_modified_format(),
            nanos_per_unit: if header.is_nanosecond_precision() { 1 } else { 1000 },
        };
        reader.skip(FILE_HEADER);
        Ok(reader)
    }

    /// The next packet; `None` at the end of the input.
    pub(crate) fn next(&mut self) -> Result<Option<Packet>, CaptureError> {
        loop {
            let Some(length) = self.block()? else { return Ok(None) };
            let packet = match self.format {
                Format::Pcap { .. } => Some(self.frame(length)?),
                Format::PcapNg { is_big_endian } => self.ng_block(length, is_big_endian)?,
            };
            self.skip(length);
            if let Some((time, link, place)) = packet {
                self.packets += 1;
                return Ok(Some(Packet { number: self.packets, time, link, place }));
            }
        }
    }

    /// Captured bytes of the latest packet.
    pub(crate) fn bytes(&self, packet: &Packet) -> &[u8] {
        &self.buffer[packet.place.clone()]
    }

    /// Number of packets until now.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Whether the input ended within a packet, as after a recording that was killed.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Text of key logs in the capture since the last call.
    pub(crate) fn take_secrets(&mut self) -> Option<Vec<u8>> {
        (!self.secrets.is_empty()).then(|| std::mem::take(&mut self.secrets))
    }

    /// Reads the next block into the buffer and returns its length; `None` at the end of the input.
    fn block(&mut self) -> Result<Option<usize>, CaptureError> {
        let header = match self.format {
            Format::Pcap { is_modified: true, .. } => 24,
            Format::Pcap { .. } => 16,
            Format::PcapNg { .. } => 12,
        };
        if !self.fill(header)? {
            self.is_cut |= !self.unused.is_empty();
            return Ok(None);
        }
        let start = &self.buffer[self.unused.start..];
        let number = |at: usize, is_big: bool| {
            let bytes = [start[at], start[at + 1], start[at + 2], start[at + 3]];
            if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
        };
        let length = match &mut self.format {
            Format::Pcap { is_big_endian, .. } => header as u64 + u64::from(number(8, *is_big_endian)),
            Format::PcapNg { is_big_endian } => {
                if start.starts_with(&SECTION) {
                    *is_big_endian = number(8, true) == 0x1a2b_3c4d;
                }
                u64::from(number(4, *is_big_endian))
            }
        };
        let offset = self.offset;
        if length < header as u64 {
            return Err(CaptureError::Malformed { offset, fault: "a block is shorter than its header" });
        }
        if length > LONGEST as u64 {
            return Err(CaptureError::TooLong { offset, length, limit: LONGEST });
        }
        let length = length as usize;
        if !self.fill(length)? {
            self.is_cut = true;
            return Ok(None);
        }
        Ok(Some(length))
    }

    /// Packet of a pcap file.
    fn frame(&self, length: usize) -> Result<(Nanos, Linktype, Range<usize>), CaptureError> {
        let Format::Pcap { link, is_big_endian, is_modified, nanos_per_unit } = self.format else {
            unreachable!("only called for pcap")
        };
        let bytes = &self.buffer[self.unused.start..self.unused.start + length];
        let parsed = match (is_modified, is_big_endian) {
            (true, _) => parse_pcap_frame_modified(bytes),
            (_, true) => parse_pcap_frame_be(bytes),
            _ => parse_pcap_frame(bytes),
        };
        let Ok((_, frame)) = parsed else {
            return Err(self.malformed("a packet header"));
        };
        let nanos = u64::from(frame.ts_sec) * 1_000_000_000 + u64::from(frame.ts_usec) * nanos_per_unit;
        let end = self.unused.start + length;
        Ok((Nanos(nanos), link, end - frame.data.len()..end))
    }

    /// Packet of a pcapng block; `None` for blocks of other types.
    fn ng_block(
        &mut self,
        length: usize,
        is_big_endian: bool,
    ) -> Result<Option<(Nanos, Linktype, Range<usize>)>, CaptureError> {
        let start = self.unused.start;
        let bytes = &self.buffer[start..start + length];
        let parsed = if is_big_endian { parse_block_be(bytes) } else { parse_block_le(bytes) };
        let Ok((_, block)) = parsed else { return Err(self.malformed("a block of pcapng")) };
        // Data is followed by padding.
        let place = |header: usize, data: &[u8], len: u32| {
            start + header..start + header + data.len().min(len as usize)
        };
        match block {
            Block::SectionHeader(_) => self.interfaces.clear(),
            Block::InterfaceDescription(block) if self.interfaces.len() < INTERFACES => {
                let Some(resolution) = block.ts_resolution() else {
                    return Err(self.malformed("the time resolution of an interface"));
                };
                let (link, offset) = (block.linktype, block.ts_offset());
                self.interfaces.push(Interface { link, resolution, offset });
            }
            Block::EnhancedPacket(block) => {
                let interface = self.interfaces.get(block.if_id as usize).copied();
                let interface =
                    interface.ok_or_else(|| self.malformed("a packet of an unknown interface"))?;
                let units = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
                let time = Nanos::from_units(units, interface.resolution, interface.offset);
                return Ok(Some((time, interface.link, place(28, block.data, block.caplen))));
            }
            Block::SimplePacket(block) => {
                let interface = self.interfaces.first().copied();
                let interface = interface.ok_or_else(|| self.malformed("a packet without an interface"))?;
                // Such packets have no time.
                return Ok(Some((Nanos(0), interface.link, place(12, block.data, block.origlen))));
            }
            Block::DecryptionSecrets(block) if block.secrets_type == SecretsType::TlsKeyLog => {
                let len = (block.secrets_len as usize).min(block.data.len());
                if self.secrets.len() + len <= LONGEST {
                    self.secrets.extend_from_slice(&block.data[..len]);
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn malformed(&self, fault: &'static str) -> CaptureError {
        CaptureError::Malformed { offset: self.offset, fault }
    }

    fn skip(&mut self, bytes: usize) {
        self.unused.start += bytes;
        self.offset += bytes as u64;
    }

    /// Reads until the buffer has `length` unused bytes. Returns `false` if the input ends before.
    fn fill(&mut self, length: usize) -> Result<bool, CaptureError> {
        if self.unused.len() >= length {
            return Ok(true);
        }
        self.buffer.copy_within(self.unused.clone(), 0);
        self.unused = 0..self.unused.len();
        if self.buffer.len() < length {
            self.buffer.resize(length, 0);
        }
        while self.unused.len() < length && !self.is_ended {
            match self.source.read(&mut self.buffer[self.unused.end..]) {
                Ok(0) => self.is_ended = true,
                Ok(read) => self.unused.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    (self.is_ended, self.is_cut) = (true, true);
                }
                Err(error) => return Err(CaptureError::Unreadable(error)),
            }
        }
        Ok(self.unused.len() >= length)
    }
}
