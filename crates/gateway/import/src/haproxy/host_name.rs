//! Names of hosts: tests of them, and the hosts for which the translation knows their results.

use std::collections::BTreeSet;

use crate::haproxy::path_test::{Match, Pattern};

/// Names of a host in brisk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostName {
    Exact(String),
    /// All names with one label more: `*.example.com` for `example.com`.
    Below(String),
    /// All names without a host of their own.
    Other,
}

impl HostName {
    /// The name as brisk writes it; `None` for `Other`.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Exact(name) => Some(name.clone()),
            Self::Below(parent) => Some(format!("*.{parent}")),
            Self::Other => None,
        }
    }
}

/// A test of the name: `hdr(host)`, `hdr_end(host)` and others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Names {
    exact: BTreeSet<String>,
    patterns: Vec<Pattern>,
}

impl Names {
    /// Reads the patterns, which concern names in any case, perhaps with a port: `a.example` for `A.example:443`.
    pub(crate) fn new(patterns: impl IntoIterator<Item = Pattern>) -> Self {
        let mut names = Self::default();
        for pattern in patterns {
            if pattern.kind == Match::Expression {
                names.patterns.push(Pattern { ignore_case: true, ..pattern });
                continue;
            }
            let mut text = pattern.text.to_ascii_lowercase();
            // Hosts of brisk have no port, so a test of one is a test of the name.
            if let Some((host, port)) = text.rsplit_once(':')
                && matches!(pattern.kind, Match::Exact | Match::End)
                && port.bytes().all(|byte| byte.is_ascii_digit())
            {
                text = String::from(host);
            }
            if pattern.kind == Match::Exact {
                names.exact.insert(text);
            } else {
                names.patterns.push(Pattern { kind: pattern.kind, text, ignore_case: false });
            }
        }
        names
    }

    /// Number of comparisons of a test.
    pub(crate) fn size(&self) -> usize {
        1 + self.patterns.len()
    }

    /// Whether all `patterns` are ends such as `.example.com`, so that names with one label more have a host.
    pub(crate) fn is_listed(&self) -> bool {
        let is_listed = |pattern: &Pattern| {
            let parent = pattern.text.trim_start_matches('.');
            pattern.kind == Match::End
                && pattern.text.starts_with('.')
                && is_name(parent)
                && parent.contains('.')
        };
        self.patterns.iter().all(is_listed) && !self.has_others()
    }

    /// Whether the test accepts texts that are no names of hosts in brisk, such as addresses in brackets.
    fn has_others(&self) -> bool {
        self.exact.iter().any(|name| !is_name(name))
    }

    /// Adds the hosts that the test needs to `all`: `HostName::Below` for `hdr_end(host) .example.com`.
    pub(crate) fn gather(&self, all: &mut BTreeSet<HostName>) {
        all.extend(self.exact.iter().filter(|name| is_name(name)).cloned().map(HostName::Exact));
        for pattern in &self.patterns {
            let parent = pattern.text.trim_start_matches('.');
            if !is_name(parent) || !parent.contains('.') {
                continue;
            }
            if matches!(pattern.kind, Match::End | Match::Domain) {
                all.insert(HostName::Below(parent.to_owned()));
                if pattern.kind == Match::Domain || !pattern.text.starts_with('.') {
                    all.insert(HostName::Exact(parent.to_owned()));
                }
            }
        }
        // `^(www\.)?example\.com$` lists names too.
        for pattern in self.patterns.iter().filter(|pattern| pattern.kind == Match::Expression) {
            all.extend(listed(&pattern.text).into_iter().map(HostName::Exact));
        }
    }

    /// Whether the test accepts a host; `None` if it accepts some of its names only.
    pub(crate) fn accept(&self, host: &HostName) -> Option<bool> {
        match host {
            HostName::Exact(name) => {
                Some(self.exact.contains(name) || self.patterns.iter().any(|pattern| accepts(pattern, name)))
            }
            HostName::Below(parent) => {
                let mut result = (!self.has_others()).then_some(false);
                for pattern in &self.patterns {
                    match accepts_below(pattern, parent) {
                        Some(true) => return Some(true),
                        Some(false) => {}
                        None => result = None,
                    }
                }
                result
            }
            HostName::Other => {
                let is_every =
                    |pattern: &Pattern| pattern.text.is_empty() && pattern.kind != Match::Expression;
                if self.patterns.iter().any(is_every) {
                    return Some(true);
                }
                (self.patterns.is_empty() && !self.has_others()).then_some(false)
            }
        }
    }
}

