//! Header blocks into fields, within limits.

use std::collections::VecDeque;
use std::ops::Range;

use thiserror::Error;

use super::constants::{CONSTANTS, constant};
use super::{OVERHEAD, huffman};

/// An idle decoder keeps no more than this of its room for strings in Huffman code.
const KEPT: usize = 4 << 10;

/// Why a header block cannot be decoded. The tables of both sides differ from then on, so the connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HpackError {
    /// The block ends within a field.
    #[error("the header block ends within a field")]
    Truncated,
    /// A number of more than 28 bits.
    #[error("a number in the header block is too large")]
    Number,
    /// There is no field at this index.
    #[error("the header block refers to a field that is in no table")]
    Index,
    /// A string that is no Huffman code.
    #[error("a string in the header block is no Huffman code")]
    Huffman,
    /// The size of the table is changed to more than was allowed, or behind a field.
    #[error("the header block makes its table too large, or at the wrong place")]
    TableSize,
}

/// Receiver of decoded fields. A field in the table is converted once, when it is added.
pub trait Fields {
    /// A field. Cloned for each time that the block refers to it.
    type Field: Clone;

    /// The field of the static table at an index from 1 to 61.
    fn constant(&mut self, index: usize) -> Self::Field;

    /// A field that the block spells out.
    fn literal(&mut self, name: Name<'_, Self::Field>, value: &[u8]) -> Self::Field;

    /// Takes the next field of the list. Not called from the first field on that exceeds a limit.
    fn take(&mut self, field: Self::Field);
}

/// The name of a field that is spelled out, all but the name perhaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a, F> {
    /// The name in the static table at this index.
    Constant(usize),
    /// The name of a field in the dynamic table.
    Of(&'a F),
    /// These bytes; no property of names is checked.
    New(&'a [u8]),
}

/// A block that was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the whole list: names, values and [`OVERHEAD`] for each field.
    pub size: usize,
    /// No field was left out.
    pub is_whole: bool,
}

/// Decoder for the header blocks of one connection.
#[derive(Debug)]
pub struct Decoder<F> {
    /// The dynamic table, the latest field first.
    table: VecDeque<Entry<F>>,
    /// Bytes of its fields.
    size: usize,
    /// Bytes that it may have now, and at most.
    capacity: usize,
    limit: usize,
    /// Names and values that came in Huffman code.
    plain: Vec<u8>,
}

#[derive(Debug)]
struct Entry<F> {
    field: F,
    name: usize,
    size: usize,
}

/// A string of a block: borrowed, or decoded.
#[derive(Clone, Debug)]
enum Text<'a> {
    Raw(&'a [u8]),
    Decoded(Range<usize>),
}

/// Limits of a header list.
#[derive(Clone, Copy, Debug)]
struct Limits {
    size: usize,
    fields: usize,
}

impl<F: Clone> Decoder<F> {
    /// A decoder with an empty table that may have `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { table: VecDeque::new(), size: 0, capacity: limit, limit, plain: Vec::new() }
    }

    /// Decodes a whole block into `fields`: as many as `most`, of as many bytes as `size` (see [`Decoded::size`]). The table
    /// is kept beyond these limits too.
    pub fn decode(
        &mut self,
        block: &[u8],
        most: usize,
        size: usize,
        fields: &mut impl Fields<Field = F>,
    ) -> Result<Decoded, HpackError> {
        let limits = Limits { size, fields: most };
        let mut input = Input(block);
        let mut list = List { size: 0, fields: 0, is_whole: true, limits };
        while let Some(first) = input.peek() {
            match first {
                0x80.. => {
                    let index = input.number(7)?;
                    self.indexed(index, &mut list, fields)?;
                }
                0x40.. => self.literal(6, &mut input, &mut list, fields)?,
                0x20.. if list.fields > 0 => return Err(HpackError::TableSize),
                0x20.. => {
                    let capacity = input.number(5)?;
                    if capacity > self.limit {
                        return Err(HpackError::TableSize);
                    }
                    self.capacity = capacity;
                    self.evict(0);
                }
                _ => self.literal(4, &mut input, &mut list, fields)?,
            }
        }
        if self.plain.capacity() > KEPT {
            self.plain = Vec::new();
        }
        Ok(Decoded { size: list.size, is_whole: list.is_whole })
    }

    fn indexed(
        &mut self,
        index: usize,
        list: &mut List,
        fields: &mut impl Fields<Field = F>,
    ) -> Result<(), HpackError> {
        if let Some((name, value)) = constant(index) {
            if list.count(name.len() + value.len() + OVERHEAD) {
                let field = fields.constant(index);
                fields.take(field);
            }
            return Ok(());
        }
        let entry = self.entry(index)?;
        if list.count(entry.size) {
            fields.take(entry.field.clone());
        }
        Ok(())
    }

