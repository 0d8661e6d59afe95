//! Conditions as formulas of tests, and their values at a place of the translation.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::haproxy::host_name::{HostName, Names};
use crate::haproxy::path_test::{self, Pattern};
use crate::toml::{self, Keys};

/// Part of a request with named values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Header,
    Query,
    Cookie,
}

/// Value that a test accepts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    Any,
    Equal(String),
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
    Methods(BTreeSet<String>),
    Networks(Vec<Network>),
    Path(Vec<Pattern>),
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
    /// Reads an address, perhaps with the length of its prefix or a mask.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (address, mask) = text.split_once('/').map_or((text, None), |(address, mask)| (address, Some(mask)));
        let (bits, most, is_v6) = match address.parse().ok()? {
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

/// Length of the prefix of a mask such as 255.255.0.0.
fn prefix(mask: u32) -> Option<u8> {
    (mask.count_ones() == mask.leading_ones()).then(|| mask.count_ones() as u8)
}

/// Nature of a test without a counterpart, which decides whether a route refuses requests because of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The load of servers or of the process, or chance.
    Load,
    /// Counters of the requests of clients.
    State,
    /// Names with more labels than a wildcard of brisk has.
    Label,
    /// Names of hosts that the configuration does not list.
    Host,
    /// Any other property of a request.
    Request,
}

/// A rate of requests of one key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rate {
    pub(crate) requests: u64,
    /// In milliseconds.
    pub(crate) period: u64,
    /// Key with variables of brisk.
    pub(crate) by: String,
    /// Name of the table in HAProxy.
    pub(crate) table: String,
}

/// A property of the client that a route of brisk can require.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// Users of a list, or of one of its groups.
    User { list: String, groups: Vec<String> },
    /// A client certificate, with one of the names if there are some.
    Certificate { names: Vec<String> },
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Formula {
    True,
    False,
    Test(Arc<Test>),
    Host(Arc<Names>),
    /// The connection has TLS.
    Secure,
    /// Port of the listener.
    Port(Vec<(u64, u64)>),
    Rate(Arc<Rate>),
    Need(Need),
    /// The body is longer.
    Longer(u64),
    /// A client has more connections, or opens more of them in a period of milliseconds.
    Connections(u64, Option<u64>),
    Unknown(Kind, String),
    Not(Box<Formula>),
    All(Vec<Formula>),
    Any(Vec<Formula>),
}

/// Tests whose results are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    met: Vec<Arc<Test>>,
    /// Tests that do not hold together.
    unmet: Vec<Vec<Arc<Test>>>,
    /// Tests that cannot be joined with those that hold.
    lost: Vec<Arc<Test>>,
}

impl Known {
    /// Number of the facts.
    pub(crate) fn size(&self) -> usize {
        self.met.len() + self.unmet.len() + self.lost.len()
    }

    /// The facts if the tests hold too.
    pub(crate) fn with(&self, tests: &[Arc<Test>]) -> Self {
        let mut known = self.clone();
        known.met.extend(tests.iter().cloned());
        known.unmet.iter_mut().for_each(|unmet| unmet.retain(|test| !tests.contains(test)));
        known
    }

    /// Notes that the tests do not hold together.
    pub(crate) fn exclude(&mut self, tests: Vec<Arc<Test>>) {
        self.unmet.push(tests);
    }

    /// Notes that a test has no counterpart here.
    pub(crate) fn lose(&mut self, test: Arc<Test>) {
        self.lost.push(test);
    }

    fn of(&self, test: &Arc<Test>) -> Option<Option<bool>> {
        if self.met.contains(test) {
            return Some(Some(true));
        }
        if self.unmet.iter().any(|unmet| unmet.as_slice() == std::slice::from_ref(test)) {
            return Some(Some(false));
        }
        self.lost.contains(test).then_some(None)
    }

    /// Whether tests among these do not hold together.
    fn excludes(&self, parts: &[Formula]) -> bool {
        let has = |test: &Arc<Test>| parts.iter().any(|part| matches!(part, Formula::Test(own) if own == test));
        self.unmet.iter().any(|unmet| unmet.len() > 1 && unmet.iter().all(has))
    }
}

/// The facts at a place of the translation.
#[derive(Debug)]
pub(crate) struct Facts<'f> {
    pub(crate) host: &'f HostName,
    pub(crate) secure: bool,
    pub(crate) ports: &'f [u16],
    pub(crate) known: &'f Known,
    /// Whether a rule has replaced the path before.
    pub(crate) is_moved: bool,
}

