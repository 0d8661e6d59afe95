//! Packets of a capture in the formats pcap and pcapng, read as a stream.

use std::io::{ErrorKind, Read};
use std::ops::Range;

use pcap_parser::Linktype;

use crate::blocks::{Content, SECTION, Section, without_fcs};
use crate::error::CaptureError;
use crate::pcap::{FILE_HEADER, PcapFile};
use crate::source::Source;
use crate::time::Nanos;

/// Size of the buffer in bytes, unless a block is longer.
const ROOM: usize = 256 * 1024;

/// Longest accepted packet or block in bytes. Larger ones contain no packets of networks.
const LONGEST: usize = 16 * 1024 * 1024;

/// Maximum number of [`Gaps::block_types`].
const NAMED_TYPES: usize = 8;

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

enum Format {
    Pcap(PcapFile),
    PcapNg(Section),
}

/// Blocks and packets that were read, but not completely analysed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    /// Offset of the packet within which the input ends, as after a recording that was killed.
    pub(crate) cut_at: Option<u64>,
    /// Packets without a time.
    pub(crate) untimed: u64,
    /// Blocks of types that are not analysed.
    pub(crate) blocks: u64,
    /// The first types that `blocks` counts.
    pub(crate) block_types: Vec<u32>,
}

/// Reader of packets. Holds one block in memory.
pub(crate) struct PacketReader<R> {
    source: Source<R>,
    format: Format,
    buffer: Vec<u8>,
    /// Unused bytes of the buffer.
    unused: Range<usize>,
    /// Offset of `unused.start` in the uncompressed input.
    offset: u64,
    packets: u64,
    is_ended: bool,
    /// The compressed input ended before its end mark.
    is_truncated: bool,
    /// Time of the latest packet.
    latest: Nanos,
    gaps: Gaps,
    /// TLS key logs in the capture, not yet taken.
    secrets: Vec<u8>,
}

impl<R: Read> PacketReader<R> {
    /// Recognises compression and format by the first bytes; [`CaptureError::NotCapture`] for others.
    pub(crate) fn new(input: R) -> Result<Self, CaptureError> {
        let source = Source::new(input).map_err(CaptureError::Unreadable)?;
        let mut reader = Self {
            source,
            format: Format::PcapNg(Section::default()),
            buffer: vec![0; ROOM],
            unused: 0..0,
            offset: 0,
            packets: 0,
            is_ended: false,
            is_truncated: false,
            latest: Nanos::default(),
            gaps: Gaps::default(),
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
        let header = reader.buffer.first_chunk().expect("the buffer is longer");
        reader.format = Format::Pcap(PcapFile::read(header)?);
        reader.skip(FILE_HEADER);
        Ok(reader)
    }

    /// The next packet; `None` at the end of the input.
    pub(crate) fn next(&mut self) -> Result<Option<Packet>, CaptureError> {
        loop {
            let Some(length) = self.block()? else { return Ok(None) };
            let packet = match self.format {
                Format::Pcap(file) => Some(self.frame(file, length)),
                Format::PcapNg(_) => self.ng_block(length)?,
            };
            // The bytes stay in the buffer until the next call, so the place of the packet remains valid.
            self.skip(length);
            if let Some((time, link, place)) = packet {
                self.packets += 1;
                self.latest = time;
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

    /// Packets and blocks that were not completely analysed until now.
    pub(crate) fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// Text of key logs in the capture since the last call.
    pub(crate) fn take_secrets(&mut self) -> Option<Vec<u8>> {
        (!self.secrets.is_empty()).then(|| std::mem::take(&mut self.secrets))
    }

    /// Reads the next block into the buffer and returns its length; `None` at the end of the input.
    fn block(&mut self) -> Result<Option<usize>, CaptureError> {
        let header = match &self.format {
            Format::Pcap(file) => file.packet_header(),
            Format::PcapNg(_) => 12,
        };
        if !self.fill(header)? {
            if !self.unused.is_empty() || self.is_truncated {
                self.gaps.cut_at = Some(self.offset);
            }
            return Ok(None);
        }
        let (offset, start) = (self.offset, &self.buffer[self.unused.start..]);
        let length = match &mut self.format {
            Format::Pcap(file) => header as u64 + u64::from(file.lengths(start).0),
            Format::PcapNg(section) => {
                let length = section.begin(start);
                length.map_err(|fault| CaptureError::Malformed { offset, fault })?.into()
            }
        };
        // Before the buffer grows: a damaged length of 4 GiB must not be reserved.
        if length > LONGEST as u64 {
            return Err(CaptureError::TooLong { offset, length, limit: LONGEST });
        }
        let length = length as usize;
        if !self.fill(length)? {
            self.gaps.cut_at = Some(offset);
            return Ok(None);
        }
        Ok(Some(length))
    }

    /// Packet of a pcap file.
    fn frame(&self, file: PcapFile, length: usize) -> (Nanos, Linktype, Range<usize>) {
        let bytes = &self.buffer[self.unused.start..self.unused.start + length];
        let (captured, original) = file.lengths(bytes);
        let begin = self.unused.start + file.packet_header();
        (file.time(bytes), file.link, begin..begin + without_fcs(captured, original, file.fcs))
    }

    /// Packet of a pcapng block; `None` for blocks of other types.
    fn ng_block(&mut self, length: usize) -> Result<Option<(Nanos, Linktype, Range<usize>)>, CaptureError> {
        let Format::PcapNg(section) = &mut self.format else { unreachable!("only called for pcapng") };
        let (offset, start) = (self.offset, self.unused.start);
        let block = &self.buffer[start..start + length];
        let content = section.read(block).map_err(|fault| CaptureError::Malformed { offset, fault })?;
        match content {
            Content::Packet(packet) => {
                let time = packet.time.unwrap_or_else(|| {
                    self.gaps.untimed += 1;
                    self.latest
                });
                let place = start + packet.place.start..start + packet.place.end;
                return Ok(Some((time, packet.link, place)));
            }
            Content::Secrets(place) => {
                // Each block is limited, but their number is not.
                if self.secrets.len() + place.len() <= LONGEST {
                    self.secrets.extend_from_slice(&block[place]);
                }
            }
            Content::Nothing => {}
            Content::Other(kind) => {
                self.gaps.blocks += 1;
                let types = &mut self.gaps.block_types;
                if types.len() < NAMED_TYPES && !types.contains(&kind) {
                    types.push(kind);
                }
            }
        }
        Ok(None)
    }

    fn skip(&mut self, bytes: usize) {
        self.unused.start += bytes;
        self.offset += bytes as u64;
    }

    /// Reads until `unused` has `length` bytes. Returns `false` if the input ends before.
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
                // A recording that was killed leaves a compressed stream without its end; the packets until
                // then are valid.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    (self.is_ended, self.is_truncated) = (true, true);
                }
                Err(error) => return Err(CaptureError::Unreadable(error)),
            }
        }
        Ok(self.unused.len() >= length)
    }
}
