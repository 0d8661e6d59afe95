//! [`TicketKeyFile`], a ticket key in a file of nginx's format.

use std::{fmt, path::Path};

use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};

use crate::{
    KeySourceError, TicketKeyId, TicketKeyLength,
    secret::{expand, read_at_most},
    ticket_key::KeyMaterial,
};

/// Lengths of nginx's `ssl_session_ticket_key` files: a name of 16 bytes and two keys of 16 or 32 bytes each.
const LENGTHS: [usize; 2] = [48, 80];

/// Longer than any format of key files, so that the message can report the actual length.
const MOST_READ: usize = 4096;

// Never changed: gateways of different versions would derive different keys from one file.
const SALT: &[u8] = b"brisk ticket key file, first edition";

/// A ticket key from a file in nginx's format, made by `openssl rand 80` or `openssl rand 48`.
///
/// Both lengths give a key of full strength: HKDF-SHA256 derives key and name from all bytes. nginx and brisk can use
/// the same file, but neither opens the tickets of the other, whose sessions have another format.
#[derive(Clone)]
pub struct TicketKeyFile {
    material: KeyMaterial,
}

impl TicketKeyFile {
    /// Reads the key file `path`. [`KeySourceError::TicketKey`] unless it has 48 or 80 bytes.
    pub fn read(path: &Path) -> Result<Self, KeySourceError> {
        let contents = read_at_most(path, MOST_READ)?;
        Self::from_bytes(&contents)
            .map_err(|source| KeySourceError::TicketKey { path: path.to_owned(), source })
    }

    /// Parses the contents of a key file.
    pub fn from_bytes(contents: &[u8]) -> Result<Self, TicketKeyLength> {
        if !LENGTHS.contains(&contents.len()) {
            return Err(TicketKeyLength::of(contents));
        }
        let prk = Salt::new(HKDF_SHA256, SALT).extract(contents);
        Ok(Self { material: KeyMaterial::from(expand(&prk, b"ticket key", &[])) })
    }

    /// ID of the key, as in metrics.
    pub fn id(&self) -> TicketKeyId {
        self.material.id()
    }

    pub(crate) const fn material(&self) -> &KeyMaterial {
        &self.material
    }
}

impl fmt::Debug for TicketKeyFile {
    /// Prints the [`id`](Self::id) only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TicketKeyFile").field(&self.id()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_both_lengths_are_read_and_each_is_another_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.key");
        let mut ids = Vec::new();
        for contents in [[1; 80].as_slice(), &[1; 48], &[2; 48]] {
            std::fs::write(&path, contents).unwrap();
            let key = TicketKeyFile::read(&path).unwrap();
            assert_eq!(key.id(), TicketKeyFile::read(&path).unwrap().id());
            ids.push(key.id());
        }
        assert!(ids[0] != ids[1] && ids[1] != ids[2]);
    }

    #[test]
    fn a_file_of_another_length_is_refused_with_what_would_be_right() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.key");
        let refused = |contents: &[u8]| {
            std::fs::write(&path, contents).unwrap();
            let message = TicketKeyFile::read(&path).unwrap_err().to_string();
            message.strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
        };
        let right = "a ticket key file has 48 or 80 bytes, as `openssl rand 80` writes them";
        assert_eq!(refused(b""), format!("{right}; this one has 0"));
        assert_eq!(refused(&[1; 79]), format!("{right}; this one has 79"));
        assert_eq!(refused(&[1; 5000]), format!("{right}; this one has 4096 or more"));
        let text = format!("{right}; this one has 161 and is text: leave out -hex and -base64");
        assert_eq!(refused(format!("{}\n", "0a".repeat(80)).as_bytes()), text);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let message = TicketKeyFile::read(Path::new("/nonexistent/a.key")).unwrap_err().to_string();
        assert!(message.starts_with("cannot read /nonexistent/a.key: "), "{message}");
    }

    #[test]
    fn debug_shows_no_key() {
        let key = TicketKeyFile::from_bytes(&[1; 80]).unwrap();
        assert_eq!(format!("{key:?}"), format!("TicketKeyFile({:?})", key.id()));
    }
}