impl Formula {
    /// The opposite.
    pub(crate) fn not(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            Self::Not(inner) => *inner,
            own => Self::Not(Box::new(own)),
        }
    }

    /// All of the conditions.
    pub(crate) fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        Self::joined(parts, Self::False, Self::True, Self::All)
    }

    /// One of the conditions.
    pub(crate) fn any(parts: impl IntoIterator<Item = Self>) -> Self {
        Self::joined(parts, Self::True, Self::False, Self::Any)
    }

    /// The formula with lists of paths, and of networks, in one test where one of them has to hold.
    pub(crate) fn merged(self) -> Self {
        let Self::Any(parts) = self else { return self };
        let (mut paths, mut networks, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            match part {
                Self::Test(test) => match &*test {
                    Test::Path(patterns) => paths.extend(patterns.iter().cloned()),
                    Test::Networks(own) => networks.extend(own.iter().copied()),
                    _ => others.push(Self::Test(test)),
                },
                part => others.push(part),
            }
        }
        let paths = path_test::divided(paths).into_iter().map(Test::Path);
        let networks = (!networks.is_empty()).then_some(Test::Networks(networks));
        let tests = paths.chain(networks).map(|test| Self::Test(Arc::new(test)));
        Self::any(tests.chain(others).collect::<Vec<_>>())
    }

    fn joined(
        parts: impl IntoIterator<Item = Self>,
        decisive: Self,
        neutral: Self,
        join: impl Fn(Vec<Self>) -> Self,
    ) -> Self {
        let mut left: Vec<Self> = Vec::new();
        for part in parts {
            if part == decisive {
                return decisive;
            }
            if part != neutral && left.last() != Some(&part) {
                left.push(part);
            }
        }
        match left.len() {
            0 => neutral,
            1 => left.remove(0),
            _ => join(left),
        }
    }

    /// The formula with the values of all known tests.
    pub(crate) fn at(&self, facts: &Facts<'_>) -> Self {
        match self {
            Self::Test(test) => match facts.known.of(test) {
                Some(Some(true)) => Self::True,
                Some(Some(false)) => Self::False,
                Some(None) => Self::unknown("two conditions concern the same part of the request"),
                None if facts.is_moved && matches!(**test, Test::Path(_)) => {
                    Self::unknown("a rule has changed the path before")
                }
                None => self.clone(),
            },
            Self::Host(names) => match names.accept(facts.host) {
                Some(true) => Self::True,
                Some(false) => Self::False,
                None if names.is_listed() => {
                    Self::Unknown(Kind::Label, "a wildcard of brisk stands for one label".to_owned())
                }
                None => Self::Unknown(Kind::Host, "names of hosts in brisk are exact or begin with *.".to_owned()),
            },
            Self::Secure if facts.secure => Self::True,
            Self::Secure => Self::False,
            Self::Port(ranges) => {
                let is_in = |port: &u16| ranges.iter().any(|(low, high)| (*low..=*high).contains(&u64::from(*port)));
                match facts.ports.iter().filter(|port| is_in(port)).count() {
                    0 => Self::False,
                    count if count == facts.ports.len() => Self::True,
                    _ => Self::unknown("the listener has several ports"),
                }
            }
            Self::Not(inner) => inner.at(facts).not(),
            Self::All(parts) => match Self::all(parts.iter().map(|part| part.at(facts))) {
                Self::All(parts) if facts.known.excludes(&parts) => Self::False,
                own => own,
            },
            Self::Any(parts) => Self::any(parts.iter().map(|part| part.at(facts))),
            own => own.clone(),
        }
    }

    /// A condition that concerns the request and has no counterpart.
    pub(crate) fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown(Kind::Request, reason.into())
    }

    /// Number of the parts.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Not(inner) => 1 + inner.size(),
            Self::All(parts) | Self::Any(parts) => 1 + parts.iter().map(Self::size).sum::<usize>(),
            Self::Host(names) => names.size(),
            _ => 1,
        }
    }

    /// Tests that decide about it together: of a conjunction, all that have to hold.
    pub(crate) fn first(&self) -> Option<Vec<Arc<Test>>> {
        match self {
            Self::Test(test) => Some(vec![Arc::clone(test)]),
            Self::Not(inner) => inner.first(),
            Self::All(parts) => {
                let tests = parts.iter().filter_map(|part| match part {
                    Self::Test(test) => Some(Arc::clone(test)),
                    _ => None,
                });
                let tests: Vec<_> = tests.collect();
                if tests.is_empty() { parts.iter().find_map(Self::first) } else { Some(tests) }
            }
            Self::Any(parts) => parts.iter().find_map(Self::first),
            _ => None,
        }
    }

    /// Adds the leaves, for example names of hosts.
    pub(crate) fn each(&self, visit: &mut dyn FnMut(&Self)) {
        visit(self);
        match self {
            Self::Not(inner) => inner.each(visit),
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.each(visit)),
            _ => {}
        }
    }

    /// The nature and the reason of the weightiest part without a counterpart.
    pub(crate) fn obstacle(&self) -> (Kind, String) {
        let mut found = (Kind::Load, "the condition has no counterpart".to_owned());
        self.each(&mut |part| {
            let own = match part {
                Self::Unknown(kind, reason) => (*kind, reason.clone()),
                Self::Need(_) => (Kind::Request, "brisk can only require users and certificates".to_owned()),
                Self::Longer(_) => (Kind::Request, "brisk limits the size of bodies for whole routes".to_owned()),
                Self::Connections(..) => (Kind::State, "brisk limits connections for all clients alike".to_owned()),
                Self::Rate(_) => (Kind::State, "brisk can only refuse requests because of a rate".to_owned()),
                _ => return,
            };
            if own.0 >= found.0 {
                found = own;
            }
        });
        found
    }
}

