//! Numbers, strings and limits of field blocks that are decoded.

use std::ops::Range;

use super::{Decoded, FieldBlockError, huffman};

/// A string of a block: borrowed, or decoded.
#[derive(Clone, Debug)]
pub(crate) enum Text<'a> {
    Raw(&'a [u8]),
    Decoded(Range<usize>),
}

/// Limits of a header list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) size: usize,
    pub(crate) fields: usize,
}

/// Size of the header list until now.
pub(crate) struct List {
    size: usize,
    fields: usize,
    is_whole: bool,
    limits: Limits,
}

impl List {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { size: 0, fields: 0, is_whole: true, limits }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fields == 0
    }

    pub(crate) fn decoded(&self) -> Decoded {
        Decoded { size: self.size, is_whole: self.is_whole }
    }

    /// Counts one more field and returns whether it is within the limits.
    pub(crate) fn count(&mut self, size: usize) -> bool {
        self.size = self.size.saturating_add(size);
        self.fields += 1;
        self.is_whole &= self.size <= self.limits.size && self.fields <= self.limits.fields;
        self.is_whole
    }
}

impl Text<'_> {
    pub(crate) fn bytes<'a>(&'a self, plain: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Raw(bytes) => bytes,
            Self::Decoded(range) => &plain[range.clone()],
        }
    }
}

/// The rest of a block.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn byte(&mut self) -> Result<u8, FieldBlockError> {
        let (byte, rest) = self.0.split_first().ok_or(FieldBlockError::Truncated)?;
        self.0 = rest;
        Ok(*byte)
    }

    /// A number with a prefix of this length (RFC 7541 section 5.1).
    pub(crate) fn number(&mut self, prefix: u32) -> Result<usize, FieldBlockError> {
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
        Err(FieldBlockError::Number)
    }

    /// Reads a string whose length has a prefix of `prefix` bits below the bit for Huffman code (RFC 7541 section 5.2, RFC
    /// 9204 section 4.1.2); appends decoded Huffman code to `plain`.
    pub(crate) fn text(&mut self, prefix: u32, plain: &mut Vec<u8>) -> Result<Text<'a>, FieldBlockError> {
        let is_coded = self.peek().is_some_and(|first| first & 1 << prefix != 0);
        let length = self.number(prefix)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(FieldBlockError::Truncated)?;
        self.0 = rest;
        if !is_coded {
            return Ok(Text::Raw(bytes));
        }
        let start = plain.len();
        huffman::decode(bytes, plain).ok_or(FieldBlockError::Huffman)?;
        Ok(Text::Decoded(start..plain.len()))
    }
}
