//! Effects of rules that apply to all requests at their place: routes of `Site`, and changes of `Flow::state`.

use crate::haproxy::flow::{Flow, Next, Route};
use crate::haproxy::formula::{Formula, Need};
use crate::haproxy::rule::{Action, Of, Rule};
use crate::haproxy::sample::Sample;
use crate::haproxy::site::Site;
use crate::haproxy::state::Headers;
use crate::haproxy::template::{self, Path, Use};
use crate::nginx::pattern;
use crate::toml::{self, Keys};

impl<'a> Site<'_, '_, 'a> {
    /// Applies a `Rule` whose condition holds: `Next::End` if it responds.
    pub(crate) fn apply(&mut self, flow: &mut Flow<'a>, rule: &Rule<'a>, routes: &mut Vec<Route>) -> Next {
        let result = match &rule.action {
            Action::Allow => return Next::Segment,
            Action::Silent => {
                flow.state.is_silent = true;
                Ok(())
            }
            Action::Respond(_) | Action::Redirect(_) | Action::Users(_) => match self.respond(flow, rule) {
                Ok(route) => {
                    self.push(route, routes);
                    return Next::End;
                }
                Err(reason) => Err(reason),
            },
            Action::Use(name) => match self.context.proxies.backend(name) {
                Some((index, _)) => return self.enter(flow, index),
                None => Err(format!("there is no backend {name}")),
            },
            Action::Unknown(reason) => Err(reason.clone()),
            Action::Path(path) => new_path(path, flow),
            Action::ReplacePath(from, to) => replaced_path(from, to, flow),
            Action::Set(..) | Action::Add(..) | Action::Remove(..) | Action::Replace(..) => {
                if let Err(reason) = self.header(flow, rule) {
                    self.lost(rule.line, reason);
                }
                rule.action.note_change(&mut flow.state.changed);
                return Next::Rule;
            }
        };
        match result {
            Ok(()) => {
                if matches!(&rule.action, Action::ReplacePath(..) | Action::Path(Path::Replaced(..))) {
                    let detail = "brisk forms the path without percent-encoding: %2F becomes a slash";
                    self.context.different(rule.line, detail);
                }
                Next::Rule
            }
            Err(reason) => {
                self.refuse(flow, rule.line, &reason, routes);
                Next::End
            }
        }
    }

    /// The route of a fixed response: `respond`, `redirect`, or the status 401 for `Action::Users`.
    fn respond(&self, flow: &Flow<'a>, rule: &Rule<'a>) -> Result<Route, String> {
        let rules = self.rules_of(flow);
        let resolve = |sample: Sample| rules.0.resolved(sample);
        let place = self.place(flow, &resolve);
        let mut is_to_https = false;
        let mut keys = match &rule.action {
            Action::Respond(response) => response.keys(&place)?,
            Action::Redirect(redirect) => {
                is_to_https = redirect.is_to_https() && !self.secure;
                Keys::of("redirect", redirect.toml(&place)?)
            }
            _ => Keys::of("respond", "{ status = 401 }"),
        };
        self.restrictions(flow, &mut keys);
        Ok(Route {
            when: flow.when.clone(),
            keys,
            comment: rule.line.comment(),
            is_to_https,
            line: rule.line.id,
        })
    }

