//! PINs: read from files when needed, and never presented again after a refusal.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use aws_lc_rs::digest::{SHA256, digest};
use cryptoki::types::AuthPin;
use zeroize::Zeroizing;

use crate::{error::TokenError, uri::PinSource};

/// Maximum length of a [`Pin`], in bytes.
const LONGEST: usize = 1024;

/// Digests of refused PINs. Tokens lock after a few wrong PINs, and each reload reads the files again. A static, because
/// tokens count the attempts of the whole process.
static REFUSED: Mutex<Option<HashSet<[u8; 32]>>> = Mutex::new(None);

/// PIN of a token.
pub(crate) struct Pin {
    text: Zeroizing<String>,
    /// Digest of serial number and PIN.
    mark: [u8; 32],
}

impl Pin {
    /// Reads the PIN for the token with this serial number.
    ///
    /// # Errors
    ///
    /// [`TokenError::PinFile`] or [`TokenError::PinForm`].
    pub(crate) fn read(source: &PinSource, serial: &str) -> Result<Self, TokenError> {
        let path = source.path();
        let bytes =
            brisk_secrets::read(path).map_err(|source| TokenError::PinFile { path: path.clone(), source })?;
        let text = std::str::from_utf8(&bytes).map(|text| text.strip_suffix('\n').unwrap_or(text));
        let text = text.ok().map(|text| text.strip_suffix('\r').unwrap_or(text));
        // Editors add a byte order mark; the token would count the PIN as wrong.
        let usable = |text: &&str| {
            !text.is_empty()
                && !text.starts_with('\u{feff}')
                && text.len() <= LONGEST
                && !text.contains(['\n', '\0'])
        };
        let text = text.filter(usable).ok_or_else(|| TokenError::PinForm { path: path.clone() })?;
        let text = Zeroizing::new(text.to_owned());
        let marked = Zeroizing::new(format!("{serial}\0{}", *text));
        let mut mark = [0; 32];
        // A digest, so that a refused PIN does not stay in memory. The serial number is part of it, since
        // the same PIN may be right for another token.
        mark.copy_from_slice(digest(&SHA256, marked.as_bytes()).as_ref());
        Ok(Self { text, mark })
    }

    /// The [`Pin`] in the type of the module's interface; wiped when dropped.
    pub(crate) fn as_auth(&self) -> AuthPin {
        AuthPin::new(self.text.as_str().into())
    }

    /// Returns whether the token has refused this PIN.
    pub(crate) fn was_refused(&self) -> bool {
        let refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
        refused.as_ref().is_some_and(|refused| refused.contains(&self.mark))
    }

    /// Records a refusal, so that the [`Pin`] is never presented again.
    pub(crate) fn refuse(&self) {
        let mut refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get_or_insert_default().insert(self.mark);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(contents: &[u8]) -> Result<Pin, TokenError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), contents).unwrap();
        Pin::read(&PinSource::file(file.path().to_owned()), "serial")
    }

    #[test]
    fn the_line_feed_of_an_editor_is_no_part_of_the_pin() {
        for contents in ["12 34", "12 34\n", "12 34\r\n"] {
            assert_eq!(*read(contents.as_bytes()).unwrap().text, "12 34");
        }
        for contents in [&b""[..], b"\n", b"1\n2\n", b"1\0", b"\xff", b"\xef\xbb\xbf12 34", &[b'1'; 2000]] {
            let error = read(contents).err().expect("no PIN").to_string();
            assert!(error.contains("a PIN in one line"), "{error}");
        }
    }

    #[test]
    fn a_refused_pin_is_known_for_its_token_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "4711").unwrap();
        let source = PinSource::file(file.path().to_owned());
        Pin::read(&source, "first").unwrap().refuse();
        assert!(Pin::read(&source, "first").unwrap().was_refused());
        assert!(!Pin::read(&source, "second").unwrap().was_refused());
        fs::write(file.path(), "4712").unwrap();
        assert!(!Pin::read(&source, "first").unwrap().was_refused());
    }
}
