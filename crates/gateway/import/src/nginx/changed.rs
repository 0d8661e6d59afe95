//! Changed paths (`rewrite`): the location that nginx would choose for one, and refusals where brisk cannot follow it.

use std::slice;

use crate::directive::Directive;
use crate::nginx::closing::closes;
use crate::nginx::condition::When;
use crate::nginx::flow::Flow;
use crate::nginx::location::{Kind, Location, Route};
use crate::nginx::program::is_redirect;
use crate::nginx::scope::PASSES;
use crate::nginx::site::Site;
use crate::nginx::variables::variable;
use crate::nginx::{dialect, pattern};
use crate::toml;

/// Variables with the whole path of the client.
const PATHS: [&str; 3] = ["uri", "document_uri", "request_uri"];

/// Directives with which a `location` sends scripts to an application server.
const SCRIPTS: [&str; 3] = ["fastcgi_pass", "uwsgi_pass", "scgi_pass"];

impl<'a> Site<'_, 'a> {
    /// The location of a changed path, as far as its text before the first variable shows.
    pub(crate) fn target(&self, path: &str) -> Option<&Location<'a>> {
        self.find(path.split(['$', '?']).next().unwrap_or_default())
    }

    /// Requires that nginx finds the location `next`, or without one that of the flow, for a path that the expression `source` has
    /// changed. Returns a location that is `hidden`. The error is the reason why nginx finds another location.
    pub(crate) fn reached(
        &self,
        (source, path): (&str, &str),
        flow: &Flow<'_, 'a>,
        next: Option<&Location<'a>>,
    ) -> Result<Option<&Location<'a>>, String> {
        let next = next.unwrap_or(flow.location);
        if next.refused {
            return Err("the location of the new path is not carried".to_owned());
        }
        let full = flow.values.fill(path);
        let other = |text: &str| self.find(&sample(&full, text)).filter(|found| found.number != next.number);
        if other("x").is_some() {
            return Err("the new path is that of another location".to_owned());
        }
        // Files would include the source text of scripts.
        let has_files = next.scope.all_of(&PASSES).0 <= 2;
        let is_kept =
            fixed(&full).split_once('$').is_some_and(|(start, rest)| keeps_end(source, start, rest));
        let is_open = |found: &&Location<'a>| {
            let sends_scripts = found.scope.own().iter().any(|line| SCRIPTS.contains(&line.name.as_str()));
            sends_scripts && !(is_kept && self.was_tried(flow.location, found))
        };
        match other("x.php").filter(|_| has_files).filter(is_open) {
            Some(_) => Err("some of the new paths are scripts of another location".to_owned()),
            None => Ok(self.hidden((source, path), flow, &flow.to(next))),
        }
    }

    /// A location with restrictions that `next` does not have, if nginx could choose it for a path that is only known up to its
    /// first variable, and that the expression `source` has changed.
    pub(crate) fn hidden(
        &self,
        (source, path): (&str, &str),
        flow: &Flow<'_, 'a>,
        next: &Flow<'_, 'a>,
    ) -> Option<&Location<'a>> {
        let (start, rest) = fixed(path).split_once('$')?;
        let is_kept = keeps_end(source, start, rest);
        let mut others = self.locations.iter().filter(|other| match &other.kind {
            Kind::Prefix { path, .. } | Kind::Exact(path) => path.starts_with(start),
            Kind::Expression { pattern, .. } => {
                // It has not matched the path of the client, and so does not match the same end.
                let is_known = is_kept && is_of_segment(pattern) && self.was_tried(flow.location, other);
                !is_known && other.can_match(start)
            }
            Kind::Named(_) => false,
        });
        let is_restricted = |other: &&Location<'a>| {
            other.refused || closes(other.scope.own()) && next.same_restrictions(&next.to(other)).is_err()
        };
        others.find(is_restricted)
    }

    /// Whether nginx stays in the location of the flow with the paths that the expression `source` has changed: with all of them if
    /// the location has files, with scripts or all others if it has a server.
    pub(crate) fn stays(&self, (source, path): (&str, &str), flow: &Flow<'_, 'a>) -> bool {
        if flow.location.scope.all_of(&PASSES).0 <= 2 {
            return matches!(self.reached((source, path), flow, None), Ok(None));
        }
        let full = flow.values.fill(path);
        let is_here = |text: &&str| {
            self.find(&sample(&full, text)).is_some_and(|found| found.number == flow.location.number)
        };
        ["x", "x.php"].iter().any(is_here)
    }

    /// Whether no location that nginx finds for a changed path has restrictions that the flow does not have.
    pub(crate) fn is_open(&self, path: &str, flow: &Flow<'_, 'a>) -> bool {
        let full = flow.values.fill(path);
        let is_one = |found: &Location<'a>| {
            found.number == flow.location.number
                || !found.refused && flow.same_restrictions(&flow.to(found)).is_ok()
        };
        ["x", "x.php"].iter().all(|text| self.find(&sample(&full, text)).is_none_or(is_one))
    }

    /// Whether nginx has compared the path of a client with an expression before it chose a location.
    fn was_tried(&self, location: &Location<'a>, expression: &Location<'a>) -> bool {
        let mut inner = location;
        loop {
            if expression.parent == Some(inner.number) {
                return true;
            }
            match inner.kind {
                Kind::Prefix { stop: false, .. } => {}
                Kind::Expression { .. } => {
                    return expression.parent == inner.parent && expression.number < inner.number;
                }
                Kind::Prefix { .. } | Kind::Exact(_) | Kind::Named(_) => return false,
            }
            match inner.parent {
                Some(around) => inner = &self.locations[around],
                None => return expression.parent.is_none(),
            }
        }
    }

    /// Whether nginx chooses a location for the changed path. A `rewrite` of the server precedes that choice.
    pub(crate) fn chooses_location(&self, step: &Directive) -> bool {
        step.arg(2) != "break" || self.is_of_server(step)
    }

    fn is_of_server(&self, step: &Directive) -> bool {
        self.program.iter().any(|own| own.id == step.id)
    }

    /// Whether no directive of the location follows a `rewrite`.
    pub(crate) fn ends_all(&self, step: &Directive) -> bool {
        let source = step.arg(0).replace(['(', ')'], "");
        matches!(step.arg(2), "break" | "last") && pattern::is_every(&source) && !self.is_of_server(step)
    }

    /// Whether a `rewrite` without a flag leads to another location, and a directive behind it, which nginx executes first, ends
    /// requests.
    pub(crate) fn precedes_end(&self, flow: &Flow<'_, 'a>, step: &Directive, rest: &[&'a Directive]) -> bool {
        let is_reached = flow.at.exact || pattern::can_match(step.arg(0), false, &flow.at.path);
        if !step.arg(2).is_empty() || is_redirect(step) || !is_reached {
            return false;
        }
        let is_elsewhere = self.target(step.arg(1)).is_some_and(|next| next.number != flow.location.number);
        let is_of_server = self.is_of_server(step);
        // After those of the server, nginx executes the directives of the new location.
        let mut behind = rest.iter().filter(|own| !is_of_server || self.is_of_server(own));
        is_elsewhere && behind.any(|own| own.name == "return" || closes(slice::from_ref(*own)))
    }

    /// Refuses the paths of a `rewrite` that is not carried: nginx changes them. Whether all paths are refused.
    pub(crate) fn refuse_changed(flow: &Flow<'_, 'a>, step: &Directive, routes: &mut Vec<Route>) -> bool {
        let is_some = !pattern::is_every(step.arg(0));
        let source = pattern::translate(step.arg(0), false).ok().filter(|_| is_some);
        let both = source.and_then(|source| flow.when.and(&When::plain("path_regex", toml::raw(&source))));
        let is_all = both.is_none();
        let when = both.unwrap_or_else(|| flow.when.clone());
        routes.push(Self::refusal(flow.location, flow.at, when));
        is_all
    }
}

