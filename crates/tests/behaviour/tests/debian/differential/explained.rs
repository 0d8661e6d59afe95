//! Explanations of differences, and the report of those without one.

pub(super) mod files;
pub(super) mod framing;
pub(super) mod headers;
pub(super) mod requests;
pub(super) mod responses;

use std::collections::BTreeMap;

use super::outcome::Difference;
use super::servers::Server;

const ALL: &[Server] = &[Server::Nginx, Server::Haproxy, Server::Envoy];
const NGINX: &[Server] = &[Server::Nginx];
const HAPROXY: &[Server] = &[Server::Haproxy];
const ENVOY: &[Server] = &[Server::Envoy];
const NGINX_ENVOY: &[Server] = &[Server::Nginx, Server::Envoy];
const NGINX_HAPROXY: &[Server] = &[Server::Nginx, Server::Haproxy];
const HAPROXY_ENVOY: &[Server] = &[Server::Haproxy, Server::Envoy];

/// Explanation of a group of differences.
#[derive(Debug)]
pub(super) struct Explanation {
    pub(super) name: &'static str,
    /// Reason in one sentence.
    pub(super) reason: &'static str,
    /// Servers that brisk differs from. [`Server::Brisk`]: over HTTP/3 from itself over HTTP/2.
    pub(super) servers: &'static [Server],
    /// Patterns of the aspect, with `|` between them; `*` at an end of a pattern stands for any text.
    pub(super) aspect: &'static str,
    /// Patterns of features of which the request has one; empty for any request.
    pub(super) features: &'static [&'static str],
    /// Patterns of brisk's value and of the other server's value.
    pub(super) values: (&'static str, &'static str),
}

const fn entry(
    name: &'static str,
    reason: &'static str,
    servers: &'static [Server],
    aspect: &'static str,
    features: &'static [&'static str],
    values: (&'static str, &'static str),
) -> Explanation {
    Explanation { name, reason, servers, aspect, features, values }
}

impl Explanation {
    pub(super) fn applies(&self, difference: &Difference<'_>) -> bool {
        let has = |feature: &&str| difference.request.features.iter().any(|own| matches(feature, own));
        self.servers.contains(&difference.server)
            && matches(self.aspect, &difference.aspect)
            && matches(self.values.0, &difference.ours)
            && matches(self.values.1, &difference.theirs)
            && (self.features.is_empty() || self.features.iter().any(has))
    }

    /// Whether only a comparison with Envoy can have such a difference.
    fn needs_envoy(&self) -> bool {
        self.servers == [Server::Envoy]
    }
}

/// Whether one of the patterns between `|` matches the text.
fn matches(patterns: &str, text: &str) -> bool {
    patterns.split('|').any(|pattern| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (_, Some(start)) => text.starts_with(start),
        (Some(end), None) => text.ends_with(end),
        (None, None) => pattern == text,
    })
}

/// Fails the test for differences without an explanation, and for explanations without a difference.
pub(super) fn assert_explained(differences: &[Difference<'_>], lists: &[&[Explanation]], has_envoy: bool) {
    let all: Vec<_> = lists.iter().copied().flatten().collect();
    let mut counts = vec![0_usize; all.len()];
    let mut unexplained: BTreeMap<_, Vec<&Difference<'_>>> = BTreeMap::new();
    for difference in differences {
        let mut is_explained = false;
        for (explanation, count) in all.iter().zip(&mut counts) {
            if explanation.applies(difference) {
                is_explained = true;
                *count += 1;
            }
        }
        if !is_explained {
            let Difference { server, aspect, ours, theirs, .. } = difference;
            unexplained.entry((aspect, ours, theirs, server)).or_default().push(difference);
        }
    }
    for (explanation, count) in all.iter().zip(&counts) {
        println!("{count:6} {:?} {}: {}", explanation.servers, explanation.name, explanation.reason);
    }
    let unused =
        all.iter().zip(&counts).filter(|(own, count)| **count == 0 && (has_envoy || !own.needs_envoy()));
    let unused: Vec<_> = unused.map(|(own, _)| own.name).collect();
    let groups: Vec<_> = unexplained.values().map(|group| described(group)).collect();
    assert!(
        groups.is_empty(),
        "{} groups of differences without explanation:\n{}",
        groups.len(),
        groups.concat()
    );
    assert!(unused.is_empty(), "explanations without a difference: {unused:?}");
}

/// Description of a group: its number, the features that all its requests have, and the first request with both outcomes.
fn described(group: &[&Difference<'_>]) -> String {
    let first = group[0];
    let is_common = |feature: &&&str| group.iter().all(|other| other.request.has(feature));
    let common: Vec<_> = first.request.features.iter().filter(is_common).collect();
    let mut all: Vec<_> = group.iter().flat_map(|one| &one.request.features).copied().collect();
    all.sort_unstable();
    all.dedup();
    let mut protocols: Vec<_> = group.iter().map(|one| one.protocol).collect();
    protocols.sort();
    protocols.dedup();
    let Difference { server, aspect, ours, theirs, request, outcomes: [one, other], .. } = first;
    format!(
        "\n{} of {server:?} over {protocols:?}: {aspect}: {} or {}\n  common {common:?}; features {all:?}\n  \
         request {} {:?}: {} {} {:?}\n  brisk {}\n  other {}\n",
        group.len(),
        short(ours),
        short(theirs),
        request.number,
        request.features,
        request.method,
        short(&request.target),
        request.content,
        short(&format!("{one:?}")),
        short(&format!("{other:?}")),
    )
}

/// A text without the middle of long runs.
fn short(text: &str) -> String {
    if text.len() <= 700 {
        return format!("{text:?}");
    }
    let (start, end): (String, Vec<char>) =
        (text.chars().take(500).collect(), text.chars().rev().take(150).collect());
    format!("{start:?}...{:?}", end.into_iter().rev().collect::<String>())
}
