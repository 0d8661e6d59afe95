//! Explanations of differences, and the report of those without one.

pub(super) mod files;
pub(super) mod framing;
pub(super) mod headers;
pub(super) mod refusals;
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

/// Explanation of a group of differences. Patterns have `|` between alternatives; `*` at an end stands for any text.
#[derive(Debug)]
pub(super) struct Explanation {
    pub(super) name: &'static str,
    /// Reason in one sentence.
    pub(super) reason: &'static str,
    /// Servers that brisk differs from.
    pub(super) servers: &'static [Server],
    /// Patterns of the aspect.
    pub(super) aspect: &'static str,
    /// Conditions of which the request fulfils one; empty for any request. The parts of a condition have `+` between them: the
    /// pattern of a feature or of the protocol's name (`http1`), or after `!` of one that is absent.
    pub(super) features: &'static [&'static str],
    /// Patterns of brisk's value and of the other server's value, which match in pairs.
    pub(super) values: &'static [(&'static str, &'static str)],
}

const fn entry(
    name: &'static str,
    reason: &'static str,
    servers: &'static [Server],
    aspect: &'static str,
    features: &'static [&'static str],
    values: &'static [(&'static str, &'static str)],
) -> Explanation {
    Explanation { name, reason, servers, aspect, features, values }
}

/// Differences that an explanation applies to, counted for each of its servers, conditions and pairs of values.
struct Uses {
    explanation: &'static Explanation,
    servers: Vec<usize>,
    features: Vec<usize>,
    values: Vec<usize>,
}

impl Uses {
    fn none(explanation: &'static Explanation) -> Self {
        let Explanation { servers, features, values, .. } = explanation;
        Self {
            explanation,
            servers: vec![0; servers.len()],
            features: vec![0; features.len()],
            values: vec![0; values.len()],
        }
    }

    /// Counts a difference if the explanation applies to it; returns whether it does.
    fn count(&mut self, difference: &Difference<'_>) -> bool {
        let Explanation { servers, aspect, features, values, .. } = self.explanation;
        let server = servers.iter().position(|server| *server == difference.server);
        let Some(server) = server.filter(|_| matches(aspect, &difference.aspect)) else { return false };
        let features: Vec<_> = features.iter().map(|condition| fulfils(difference, condition)).collect();
        let fits =
            |pair: &(&str, &str)| matches(pair.0, &difference.ours) && matches(pair.1, &difference.theirs);
        let values: Vec<_> = values.iter().map(fits).collect();
        if !(features.is_empty() || features.contains(&true)) || !values.contains(&true) {
            return false;
        }
        self.servers[server] += 1;
        for (counts, applied) in [(&mut self.features, features), (&mut self.values, values)] {
            counts.iter_mut().zip(applied).for_each(|(count, applies)| *count += usize::from(applies));
        }
        true
    }

    /// Servers, conditions and values without a difference. Without Envoy, the uses of entries that name it are not known.
    fn unused(&self, has_envoy: bool) -> Vec<String> {
        let Explanation { name, servers, features, values, .. } = self.explanation;
        let is_known = has_envoy || !servers.contains(&Server::Envoy);
        let of_servers = servers.iter().zip(&self.servers);
        let of_servers = of_servers.filter(|(server, _)| has_envoy || **server != Server::Envoy);
        let of_features = features.iter().zip(&self.features).filter(|_| is_known);
        let of_values = values.iter().zip(&self.values).filter(|_| is_known);
        let all = (of_servers.map(|(server, count)| (format!("{server:?}"), count)))
            .chain(of_features.map(|(condition, count)| ((*condition).to_owned(), count)))
            .chain(of_values.map(|(pair, count)| (format!("{pair:?}"), count)));
        all.filter(|(_, count)| **count == 0).map(|(part, _)| format!("{name}: {part}")).collect()
    }
}

/// Whether all parts of a condition hold for the request and its protocol.
fn fulfils(difference: &Difference<'_>, condition: &str) -> bool {
    let protocol = format!("{:?}", difference.protocol).to_lowercase();
    let has = |pattern: &str| {
        matches(pattern, &protocol) || difference.request.features.iter().any(|own| matches(pattern, own))
    };
    condition.split('+').all(|part| part.strip_prefix('!').map_or_else(|| has(part), |absent| !has(absent)))
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
pub(super) fn assert_explained(
    differences: &[Difference<'_>],
    lists: &[&'static [Explanation]],
    has_envoy: bool,
) {
    let mut all: Vec<_> = lists.iter().copied().flatten().map(Uses::none).collect();
    let mut unexplained: BTreeMap<_, Vec<&Difference<'_>>> = BTreeMap::new();
    for difference in differences {
        // Each explanation counts the difference.
        if all.iter_mut().filter_map(|uses| uses.count(difference).then_some(())).count() == 0 {
            let Difference { server, aspect, ours, theirs, .. } = difference;
            unexplained.entry((aspect, ours, theirs, server)).or_default().push(difference);
        }
    }
    for Uses { explanation, servers, .. } in &all {
        let count: usize = servers.iter().sum();
        println!("{count:6} {:?} {}: {}", explanation.servers, explanation.name, explanation.reason);
    }
    let groups: Vec<_> = unexplained.values().map(|group| described(group)).collect();
    assert!(
        groups.is_empty(),
        "{} groups of differences without explanation:\n{}",
        groups.len(),
        groups.concat()
    );
    let unused: Vec<_> = all.iter().flat_map(|uses| uses.unused(has_envoy)).collect();
    assert!(unused.is_empty(), "explanations without a difference: {unused:#?}");
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
