//! `[map.NAME]`: tables that header rules refer to.

use std::collections::BTreeMap;
use std::sync::Arc;

use brisk_config_file::KeyPath;
use brisk_rules::{GroupPattern, Map, MapPattern, Maps, Template};

use super::{map_keys, resolve};
use crate::features::{Context, conditions};

/// All tables. A table cannot refer to another one.
pub fn maps(written: &BTreeMap<String, map_keys::Map>, context: &mut Context<'_>) -> Maps {
    let map = |(name, map): (&String, &map_keys::Map)| {
        let path = KeyPath::of("map").key(name);
        if map.values.is_empty() && map.patterns.is_empty() {
            context.findings.incomplete(&path, "a table needs `values` or `patterns`");
        }
        // Without tables: a cycle of tables would have no end.
        let from = Template::new(&map.from, &Maps::new()).unwrap_or_else(|reason| {
            context.findings.wrong(&path.key("from"), reason);
            Template::default()
        });
        context.note_fingerprints(|variable| from.has(variable));
        // A table is looked up once, with the values of either the request or the response.
        if from.needs_response() && from.needs_request() {
            let message = "has values of the request and of the response: use those of one of the two";
            context.findings.wrong(&path.key("from"), message);
        }
        for (key, value) in &map.values {
            resolve::value(value, &path.key("values").key(key), context);
        }
        let patterns = map.patterns.iter().enumerate().filter_map(|(index, entry)| {
            let path = path.key("patterns").index(index);
            resolve::value(&entry.value, &path.key("value"), context);
            let regex = path.key("regex");
            // Without groups, the automaton suffices, and larger expressions are permitted.
            if !MapPattern::names_groups(&entry.value) {
                return Some(MapPattern::fixed(
                    conditions::pattern(&entry.regex, &regex, context)?,
                    &entry.value,
                ));
            }
            let pattern = conditions::compiled(&entry.regex, GroupPattern::new, &regex, context)?;
            let formed = MapPattern::formed(pattern, &entry.value);
            formed.map_err(|reason| context.findings.wrong(&path.key("value"), reason)).ok()
        });
        let patterns = patterns.collect();
        resolve::value(&map.default, &path.key("default"), context);
        let map = Map { from, values: map.values.clone(), patterns, default: map.default.clone() };
        (name.clone(), Arc::new(map))
    };
    written.iter().map(map).collect()
}
