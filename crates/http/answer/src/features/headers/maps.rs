//! `[map.NAME]`: tables that header rules, redirects and bodies refer to.

use std::collections::BTreeMap;
use std::sync::Arc;

use brisk_config_file::{KeyPath, Network};
use brisk_net::Networks;
use brisk_rules::{GroupPattern, Map, MapPattern, Maps, Outcome, Template, Variable};

use super::map_keys;
use crate::features::{Context, conditions};

/// Maximum number of tables that refer to each other, one after another.
const DEEPEST: usize = 8;

/// Maximum number of look-ups for one look-up in a table. Results with several tables multiply at each of [`DEEPEST`] levels.
const MOST_LOOKUPS: usize = 1000;

/// All tables. Those that a table refers to come before it.
pub fn maps(written: &BTreeMap<String, map_keys::Map>, context: &mut Context<'_>) -> Maps {
    let mut maps = Maps::new();
    let mut costs = BTreeMap::new();
    let mut left: Vec<_> = written.iter().collect();
    for _ in 0..DEEPEST {
        let is_ready = |(_, map): &(&String, &map_keys::Map)| {
            // One that no table has is an error of the text.
            let mut names = texts(map).flat_map(|text| references(text));
            names.all(|name| maps.contains_key(name) || !written.contains_key(name))
        };
        let (ready, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_ready);
        for (name, map) in ready {
            let path = KeyPath::of("map").key(name);
            let mut table = table(map, &path, &maps, context);
            let cost = cost(map, &costs);
            if cost > MOST_LOOKUPS {
                let message = format!("needs more than {MOST_LOOKUPS} look-ups in other tables");
                context.findings.wrong(&path, message);
                // The search through templates takes as many steps as the look-ups.
                table = Map::default();
            }
            costs.insert(name.as_str(), cost);
            maps.insert(name.clone(), Arc::new(table));
        }
        left = others;
    }
    for (name, _) in left {
        let message = format!("refers to itself by other tables, or to more than {DEEPEST} of them");
        context.findings.wrong(&KeyPath::of("map").key(name), message);
    }
    maps
}

/// The texts of a table that may refer to other tables, `from` first.
fn texts(map: &map_keys::Map) -> impl Iterator<Item = &String> {
    let results = map.patterns.iter().map(|pattern| &pattern.value);
    let results = results.chain(map.values.values()).chain(map.networks.values());
    [&map.from].into_iter().chain(results).chain([&map.default])
}

/// Names of the tables that a text refers to.
fn references(text: &str) -> impl Iterator<Item = &str> {
    text.split("{map.").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
}

/// Number of look-ups for one look-up in a table, with those in the tables that `from` and the longest result refer to.
fn cost(map: &map_keys::Map, costs: &BTreeMap<&str, usize>) -> usize {
    let cost = |text: &String| {
        let all = references(text).filter_map(|name| costs.get(name));
        all.fold(0, |sum: usize, cost| sum.saturating_add(*cost))
    };
    let result = texts(map).skip(1).map(cost).max().unwrap_or_default();
    cost(&map.from).saturating_add(result).saturating_add(1)
}

fn table(map: &map_keys::Map, path: &KeyPath, maps: &Maps, context: &mut Context<'_>) -> Map {
    if map.values.is_empty() && map.networks.is_empty() && map.patterns.is_empty() {
        context.findings.incomplete(path, "a table needs `values`, `networks` or `patterns`");
    }
    let from = Template::new(&map.from, maps).unwrap_or_else(|reason| {
        context.findings.wrong(&path.key("from"), reason);
        Template::default()
    });
    context.note_fingerprints(|variable| from.has(variable));
    if from.needs_response() && from.needs_request() {
        context.findings.wrong(&path.key("from"), MIXED);
    }
    let results = Results { maps, of_response: from.needs_response() };
    let value = |(key, value): (&String, &String)| {
        (key.clone(), results.outcome(value, &path.key("values").key(key), context))
    };
    let values = map.values.iter().map(value).collect();
    let mut networks = Networks::default();
    for (key, value) in &map.networks {
        let path = path.key("networks").key(key);
        let outcome = results.outcome(value, &path, context);
        match key.parse() {
            Ok(Network(network)) => {
                if networks.insert(network, outcome).is_some() {
                    context.findings.wrong(&path, "this network has a result already: keep one");
                }
            }
            Err(reason) => context.findings.wrong(&path, reason),
        }
    }
    let mut patterns = Vec::new();
    for (index, entry) in map.patterns.iter().enumerate() {
        let path = path.key("patterns").index(index);
        patterns.extend(pattern(entry, &path, &results, context));
    }
    let default = results.outcome(&map.default, &path.key("default"), context);
    Map { from, values, networks, patterns, default }
}

fn pattern(
    entry: &map_keys::MapPattern,
    path: &KeyPath,
    results: &Results<'_>,
    context: &mut Context<'_>,
) -> Option<MapPattern> {
    let regex = path.key("regex");
    let is_group = |name: &str| {
        [format!("(?P<{name}>"), format!("(?<{name}>")].iter().any(|start| entry.regex.contains(&**start))
    };
    // A name with a dot is a variable, also a wrong one, whose correction is that of a variable.
    let is_variable =
        |name: &&str| !is_group(name) && (name.contains('.') || name.parse::<Variable>().is_ok());
    let (variables, groups): (Vec<_>, Vec<_>) = MapPattern::names(&entry.value).partition(is_variable);
    if groups.is_empty() {
        let outcome = results.outcome(&entry.value, &path.key("value"), context);
        // Without groups, the automaton suffices, and larger expressions are permitted.
        return Some(MapPattern::fixed(conditions::pattern(&entry.regex, &regex, context)?, outcome));
    }
    if !variables.is_empty() {
        context.findings.wrong(&path.key("value"), "has groups and variables: use one of both");
        return None;
    }
    super::resolve::value(&entry.value, &path.key("value"), context);
    let pattern = conditions::compiled(&entry.regex, GroupPattern::new, &regex, context)?;
    let formed = MapPattern::formed(pattern, &entry.value);
    formed.map_err(|reason| context.findings.wrong(&path.key("value"), reason)).ok()
}

/// A table is looked up once, with the values of either the request or the response.
const MIXED: &str = "has values of the request and of the response: use those of one of the two";

/// Results of a table.
struct Results<'a> {
    maps: &'a Maps,
    /// Whether the table is looked up with the response.
    of_response: bool,
}

impl Results<'_> {
    /// A result without groups.
    fn outcome(&self, text: &str, path: &KeyPath, context: &mut Context<'_>) -> Outcome {
        let template = match Template::new(text, self.maps) {
            Ok(template) => template,
            Err(reason) => {
                context.findings.wrong(path, reason);
                return Outcome::default();
            }
        };
        if let Some(fixed) = template.fixed() {
            return Outcome::from(fixed.to_str().unwrap_or_default());
        }
        context.note_fingerprints(|variable| template.has(variable));
        let is_mixed = if self.of_response { template.needs_request() } else { template.needs_response() };
        if is_mixed {
            context.findings.wrong(path, MIXED);
        }
        Outcome::Formed(template)
    }
}