/// Conditions of a route that all have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct When(Vec<Test>);

impl When {
    /// The condition with one test more. None if no request can meet both, an error without a counterpart.
    pub(crate) fn and(&self, test: &Test) -> Result<Option<Self>, ()> {
        let mut all = self.clone();
        for own in &mut all.0 {
            let joined = match (&*own, test) {
                (Test::Methods(first), Test::Methods(second)) => {
                    let both: BTreeSet<_> = first.intersection(second).cloned().collect();
                    (!both.is_empty()).then_some(Test::Methods(both))
                }
                (Test::Networks(first), Test::Networks(second)) => {
                    if first.len() * second.len() > 10_000 {
                        return Err(());
                    }
                    let pairs = first.iter().flat_map(|one| second.iter().filter_map(|other| one.and(*other)));
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
            return Ok(Some(all));
        }
        all.0.push(test.clone());
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

    /// The test of the path.
    pub(crate) fn path(&self) -> Option<&[Pattern]> {
        self.0.iter().find_map(|test| match test {
            Test::Path(patterns) => Some(patterns.as_slice()),
            _ => None,
        })
    }

    /// The inline table.
    pub(crate) fn toml(&self) -> String {
        let mut keys = Keys::default();
        let mut named = [(Part::Header, "headers"), (Part::Query, "query"), (Part::Cookie, "cookies")]
            .map(|(part, key)| (part, key, Keys::default()));
        for test in &self.0 {
            match test {
                Test::Methods(methods) => keys.set("methods", toml::list(methods)),
                Test::Networks(networks) => keys.set("networks", toml::list(networks.iter().map(|own| own.text()))),
                Test::Path(patterns) => keys.set("path_regex", toml::raw(&path_test::any(patterns))),
                Test::Named(part, name, value) => {
                    let own = named.iter_mut().find(|(own, _, _)| own == part);
                    own.into_iter().for_each(|(_, _, keys)| keys.0.push((name.clone(), value.toml())));
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
        let networks = |texts: &[&str]| Test::Networks(texts.iter().filter_map(|text| Network::read(text)).collect());
        let when = When::default().and(&networks(&["10.0.0.0/8"])).expect("one").expect("some");
        let inner = when.and(&networks(&["10.1.0.0/16", "192.168.0.0/16"])).expect("both").expect("some");
        assert_eq!(inner.toml(), "{ networks = [\"10.1.0.0/16\"] }");
        assert_eq!(when.and(&networks(&["192.168.0.0/16"])), Ok(None));
        let header = |value: &str| Test::Named(Part::Header, "x".to_owned(), Value::Equal(value.to_owned()));
        let when = when.and(&header("1")).expect("another part").expect("some");
        assert!(when.and(&header("2")).is_err());
    }
}