    /// Changes `Flow::state` by a rule for a header, such as `set-header` or `del-header`.
    fn header(&self, flow: &mut Flow<'a>, rule: &Rule<'a>) -> Result<(), String> {
        let (Action::Set(of, name, _)
        | Action::Add(of, name, _)
        | Action::Remove(of, name)
        | Action::Replace(of, name, ..)) = &rule.action
        else {
            return Ok(());
        };
        let of = *of;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        {
            return Err("the name of the header depends on a variable".to_owned());
        }
        if Headers::is_framing(name) {
            self.context.unneeded(rule.line, "brisk frames each message itself");
            return Ok(());
        }
        let value = match &rule.action {
            Action::Set(_, _, format) | Action::Add(_, _, format) => {
                match self.value(flow, of, format) {
                    Ok(text) => text,
                    Err(reason) => {
                        // A value of the client must not take the place of the missing one.
                        if of == Of::Request && matches!(rule.action, Action::Set(..)) {
                            flow.state.request.remove(name);
                        }
                        return Err(reason);
                    }
                }
            }
            Action::Replace(..)
                if of == Of::Request && flow.state.changed.contains(&name.to_ascii_lowercase()) =>
            {
                flow.state.request.remove(name);
                return Err("a rule has changed the header before".to_owned());
            }
            Action::Replace(_, _, from, to) => self.replaced(of, name, from, to, rule)?,
            _ => String::new(),
        };
        let lower = name.to_ascii_lowercase();
        if of == Of::Request && self.is_default(&lower, &value, &rule.action) {
            if lower == "x-real-ip" {
                flow.state.real_ip = true;
            }
            // A rule before it for the same header has no effect any more.
            flow.state.request.default(name);
            return Ok(());
        }
        let headers = if of == Of::Request { &mut flow.state.request } else { &mut flow.state.response };
        match &rule.action {
            Action::Remove(..) => headers.remove(name),
            Action::Add(..) if !headers.add(name, &value) => {
                return Err(format!("brisk adds one line of {name}"));
            }
            Action::Add(..) => {}
            _ => headers.set(name, &value),
        }
        Ok(())
    }

    /// The value of a header. An error if it has another one that a rule has changed: brisk would copy the value of the client.
    fn value(&self, flow: &Flow<'a>, of: Of, format: &str) -> Result<String, String> {
        let rules = self.rules_of(flow);
        let resolve = |sample: Sample| rules.0.resolved(sample);
        let use_of = if of == Of::Response { Use::Response } else { Use::Value };
        let text = template::text(format, use_of, &self.place(flow, &resolve))?;
        let is_in = |name: &String| text.contains(&format!("{{request.header.{name}}}"));
        if flow.state.changed.iter().any(is_in) {
            return Err("a rule has changed the header in the value before".to_owned());
        }
        Ok(text)
    }

    /// Whether brisk sends the header with this value without a setting, or has a key for it.
    fn is_default(&self, name: &str, value: &str, action: &Action) -> bool {
        if matches!(action, Action::Remove(..)) {
            return name == "proxy";
        }
        match name {
            "x-forwarded-proto" | "x-forwarded-scheme" if name == "x-forwarded-proto" => {
                value == if self.secure { "https" } else { "http" } || value == "{request.scheme}"
            }
            "x-forwarded-for" | "x-real-ip" => value == "{client.address}",
            "x-forwarded-host" | "host" => matches!(value, "{request.header.host}" | "{request.host}"),
            "x-request-id" => value == "{request.id}",
            _ => false,
        }
    }

    /// The table for a header that an expression changes: `{map.NAME}` is its value, with the expression in `patterns`.
    fn replaced(&self, of: Of, name: &str, from: &str, to: &str, rule: &Rule<'a>) -> Result<String, String> {
        let lower = name.to_ascii_lowercase();
        let source = if of == Of::Request { "request" } else { "response" };
        let regex = pattern::translate(from, false)?;
        let mut keys = Keys::of("from", toml::text(&format!("{{{source}.header.{lower}}}")));
        let entry = |regex: &str, value: &str| {
            format!("{{ regex = {}, value = {} }}", toml::raw(regex), toml::text(value))
        };
        // The second pattern keeps a value that the first one does not match.
        keys.set("patterns", format!("[{}, {}]", entry(&regex, &grouped(to, 0)?), entry("^(.*)$", "{1}")));
        Ok(format!("{{map.{}}}", self.context.named("map", &toml::name(&lower), &keys, rule.line)))
    }

