//! Users and the hashes of their passwords, from a file in the format of Apache's `htpasswd`.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher as _, RandomState};
use std::sync::Arc;

use super::hash::{HashError, PasswordHash};

/// Maximum length of a user name in bytes.
const LONGEST_NAME: usize = 255;

/// The users of a file.
pub(super) struct Table {
    users: HashMap<Arc<str>, usize>,
    hashes: Vec<PasswordHash>,
    /// Selects the hash that a password of an unknown user is compared with.
    decoys: RandomState,
}

/// A line of a file with users that has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct LineError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The fault. It contains nothing of the line.
    pub fault: LineFault,
}

/// Fault of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// No `:`.
    #[error("no colon: write NAME:HASH, as `htpasswd` does")]
    Colon,
    /// A byte order mark, which would be part of the name.
    #[error(
        "begins with a byte order mark: remove it with `sed -i 's/^\\xEF\\xBB\\xBF//'`, or save the file as UTF-8 without it"
    )]
    ByteOrderMark,
    /// An unusable name.
    #[error("the name is empty, longer than 255 bytes, or has control characters")]
    Name,
    /// A name that an earlier line has.
    #[error("line {0} has this name already: keep one of the two")]
    Repeated(usize),
    /// An unusable hash.
    #[error("{0}")]
    Hash(#[from] HashError),
}

impl Table {
    /// Reads `text`. Each line has the form `NAME:HASH`, or `NAME:HASH:COMMENT`; empty lines and lines with `#` are
    /// comments.
    ///
    /// # Errors
    ///
    /// Every line with a fault.
    pub(super) fn read(text: &str) -> Result<Self, Vec<LineError>> {
        let mut table = Self { users: HashMap::new(), hashes: Vec::new(), decoys: RandomState::new() };
        let (mut numbers, mut errors) = (Vec::new(), Vec::new());
        for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !is_comment(text)) {
            let (name, hash) = match user(text) {
                Ok(user) => user,
                Err(fault) => {
                    errors.push(LineError { line, fault });
                    continue;
                }
            };
            if let Some(first) = table.users.get(name) {
                errors.push(LineError { line, fault: LineFault::Repeated(numbers[*first]) });
                continue;
            }
            table.users.insert(name.into(), table.hashes.len());
            table.hashes.push(hash);
            numbers.push(line);
        }
        if errors.is_empty() { Ok(table) } else { Err(errors) }
    }

    /// Number of users.
    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// The name of a user, as written in the file.
    pub(super) fn name(&self, name: &[u8]) -> Option<&Arc<str>> {
        Some(self.users.get_key_value(str::from_utf8(name).ok()?)?.0)
    }

    /// Whether `password` is that of the user called `name`.
    ///
    /// The password of an unknown user is compared with the hash of another one, which is always the same for a name, so
    /// that the time discloses no names of users.
    pub(super) fn is_right(&self, name: &[u8], password: &[u8]) -> bool {
        let index = str::from_utf8(name).ok().and_then(|name| self.users.get(name));
        let decoy = || {
            let mut hasher = self.decoys.build_hasher();
            hasher.write(name);
            usize::try_from(hasher.finish() % self.hashes.len().max(1) as u64).unwrap_or(0)
        };
        let hash = self.hashes.get(index.copied().unwrap_or_else(decoy));
        // The hash first: an unknown user must take as long as a known one.
        hash.is_some_and(|hash| hash.is_of(password)) && index.is_some()
    }
}

fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

fn user(line: &str) -> Result<(&str, PasswordHash), LineFault> {
    if line.starts_with('\u{feff}') {
        return Err(LineFault::ByteOrderMark);
    }
    let (name, rest) = line.split_once(':').ok_or(LineFault::Colon)?;
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(LineFault::Name);
    }
    let hash = rest.split(':').next().unwrap_or_default().trim_end();
    Ok((name, PasswordHash::read(hash)?))
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} users", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APR1: &str = "$apr1$8charsal$xES.S6d4oPTiVAh2XwVyp/";

    #[test]
    fn lines_have_a_name_a_hash_and_perhaps_a_comment() {
        let text = format!("# users\r\n\r\nalice:{APR1}\r\nbob b\u{f6}b:{APR1}:a comment\n");
        let table = Table::read(&text).expect("users");
        assert_eq!(table.len(), 2);
        for name in ["alice", "bob b\u{f6}b"] {
            assert!(table.is_right(name.as_bytes(), b"password"), "{name}");
            assert!(!table.is_right(name.as_bytes(), b"other"), "{name}");
            assert_eq!(table.name(name.as_bytes()).map(|name| &**name), Some(name));
        }
        for name in ["Alice", "", "carol", "# users"] {
            assert!(!table.is_right(name.as_bytes(), b"password"), "{name}");
            assert!(table.name(name.as_bytes()).is_none());
        }
        assert!(!table.is_right(b"\xff", b"password"));
        assert!(!Table::read("").expect("no users").is_right(b"alice", b"password"));
    }

    #[test]
    fn each_wrong_line_is_reported_with_its_number() {
        let text = format!("alice:{APR1}\nalice\n:{APR1}\na\tb:{APR1}\n\nbob:secret\nalice:{APR1}\n");
        let errors = Table::read(&text).expect_err("wrong lines");
        let found: Vec<_> = errors.iter().map(|error| (error.line, error.fault)).collect();
        let expected = [
            (2, LineFault::Colon),
            (3, LineFault::Name),
            (4, LineFault::Name),
            (6, LineFault::Hash(HashError::Scheme)),
            (7, LineFault::Repeated(1)),
        ];
        assert_eq!(found, expected);
        assert!(errors.iter().all(|error| !error.to_string().contains("secret")));
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_name() {
        for text in [format!("\u{feff}alice:{APR1}\n"), format!("\u{feff}# users\nalice:{APR1}\n")] {
            let errors = Table::read(&text).expect_err("a mark");
            assert_eq!(errors, [LineError { line: 1, fault: LineFault::ByteOrderMark }]);
            let message = errors[0].to_string();
            assert!(
                message.starts_with("line 1: begins with a byte order mark: remove it with `sed"),
                "{message}"
            );
        }
    }
}
