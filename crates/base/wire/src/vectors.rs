//! Fields and vectors of TLS messages (RFC 8446 section 3.4): numbers, and contents behind their lengths.

/// Cursor over the fields of a message. Methods return `None` if too few bytes are left.
#[derive(Clone, Copy, Debug)]
pub struct FieldReader<'a>(pub &'a [u8]);

impl<'a> FieldReader<'a> {
    /// The contents of a vector with a length of two bytes that fills all of `data`.
    pub fn filling(data: &'a [u8]) -> Option<Self> {
        let mut fields = Self(data);
        let contents = fields.long()?;
        fields.0.is_empty().then_some(Self(contents))
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*chunk)
    }

    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        self.chunk().map(|[byte]| byte)
    }

    /// A number of two bytes.
    pub fn two(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_be_bytes)
    }

    /// A number of three bytes.
    pub fn three(&mut self) -> Option<usize> {
        self.chunk().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]) as usize)
    }

    /// A number of four bytes.
    pub fn four(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_be_bytes)
    }

    /// A vector with a length of one byte.
    pub fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.take(length.into())
    }

    /// A vector with a length of two bytes.
    pub fn long(&mut self) -> Option<&'a [u8]> {
        let length = self.two()?;
        self.take(length.into())
    }

    /// A vector with a length of three bytes.
    pub fn longest(&mut self) -> Option<&'a [u8]> {
        let length = self.three()?;
        self.take(length)
    }

    /// An extension, or a group with its share: number and content.
    pub fn extension(&mut self) -> Option<(u16, &'a [u8])> {
        Some((self.two()?, self.long()?))
    }
}
