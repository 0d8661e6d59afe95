//! Field sections into fields, within limits.

use super::CONSTANTS;
use crate::fields::read::{Input, Limits, List};
use crate::fields::{Decoded, FieldBlockError, Fields, Name, OVERHEAD};

/// An idle decoder keeps no more than this of its room for strings in Huffman code.
const KEPT: usize = 4 << 10;

/// Decoder for the field sections of one connection. It has no table: only room for strings that is used again.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Names and values that came in Huffman code.
    plain: Vec<u8>,
}

impl Decoder {
    /// Decodes a whole field section into `fields`: as many as `most`, of as many bytes as `size` (see [`Decoded::size`]).
    ///
    /// An error is `QPACK_DECOMPRESSION_FAILED`, which ends the connection (RFC 9204 section 2.2). References to the dynamic
    /// table are [`FieldBlockError::Index`], since that table has no capacity.
    pub fn decode(
        &mut self,
        section: &[u8],
        most: usize,
        size: usize,
        fields: &mut impl Fields,
    ) -> Result<Decoded, FieldBlockError> {
        let mut input = Input(section);
        let mut list = List::new(Limits { size, fields: most });
        prefix(&mut input)?;
        while let Some(first) = input.peek() {
            match first {
                // RFC 9204 section 4.5.2: an index of six bits, in the static table.
                0xc0.. => indexed(&mut input, &mut list, fields)?,
                // Section 4.5.4: a name of the static table, with an index of four bits.
                0x50..0x60 | 0x70..0x80 => {
                    let index = input.number(4)?;
                    let (name, _) = CONSTANTS.get(index).ok_or(FieldBlockError::Index)?;
                    self.plain.clear();
                    let value = input.text(7, &mut self.plain)?;
                    let value = value.bytes(&self.plain);
                    if list.count(name.len() + value.len() + OVERHEAD) {
                        let field = fields.literal(Name::Constant(index), value);
                        fields.take(field);
                    }
                }
                // Section 4.5.6: a name that is spelled out.
                0x20..0x40 => {
                    self.plain.clear();
                    let name = input.text(3, &mut self.plain)?;
                    let value = input.text(7, &mut self.plain)?;
                    let (name, value) = (name.bytes(&self.plain), value.bytes(&self.plain));
                    if list.count(name.len() + value.len() + OVERHEAD) {
                        let field = fields.literal(Name::New(name), value);
                        fields.take(field);
                    }
                }
                // The dynamic table: sections 4.5.2 to 4.5.5.
                _ => return Err(FieldBlockError::Index),
            }
        }
        if self.plain.capacity() > KEPT {
            self.plain = Vec::new();
        }
        Ok(list.decoded())
    }
}

/// Reads the prefix of a section. RFC 9204 section 4.5.1.1: without a table, the required insert count is 0. Section 4.5.1.2:
/// the base must not be negative then; its value has no effect.
fn prefix(input: &mut Input<'_>) -> Result<(), FieldBlockError> {
    let inserts = input.number(8)?;
    let is_negative = input.peek().is_some_and(|first| first & 0x80 != 0);
    input.number(7)?;
    if inserts == 0 && !is_negative { Ok(()) } else { Err(FieldBlockError::Index) }
}

fn indexed(input: &mut Input<'_>, list: &mut List, fields: &mut impl Fields) -> Result<(), FieldBlockError> {
    let index = input.number(6)?;
    let (name, value) = CONSTANTS.get(index).ok_or(FieldBlockError::Index)?;
    if list.count(name.len() + value.len() + OVERHEAD) {
        let field = fields.constant(index);
        fields.take(field);
    }
    Ok(())
}

#[cfg(test)]
impl Decoder {
    /// Bytes of room for strings in Huffman code.
    pub(super) fn room_for_test(&self) -> usize {
        self.plain.capacity()
    }
}
