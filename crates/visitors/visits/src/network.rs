//! Labels of client networks, from an operator's table of address prefixes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use brisk_net::canonical_network;
use ipnet::IpNet;
use thiserror::Error;

/// Maximum number of prefixes in a table: enough for all routes of the Internet.
const MOST_PREFIXES: usize = 2_000_000;
/// Maximum number of distinct labels in a table.
const MOST_LABELS: usize = 1_000;
/// Maximum length of a label in bytes.
const LONGEST_LABEL: usize = 64;

/// Label of a client's network.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Network(Option<Arc<str>>);

impl Network {
    /// No label: there is no table, or it has no matching prefix.
    pub const UNKNOWN: Self = Self(None);

    /// The label.
    pub fn label(&self) -> Option<&Arc<str>> {
        self.0.as_ref()
    }
}

/// Table of prefixes with their labels, at most two million. The longest matching prefix decides.
#[derive(Debug, Clone, Default)]
pub struct Networks {
    labels: Vec<Arc<str>>,
    prefixes: HashMap<IpNet, u16>,
    /// Prefix lengths in the table, in descending order: of IPv4 and of IPv6.
    lengths: [Vec<u8>; 2],
}

/// Reason for which a table is rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub struct NetworksError {
    /// Line number, starting at 1.
    pub line: usize,
    /// The fault and its correction.
    pub reason: String,
}

