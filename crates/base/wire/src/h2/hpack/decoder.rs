//! Header blocks into fields, within limits.

use std::collections::VecDeque;

use super::constants::{CONSTANTS, constant};
use super::{Decoded, Fields, HpackError, Name, OVERHEAD};
use crate::fields::read::{Input, Limits, List};

/// An idle decoder keeps no more than this of its room for strings in Huffman code.
const KEPT: usize = 4 << 10;

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

impl<F: Clone> Decoder<F> {
    /// A decoder with an empty table that may have `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { table: VecDeque::new(), size: 0, capacity: limit, limit, plain: Vec::new() }
    }

    /// Bytes of the fields in the dynamic table, as HPACK counts them (RFC 7541 section 4.1).
    pub fn size(&self) -> usize {
        self.size
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
        let mut list = List::new(limits);
        while let Some(first) = input.peek() {
            match first {
                0x80.. => {
                    let index = input.number(7)?;
                    self.indexed(index, &mut list, fields)?;
                }
                0x40.. => self.literal(6, &mut input, &mut list, fields)?,
                // RFC 7541 section 4.2: the size changes only at the beginning of a block.
                0x20.. if !list.is_empty() => return Err(HpackError::TableSize),
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
        Ok(list.decoded())
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
        // RFC 7541 section 6.1: index 0 is an error too, which `entry` reports.
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
        let new = if index == 0 { Some(input.text(7, &mut self.plain)?) } else { None };
        let value = input.text(7, &mut self.plain)?;
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
        // After the field exists, because the entry with its name may be evicted (RFC 7541 section 4.4).
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
