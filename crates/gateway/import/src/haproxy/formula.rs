//! Conditions as a `Formula` of `Test`s, and its value at a place of the translation: `Formula::at`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::haproxy::host_name::{HostName, Names};
use crate::haproxy::path_test;
use crate::haproxy::when::{Part, Test};

/// Nature of a `Formula::Unknown`, which decides whether a route refuses requests because of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The load of servers or of the process, or chance: `nbsrv` and `rand`.
    Load,
    /// Counters of the requests of clients: `sc_http_err_rate`.
    State,
    /// Names with more labels than a wildcard of brisk, `*.example.com`, has.
    Label,
    /// Names of hosts that the configuration does not list, as for `hdr_beg(host) www.`.
    Host,
    /// Any other property of a request.
    Request,
}

/// A rate of `requests` in a `period` for each value of the key `by`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rate {
    pub(crate) requests: u64,
    /// In milliseconds.
    pub(crate) period: u64,
    /// Key with variables of brisk, such as `{client.address}`.
    pub(crate) by: String,
    /// Name of the `stick-table` in HAProxy.
    pub(crate) table: String,
}

/// A property of the client that a route of brisk can require.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// Users of a `userlist`, or of one of its groups: `http_auth` and `http_auth_group`.
    User { list: String, groups: Vec<String> },
    /// A client certificate, with one of the names if there are some: `ssl_c_used` and `ssl_c_s_dn(cn)`.
    Certificate { names: Vec<String> },
}

/// A condition: `{ ssl_fc } { path /a }` is `All` of `Secure` and a `Test`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Formula {
    True,
    False,
    Test(Arc<Test>),
    Host(Arc<Names>),
    /// The connection has TLS: `ssl_fc`.
    Secure,
    /// Port of the listener: ranges of `dst_port`.
    Port(Vec<(u64, u64)>),
    Rate(Arc<Rate>),
    Need(Need),
    /// The body is longer: `body_size gt`.
    Longer(u64),
    /// A client has more connections, or opens more of them in a period of milliseconds.
    Connections(u64, Option<u64>),
    Unknown(Kind, String),
    Not(Box<Formula>),
    All(Vec<Formula>),
    Any(Vec<Formula>),
}

/// Tests whose results are known at a place of the rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    met: Vec<Arc<Test>>,
    /// Tests that do not hold together.
    unmet: Vec<Vec<Arc<Test>>>,
    /// Tests that cannot be joined with the ones that hold.
    lost: Vec<Arc<Test>>,
}

impl Known {
    /// Number of the facts.
    pub(crate) fn size(&self) -> usize {
        self.met.len() + self.unmet.len() + self.lost.len()
    }

    /// The facts if `tests` hold too.
    pub(crate) fn with(&self, tests: &[Arc<Test>]) -> Self {
        let mut known = self.clone();
        known.met.extend(tests.iter().cloned());
        // Of tests that do not hold together, a test that holds leaves the others: one of them does not.
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

    /// The value of a test; `None` if it is not known.
    fn of(&self, test: &Arc<Test>) -> Option<Formula> {
        if self.met.contains(test) {
            return Some(Formula::True);
        }
        if self.unmet.iter().any(|unmet| unmet.as_slice() == std::slice::from_ref(test)) {
            return Some(Formula::False);
        }
        let reason = "two conditions concern the same part of the request";
        self.lost.contains(test).then(|| Formula::unknown(reason))
    }

    /// Whether tests among these do not hold together.
    fn excludes(&self, parts: &[Formula]) -> bool {
        let has =
            |test: &Arc<Test>| parts.iter().any(|part| matches!(part, Formula::Test(own) if own == test));
        self.unmet.iter().any(|unmet| unmet.len() > 1 && unmet.iter().all(has))
    }
}

/// The facts at a place of the translation, for `Formula::at`.
#[derive(Debug)]
pub(crate) struct Facts<'f> {
    pub(crate) host: &'f HostName,
    pub(crate) secure: bool,
    pub(crate) ports: &'f [u16],
    pub(crate) known: &'f Known,
    /// Whether a rule such as `set-path` has replaced the path before.
    pub(crate) is_moved: bool,
    /// Headers of the request that rules have changed before, in lower case.
    pub(crate) changed: &'f BTreeSet<String>,
}

