//! Patterns for the names of a host with certificates on demand.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A name, `*.example.com` for all names one label longer, or `*` for every name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamePattern(String);

impl NamePattern {
    /// Whether `name` (lower case) matches and is a host name for which a public certificate can be issued.
    pub fn fits(&self, name: &str) -> bool {
        let fits = match self.0.strip_prefix('*') {
            None => self.0 == name,
            Some("") => true,
            // RFC 9525 section 6.3: the wildcard stands for exactly one label.
            Some(parent) => name.strip_suffix(parent).is_some_and(|label| !label.contains('.')),
        };
        fits && is_host_name(name)
    }

    /// The pattern as configured, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pattern = text.to_ascii_lowercase();
        let is_one = pattern == "*" || is_host_name(pattern.strip_prefix("*.").unwrap_or(&pattern));
        if !is_one {
            return Err(format!(
                "{text:?} is no pattern: write a name, \"*.example.com\" for all names one label longer, or \"*\" for every name"
            ));
        }
        Ok(Self(pattern))
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// RFC 1123 section 2.1, with at least two labels, as public certificates require.
fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    name.len() <= 253
        && name.contains('.')
        && name.split('.').all(is_label)
        && name.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, name: &str) -> bool {
        pattern.parse::<NamePattern>().unwrap().fits(name)
    }

    #[test]
    fn patterns_fit_names_one_label_or_every_name() {
        for (pattern, name, expected) in [
            ("a.test", "a.test", true),
            ("A.test", "a.test", true),
            ("a.test", "b.a.test", false),
            ("*.a.test", "b.a.test", true),
            ("*.a.test", "a.test", false),
            ("*.a.test", "c.b.a.test", false),
            ("*.a.test", "xa.test", false),
            ("*", "c.b.a.test", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_no_certificate_can_be_for_fits_nothing() {
        let long = format!("{}.test", "a".repeat(64));
        let longer = format!("{}test", "abcdefg.".repeat(32));
        for name in [
            "",
            ".",
            "localhost",
            "a..test",
            ".a.test",
            "a.test.",
            "-a.test",
            "a-.test",
            "a_b.test",
            "A.test",
            "192.0.2.1",
            "a/b.test",
            "a b.test",
            "a.test?x=1",
            "a.test&x",
            "%2e.test",
            &long,
            &longer,
        ] {
            assert!(!fits("*", name), "{name}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in
            ["", "**", "*.", "a*.test", "*.*.test", "a.*.test", "test", "https://a.test", "a.test:443"]
        {
            assert!(text.parse::<NamePattern>().is_err(), "{text}");
        }
    }
}
