//! Lines of a field section that a decoder of `brisk_wire` has read.

use brisk_wire::fields::{Fields, Name};

/// Line of the static table with this index.
type Constant = fn(usize) -> (&'static str, &'static str);

/// Sink that keeps names and values.
#[derive(Debug)]
pub struct FieldLines {
    constant: Constant,
    lines: Vec<(Vec<u8>, Vec<u8>)>,
}

impl FieldLines {
    /// No lines yet; `constant` is the static table of HPACK or QPACK.
    pub fn new(constant: Constant) -> Self {
        Self { constant, lines: Vec::new() }
    }

    /// Names and values as text; bytes that are not UTF-8 are replaced.
    pub fn into_text(self) -> Vec<(String, String)> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        self.lines.into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }
}

impl Fields for FieldLines {
    type Field = (Vec<u8>, Vec<u8>);

    fn constant(&mut self, index: usize) -> Self::Field {
        let (name, value) = (self.constant)(index);
        (name.into(), value.into())
    }

    fn literal(&mut self, name: Name<'_, Self::Field>, value: &[u8]) -> Self::Field {
        let name = match name {
            Name::Constant(index) => self.constant(index).0,
            Name::Of((name, _)) => name.clone(),
            Name::New(name) => name.to_vec(),
        };
        (name, value.to_vec())
    }

    fn take(&mut self, field: Self::Field) {
        self.lines.push(field);
    }
}
