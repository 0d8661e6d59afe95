//! `[map.NAME]`: tables that header rules, redirects and bodies refer to.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use brisk_config_file::KeyPath;
use brisk_rules::{GroupPattern, Map, MapPattern, Maps, Template};
use ipnet::IpNet;

use super::map_keys;
use crate::features::{Context, conditions};

/// Tables that refer to each other at most, one after another, so that a lookup has few steps.
const DEEPEST: usize = 8;

/// All tables. Those that a table refers to come before it.
pub fn maps(written: &BTreeMap<String, map_keys::Map>, context: &mut Context<'_>) -> Maps {
    let mut maps = Maps::new();
    let mut left: Vec<_> = written.iter().collect();
    for _ in 0..DEEPEST {
        let is_ready = |(_, map): &(&String, &map_keys::Map)| {
            // One that no table has is an error of the text.
            references(map).all(|name| maps.contains_key(name) || !written.contains_key(name))
        };
        let (ready, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_ready);
        for (name, map) in ready {
            let table = table(map, &KeyPath::of("map").key(name), &maps, context);
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

/// Names of the tables that a table refers to.
fn references(map: &map_keys::Map) -> impl Iterator<Item = &str> {
    let results = map.patterns.iter().map(|pattern| &pattern.value);
    let results = results.chain(map.values.values()).chain(map.networks.values());
    let texts = results.chain([&map.from, &map.default]);
    texts.flat_map(|text| text.split("{map.").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)))
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
    let mut results = Results { maps, of_response: from.needs_response(), formed: BTreeMap::new() };
    let value = |(key, value): (&String, &String)| {
        (key.clone(), results.fixed(value, &path.key("values").key(key), context))
    };
    let values = map.values.iter().map(value).collect();
    let mut networks = Vec::new();
    for (key, value) in &map.networks {
        let path = path.key("networks").key(key);
        let value = results.fixed(value, &path, context);
        if let Ok(network) = key.parse().or_else(|_| key.parse::<IpAddr>().map(IpNet::from)) {
            networks.push((network, value));
        } else {
            let message = format!("{key:?} is not a network: write one as \"10.0.0.0/8\"");
            context.findings.wrong(&path, message);
        }
    }
    let networks = networks.into_iter().collect();
    let mut patterns = Vec::new();
    for (index, entry) in map.patterns.iter().enumerate() {
        let path = path.key("patterns").index(index);
        patterns.extend(pattern(entry, &path, &mut results, context));
    }
    let default = results.fixed(&map.default, &path.key("default"), context);
    Map { from, values, networks, patterns, default, formed: results.formed }
}

fn pattern(
    entry: &map_keys::MapPattern,
    path: &KeyPath,
    results: &mut Results<'_>,
    context: &mut Context<'_>,
) -> Option<MapPattern> {
    let regex = path.key("regex");
    // Without groups, the automaton suffices, and larger expressions are permitted. A group has no dot in its name.
    let mut names = entry.value.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0));
    if !MapPattern::names_groups(&entry.value) || names.any(|name| name.contains('.')) {
        let value = results.fixed(&entry.value, &path.key("value"), context);
        return Some(MapPattern::fixed(conditions::pattern(&entry.regex, &regex, context)?, &value));
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
    /// Results with variables, by their text.
    formed: BTreeMap<Box<[u8]>, Template>,
}

impl Results<'_> {
    /// The text of a result. One with variables is noted under its text.
    fn fixed(&mut self, text: &str, path: &KeyPath, context: &mut Context<'_>) -> String {
        let template = match Template::new(text, self.maps) {
            Ok(template) => template,
            Err(reason) => {
                context.findings.wrong(path, reason);
                return String::new();
            }
        };
        if let Some(fixed) = template.fixed() {
            return fixed.to_str().unwrap_or_default().to_owned();
        }
        context.note_fingerprints(|variable| template.has(variable));
        let is_mixed = if self.of_response { template.needs_request() } else { template.needs_response() };
        if is_mixed {
            context.findings.wrong(path, MIXED);
        }
        self.formed.insert(text.as_bytes().into(), template);
        text.to_owned()
    }
}
