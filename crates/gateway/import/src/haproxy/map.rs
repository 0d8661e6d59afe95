//! Tests of the results of maps, whose files list the values of a sample.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::haproxy::acl::{Conditions, MOST_PATTERNS, entry};
use crate::haproxy::formula::Formula;
use crate::haproxy::path_test::{Match, Pattern};
use crate::haproxy::sample::Sample;
use crate::haproxy::test::Request;

/// Changes between accepted and other results in a map at most, because each one is a condition inside of another.
const MOST_CHANGES: usize = 16;

impl Conditions<'_, '_> {
    /// Tests of the result of a `map`. None without a map.
    pub(crate) fn mapped(&self, request: &Request, is_found: bool, patterns: &[String]) -> Option<Formula> {
        let (map, before) = request.sample.converters.split_last()?;
        let kind = map_kind(&map.name)?;
        let sample = Sample { fetch: request.sample.fetch.clone(), converters: before.to_vec() };
        // `-i` concerns the values of the map.
        let keys = Request { sample, kind, ignore_case: false };
        let result = self.decided(request, &keys, map.arg(0), map.args.get(1), is_found, patterns);
        Some(result.unwrap_or_else(Formula::unknown))
    }

    fn decided(
        &self,
        request: &Request,
        keys: &Request,
        file: &str,
        default: Option<&String>,
        is_found: bool,
        patterns: &[String],
    ) -> Result<Formula, String> {
        let lines = self.context.files.borrow_mut().lines(file)?;
        let is_compiled = matches!(request.kind, Match::Folder | Match::Domain | Match::Expression);
        let cost = patterns.len().max(1) * if is_compiled { 1000 } else { 1 };
        if lines.len() > MOST_PATTERNS || !self.context.step(lines.len().saturating_mul(cost)) {
            return Err("the map is too long".to_owned());
        }
        if !self.context.copied(lines.iter().map(|line| line.len() + 64).sum()) {
            return Err("the maps of all tests together are too long".to_owned());
        }
        let pattern = |text: &String| Pattern {
            kind: request.kind,
            text: text.clone(),
            ignore_case: request.ignore_case,
        };
        let texts: Vec<_> = patterns.iter().map(pattern).collect();
        let wanted = |value: &str| is_found || texts.iter().any(|text| text.accepts(value));
        let entries = lines.iter().map(|line| entry(line)).map(|(key, value)| (key, wanted(value)));
        let always = ["path", "url", "base", "method", "src"];
        if default.is_some() && !always.contains(&keys.sample.name()) {
            return Err("without a value, HAProxy does not use the default of the map".to_owned());
        }
        let default = default.is_some_and(|default| wanted(default));
        let mut formula = if default { Formula::True } else { Formula::False };
        let entries = decisive(keys.kind, default, entries.collect());
        let runs: Vec<_> = entries.chunk_by(|one, next| one.1 == next.1).collect();
        if runs.len() > MOST_CHANGES {
            return Err("results of the map alternate too often".to_owned());
        }
        for run in runs.into_iter().rev() {
            let texts: Vec<_> = run.iter().map(|(key, _)| (*key).to_owned()).collect();
            let own = self.compared(keys, false, &texts);
            formula =
                if run[0].1 { Formula::any([own, formula]) } else { Formula::all([own.not(), formula]) };
        }
        Ok(formula)
    }
}

/// The lines of a map with their results in the order in which they decide, without the ones that the default or another line
/// makes needless.
fn decisive(kind: Match, default: bool, mut entries: Vec<(&str, bool)>) -> Vec<(&str, bool)> {
    if matches!(kind, Match::Exact | Match::Begin) {
        let mut seen = BTreeSet::new();
        entries.retain(|(key, _)| seen.insert(*key));
    }
    if kind == Match::Begin {
        // The longest beginning decides.
        entries.sort_by_key(|(key, _)| Reverse(key.len()));
    }
    let like_default: BTreeSet<&str> =
        entries.iter().filter(|(_, own)| *own == default).map(|(key, _)| *key).collect();
    let is_cut = |key: &str| like_default.range(key..).next().is_some_and(|next| next.starts_with(key));
    let is_alone = match kind {
        Match::Exact => true,
        Match::Begin => !entries.iter().any(|(key, own)| *own != default && is_cut(key)),
        _ => like_default.is_empty(),
    };
    if is_alone {
        entries.retain(|(_, own)| *own != default);
    }
    entries
}

/// The comparison of a converter `map`.
pub(crate) fn map_kind(name: &str) -> Option<Match> {
    Some(match name {
        "map" | "map_str" => Match::Exact,
        "map_beg" => Match::Begin,
        "map_end" => Match::End,
        "map_sub" => Match::Part,
        "map_dir" => Match::Folder,
        "map_dom" => Match::Domain,
        "map_reg" => Match::Expression,
        _ => return None,
    })
}
