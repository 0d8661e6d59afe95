//! Names in a [`Store`](super::Store), encoded so that each part is a safe file name.

use std::fmt::{self, Write};

/// A name in a store: parts separated by slashes. Letters, digits, `.`, `-` and `_` are written as they are, everything
/// else as `%` and two hexadecimal digits. So `*.example.com` becomes `%2a.example.com`, and no name leads out of the
/// store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// The name with these parts, at least one. An empty part is written as `%`.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut name = String::new();
        for part in parts {
            if !name.is_empty() {
                name.push('/');
            }
            append(&mut name, part);
        }
        assert!(!name.is_empty(), "a name has a part");
        Self(name)
    }

    /// The name with `part` appended.
    #[must_use]
    pub fn join(&self, part: &str) -> Self {
        let mut name = format!("{}/", self.0);
        append(&mut name, part);
        Self(name)
    }

    /// The name with the encoded part `written` appended; `None` if no part is encoded that way.
    pub fn below(&self, written: &str) -> Option<Self> {
        // Encoded again and compared: of several spellings of one name, such as `%2A` and `%2a`, one is
        // valid.
        let name = self.join(&read(written)?);
        name.0.ends_with(&format!("/{written}")).then_some(name)
    }

    /// The encoded name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part, decoded.
    pub fn last(&self) -> String {
        let written = self.0.rsplit('/').next().unwrap_or_default();
        read(written).expect("parts are written by this module")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn append(name: &mut String, part: &str) {
    if part.is_empty() {
        name.push('%');
    }
    for (index, byte) in part.bytes().enumerate() {
        // File names that begin with a dot are reserved for the store.
        let plain = byte.is_ascii_alphanumeric() || b"-_".contains(&byte) || (byte == b'.' && index > 0);
        if plain {
            name.push(char::from(byte));
        } else {
            write!(name, "%{byte:02x}").expect("a string takes it");
        }
    }
}

fn read(written: &str) -> Option<String> {
    if written == "%" {
        return Some(String::new());
    }
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written.as_bytes();
    while let Some((&byte, more)) = rest.split_first() {
        rest = more;
        if byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_safe_and_read_back() {
        for (part, written) in [
            ("example.com", "example.com"),
            ("*.example.com", "%2a.example.com"),
            ("..", "%2e."),
            (".lock", "%2elock"),
            ("a/b", "a%2fb"),
            ("2001:db8::1", "2001%3adb8%3a%3a1"),
            ("%", "%25"),
            ("", "%"),
            ("bücher", "b%c3%bccher"),
        ] {
            let name = Name::of(["x", part]);
            assert_eq!(name.as_str(), format!("x/{written}"));
            assert_eq!(name.last(), part);
            assert_eq!(Name::of(["x"]).below(written), Some(name));
        }
    }

    #[test]
    fn what_is_not_written_by_a_store_is_no_name() {
        for written in ["", ".lock", "a b", "%zz", "%4", "%41", "a/b", "%+1"] {
            assert_eq!(Name::of(["x"]).below(written), None, "{written}");
        }
    }
}
