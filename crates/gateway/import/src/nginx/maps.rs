//! Tables for `map`. nginx compares texts without their case: first with whole texts, then with names that have a wildcard, the
//! longest first, then with expressions in their order.

use std::cmp::Reverse;

use crate::directive::Directive;
use crate::nginx::context::Context;
use crate::nginx::pattern;
use crate::nginx::variables::{Use, Values, only_variable};
use crate::toml::{self, Keys};

/// Number of texts that become expressions at most, because brisk tries expressions one after another.
const MOST: usize = 100;

/// Meaning of a key.
#[derive(Clone, Copy)]
enum Key<'a> {
    Default,
    /// `hostnames` and other options.
    Option,
    Text(&'a str),
    /// The end of a name, and whether the whole name without the dot is meant too.
    End(&'a str, bool),
    /// The beginning of a name.
    Beginning(&'a str),
    Expression(&'a str),
}

fn key_of(line: &Directive, has_names: bool) -> Key<'_> {
    match line.name.as_str() {
        "default" => Key::Default,
        "include" => Key::Option,
        "hostnames" | "volatile" if line.args.is_empty() => Key::Option,
        key if key.starts_with('~') => Key::Expression(key),
        key if has_names && key.starts_with("*.") => Key::End(&key[2..], false),
        key if has_names && key.starts_with('.') => Key::End(&key[1..], true),
        key if has_names && key.ends_with(".*") => Key::Beginning(&key[..key.len() - 1]),
        key => Key::Text(key.strip_prefix('\\').unwrap_or(key)),
    }
}

/// Case of the values of a variable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Lower,
    Upper,
    Any,
    /// Only texts in the case of the key.
    Own,
}

fn case_of(source: &str) -> Case {
    match source {
        "$host" | "$scheme" => Case::Lower,
        "$request_method" => Case::Upper,
        _ => Case::Any,
    }
}

/// Whether a text has letters, which nginx compares without their case.
fn has_letters(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Lines of a `map` in the order in which nginx compares them.
#[derive(Default)]
struct Lines {
    exact: Keys,
    /// Texts without their case.
    texts: Vec<(String, String)>,
    /// Names with a wildcard, with the class and the length of the key for their order.
    names: Vec<((bool, Reverse<usize>), String, String)>,
    expressions: Vec<(String, String)>,
}

impl Context<'_> {
    /// The keys of the table for a `map`.
    pub(crate) fn map_keys(&self, map: &Directive) -> Result<Keys, String> {
        self.has_all_lines(map)?;
        let values = Values::default();
        let mut keys = Keys::default();
        let from = self.template(map.arg(0), &values, Use::Value)?;
        keys.set("from", toml::text(&from));
        let has_names = map.inner().iter().any(|line| line.name == "hostnames");
        let mut case = case_of(map.arg(0));
        let is_text =
            |line: &&Directive| matches!(key_of(line, has_names), Key::Text(text) if has_letters(text));
        if case == Case::Any && map.inner().iter().filter(is_text).count() > MOST {
            self.different(map, "brisk compares the texts with their case, because there are many");
            case = Case::Own;
        }
        let (mut lines, mut by_default) = (Lines::default(), None);
        let source = only_variable(map.arg(0));
        for line in map.inner() {
            self.carried(line);
            match key_of(line, has_names) {
                Key::Option => {}
                // All other texts, behind the expressions.
                Key::Default if source.is_some() && only_variable(line.arg(0)) == source => {
                    by_default = Some(("(.*)".to_owned(), "{1}".to_owned()));
                }
                Key::Expression(key) => {
                    let groups = Values { groups: true, ..values.clone() };
                    let value = self.result(line.arg(0), &from);
                    let value = value.or_else(|_| self.template(line.arg(0), &groups, Use::Path))?;
                    lines.expressions.push((expression(key)?, value));
                }
                key => match self.result(line.arg(0), &from) {
                    Ok(value) if matches!(key, Key::Default) => keys.set("default", toml::text(&value)),
                    Ok(value) => lines.add(key, value, case),
                    Err(reason) => self.missing(line, reason, "write a line for each value"),
                },
            }
        }
        lines.expressions.extend(by_default);
        lines.write(&mut keys);
        Ok(keys)
    }

    /// Refuses a `map` whose lines are partly in a file that was not read.
    pub(crate) fn has_all_lines(&self, map: &Directive) -> Result<(), String> {
        let is_missing =
            |line: &Directive| line.name == "include" && self.report.borrow().is_missing(line.id);
        if map.inner().iter().any(is_missing) {
            return Err("a file with lines of the map was not read".to_owned());
        }
        Ok(())
    }

    /// The lines of a `map` whose result differs from the default in being wanted, and whether the default is wanted.
    pub(crate) fn chosen_lines<'m>(
        &self,
        map: &'m Directive,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<(Vec<&'m Directive>, bool), String> {
        self.has_all_lines(map)?;
        if map.inner().iter().any(|line| line.name != "include" && line.arg(0).contains('$')) {
            return Err("the result of the map is compared in another way than =".to_owned());
        }
        let by_default =
            map.inner().iter().find(|line| line.name == "default").map_or("", |line| line.arg(0));
        let mut lines: Vec<_> = map
            .inner()
            .iter()
            .filter(|line| !matches!(&*line.name, "default" | "hostnames" | "volatile" | "include"))
            .collect();
        // An exact text wins, wherever it stands.
        lines.sort_by_key(|line| line.name.starts_with('~'));
        // With a default that is wanted, the other lines are the exceptions.
        let flip = wanted(by_default);
        let first_other = lines.iter().position(|line| wanted(line.arg(0)) == flip);
        // Texts exclude each other.
        let last_chosen =
            lines.iter().rposition(|line| line.name.starts_with('~') && wanted(line.arg(0)) != flip);
        if first_other.zip(last_chosen).is_some_and(|(other, chosen)| other < chosen) {
            return Err("the lines of the map depend on their order".to_owned());
        }
        lines.retain(|line| wanted(line.arg(0)) != flip);
        Ok((lines, flip))
    }

    /// The result of a line without groups, in the table of `from`.
    fn result(&self, text: &str, from: &str) -> Result<String, String> {
        let result = self.template(text, &Values::default(), Use::Value)?;
        let is_of_response = |text: &str| self.has_any(text, &["{response.", "{upstream."]);
        // brisk looks up a table with the values of the request, or with those of the response.
        if text.contains('$') && is_of_response(from) != is_of_response(&result) {
            return Err("the map has values of the request and of the response".to_owned());
        }
        Ok(result)
    }
}

