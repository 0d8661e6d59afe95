//! Conditions of routes: tests of a request, and their conjunctions in `when`.

use std::collections::BTreeSet;

use crate::haproxy::path_test::{self, Pattern};
use crate::toml::{self, Keys};

/// Part of a request with named values: the keys `headers`, `query` and `cookies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Header,
    Query,
    Cookie,
}

/// Value that a [`Test::Named`] accepts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    /// `true`.
    Any,
    /// `"TEXT"`.
    Equal(String),
    /// `{ regex = "EXPRESSION" }`.
    Expression(String),
}

impl Value {
    fn toml(&self) -> String {
        match self {
            Self::Any => "true".to_owned(),
            Self::Equal(text) => toml::text(text),
            Self::Expression(text) => format!("{{ regex = {} }}", toml::raw(text)),
        }
    }
}

/// A test of a request, of which brisk has a form in `when`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Test {
    /// `methods`.
    Methods(BTreeSet<String>),
    /// `networks`.
    Networks(Vec<Network>),
    /// `path_regex`.
    Path(Vec<Pattern>),
    /// A value with its name: `cook(a)` with the pattern `1` becomes `cookies = { a = "1" }`.
    Named(Part, String, Value),
}

/// Addresses with a common beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Network {
    bits: u128,
    length: u8,
    is_v6: bool,
}

impl Network {
    /// Reads an address, perhaps with the length of its prefix or a mask: `10.1.2.3/8` and `10.1.2.3/255.0.0.0` are `10.0.0.0/8`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (address, mask) =
            text.split_once('/').map_or((text, None), |(address, mask)| (address, Some(mask)));
        let (bits, most, is_v6) = match address.parse().ok()? {
            // The bits of both families begin at the highest one, so that prefixes compare alike.
            std::net::IpAddr::V4(own) => (u128::from(u32::from(own)) << 96, 32, false),
            std::net::IpAddr::V6(own) => (u128::from(own), 128, true),
        };
        let length = match mask {
            None => most,
            Some(mask) => match mask.parse::<u8>() {
                Ok(length) => Some(length).filter(|length| *length <= most)?,
                Err(_) => prefix(u32::from(mask.parse::<std::net::Ipv4Addr>().ok()?)).filter(|_| !is_v6)?,
            },
        };
        let kept = if length == 0 { 0 } else { u128::MAX << (128 - u32::from(length)) };
        Some(Self { bits: bits & kept, length, is_v6 })
    }

    /// The addresses that are in both networks.
    fn and(self, other: Self) -> Option<Self> {
        let (long, short) = if self.length < other.length { (other, self) } else { (self, other) };
        let kept = if short.length == 0 { 0 } else { u128::MAX << (128 - u32::from(short.length)) };
        (self.is_v6 == other.is_v6 && long.bits & kept == short.bits).then_some(long)
    }

    /// The network as brisk writes it.
    pub(crate) fn text(self) -> String {
        let (address, most) = if self.is_v6 {
            (std::net::Ipv6Addr::from(self.bits).to_string(), 128)
        } else {
            (std::net::Ipv4Addr::from((self.bits >> 96) as u32).to_string(), 32)
        };
        if self.length == most { address } else { format!("{address}/{}", self.length) }
    }
}

/// Length of the prefix of a mask: 16 for `255.255.0.0`, `None` for `255.0.255.0`.
fn prefix(mask: u32) -> Option<u8> {
    (mask.count_ones() == mask.leading_ones()).then(|| mask.count_ones() as u8)
}

/// The methods that a list of brisk accepts: `GET` includes `HEAD`.
fn with_head(methods: &BTreeSet<String>) -> BTreeSet<String> {
    let mut all = methods.clone();
    if all.contains("GET") {
        all.insert("HEAD".to_owned());
    }
    all
}

/// Conditions of a route that all have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct When(Vec<Test>);