    /// Adds the restrictions that a refusal means to `flow.state`: `users`, `certificate`, `limits` and `body_size`. `false`, and
    /// no change of `flow.state`, if its condition has other parts.
    pub(crate) fn require(&self, flow: &mut Flow<'a>, rule: &Rule<'a>, formula: &Formula) -> bool {
        let parts = match formula {
            Formula::Any(parts) => parts.as_slice(),
            own => std::slice::from_ref(own),
        };
        let status = match &rule.action {
            Action::Respond(response) if response.is_refusal() => response.status,
            Action::Users(_) => 401,
            Action::Use(name) if self.backend_refuses(name) => 429,
            _ => return false,
        };
        // All parts have to succeed: the copy takes the place of the state only then.
        let mut state = flow.state.clone();
        for part in parts {
            let is_done = match part {
                Formula::Not(inner) => match &**inner {
                    Formula::Need(need) if !matches!(rule.action, Action::Use(_)) => {
                        let realm = if let Action::Users(Some(realm)) = &rule.action { realm } else { "" };
                        self.note_need(need, rule);
                        state.require(need, realm)
                    }
                    _ => false,
                },
                Formula::Rate(rate) => {
                    let name = self.context.limit(rate, status, rule.line);
                    if !state.limits.contains(&name) {
                        state.limits.push(name);
                    }
                    true
                }
                Formula::Longer(size) => {
                    state.body_size = Some(state.body_size.map_or(*size, |own| own.min(*size)));
                    self.context.different(rule.line, "brisk responds with 413 to a larger body");
                    true
                }
                _ => false,
            };
            if !is_done {
                return false;
            }
        }
        flow.state = state;
        true
    }

    fn note_need(&self, need: &Need, rule: &Rule<'a>) {
        if matches!((need, &rule.action), (Need::User { .. }, Action::Respond(_))) {
            self.context.different(rule.line, "brisk responds with 401, so that browsers request a password");
        }
    }
}

/// A text with groups `\1` as brisk writes it, whose numbers are `shift` higher: `/a/{1}` for `/a/\1` and 0.
fn grouped(text: &str, shift: usize) -> Result<String, String> {
    let mut result = String::new();
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            '\\' => match rest.next() {
                Some(digit) if digit.is_ascii_digit() => {
                    let group = digit.to_digit(10).unwrap_or(0) as usize;
                    // The whole match is no group of its own in a shifted text.
                    if group == 0 && shift > 0 {
                        return Err("the text has the whole match".to_owned());
                    }
                    result.extend(["{", &(group + shift).to_string(), "}"]);
                }
                Some(other) => result.push(other),
                None => {}
            },
            '%' if rest.peek() == Some(&'[') => return Err("the text has a variable".to_owned()),
            '%' if rest.peek() == Some(&'%') => {}
            '{' => return Err("the text has a brace".to_owned()),
            next => result.push(next),
        }
    }
    Ok(result)
}

/// Sets the one key for a new path: `rewrite_path` or `replace_prefix`.
fn set_path(flow: &mut Flow<'_>, key: &str, value: String) -> Result<(), String> {
    if !flow.state.path.is_empty() {
        return Err("two rules change the path".to_owned());
    }
    flow.state.path.set(key, value);
    Ok(())
}

fn rewrite(flow: &mut Flow<'_>, regex: &str, to: &str) -> Result<(), String> {
    if !to.starts_with('/') {
        return Err("the new path may begin without a slash".to_owned());
    }
    let keys = Keys(vec![("pattern".to_owned(), toml::raw(regex)), ("to".to_owned(), toml::text(to))]);
    set_path(flow, "rewrite_path", keys.inline())
}

