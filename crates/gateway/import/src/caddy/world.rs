//! Requests of a route while the program of a site is followed: their place, host, path and conditions.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::caddy::host_name::{HostName, Pattern};
use crate::caddy::path::{self, Decision, Place, Shape};
use crate::nginx::condition::When;
use crate::nginx::pattern;
use crate::toml;

/// The path that later directives see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// `strip` is removed from the beginning, and `add` put there.
    Moved { strip: String, add: String },
    /// A fixed path, with a query or without one: `/index.php?a`.
    Fixed(String),
    /// The template of a rewrite with an expression, for `rewrite_path`.
    Pattern { pattern: String, to: String },
}

impl Default for View {
    fn default() -> Self {
        Self::Moved { strip: String::new(), add: String::new() }
    }
}

impl View {
    /// The path in place of one of the client; `None` for a `Pattern`.
    pub(crate) fn visible(&self, place: &Place) -> Option<Place> {
        match self {
            Self::Moved { strip, add } => {
                let rest = place.path.strip_prefix(strip.as_str())?;
                let slash =
                    if rest.starts_with('/') || (add.is_empty() && rest.is_empty()) { "" } else { "/" };
                let path = match (add.is_empty(), rest.is_empty()) {
                    (true, true) => "/".to_owned(),
                    (_, true) => add.clone(),
                    _ => format!("{add}{slash}{rest}"),
                };
                Some(Place { path, exact: place.exact })
            }
            Self::Fixed(path) => {
                let path = path.split('?').next().unwrap_or_default().to_owned();
                Some(Place { path, exact: true })
            }
            Self::Pattern { .. } => None,
        }
    }

    /// Whether the query is another one than that of the client.
    fn has_query(&self) -> bool {
        matches!(self, Self::Fixed(to) | Self::Pattern { to, .. } if to.contains('?'))
    }

    /// Whether the path is that of the client.
    pub(crate) fn is_original(&self) -> bool {
        *self == Self::default()
    }

    /// An expression about this path as one about that of the client.
    fn original(&self, expression: &str) -> Option<String> {
        let Self::Moved { strip, add } = self else { return None };
        if self.is_original() {
            return Some(expression.to_owned());
        }
        let (flag, text) = expression.strip_prefix("(?i)").map_or(("", expression), |text| ("(?i)", text));
        match text.strip_prefix('^') {
            _ if text.contains('|') => None,
            Some(rest) if add.is_empty() => Some(format!("{flag}^{}{rest}", regex::escape(strip))),
            Some(_) => None,
            None => Some(expression.to_owned()),
        }
    }
}

/// A condition that divides the requests of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Branch {
    When(When),
    Methods(Vec<String>),
    /// Paths that match one of these: `path_regex`.
    Paths(Vec<Part>),
    /// Whether there is a file for the path.
    File,
}

/// Paths of the whole program.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Places that have routes of their own, so that others do not get their requests.
    pub(crate) places: BTreeSet<Place>,
    /// Paths with which steps refuse requests: all conditions find them in any case.
    pub(crate) restricted: Vec<Shape>,
}

/// Requests that are followed.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) place: Place,
    pub(crate) host: HostName,
    /// Whether the requests come over TLS; `None` if they may come both ways.
    pub(crate) is_tls: Option<bool>,
    pub(crate) view: View,
    /// Headers that rules have changed, in lower case; conditions of brisk look at those of the client.
    changed: BTreeSet<String>,
    facts: Rc<Facts>,
    truths: Vec<Branch>,
    falsehoods: Vec<Branch>,
}

impl World {
    pub(crate) fn new(place: Place, host: HostName, is_tls: Option<bool>, facts: Rc<Facts>) -> Self {
        let (truths, falsehoods) = (Vec::new(), Vec::new());
        let (view, changed) = (View::default(), BTreeSet::new());
        Self { place, host, is_tls, view, changed, facts, truths, falsehoods }
    }

    /// Work that a copy or a condition causes.
    pub(crate) fn size(&self) -> usize {
        self.truths.len() + self.falsehoods.len() + self.changed.len()
    }

