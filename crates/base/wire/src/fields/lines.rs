//! Receiver of fields for tests and fuzz targets.

use super::{Fields, Name};
use crate::h2::hpack;
use crate::h3::qpack;

/// Name and value of a field.
pub(crate) type Line = (Vec<u8>, Vec<u8>);

/// Takes fields as bytes.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) lines: Vec<Line>,
    constant: fn(usize) -> Option<(&'static str, &'static str)>,
}

impl Lines {
    /// Fields of HPACK.
    pub(crate) fn hpack() -> Self {
        Self { lines: Vec::new(), constant: hpack::constant }
    }

    /// Fields of QPACK.
    pub(crate) fn qpack() -> Self {
        Self { lines: Vec::new(), constant: |index| qpack::CONSTANTS.get(index).copied() }
    }
}

impl Fields for Lines {
    type Field = Line;

    fn constant(&mut self, index: usize) -> Line {
        let (name, value) = (self.constant)(index).expect("an index of the table");
        (name.into(), value.into())
    }

    fn literal(&mut self, name: Name<'_, Line>, value: &[u8]) -> Line {
        let name = match name {
            Name::Constant(index) => self.constant(index).0,
            Name::Of((name, _)) => name.clone(),
            Name::New(name) => name.to_vec(),
        };
        (name, value.to_vec())
    }

    fn take(&mut self, field: Line) {
        self.lines.push(field);
    }
}

#[cfg(test)]
impl Lines {
    /// The fields as `name: value`, with escapes for bytes that are not printable.
    pub(crate) fn into_text(self) -> Vec<String> {
        let text = |(name, value): Line| format!("{}: {}", name.escape_ascii(), value.escape_ascii());
        self.lines.into_iter().map(text).collect()
    }
}
