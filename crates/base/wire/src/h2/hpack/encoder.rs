//! Fields into header blocks.

use std::collections::VecDeque;

use super::constants::{constant, index_of_name};
use super::{CONSTANTS, DEFAULT_TABLE, OVERHEAD};
use crate::fields::write::{is_secret, number, text};

/// Values that are longer stay out of the table.
const LONG: usize = 512;

/// Number of remembered fields that were written once; a repeated field is added to the table.
const REMEMBERED: usize = 32;

/// Encoder for the header blocks of one connection.
///
/// A field is added to the table when it is written a second time, so that changing values do not fill the table.
/// Secrets are never added (RFC 7541 section 7.1): an attacker who shares the connection could compare guesses with the
/// table.
#[derive(Debug)]
pub struct Encoder {
    /// Tags of the fields in the table (see [`tag`]), the newest first.
    tags: VecDeque<u64>,
    table: VecDeque<Entry>,
    size: usize,
    capacity: usize,
    /// Minimum and last size requested since the last report to the decoder.
    resized: Option<(usize, usize)>,
    /// Hashes of fields that were written once.
    seen: [u64; REMEMBERED],
    next: usize,
    /// Place of the field that was found last.
    found: usize,
}

/// Name and value of a field, one after the other.
#[derive(Debug)]
struct Entry {
    bytes: Box<[u8]>,
    name: usize,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder whose decoder has a table of 4096 bytes.
    pub fn new() -> Self {
        Self {
            tags: VecDeque::new(),
            table: VecDeque::new(),
            size: 0,
            capacity: DEFAULT_TABLE,
            resized: None,
            seen: [0; REMEMBERED],
            next: 0,
            found: 0,
        }
    }

    /// The decoder allows a table of `bytes`. At most 4096 are used.
    pub fn resize(&mut self, bytes: usize) {
        let capacity = bytes.min(DEFAULT_TABLE);
        if capacity == self.capacity {
            return;
        }
        let least = self.resized.map_or(capacity, |(least, _)| least.min(capacity));
        self.resized = Some((least, capacity));
        self.capacity = capacity;
        self.evict(0);
    }

    /// Begins a block. To be called before its first field.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        let Some((least, last)) = self.resized.take() else { return };
        // RFC 7541 section 4.2
        if least < last {
            number(0x20, 5, least, out);
        }
        number(0x20, 5, last, out);
    }

    /// Writes `:status`.
    pub fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let digits = [
                    b'0' + (status / 100 % 10) as u8,
                    b'0' + (status / 10 % 10) as u8,
                    b'0' + (status % 10) as u8,
                ];
                return self.indexed_or(
                    b":status",
                    &digits,
                    |encoder, out| {
                        // A status has few values, so it enters the table with its first use.
                        encoder.insert(Some(8), b":status", &digits, out);
                    },
                    out,
                );
            }
        };
        out.push(0x80 | index);
    }

    /// Writes the field at an index of the static table, from 1 to 61.
    pub fn constant(&mut self, index: usize, out: &mut Vec<u8>) {
        number(0x80, 7, index, out);
    }

    /// Writes a field. Its name is in lower case.
    pub fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        if is_secret(name) {
            // RFC 7541 section 6.2.3: never indexed, so that intermediaries keep the value out of tables as
            // well.
            let index = index_of_name(name);
            return literal(0x10, 4, index, name, value, out);
        }
        self.indexed_or(name, value, |encoder, out| encoder.first_or_second(name, value, out), out);
    }

    /// Writes the index of a field, or calls `otherwise`.
    fn indexed_or(
        &mut self,
        name: &[u8],
        value: &[u8],
        otherwise: impl FnOnce(&mut Self, &mut Vec<u8>),
        out: &mut Vec<u8>,
    ) {
        match self.find(tag(name, value), name, value) {
            Some(place) => number(0x80, 7, CONSTANTS.len() + 1 + place, out),
            None => otherwise(self, out),
        }
    }

    fn find(&mut self, tag: u64, name: &[u8], value: &[u8]) -> Option<usize> {
        let is_same = |place: &usize| {
            // The tag only excludes entries: different fields may have equal tags.
            let entry = &self.table[*place];
            entry.bytes.split_at(entry.name) == (name, value)
        };
        // Messages repeat their fields in one order, in which they entered the front of the table one after the other.
        let expected = self.found.checked_sub(1).filter(|place| self.tags.get(*place) == Some(&tag));
        let found = expected.filter(is_same).or_else(|| {
            let places = self.tags.iter().enumerate().filter(|(_, other)| **other == tag);
            places.map(|(place, _)| place).find(is_same)
        });
        self.found = found.unwrap_or_default();
        found
    }

    fn first_or_second(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let index = index_of_name(name);
        if let Some(index) = index
            && constant(index).is_some_and(|(_, constant)| constant.as_bytes() == value && !value.is_empty())
        {
            return number(0x80, 7, index, out);
        }
        let hash = hash(name, value);
        if value.len() <= LONG && self.seen.contains(&hash) {
            self.insert(index, name, value, out);
        } else {
            // A ring, because a search of 32 hashes, 256 bytes, is cheaper than a table.
            self.seen[self.next] = hash;
            self.next = (self.next + 1) % REMEMBERED;
            literal(0, 4, index, name, value, out);
        }
    }

    /// Writes a field and puts it into the table.
    fn insert(&mut self, index: Option<usize>, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let size = name.len() + value.len() + OVERHEAD;
        if size > self.capacity {
            return literal(0, 4, index, name, value, out);
        }
        literal(0x40, 6, index, name, value, out);
        self.evict(size);
        self.size += size;
        self.tags.push_front(tag(name, value));
        self.table.push_front(Entry { bytes: [name, value].concat().into(), name: name.len() });
    }

    fn evict(&mut self, size: usize) {
        while self.size + size > self.capacity {
            let Some(entry) = self.table.pop_back() else { break };
            self.tags.pop_back();
            self.size -= entry.bytes.len() + OVERHEAD;
        }
    }
}

/// Lengths and a few bytes of a field: it differs between most fields that differ.
fn tag(name: &[u8], value: &[u8]) -> u64 {
    let byte = |bytes: &[u8], at: usize| u64::from(bytes.get(at).copied().unwrap_or_default());
    let last = |bytes: &[u8]| u64::from(bytes.last().copied().unwrap_or_default());
    (name.len() as u64 & 0xff) << 56
        | (value.len() as u64 & 0xffff) << 40
        | byte(name, 0) << 32
        | last(name) << 24
        | byte(value, value.len() / 2) << 16
        | byte(value, value.len().saturating_sub(6)) << 8
        | last(value)
}

/// FNV-1a, eight bytes at a time, never 0.
fn hash(name: &[u8], value: &[u8]) -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ name.len() as u64;
    for part in [name, value] {
        let (words, rest) = part.as_chunks::<8>();
        for word in words {
            hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(PRIME).rotate_left(29);
        }
        for byte in rest {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }
    // 0 marks a free slot of `seen`.
    hash | 1
}

/// A field that is spelled out, with `pattern` above a prefix of `prefix` bits.
fn literal(pattern: u8, prefix: u32, index: Option<usize>, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    number(pattern, prefix, index.unwrap_or(0), out);
    if index.is_none() {
        text(0, 7, name, out);
    }
    text(0, 7, value, out);
}
