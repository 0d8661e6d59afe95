//! Key logs in the format of NSS, as `SSLKEYLOGFILE` names one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

/// Maximum number of connections with [`Secrets`]. Further ones stay encrypted.
const CONNECTIONS: usize = 100_000;

/// Maximum number of [`Secret`]s of a connection.
const SECRETS: usize = 8;

/// Longest secret in bytes.
const LONGEST: usize = 64;

/// Label and value.
type Secret = (String, Vec<u8>);

/// Secrets by the random value of the `ClientHello`. At most 100,000 connections.
#[derive(Clone, Default)]
pub struct Secrets(HashMap<[u8; 32], Vec<Secret>>);

/// Lines of a key log that are not used. Empty lines and comments are none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkippedLines {
    /// Number of lines that are no secrets.
    pub foreign: usize,
    /// Number of the first of them, from 1.
    pub first: usize,
    /// Number of secrets beyond the limits: of 100,000 connections, and of 8 secrets for each.
    pub surplus: usize,
    /// Whether the file contains zeros, as UTF-16 without a byte order mark does.
    pub is_binary: bool,
}

impl SkippedLines {
    /// Whether all lines are used.
    pub fn is_empty(&self) -> bool {
        (self.foreign, self.surplus) == (0, 0)
    }
}

impl fmt::Display for SkippedLines {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.foreign > 0 {
            let (count, first) = (self.foreign, self.first);
            parts.push(format!(
                "lines that are no secrets: {count}, the first is line {first} (a key log has lines with a label, 64 \
                 hexadecimal digits and a secret)"
            ));
        }
        if self.is_binary {
            parts.push("the file is not UTF-8".to_owned());
        }
        if self.surplus > 0 {
            let count = self.surplus;
            parts.push(format!(
                "secrets beyond the limit of {CONNECTIONS} connections with {SECRETS} secrets each: {count}"
            ));
        }
        formatter.write_str(&parts.join("; "))
    }
}

// By hand, because a derived `Debug` would print the secrets.
impl fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secrets({})", self.0.len())
    }
}

impl Secrets {
    /// Adds the lines of a key log in UTF-8, or in UTF-16 with a byte order mark, as the shell of Windows writes it. Lines of
    /// other forms are skipped, as in Wireshark.
    pub fn add(&mut self, text: &[u8]) -> SkippedLines {
        let text = decoded(text);
        let mut skipped = SkippedLines::default();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            match secret(line) {
                None if skipped.foreign > 0 => skipped.foreign += 1,
                None => (skipped.foreign, skipped.first) = (1, index + 1),
                Some((random, secret)) => skipped.surplus += usize::from(!self.keep(random, secret)),
            }
        }
        skipped.is_binary = skipped.foreign > 0 && text.contains(&0);
        skipped
    }

    /// Keeps a secret unless a limit is reached.
    fn keep(&mut self, random: [u8; 32], secret: Secret) -> bool {
        // Known connections still get their further secrets, or they could be decrypted in part only.
        if self.0.len() >= CONNECTIONS && !self.0.contains_key(&random) {
            return false;
        }
        let secrets = self.0.entry(random).or_default();
        let is_kept = secrets.len() < SECRETS;
        if is_kept {
            secrets.push(secret);
        }
        is_kept
    }

    /// Secrets of a connection.
    pub(crate) fn of(&self, random: &[u8; 32]) -> &[Secret] {
        self.0.get(random).map_or(&[], Vec::as_slice)
    }
}

/// `text` in UTF-8 without a byte order mark.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    match text {
        [0xff, 0xfe, text @ ..] => utf16(text, u16::from_le_bytes).into(),
        [0xfe, 0xff, text @ ..] => utf16(text, u16::from_be_bytes).into(),
        [0xef, 0xbb, 0xbf, text @ ..] | text => text.into(),
    }
}

fn utf16(text: &[u8], unit: fn([u8; 2]) -> u16) -> Vec<u8> {
    let units = text.as_chunks::<2>().0.iter().map(|pair| unit(*pair));
    let text: String =
        char::decode_utf16(units).map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    text.into_bytes()
}

/// The secret in a line, and the random value of its connection.
fn secret(line: &[u8]) -> Option<([u8; 32], Secret)> {
    let words: Vec<_> = str::from_utf8(line).ok()?.split_whitespace().collect();
    let [label, random, value] = words[..] else { return None };
    let random = hex(random)?.try_into().ok()?;
    let value = hex(value)?;
    (label.len() <= LONGEST).then(|| (random, (label.to_owned(), value)))
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() > 2 * LONGEST {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_key_log_are_read_and_others_ignored() {
        let random = "07".repeat(32);
        let text =
            format!("# comment\nCLIENT_RANDOM {random} 0aFF\nbad {random} 0\n\nA 07 00\nB {random} xy\n");
        let mut secrets = Secrets::default();
        let skipped = secrets.add(text.as_bytes());
        assert_eq!(skipped, SkippedLines { foreign: 3, first: 3, ..SkippedLines::default() });
        assert!(skipped.to_string().starts_with("lines that are no secrets: 3, the first is line 3 ("));
        assert_eq!(secrets.of(&[7; 32]), [("CLIENT_RANDOM".to_owned(), vec![10, 255])]);
        assert!(secrets.of(&[8; 32]).is_empty());
        assert_eq!(format!("{secrets:?}"), "Secrets(1)");
    }

    /// Wrong files and files of the shell of Windows had no effect and no message.
    #[test]
    fn nothing_is_skipped_without_a_count() {
        let text = format!("CLIENT_RANDOM {} 0aff\r\n", "07".repeat(32));
        let utf16 = |order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect::<Vec<_>>();
        for file in [
            [&[0xff, 0xfe][..], &utf16(u16::to_le_bytes)].concat(),
            [&[0xfe, 0xff][..], &utf16(u16::to_be_bytes)].concat(),
            format!("\u{feff}{text}").into_bytes(),
        ] {
            let mut secrets = Secrets::default();
            assert!(secrets.add(&file).is_empty());
            assert_eq!(secrets.of(&[7; 32]).len(), 1);
        }
        let unmarked = Secrets::default().add(&utf16(u16::to_le_bytes));
        assert!(unmarked.is_binary && unmarked.to_string().contains("not UTF-8"), "{unmarked}");
        let many = Secrets::default().add(text.repeat(SECRETS + 2).as_bytes());
        assert_eq!((many.foreign, many.surplus), (0, 2));
        assert!(many.to_string().ends_with("with 8 secrets each: 2"), "{many}");
        assert!(Secrets::default().add(b"# comment\n\n").is_empty());
    }
}