impl Facts<'_> {
    /// Whether a rule has changed the part of the request before, so that a test of brisk would use the value of the client.
    fn is_changed(&self, test: &Test) -> bool {
        match test {
            Test::Path(_) => self.is_moved,
            Test::Named(Part::Header, name, _) => self.changed.contains(&name.to_ascii_lowercase()),
            Test::Named(Part::Cookie, ..) => self.changed.contains("cookie"),
            _ => false,
        }
    }
}

impl Formula {
    /// The opposite, without a `Not` in a `Not`.
    pub(crate) fn not(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            Self::Not(inner) => *inner,
            own => Self::Not(Box::new(own)),
        }
    }

    /// All of the conditions; `True` if there are none.
    pub(crate) fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        Self::joined(parts, Self::False, Self::True, Self::All)
    }

    /// One of the conditions; `False` if there are none.
    pub(crate) fn any(parts: impl IntoIterator<Item = Self>) -> Self {
        Self::joined(parts, Self::True, Self::False, Self::Any)
    }

    /// The formula with the `Test::Path` and `Test::Networks` parts of an `Any` together, in tests with several patterns.
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

    /// The formula with the values of all tests that `facts` decide.
    pub(crate) fn at(&self, facts: &Facts<'_>) -> Self {
        match self {
            // An earlier result concerns the value before the change.
            Self::Test(test) if facts.is_changed(test) => {
                Self::unknown("a rule has changed this part of the request before")
            }
            Self::Test(test) => facts.known.of(test).unwrap_or_else(|| self.clone()),
            Self::Host(_) if facts.changed.contains("host") => {
                Self::unknown("a rule has changed the host before")
            }
            Self::Host(names) => match names.accept(facts.host) {
                Some(true) => Self::True,
                Some(false) => Self::False,
                None if names.is_listed() => {
                    Self::Unknown(Kind::Label, "a wildcard of brisk is one label".to_owned())
                }
                None => {
                    Self::Unknown(Kind::Host, "names of hosts in brisk are exact or begin with *.".to_owned())
                }
            },
            Self::Secure if facts.secure => Self::True,
            Self::Secure => Self::False,
            Self::Port(ranges) => {
                let is_in =
                    |port: &u16| ranges.iter().any(|(low, high)| (*low..=*high).contains(&u64::from(*port)));
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

    /// A condition that concerns the request and has no counterpart: `Unknown` of `Kind::Request`.
    pub(crate) fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown(Kind::Request, reason.into())
    }

    /// Number of the parts, and of the patterns of `Host`.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Not(inner) => 1 + inner.size(),
            Self::All(parts) | Self::Any(parts) => 1 + parts.iter().map(Self::size).sum::<usize>(),
            Self::Host(names) => names.size(),
            _ => 1,
        }
    }

    /// Tests that decide about it together: of `All`, the ones that have to hold.
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

    /// Calls `visit` for the formula and each of its parts.
    pub(crate) fn each(&self, visit: &mut dyn FnMut(&Self)) {
        visit(self);
        match self {
            Self::Not(inner) => inner.each(visit),
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.each(visit)),
            _ => {}
        }
    }

    /// The `Kind` and the reason of the weightiest part without a counterpart.
    pub(crate) fn obstacle(&self) -> (Kind, String) {
        let mut found = (Kind::Load, "the condition has no counterpart".to_owned());
        self.each(&mut |part| {
            let own = match part {
                Self::Unknown(kind, reason) => (*kind, reason.clone()),
                Self::Need(_) => (Kind::Request, "brisk can only require users and certificates".to_owned()),
                Self::Longer(_) => {
                    (Kind::Request, "brisk limits the size of bodies for whole routes".to_owned())
                }
                Self::Connections(..) => {
                    (Kind::State, "brisk limits connections for all clients alike".to_owned())
                }
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
