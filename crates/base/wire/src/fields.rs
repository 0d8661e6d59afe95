//! Fields of HTTP/2 and HTTP/3 as they are compressed: the parts that HPACK (RFC 7541) and QPACK (RFC 9204) share.

pub(crate) mod huffman;
#[cfg(any(test, fuzzing))]
pub(crate) mod lines;
pub(crate) mod names;
pub(crate) mod read;
pub(crate) mod write;

use thiserror::Error;

/// Bytes that each field of a table, or of a list, counts beside its name and value (RFC 7541 section 4.1, RFC 9113
/// section 6.5.2, RFC 9114 section 4.2.2).
pub const OVERHEAD: usize = 32;

/// Error in a field block. The connection has to end: the tables of both sides would differ from then on (RFC 7541 section
/// 2.3.3, RFC 9204 section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FieldBlockError {
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
    /// The size of the table is changed to more than was allowed, or behind a field: in HPACK only.
    #[error("the header block makes its table too large, or at the wrong place")]
    TableSize,
}

/// Receiver of decoded fields. A field in the table is converted once, when it is added.
pub trait Fields {
    /// A field. Cloned for each time that the block refers to it.
    type Field: Clone;

    /// The field at an index of the static table: from 1 to 61 in HPACK, from 0 to 98 in QPACK.
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