/// A path of a `rewrite` without its query.
fn fixed(path: &str) -> &str {
    let path = path.split('?').next().unwrap_or_default();
    path.split("$is_args").next().unwrap_or_default()
}

/// A path with `text` in place of each variable.
fn sample(path: &str, text: &str) -> String {
    let mut parts = fixed(path).split('$');
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, behind) = variable(part).unwrap_or(("", part));
        if PATHS.contains(&name) {
            result.push('/');
        }
        result.extend([text, behind]);
    }
    if result.starts_with('/') { result } else { format!("/{result}") }
}

/// Whether a changed path, of `start` and the variables in `rest`, ends as the path of the client does, from a slash of both:
/// `/files/$1` of `^/p/(.*)$`, and `/files$uri`.
fn keeps_end(source: &str, start: &str, rest: &str) -> bool {
    let Ok((name, "")) = variable(rest) else { return false };
    if PATHS.contains(&name) {
        return true;
    }
    let Some((before, group)) = source.rsplit_once('(') else { return false };
    let is_last = name.parse::<usize>().is_ok_and(|number| number == source.matches('(').count());
    let inner = group.strip_suffix(")$");
    let is_end = inner.is_some_and(|inner| !inner.contains(')')) || is_greedy(group);
    let is_plain = !source.contains("(?") && !source.contains("\\(") && !source.contains("[(");
    let is_whole = matches!(before, "" | "^") && matches!(group, ".*)" | ".*)$" | ".+)" | ".+)$");
    let has_slash = group.starts_with('/')
        || start.ends_with('/') && (before == "^/?" || before.ends_with('/'))
        || is_whole;
    is_last && is_end && is_plain && has_slash
}