impl Lines {
    fn add(&mut self, key: Key<'_>, value: String, case: Case) {
        match key {
            Key::Text(text) => match case {
                Case::Lower => self.exact.set(&text.to_ascii_lowercase(), toml::text(&value)),
                Case::Upper => self.exact.set(&text.to_ascii_uppercase(), toml::text(&value)),
                Case::Any if has_letters(text) => self.texts.push((without_case(text), value)),
                Case::Any | Case::Own => self.exact.set(text, toml::text(&value)),
            },
            Key::End(domain, is_whole) => {
                let start = if is_whole { r"(^|\.)" } else { r"\." };
                let pattern = format!("(?i){start}{}$", pattern::escaped(domain));
                self.names.push(((false, Reverse(domain.len())), pattern, value));
            }
            Key::Beginning(start) => {
                let pattern = format!("(?i)^{}[^.]+", pattern::escaped(start));
                self.names.push(((true, Reverse(start.len())), pattern, value));
            }
            Key::Default | Key::Option | Key::Expression(_) => {}
        }
    }

    fn write(mut self, keys: &mut Keys) {
        self.names.sort_by_key(|(order, _, _)| *order);
        let names = self.names.into_iter().map(|(_, pattern, value)| (pattern, value));
        let mut patterns: Vec<_> = self
            .texts
            .into_iter()
            .chain(names)
            .chain(self.expressions)
            .map(|(regex, value)| {
                format!("{{ regex = {}, value = {} }}", toml::raw(&regex), toml::text(&value))
            })
            .collect();
        if !self.exact.is_empty() {
            let values: Vec<_> =
                self.exact.0.iter().map(|(key, value)| format!("{} = {value}", toml::raw(key))).collect();
            keys.set("values", format!("{{ {} }}", values.join(", ")));
        }
        if patterns.is_empty() && self.exact.is_empty() {
            // A table of brisk has an entry.
            let value = keys.get("default").unwrap_or("\"\"");
            patterns.push(format!("{{ regex = \"^\", value = {value} }}"));
        }
        if !patterns.is_empty() {
            keys.set("patterns", format!("[{}]", patterns.join(", ")));
        }
    }
}

/// The expression for a text without its case.
pub(crate) fn without_case(text: &str) -> String {
    format!("(?i)^{}$", pattern::escaped(text))
}

/// Whether a line of a `map` is a name with a wildcard.
pub(crate) fn is_wildcard(map: &Directive, line: &Directive) -> bool {
    let has_names = map.inner().iter().any(|line| line.name == "hostnames");
    matches!(key_of(line, has_names), Key::End(..) | Key::Beginning(_))
}

/// The operator and the value of a key with which a condition compares the variable.
pub(crate) fn comparison(key: &str) -> (&'static str, String) {
    if let Some(expression) = key.strip_prefix("~*") {
        return ("~*", expression.to_owned());
    }
    match key.strip_prefix('~') {
        Some(expression) => ("~", expression.to_owned()),
        None => ("=", key.strip_prefix('\\').unwrap_or(key).to_owned()),
    }
}

/// The expression of a key `~...` or `~*...` of a map.
fn expression(key: &str) -> Result<String, String> {
    let (operator, text) = comparison(key);
    pattern::translate(&text, operator == "~*")
}