fn accepts(pattern: &Pattern, name: &str) -> bool {
    if pattern.kind == Match::Domain {
        let text = pattern.text.trim_matches('.');
        return format!(".{name}.").contains(&format!(".{text}."));
    }
    pattern.accepts(name)
}

/// Whether a pattern accepts all names that have one label more than `parent`; `None` if it may accept some.
fn accepts_below(pattern: &Pattern, parent: &str) -> Option<bool> {
    let behind = format!(".{parent}");
    match pattern.kind {
        Match::End if behind.ends_with(&pattern.text) => Some(true),
        // Names with two labels more do not belong to the host.
        Match::End if pattern.text.ends_with(&behind) && !pattern.text.starts_with('.') => None,
        Match::End => Some(false),
        Match::Domain if format!("{behind}.").contains(&format!(".{}.", pattern.text.trim_matches('.'))) => {
            Some(true)
        }
        Match::Part if behind.contains(&pattern.text) => Some(true),
        _ => None,
    }
}

/// Names that an expression lists: `www.a.example` and `a.example` for `^(www\.)?a\.example$`, and alternatives such as `(a|b)`.
fn listed(expression: &str) -> Vec<String> {
    let Some(text) = expression.strip_prefix('^').and_then(|text| text.strip_suffix('$')) else {
        return Vec::new();
    };
    let text = text.replace("(?:", "(").replace("\\.", ".");
    let (starts, rest) = match text.strip_prefix('(').and_then(|text| text.split_once(')')) {
        Some((inner, rest)) => {
            let (optional, rest) = rest.strip_prefix('?').map_or((None, rest), |rest| (Some(""), rest));
            (inner.split('|').chain(optional).map(str::to_owned).collect(), rest.to_owned())
        }
        None => (vec![String::new()], text),
    };
    let names = starts.into_iter().map(|start| format!("{start}{rest}").to_ascii_lowercase());
    names.filter(|name| is_name(name)).collect()
}

/// Whether brisk accepts the name of a host.
pub(crate) fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(kind: Match, text: &str) -> Names {
        Names::new([Pattern { kind, text: text.to_owned(), ignore_case: true }])
    }

    #[test]
    fn tests_are_decided_for_known_hosts_only() {
        let exact = |name: &str| HostName::Exact(name.to_owned());
        let below = |name: &str| HostName::Below(name.to_owned());
        for (test, host, expected) in [
            (names(Match::Exact, "A.example:443"), exact("a.example"), Some(true)),
            (names(Match::Exact, "a.example"), HostName::Other, Some(false)),
            (names(Match::Begin, "www."), exact("www.example"), Some(true)),
            (names(Match::Begin, "www."), HostName::Other, None),
            (names(Match::Begin, "www."), below("example.com"), None),
            (names(Match::End, ".example.com"), below("example.com"), Some(true)),
            (names(Match::End, ".example.com"), exact("example.com"), Some(false)),
            (names(Match::End, ".example.com"), HostName::Other, None),
            (names(Match::Domain, "example.com"), exact("a.example.com.au"), Some(true)),
            (names(Match::Domain, "example.com"), exact("an-example.com"), Some(false)),
            (names(Match::Expression, "^(www\\.)?a\\.example$"), exact("www.a.example"), Some(true)),
        ] {
            assert_eq!(test.accept(&host), expected, "{test:?} {host:?}");
        }
    }

    #[test]
    fn tests_list_the_hosts_that_they_need() {
        let mut all = BTreeSet::new();
        names(Match::End, "example.com").gather(&mut all);
        names(Match::Expression, "^(www\\.)?a\\.example$").gather(&mut all);
        let all: Vec<_> = all.iter().filter_map(HostName::text).collect();
        assert_eq!(all, ["a.example", "example.com", "www.a.example", "*.example.com"]);
    }
}