    /// Notes that later directives see another header than the client has sent.
    pub(crate) fn change(&mut self, header: &str) {
        self.changed.insert(header.to_ascii_lowercase());
    }

    /// Notes that later directives see another query.
    pub(crate) fn change_query(&mut self) {
        self.change("?");
    }

    /// Whether a rule has changed a header.
    pub(crate) fn has_changed(&self, header: &str) -> bool {
        self.changed.contains(&header.to_ascii_lowercase())
    }

    /// Whether a rule has changed any header.
    pub(crate) fn has_changes(&self) -> bool {
        self.changed.iter().any(|name| name != "?")
    }

    /// Whether a directive has changed the query.
    pub(crate) fn has_changed_query(&self) -> bool {
        self.view.has_query() || self.has_changed("?")
    }

    /// The reason why a condition of brisk, which is about the request of the client, is another one than that of Caddy.
    pub(crate) fn foreign(&self, branch: &Branch) -> Option<String> {
        let Branch::When(when) = branch else { return None };
        if let Some(name) = when.names("headers").find(|name| self.has_changed(name)) {
            return Some(format!(
                "a rule before changes {name}, and brisk compares the header of the client"
            ));
        }
        (self.has_changed_query() && when.names("query").next().is_some())
            .then(|| "the query is changed before, and brisk compares that of the client".to_owned())
    }

    /// The meaning of the matcher `host`.
    pub(crate) fn is_host(&self, patterns: &[Pattern]) -> Result<bool, String> {
        if self.has_changed("host") {
            return Err("a rule before changes Host, and hosts of brisk have names of the client".to_owned());
        }
        let all: Option<Vec<bool>> =
            patterns.iter().map(|pattern| self.host.matches(&pattern.name)).collect();
        all.map(|all| all.contains(&true))
            .ok_or_else(|| "the name of the host is a variable without a value on this machine".to_owned())
    }

    /// The requests for which the [`Branch`] holds, or does not.
    pub(crate) fn with(&self, branch: &Branch, holds: bool) -> Self {
        let mut world = self.clone();
        if holds {
            world.truths.push(branch.clone());
        } else {
            world.falsehoods.push(branch.clone());
        }
        world
    }

    /// Whether the requests have a file, if that is known: `Branch::File`.
    pub(crate) fn has_file(&self) -> Option<bool> {
        self.known(&Branch::File)
    }

    /// Whether a condition is known.
    pub(crate) fn known(&self, branch: &Branch) -> Option<bool> {
        if self.truths.contains(branch) {
            return Some(true);
        }
        if self.falsehoods.contains(branch) {
            return Some(false);
        }
        match branch {
            Branch::Methods(wanted) => self.truths.iter().find_map(|own| match own {
                Branch::Methods(own) if own.iter().all(|method| wanted.contains(method)) => Some(true),
                Branch::Methods(own) if !own.iter().any(|method| wanted.contains(method)) => Some(false),
                _ => None,
            }),
            Branch::Paths(wanted) => self.truths.iter().find_map(|own| match own {
                Branch::Paths(own)
                    if own.iter().all(|part| wanted.iter().any(|other| part.implies(other))) =>
                {
                    Some(true)
                }
                Branch::Paths(own) => {
                    own.iter().all(|part| wanted.iter().all(|other| part.excludes(other))).then_some(false)
                }
                _ => None,
            }),
            Branch::When(wanted) => self
                .truths
                .iter()
                .find_map(|own| matches!(own, Branch::When(own) if own.implies(wanted)).then_some(true)),
            Branch::File => None,
        }
    }

    /// The [`When`] of a route for these requests; `None` if brisk cannot combine the conditions.
    pub(crate) fn when(&self) -> Option<When> {
        let mut all = When::default();
        for branch in &self.truths {
            let own = match branch {
                Branch::When(when) => when.clone(),
                Branch::Methods(methods) => When::plain("methods", toml::list(methods)),
                Branch::Paths(parts) => When::plain("path_regex", toml::raw(&joined(parts))),
                Branch::File => continue,
            };
            all = all.and(&own)?;
        }
        Some(all)
    }