impl When {
    /// The condition with one [`Test`] more. `Ok(None)` if no request can meet both, `Err(())` without a counterpart.
    pub(crate) fn and(&self, test: &Test) -> Result<Option<Self>, ()> {
        let mut all = self.clone();
        for own in &mut all.0 {
            let joined = match (&*own, test) {
                (Test::Methods(first), Test::Methods(second)) => {
                    let both: BTreeSet<_> =
                        with_head(first).intersection(&with_head(second)).cloned().collect();
                    (!both.is_empty()).then_some(Test::Methods(both))
                }
                (Test::Networks(first), Test::Networks(second)) => {
                    // Each pair is compared.
                    if first.len() * second.len() > 10_000 {
                        return Err(());
                    }
                    let pairs =
                        first.iter().flat_map(|one| second.iter().filter_map(|other| one.and(*other)));
                    let mut both: Vec<_> = pairs.collect();
                    both.dedup();
                    (!both.is_empty()).then_some(Test::Networks(both))
                }
                (Test::Path(first), Test::Path(second)) => {
                    let both = path_test::both(first, second)?;
                    (!both.is_empty()).then_some(Test::Path(both))
                }
                (Test::Named(part, name, first), Test::Named(other, own_name, second))
                    if part == other && name == own_name =>
                {
                    let value = match (first, second) {
                        (Value::Any, value) | (value, Value::Any) => value,
                        (first, second) if first == second => first,
                        _ => return Err(()),
                    };
                    Some(Test::Named(*part, name.clone(), value.clone()))
                }
                _ => continue,
            };
            let Some(joined) = joined else { return Ok(None) };
            *own = joined;
            all.0.sort();
            return Ok(Some(all));
        }
        // Equal conditions have the same text.
        all.0.push(test.clone());
        all.0.sort();
        Ok(Some(all))
    }

    /// Whether there is no condition.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether each request that meets `other` meets this condition because it has the same tests.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        self.0.iter().all(|own| other.0.contains(own))
    }

    /// Bytes of the texts.
    pub(crate) fn size(&self) -> usize {
        let of = |test: &Test| match test {
            Test::Methods(methods) => methods.iter().map(String::len).sum(),
            Test::Networks(networks) => 20 * networks.len(),
            Test::Path(patterns) => patterns.iter().map(|pattern| 2 * pattern.text.len() + 8).sum(),
            Test::Named(_, name, Value::Equal(text) | Value::Expression(text)) => name.len() + text.len(),
            Test::Named(_, name, Value::Any) => name.len(),
        };
        self.0.iter().map(of).sum()
    }

    /// The patterns of `Test::Path`.
    pub(crate) fn path(&self) -> Option<&[Pattern]> {
        self.0.iter().find_map(|test| match test {
            Test::Path(patterns) => Some(patterns.as_slice()),
            _ => None,
        })
    }

    /// The inline table of `when`: `{ methods = ["POST"], path_regex = "^/a" }`.
    pub(crate) fn toml(&self) -> String {
        let mut keys = Keys::default();
        let mut named = [(Part::Header, "headers"), (Part::Query, "query"), (Part::Cookie, "cookies")]
            .map(|(part, key)| (part, key, Keys::default()));
        for test in &self.0 {
            match test {
                Test::Methods(methods) => keys.set("methods", toml::list(methods)),
                Test::Networks(networks) => {
                    keys.set("networks", toml::list(networks.iter().map(|own| own.text())));
                }
                Test::Path(patterns) => keys.set("path_regex", toml::raw(&path_test::any(patterns))),
                Test::Named(part, name, value) => {
                    let own = named.iter_mut().find(|(own, _, _)| own == part);
                    if let Some((_, _, keys)) = own {
                        keys.0.push((name.clone(), value.toml()));
                    }
                }
            }
        }
        for (_, key, tests) in named {
            if !tests.is_empty() {
                keys.set(key, tests.inline());
            }
        }
        keys.inline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_with_prefixes_and_masks() {
        for (text, expected) in [
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("10.1.2.3", Some("10.1.2.3")),
            ("10.1.2.3/255.255.0.0", Some("10.1.0.0/16")),
            ("2001:db8::1/32", Some("2001:db8::/32")),
            ("::1", Some("::1")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("10.0.0.0/33", None),
            ("10.0.0.0/255.0.255.0", None),
            ("localhost", None),
        ] {
            assert_eq!(Network::read(text).map(Network::text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn conditions_about_one_part_are_joined_or_refused() {
        let networks =
            |texts: &[&str]| Test::Networks(texts.iter().filter_map(|text| Network::read(text)).collect());
        let when = When::default().and(&networks(&["10.0.0.0/8"])).expect("one").expect("some");
        let inner = when.and(&networks(&["10.1.0.0/16", "192.168.0.0/16"])).expect("both").expect("some");
        assert_eq!(inner.toml(), "{ networks = [\"10.1.0.0/16\"] }");
        assert_eq!(when.and(&networks(&["192.168.0.0/16"])), Ok(None));
        let header = |value: &str| Test::Named(Part::Header, "x".to_owned(), Value::Equal(value.to_owned()));
        let when = when.and(&header("1")).expect("another part").expect("some");
        assert!(when.and(&header("2")).is_err());
    }
}