    /// A field with a name given as an index of `prefix` bits or as a literal. Fields with 6 bits are added to the
    /// table.
    fn literal(
        &mut self,
        prefix: u32,
        input: &mut Input<'_>,
        list: &mut List,
        fields: &mut impl Fields<Field = F>,
    ) -> Result<(), HpackError> {
        let index = input.number(prefix)?;
        self.plain.clear();
        let new = if index == 0 { Some(input.text(&mut self.plain)?) } else { None };
        let value = input.text(&mut self.plain)?;
        let value = value.bytes(&self.plain);
        let (name, length) = match (&new, constant(index)) {
            (Some(name), _) => {
                let name = name.bytes(&self.plain);
                (Name::New(name), name.len())
            }
            (None, Some((name, _))) => (Name::Constant(index), name.len()),
            (None, None) => {
                let entry = self.entry(index)?;
                (Name::Of(&entry.field), entry.name)
            }
        };
        let size = length + value.len() + OVERHEAD;
        let is_kept = prefix == 6 && size <= self.capacity;
        let is_taken = list.count(size);
        // What is not taken need not be made.
        let field = (is_kept || is_taken).then(|| fields.literal(name, value));
        if prefix == 6 {
            self.evict(size);
        }
        match field {
            Some(field) if is_kept && is_taken => {
                self.keep(field.clone(), length, size);
                fields.take(field);
            }
            Some(field) if is_kept => self.keep(field, length, size),
            Some(field) => fields.take(field),
            None => {}
        }
        Ok(())
    }

    fn entry(&self, index: usize) -> Result<&Entry<F>, HpackError> {
        let place = index.checked_sub(CONSTANTS.len() + 1).ok_or(HpackError::Index)?;
        self.table.get(place).ok_or(HpackError::Index)
    }

    fn keep(&mut self, field: F, name: usize, size: usize) {
        self.size += size;
        self.table.push_front(Entry { field, name, size });
    }

    /// Makes room for a field of `size` bytes. RFC 7541 section 4.4: if there is none, the table is empty then.
    fn evict(&mut self, size: usize) {
        while self.size + size > self.capacity {
            let Some(entry) = self.table.pop_back() else { break };
            self.size -= entry.size;
        }
    }
}

/// Size of the header list until now.
struct List {
    size: usize,
    fields: usize,
    is_whole: bool,
    limits: Limits,
}

impl List {
    /// Counts one more field and returns whether it is within the limits.
    fn count(&mut self, size: usize) -> bool {
        self.size = self.size.saturating_add(size);
        self.fields += 1;
        self.is_whole &= self.size <= self.limits.size && self.fields <= self.limits.fields;
        self.is_whole
    }
}

impl Text<'_> {
    fn bytes<'a>(&'a self, plain: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Raw(bytes) => bytes,
            Self::Decoded(range) => &plain[range.clone()],
        }
    }
}

/// The rest of a block.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn byte(&mut self) -> Result<u8, HpackError> {
        let (byte, rest) = self.0.split_first().ok_or(HpackError::Truncated)?;
        self.0 = rest;
        Ok(*byte)
    }

    /// A number with a prefix of this length (RFC 7541 section 5.1).
    fn number(&mut self, prefix: u32) -> Result<usize, HpackError> {
        let mask = (1 << prefix) - 1;
        let first = u64::from(self.byte()?) & mask;
        if first < mask {
            return Ok(first as usize);
        }
        let mut number = first;
        // As far as 28 bits reach, which is more than any length or size here.
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            number += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number as usize);
            }
        }
        Err(HpackError::Number)
    }

    /// Reads a string (RFC 7541 section 5.2); appends decoded Huffman code to `plain`.
    fn text(&mut self, plain: &mut Vec<u8>) -> Result<Text<'a>, HpackError> {
        let is_coded = self.peek().is_some_and(|first| first & 0x80 != 0);
        let length = self.number(7)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(HpackError::Truncated)?;
        self.0 = rest;
        if !is_coded {
            return Ok(Text::Raw(bytes));
        }
        let start = plain.len();
        huffman::decode(bytes, plain).ok_or(HpackError::Huffman)?;
        Ok(Text::Decoded(start..plain.len()))
    }
}

#[cfg(test)]
impl<F: Clone> Decoder<F> {
    /// Bytes of room for strings in Huffman code.
    pub(super) fn room_for_test(&self) -> usize {
        self.plain.capacity()
    }

    /// A decoder with the same table.
    pub(super) fn clone_for_test(&self) -> Self {
        let entries = self.table.iter().map(|entry| Entry { field: entry.field.clone(), ..*entry });
        Self { table: entries.collect(), plain: Vec::new(), ..*self }
    }
}