impl Networks {
    /// Parses a table: a prefix and a label per line, such as `203.0.113.0/24 office`. The label extends to the end
    /// of the line, at most 64 bytes. Empty lines and lines that start with `#` are ignored. An invalid line is a
    /// [`NetworksError`], also one with bits after its prefix, or with another label for a prefix that has one.
    pub fn parse(text: &str) -> Result<Self, NetworksError> {
        let mut table = Self::default();
        let mut numbers = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            table.add(line, &mut numbers).map_err(|reason| NetworksError { line: index + 1, reason })?;
        }
        for lengths in &mut table.lengths {
            lengths.sort_unstable_by(|a, b| b.cmp(a));
        }
        Ok(table)
    }

    fn add(&mut self, line: &str, numbers: &mut HashMap<Arc<str>, u16>) -> Result<(), String> {
        let (prefix, label) = line
            .split_once(char::is_whitespace)
            .ok_or("a prefix and a label are wanted, as in \"203.0.113.0/24 office\"")?;
        let prefix: IpNet = prefix.parse().map_err(|_| {
            format!("{:?} is no prefix such as 203.0.113.0/24 or 2001:db8::/32", shortened(prefix))
        })?;
        // Bits behind the length are more likely a mistake in the length than an intention.
        let meant = canonical_network(prefix.trunc());
        if meant != prefix {
            return Err(format!("{prefix} is written as {meant}; or is another length meant?"));
        }
        let label = label.trim();
        if label.len() > LONGEST_LABEL || label.chars().any(char::is_control) {
            return Err(format!(
                "the label must have at most {LONGEST_LABEL} bytes, and no control characters"
            ));
        }
        if self.prefixes.len() >= MOST_PREFIXES {
            return Err(format!("a table has at most {MOST_PREFIXES} prefixes"));
        }
        if let Some(other) = self.prefixes.get(&prefix).map(|number| &self.labels[usize::from(*number)])
            && **other != *label
        {
            return Err(format!("{prefix} has the label {other:?} already: keep one of the two lines"));
        }
        let number = match numbers.get(label) {
            Some(number) => *number,
            None if self.labels.len() >= MOST_LABELS => {
                return Err(format!("a table has at most {MOST_LABELS} different labels"));
            }
            None => {
                let label: Arc<str> = label.into();
                self.labels.push(Arc::clone(&label));
                let number = self.labels.len() as u16 - 1;
                numbers.insert(label, number);
                number
            }
        };
        let lengths = &mut self.lengths[usize::from(matches!(prefix, IpNet::V6(_)))];
        if !lengths.contains(&prefix.prefix_len()) {
            lengths.push(prefix.prefix_len());
        }
        self.prefixes.insert(prefix, number);
        Ok(())
    }

    /// The label of the network of `address`, [`Network::UNKNOWN`] without a match. Costs one lookup per distinct prefix
    /// length in the table.
    pub fn find(&self, address: IpAddr) -> Network {
        // An IPv4 address mapped to IPv6 belongs to the networks of IPv4.
        let address = address.to_canonical();
        let lengths = &self.lengths[usize::from(address.is_ipv6())];
        // In descending order of lengths, so that the first match is the longest prefix.
        let prefixes = lengths.iter().filter_map(|length| IpNet::new(address, *length).ok());
        let number = prefixes.into_iter().find_map(|prefix| self.prefixes.get(&prefix.trunc()));
        Network(number.map(|number| Arc::clone(&self.labels[usize::from(*number)])))
    }
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(60)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(table: &Networks, address: &str) -> Option<String> {
        table.find(address.parse().unwrap()).label().map(ToString::to_string)
    }

    #[test]
    fn the_longest_prefix_counts() {
        let table = "# ours\n10.0.0.0/8 company\n10.1.0.0/16 lab in the cellar\n\n2001:db8::/32 company\n\
                     10.0.0.0/8 company\n";
        let table = Networks::parse(table).unwrap();
        assert_eq!(label(&table, "10.9.9.9").as_deref(), Some("company"));
        assert_eq!(label(&table, "10.1.200.1").as_deref(), Some("lab in the cellar"));
        assert_eq!(label(&table, "::ffff:10.1.200.1").as_deref(), Some("lab in the cellar"));
        assert_eq!(label(&table, "2001:db8:1::1").as_deref(), Some("company"));
        assert_eq!(label(&table, "192.0.2.1"), None);
        assert_eq!(table.labels.len(), 2);
    }

    #[test]
    fn no_prefix_is_lost_or_cut_without_an_error() {
        let found = |text: &str| Networks::parse(text).unwrap_err().to_string();
        assert_eq!(
            found("10.0.0.0/8 a\n10.0.0.0/8 b"),
            "line 2: 10.0.0.0/8 has the label \"a\" already: keep one of the two lines"
        );
        assert_eq!(
            found("\n10.1.2.3/16 a"),
            "line 2: 10.1.2.3/16 is written as 10.1.0.0/16; or is another length meant?"
        );
        assert_eq!(
            found("::ffff:10.0.0.0/104 a"),
            "line 1: ::ffff:10.0.0.0/104 is written as 10.0.0.0/8; or is another length meant?"
        );
        assert!(Networks::parse("::/0 a\n0.0.0.0/0 b\n::ffff:0:0/95 c").is_err(), "bits after the prefix");
        assert!(Networks::parse("::/0 a\n0.0.0.0/0 b").is_ok());
    }

    #[test]
    fn a_wrong_line_is_named() {
        let found = |text: &str| Networks::parse(text).unwrap_err().to_string();
        assert_eq!(
            found("10.0.0.0/8 a\n10.0.0.0/33 b"),
            "line 2: \"10.0.0.0/33\" is no prefix such as 203.0.113.0/24 or 2001:db8::/32"
        );
        assert_eq!(
            found("10.0.0.0/8"),
            "line 1: a prefix and a label are wanted, as in \"203.0.113.0/24 office\""
        );
        assert_eq!(
            found(&format!("::/0 {}", "x".repeat(65))),
            "line 1: the label must have at most 64 bytes, and no control characters"
        );
        let many = (0..=MOST_LABELS)
            .map(|number| format!("10.{}.{}.0/24 {number}", number / 256, number % 256))
            .collect::<Vec<_>>();
        assert_eq!(found(&many.join("\n")), "line 1001: a table has at most 1000 different labels");
    }
}