    /// The meaning of the matcher `path`; an error if the path is not known.
    pub(crate) fn path(&self, shapes: &[Shape], widely: bool) -> Result<Result<bool, Branch>, String> {
        let unknown = || "the path that the matcher sees is the result of a rewrite".to_owned();
        let visible = self.view.visible(&self.place).ok_or_else(unknown)?;
        let mut alternatives = Vec::new();
        for shape in shapes {
            let restricted = &self.facts.restricted;
            // With many of them, every path is compared so, which is always safe and takes less time.
            let is_wide = widely || restricted.len() > 64 || restricted.contains(shape);
            match shape.decide(&visible, is_wide, self.is_unplaced(shape)) {
                Decision::Always => return Ok(Ok(true)),
                Decision::Never => {}
                Decision::Expression(expression) => alternatives.push(expression),
            }
        }
        if alternatives.is_empty() {
            return Ok(Ok(false));
        }
        // brisk has a limit for the size of an expression, so that many patterns are several conditions.
        let mut chunk: Vec<Part> = Vec::new();
        for (index, expression) in alternatives.iter().enumerate() {
            chunk.push(Part::new(self.view.original(expression).ok_or_else(unknown)?));
            let length: usize = chunk.iter().map(|part| part.expression.len()).sum();
            if length > 400 || index + 1 == alternatives.len() {
                let branch = Branch::Paths(std::mem::take(&mut chunk));
                match self.known(&branch) {
                    Some(true) => return Ok(Ok(true)),
                    Some(false) => {}
                    None => return Ok(Err(branch)),
                }
            }
        }
        Ok(Ok(false))
    }

    /// Whether no place has the requests of a shape, because the path is changed before.
    fn is_unplaced(&self, shape: &Shape) -> bool {
        let View::Moved { strip, add } = &self.view else { return false };
        let Some(Place { path, exact }) = shape.place().filter(|_| !self.view.is_original()) else {
            return false;
        };
        match path.strip_prefix(add.as_str()) {
            Some(rest) => !self.facts.places.contains(&Place { path: format!("{strip}{rest}"), exact }),
            None => false,
        }
    }

    /// The meaning of the matcher `path_regexp`.
    pub(crate) fn path_expression(&self, expression: &str) -> Result<Result<bool, Branch>, String> {
        let unknown = || "the path that the matcher sees is the result of a rewrite".to_owned();
        let visible = self.view.visible(&self.place).ok_or_else(unknown)?;
        let own = match path::expression(expression, &visible) {
            Decision::Always => return Ok(Ok(true)),
            Decision::Never => return Ok(Ok(false)),
            Decision::Expression(own) => own,
        };
        let own = self.view.original(&own).ok_or_else(unknown)?;
        let branch = Branch::Paths(vec![Part::new(own)]);
        Ok(self.known(&branch).ok_or(branch))
    }

    /// The expression for the path that the route has, whose groups have values.
    pub(crate) fn expression(&self) -> Option<&str> {
        self.truths.iter().filter(|_| self.view.is_original()).find_map(|own| match own {
            Branch::Paths(parts) if parts.len() == 1 => Some(parts[0].expression.as_str()),
            _ => None,
        })
    }
}

/// An expression for paths, with the texts with which all of its matches begin and end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    expression: String,
    start: String,
    end: String,
    /// Whether the two texts are all that the expression requires.
    is_plain: bool,
}

impl Part {
    fn new(expression: String) -> Self {
        let (text, ignore_case) =
            expression.strip_prefix("(?i)").map_or((expression.as_str(), false), |text| (text, true));
        let start = pattern::fixed_start(text).to_ascii_lowercase();
        let end = fixed_end(text).to_ascii_lowercase();
        let is_start = text == format!("^{}", regex::escape(&start)) && end.is_empty();
        let is_end = text == format!("{}$", regex::escape(&end)) && start.is_empty();
        let is_plain = ignore_case && (is_start || is_end);
        Self { expression, start, end, is_plain }
    }