/// Whether a group at the end of an expression extends to the end of the path, as `/wp-.*)` does.
fn is_greedy(group: &str) -> bool {
    let inner = group.strip_suffix(')').unwrap_or_default();
    let start = inner.strip_suffix(".*").or_else(|| inner.strip_suffix(".+"));
    start.is_some_and(|start| !start.contains([')', '|']) && !start.ends_with('\\'))
}

/// Whether the matches of an expression have no slash behind their first character: a match begins at a slash of the path or lies
/// between two of them.
fn is_of_segment(pattern: &str) -> bool {
    let inner = pattern.strip_prefix(".*").unwrap_or(pattern);
    let inner = inner.strip_suffix('$').unwrap_or(inner);
    let inner = inner.strip_suffix(".*").unwrap_or(inner);
    let mut tokens = dialect::tokens(inner).into_iter().enumerate();
    !inner.starts_with('^')
        && tokens.all(|(place, token)| match token.as_bytes() {
            b"/" | b"\\/" => place == 0,
            b"." | b"^" | b"\\" => false,
            [b'\\', letter, ..] if letter.is_ascii_alphanumeric() => b"bdsw".contains(letter),
            [b'[', b'^', ..] => token.contains('/'),
            [b'[', ..] => is_without_slash(token),
            _ => !token.contains('/'),
        })
}

/// Whether a class such as `[a-z.]` does not have the slash, also not in a range.
fn is_without_slash(class: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-\\".contains(&byte);
    let inner = class.strip_prefix('[').and_then(|class| class.strip_suffix(']')).unwrap_or(class);
    let has_range = ["--", ".-"].iter().any(|start| inner.trim_end_matches('-').contains(start));
    let has_escape = ["\\W", "\\D", "\\S", "\\x"].iter().any(|escape| inner.contains(escape));
    inner.bytes().all(is_known) && !has_range && !has_escape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_paths_are_kept_by_the_last_group_only() {
        for (source, start, rest, expected) in [
            ("^/p/(.*)$", "/files/", "1", true),
            ("^/p/(.*)", "/files/", "1", true),
            ("^/?(.*)$", "/files/", "1", true),
            ("^(.*)$", "/files", "1", true),
            ("^/p(/.*)$", "/files", "1", true),
            ("^/(a|b)/(.*)$", "/files/", "2", true),
            ("", "/files", "uri", true),
            ("^(/[^/]+)?(/wp-.*)", "", "2", true),
            ("^(/[^/]+)?(/.*[.]php)", "", "2", false),
            (r"^/p/(\.*)", "/files/", "1", false),
            ("^/p/(a|b.*)", "/files/", "1", false),
            ("^/p/(.*)$", "/files/", "1.key", false),
            ("^/p/(.*)$", "/files/x", "1", false),
            ("^/p-(.*)$", "/files/", "1", false),
            ("^/p/(.*)/raw$", "/files/", "1", false),
            ("^/p/([a-z]*)", "/files/", "1", false),
            ("^/(a)/(.*)$", "/files/", "1", false),
            ("^/p/((.*)b)$", "/files/", "2", false),
            ("^/p/(.*)$", "/files/", "1/$2", false),
        ] {
            assert_eq!(keeps_end(source, start, rest), expected, "{source} {start} {rest}");
        }
    }

    #[test]
    fn expressions_of_a_segment_have_one_slash_at_their_beginning() {
        for pattern in
            [r"\.key$", r"/\.", "[.]key$", r"/\.(?!well-known)", "secret", r".*\.git.*", r"/\.[^/]+$"]
        {
            assert!(is_of_segment(pattern), "{pattern}");
        }
        for pattern in ["files/secret", "^/x", "s.key", "/s[^a]y", "(/|x)secret", r"f\Wa", "/f[+-9]a"] {
            assert!(!is_of_segment(pattern), "{pattern}");
        }
    }

    #[test]
    fn samples_have_a_text_for_each_variable() {
        for (path, expected) in [
            ("/$1.php?a=$2", "/x.php"),
            ("/a/${name}/b$is_args$args", "/a/x/b"),
            ("/a$uri", "/a/x"),
            ("$1", "/x"),
        ] {
            assert_eq!(sample(path, "x"), expected, "{path}");
        }
    }
}
