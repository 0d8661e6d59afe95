//! Parts of a `ClientHello`, split by their lengths (RFC 8446 sections 3.4 and 4.1.2).

/// The body of a `ClientHello`; each part is without its length.
pub(crate) struct Parts<'a> {
    pub(crate) version: u16,
    pub(crate) session_id: &'a [u8],
    /// Two bytes for each suite.
    pub(crate) suites: &'a [u8],
    /// Empty if there are none.
    pub(crate) extensions: &'a [u8],
    /// Bytes after the extensions.
    pub(crate) rest: &'a [u8],
}

/// Maximum length of a session ID.
const SESSION_ID: usize = 32;

impl<'a> Parts<'a> {
    /// Splits `body`, the handshake message without its header. `None` if a part runs past the end.
    pub(crate) fn of(body: &'a [u8]) -> Option<Self> {
        let mut bytes = Bytes(body);
        let version = bytes.number()?;
        let _random = bytes.take(32)?;
        let session_id = bytes.short()?;
        let suites = bytes.long()?;
        let _compression = bytes.short()?;
        let extensions = if bytes.0.is_empty() { &[] } else { bytes.long()? };
        (session_id.len() <= SESSION_ID).then_some(Self {
            version,
            session_id,
            suites,
            extensions,
            rest: bytes.0,
        })
    }
}

/// Bytes that are taken from their start. Each method returns `None` if too few are left.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*number))
    }

    /// One byte.
    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken[0])
    }

    /// A part behind its length of one byte.
    pub(crate) fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.take(length.into())
    }

    /// A part behind its length of two bytes.
    pub(crate) fn long(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(length.into())
    }

    /// The first extension: its number and its content.
    pub(crate) fn extension(&mut self) -> Option<(u16, &'a [u8])> {
        Some((self.number()?, self.long()?))
    }

    /// A list that fills its extension, behind its length of two bytes.
    pub(crate) fn list(data: &'a [u8]) -> Option<Self> {
        let mut bytes = Self(data);
        let list = bytes.long()?;
        bytes.0.is_empty().then_some(Self(list))
    }
}