    /// Whether all paths of this expression are paths of the other.
    fn implies(&self, other: &Self) -> bool {
        *self == *other
            || (other.is_plain && self.start.starts_with(&other.start) && self.end.ends_with(&other.end))
    }

    /// Whether no path is one of both.
    fn excludes(&self, other: &Self) -> bool {
        let starts = self.start.starts_with(&other.start) || other.start.starts_with(&self.start);
        let ends = self.end.ends_with(&other.end) || other.end.ends_with(&self.end);
        !(starts && ends)
    }
}

/// The text with which every match ends, if the expression is anchored by `$`; empty otherwise.
fn fixed_end(text: &str) -> String {
    let Some(rest) =
        text.strip_suffix('$').filter(|rest| !rest.ends_with('\\') && !rest.contains(['|', '(', '{']))
    else {
        return String::new();
    };
    let mut end: Vec<char> = Vec::new();
    let mut all = rest.chars().rev().peekable();
    while let Some(next) = all.next() {
        let is_escaped = all.peek() == Some(&'\\');
        let is_literal =
            next.is_ascii_alphanumeric() || matches!(next, '/' | '_' | ' ' | '=' | '%' | ',' | '@');
        // `\d` is a class, and `\.` a dot.
        if is_escaped == is_literal {
            break;
        }
        if is_escaped {
            all.next();
        }
        end.push(next);
    }
    end.into_iter().rev().collect()
}

/// One expression for several: `a` and `b` give `(?:a)|(?:b)`.
fn joined(parts: &[Part]) -> String {
    let cased: Option<Vec<_>> = parts.iter().map(|part| part.expression.strip_prefix("(?i)")).collect();
    match (parts, cased) {
        ([one], _) => one.expression.clone(),
        (_, Some(all)) => format!("(?i)(?:{})", all.join("|")),
        (all, None) => all.iter().map(|own| format!("(?:{})", own.expression)).collect::<Vec<_>>().join("|"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_paths_are_seen_without_their_prefix() {
        let view = View::Moved { strip: "/api".to_owned(), add: String::new() };
        let seen =
            |path: &str| view.visible(&Place { path: path.to_owned(), exact: false }).map(|place| place.path);
        assert_eq!(seen("/api/"), Some("/".to_owned()));
        assert_eq!(seen("/api/v1/"), Some("/v1/".to_owned()));
        assert_eq!(seen("/"), None);
        assert_eq!(view.original("(?i)^/v1"), Some("(?i)^/api/v1".to_owned()));
        assert_eq!(view.original("(?i)x$"), Some("(?i)x$".to_owned()));
    }

    #[test]
    fn ends_of_paths_exclude_each_other() {
        let place = Place { path: "/".to_owned(), exact: false };
        let world = World::new(place, HostName::Other, Some(true), Rc::default());
        let paths =
            |all: &[&str]| Branch::Paths(all.iter().map(|own| Part::new((*own).to_owned())).collect());
        let world = world.with(&paths(&["(?i)\\.css$", "(?i)\\.js$"]), true);
        assert_eq!(world.known(&paths(&["(?i)\\.php$"])), Some(false));
        assert_eq!(world.known(&paths(&["(?i)^/a/[^/]*\\.php$"])), Some(false));
        assert_eq!(world.known(&paths(&["(?i)s$"])), Some(true));
        assert_eq!(world.known(&paths(&["(?i)\\.css$"])), None);
        assert_eq!(world.known(&paths(&["(?i)^/a"])), None);
        assert!(Part::new("(?i)^/a".to_owned()).excludes(&Part::new("(?i)^/b/x".to_owned())));
    }

    #[test]
    fn fixed_ends_begin_behind_the_last_choice() {
        for (text, end) in [
            (r"^/a/[^/]*\.php$", ".php"),
            (r"\d$", ""),
            (r"a+$", ""),
            ("x", ""),
            (r"(a|b)c$", ""),
            ("/old$", "/old"),
        ] {
            assert_eq!(fixed_end(text), end, "{text}");
        }
    }
}