fn new_path(path: &Path, flow: &mut Flow<'_>) -> Result<(), String> {
    match path {
        Path::Same => Ok(()),
        Path::Fixed(text) if text.contains(['{', '?', '#']) => Err("the new path has a query".to_owned()),
        Path::Fixed(text) => rewrite(flow, "^", text),
        Path::Before(text) if !text.starts_with('/') || text.contains(['?', '#', '{']) => {
            Err("the new path may begin without a slash".to_owned())
        }
        Path::Before(text) => set_path(flow, "replace_prefix", toml::text(text)),
        Path::Replaced(from, ..) if from.contains('%') => {
            Err("brisk changes the path without percent-encoding".to_owned())
        }
        Path::Replaced(from, to, ignore_case) => {
            let from = pattern::translate(from, *ignore_case)?;
            let own = from.strip_prefix("(?i)").unwrap_or(&from);
            let flag = if *ignore_case { "(?i)" } else { "" };
            let groups = pattern::groups(own).ok_or("brisk does not have the expression")?;
            let (regex, to) = match own.strip_prefix('^') {
                // The added `(.*)$` would belong to the last alternative only.
                _ if has_alternative(own) => return Err("the expression has alternatives".to_owned()),
                Some(_) if own.ends_with('$') => (format!("{flag}{own}"), grouped(to, 0)?),
                Some(_) => (format!("{flag}{own}(.*)$"), format!("{}{{{}}}", grouped(to, 0)?, groups + 1)),
                None => return Err("the expression may match in the middle of the path".to_owned()),
            };
            let (regex, to) = with_slash(&regex, &to);
            rewrite(flow, &regex, &to)
        }
    }
}

fn replaced_path(from: &str, to: &str, flow: &mut Flow<'_>) -> Result<(), String> {
    if from.contains('%') {
        return Err("brisk changes the path without percent-encoding".to_owned());
    }
    let regex = pattern::translate(from, false)?;
    let (regex, to) = with_slash(&regex, &grouped(to, 0)?);
    rewrite(flow, &regex, &to)
}

/// An expression and a text that begins with a slash, if the first group begins with one: `/(.*)` and `/{1}` for `(/.*)` and
/// `{1}`.
fn with_slash(regex: &str, to: &str) -> (String, String) {
    if !to.starts_with("{1}") {
        return (regex.to_owned(), to.to_owned());
    }
    for (own, new) in [("(/.*)?", "/?(.*)"), ("(/.*)", "/(.*)")] {
        let is_first = regex.find('(') == regex.find(own);
        if is_first && let Some((before, behind)) = regex.split_once(own) {
            return (format!("{before}{new}{behind}"), format!("/{to}"));
        }
    }
    (regex.to_owned(), to.to_owned())
}

fn has_alternative(regex: &str) -> bool {
    pattern::fixed_start(regex).is_empty() && regex.contains('|')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_paths_begin_with_a_slash() {
        for (from, to, expected) in [
            ("/foo/(.*)", r"/\1", Some("{ pattern = \"/foo/(.*)\", to = \"/{1}\" }")),
            ("^/api(/.*)?", r"\1", Some("{ pattern = \"^/api/?(.*)\", to = \"/{1}\" }")),
            ("^/a(/.*)", r"\1", Some("{ pattern = \"^/a/(.*)\", to = \"/{1}\" }")),
            ("^/(.*)", r"x\1", None),
            ("(?!a)b", "/", None),
        ] {
            let mut flow = Flow::new(Vec::new());
            let result = replaced_path(from, to, &mut flow);
            assert_eq!(result.is_ok(), expected.is_some(), "{from}: {result:?}");
            assert_eq!(flow.state.path.get("rewrite_path"), expected, "{from}");
        }
    }

    #[test]
    fn replaced_beginnings_keep_the_rest_of_the_path() {
        let mut flow = Flow::new(Vec::new());
        let path = Path::Replaced("^/api/".to_owned(), "/".to_owned(), false);
        assert_eq!(new_path(&path, &mut flow), Ok(()));
        assert_eq!(flow.state.path.get("rewrite_path"), Some("{ pattern = \"^/api/(.*)$\", to = \"/{1}\" }"));
        assert!(new_path(&path, &mut flow).is_err());
    }
}
