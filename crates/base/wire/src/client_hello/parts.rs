//! Parts of a `ClientHello`, split by their lengths (RFC 8446 sections 3.4 and 4.1.2).

use crate::vectors::FieldReader;

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
        let mut fields = FieldReader(body);
        let version = fields.two()?;
        let _random = fields.take(32)?;
        let session_id = fields.short()?;
        let suites = fields.long()?;
        let _compression = fields.short()?;
        // RFC 5246 section 7.4.1.2: a hello of TLS 1.2 may end before the extensions.
        let extensions = if fields.0.is_empty() { &[] } else { fields.long()? };
        (session_id.len() <= SESSION_ID).then_some(Self {
            version,
            session_id,
            suites,
            extensions,
            rest: fields.0,
        })
    }
}
