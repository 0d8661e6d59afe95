//! The choice of a backend by `use_backend`, also by a `map`, and limits of connections.

use crate::directive::Directive;
use crate::haproxy::acl::{Conditions, entry};
use crate::haproxy::formula::Formula;
use crate::haproxy::map::map_kind;
use crate::haproxy::path_test::Match;
use crate::haproxy::rule::{Action, Rule};
use crate::haproxy::sample::Sample;

/// Entries of a `map` that choose backends at most.
const MOST_ENTRIES: usize = 20_000;

impl<'a> Conditions<'_, 'a> {
    /// The rules of a `use_backend`: several for the lines of a map.
    pub(crate) fn use_rules(&self, line: &'a Directive) -> Vec<Rule<'a>> {
        let (words, formula) = self.of_rule(&line.args);
        let name = words.first().cloned().unwrap_or_default();
        // A name with this character is a log format.
        if !name.contains('%') {
            return vec![self.rule(line, formula, Action::Use(name))];
        }
        match self.mapped_backends(&name) {
            Ok(entries) => entries
                .into_iter()
                .map(|(own, backend)| {
                    self.rule(line, Formula::all([formula.clone(), own]), Action::Use(backend))
                })
                .collect(),
            Err(reason) => {
                let action = "write a use_backend for each value, and import again; until then the requests are refused";
                self.context.missing(line, reason.clone(), action);
                vec![Rule { line, formula, action: Action::Unknown(reason) }]
            }
        }
    }

    /// Conditions and backends of a name of the form `%[SAMPLE,map(FILE,DEFAULT)]`.
    fn mapped_backends(&self, name: &str) -> Result<Vec<(Formula, String)>, String> {
        let inner = name.strip_prefix("%[").and_then(|name| name.strip_suffix(']'));
        let sample =
            inner.and_then(Sample::read).ok_or("the name of the backend is formed from the request")?;
        let mut sample = self.resolved(sample)?;
        let map = sample.converters.pop().ok_or("the name of the backend is a part of the request")?;
        let kind = map_kind(&map.name).ok_or("the name of the backend is formed from the request")?;
        let lines = self.context.files.borrow_mut().lines(map.arg(0))?;
        let mut entries: Vec<(String, String)> = Vec::new();
        if lines.len() > MOST_ENTRIES || !self.context.step(lines.len()) {
            return Err(format!("the map has more than {MOST_ENTRIES} lines"));
        }
        for line in lines.iter() {
            let (key, backend) = entry(line);
            entries.push((key.to_owned(), backend.to_owned()));
        }
        if kind == Match::Begin {
            // The longest beginning decides.
            entries.sort_by_key(|(key, _)| std::cmp::Reverse(key.len()));
        }
        let method = match kind {
            Match::Exact => "str",
            Match::Begin => "beg",
            Match::End => "end",
            Match::Part => "sub",
            Match::Folder => "dir",
            Match::Domain => "dom",
            Match::Expression => "reg",
        };
        let flags = crate::haproxy::acl::Flags { ignore_case: false, method: Some(method.to_owned()) };
        let criterion = text_of(&sample);
        let mut rules: Vec<_> = entries
            .into_iter()
            .map(|(key, backend)| (self.test(&criterion, &flags, &[key]), backend))
            .collect();
        if let Some(default) = map.args.get(1) {
            rules.push((Formula::True, default.clone()));
        }
        Ok(rules)
    }

    /// A refusal of connections by their number or rate becomes a limit of `[server]`. Whether it does.
    pub(crate) fn connections(&self, line: &Directive, formula: &Formula) -> bool {
        let parts = match formula {
            Formula::Any(parts) => parts.as_slice(),
            own => std::slice::from_ref(own),
        };
        // A listener of brisk has the limit, whichever backend its requests have.
        if !self.proxy.is_frontend()
            || parts.is_empty()
            || !parts.iter().all(|part| matches!(part, Formula::Connections(..)))
        {
            return false;
        }
        let mut all = self.context.connections.borrow_mut();
        let own = all.entry(self.proxy.name()).or_default();
        for part in parts {
            let Formula::Connections(most, period) = part else { continue };
            // The smaller number for each second, without rounding.
            let is_smaller = |other: &(u64, u64)| {
                u128::from(*most) * u128::from(other.1)
                    < u128::from(other.0) * u128::from(period.unwrap_or(1))
            };
            let limit = if period.is_some() { &mut own.1 } else { &mut own.0 };
            if limit.as_ref().is_none_or(is_smaller) {
                *limit = Some((*most, period.unwrap_or(1)));
            }
        }
        self.context.different(
            line,
            "the limit concerns the connections of all listeners; an IPv6 /64 is one client",
        );
        true
    }
}

/// The [`Sample`] as text, with its arguments in quotes: `hdr("host"),lower`.
fn text_of(sample: &Sample) -> String {
    let calls = std::iter::once(&sample.fetch).chain(&sample.converters);
    let texts = calls.map(|call| {
        let args: Vec<_> =
            call.args.iter().map(|arg| format!("\"{}\"", arg.replace(['"', '\\'], ""))).collect();
        if args.is_empty() { call.name.clone() } else { format!("{}({})", call.name, args.join(",")) }
    });
    texts.collect::<Vec<_>>().join(",")
}
