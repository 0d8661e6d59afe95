//! Key logs in the format of NSS, as `SSLKEYLOGFILE` names one.

use std::collections::HashMap;
use std::fmt;

/// Connections with secrets at most. Further ones stay encrypted.
const CONNECTIONS: usize = 100_000;

/// Secrets of a connection at most.
const SECRETS: usize = 8;

/// Longest secret in bytes.
const LONGEST: usize = 64;

/// Label and value.
type Secret = (String, Vec<u8>);

/// Secrets by the random value of the `ClientHello`. At most 100,000 connections.
#[derive(Default)]
pub struct Secrets(HashMap<[u8; 32], Vec<Secret>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secrets({})", self.0.len())
    }
}

impl Secrets {
    /// Adds the lines of a key log. Lines of other forms are ignored, as in Wireshark.
    pub fn add(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n') {
            let Ok(line) = str::from_utf8(line) else { continue };
            let words: Vec<_> = line.split_whitespace().collect();
            let [label, random, value] = words[..] else { continue };
            let Some(random) = hex(random).and_then(|random| <[u8; 32]>::try_from(random).ok()) else {
                continue;
            };
            let Some(value) = hex(value) else { continue };
            if self.0.len() >= CONNECTIONS && !self.0.contains_key(&random) || label.len() > LONGEST {
                continue;
            }
            let secrets = self.0.entry(random).or_default();
            if secrets.len() < SECRETS {
                secrets.push((label.to_owned(), value));
            }
        }
    }

    /// Secrets of a connection.
    pub(crate) fn of(&self, random: &[u8; 32]) -> &[Secret] {
        self.0.get(random).map_or(&[], Vec::as_slice)
    }
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
        secrets.add(text.as_bytes());
        assert_eq!(secrets.of(&[7; 32]), [("CLIENT_RANDOM".to_owned(), vec![10, 255])]);
        assert!(secrets.of(&[8; 32]).is_empty());
        assert_eq!(format!("{secrets:?}"), "Secrets(1)");
    }
}
