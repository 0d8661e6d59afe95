//! `valid_referers`: tests of the header `Referer`.
//!
//! nginx compares the host without its case and without the port, and then the beginning of the path. A header without
//! `http://` or `https://`, or of less than 11 bytes, is `blocked`.

use crate::directive::Directive;
use crate::nginx::branch::CLASH;
use crate::nginx::condition::When;
use crate::nginx::dialect;
use crate::nginx::flow::Flow;
use crate::nginx::location::{Route, program};
use crate::nginx::pattern;
use crate::nginx::site::Site;
use crate::toml;

/// All headers that `blocked` permits: they end, or differ, before the end of `https://`.
const BLOCKED: &str =
    "(?i)^(?:[^h]|h[^t]|ht[^t]|htt[^p]|http[^s:]|https[^:]|https?:[^/]|https?:/[^/]|.{0,10}$)";

impl<'a> Site<'_, 'a> {
    /// An `if` of `$invalid_referer`. Whether it has added the routes of the rest too.
    pub(crate) fn referers(
        &self,
        flow: &Flow<'_, 'a>,
        step: &'a Directive,
        rest: &[&'a Directive],
        routes: &mut Vec<Route>,
    ) -> bool {
        let lines = flow.scope.all("valid_referers");
        if lines.is_empty() {
            self.context.unneeded(step, "without valid_referers, the condition never holds");
            return false;
        }
        let tests = match self.tests(&lines) {
            Ok(tests) => tests,
            Err(reason) => {
                for line in lines {
                    let action = "write the condition in when.headers of the route";
                    self.context.missing(line, reason.as_str(), action);
                }
                return self.unexpressed(flow, step, &reason, routes);
            }
        };
        let flows: Vec<_> =
            tests.iter().filter_map(|test| flow.with(&When::header("Referer", test.clone()))).collect();
        if flows.len() < tests.len() {
            return self.unexpressed(flow, step, CLASH, routes);
        }
        for line in lines.iter().chain([&step]) {
            self.context.carried(line);
        }
        for flow in flows {
            self.run(flow, rest, routes);
        }
        let mut inner = program(step.inner());
        if !inner.iter().any(|inner| matches!(&*inner.name, "return" | "break")) {
            inner.extend(rest);
        }
        self.run(flow.inside(step), &inner, routes);
        true
    }

    /// Tests of which a valid header passes one.
    fn tests(&self, lines: &[&'a Directive]) -> Result<Vec<String>, String> {
        let mut hosts = Vec::new();
        let (mut is_missing, mut is_blocked) = (false, false);
        for word in lines.iter().flat_map(|line| &line.args) {
            match word.as_str() {
                "none" => is_missing = true,
                "blocked" => is_blocked = true,
                "server_names" => {
                    for name in self.scope.all("server_name").iter().flat_map(|line| &line.args) {
                        hosts.extend(name_pattern(name)?);
                    }
                }
                name if name.starts_with('~') => hosts.push(expression(&name[1..])?),
                name => hosts.extend(name_pattern(name)?),
            }
        }
        let mut tests = Vec::new();
        if !hosts.is_empty() {
            let pattern = format!("^(?i:https?)://(?:{})", hosts.join("|"));
            // The shortest header with a host has 11 bytes, `http://i.ru`.
            tests.push(format!("{{ regex = {} }}", toml::raw(&pattern)));
        }
        if is_missing {
            tests.push("false".to_owned());
        }
        if is_blocked {
            tests.push(format!("{{ regex = {} }}", toml::raw(BLOCKED)));
        }
        Ok(tests)
    }
}

/// The expression for a name with wildcards and the beginning of a path; none for the empty name of a server.
fn name_pattern(name: &str) -> Result<Option<String>, String> {
    if name.starts_with('~') {
        return Err("names of the server are expressions".to_owned());
    }
    let (host, path) = name.find('/').map_or((name, ""), |start| name.split_at(start));
    if host.is_empty() {
        return Ok(None);
    }
    let (start, host) = match host.strip_prefix("*.") {
        Some(host) => ("[^/:]*\\.", host),
        None => host.strip_prefix('.').map_or(("", host), |host| ("(?:[^/:]*\\.)?", host)),
    };
    let (host, end) = match host.strip_suffix(".*") {
        Some(host) => (host, "\\.[^/:]+"),
        None => (host, ""),
    };
    let host = format!("{start}(?i:{}){end}", pattern::escaped(host));
    Ok(Some(match path {
        "" => format!("{host}(?:[/:]|$)"),
        path => format!("{host}(?::[^/]*)?{}", pattern::escaped(path)),
    }))
}

/// The expression for all that follows the scheme, which nginx searches without the case.
fn expression(text: &str) -> Result<String, String> {
    let is_anchored = text.starts_with('^');
    let own = text.strip_prefix('^').unwrap_or(text);
    if dialect::tokens(own).iter().any(|token| matches!(*token, "^" | "\\A")) {
        return Err("the expression of a referer has several beginnings".to_owned());
    }
    if is_anchored && pattern::has_outer_alternative(own) {
        return Err("the expression of a referer has several beginnings".to_owned());
    }
    let translated = pattern::translate(own, false)?;
    Ok(format!("{}(?i:{translated})", if is_anchored { "" } else { ".*" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_wildcards_ports_and_paths() {
        let matches = |name: &str, referer: &str| {
            let own = if let Some(own) = name.strip_prefix('~') {
                expression(own).expect("an expression")
            } else {
                name_pattern(name).expect("a name").expect("a host")
            };
            pattern::matches(&format!("^(?i:https?)://(?:{own})"), false, referer)
        };
        for (name, referer, expected) in [
            ("example.org/gallery/", "http://example.org/gallery/x", true),
            ("example.org/gallery/", "http://EXAMPLE.org:80/gallery/x", true),
            ("example.org/gallery/", "http://example.org/Gallery/", false),
            ("example.org/gallery/", "http://example.org/galler", false),
            ("example.org/gallery/", "http://example.org:80x", false),
            ("example.org", "HTTPS://example.org", true),
            ("example.org", "http://example.org.evil", false),
            ("example.org", "http://x.example.org/", false),
            ("*.example.org", "http://x.y.example.org/", true),
            ("*.example.org", "http://evil/.example.org/", false),
            (".example.org", "http://example.org/", true),
            (".example.org", "http://xexample.org/", false),
            ("www.example.*", "http://www.example.co.uk/", true),
            ("www.example.*", "http://www.example/", false),
            (r"~\.goo\.", "http://a.goo.x/", true),
            (r"~\.goo\.", "http://x/y.GOO.", true),
            (r"~^goo\.", "http://goo.x/", true),
            (r"~^goo\.", "http://x/goo.", false),
        ] {
            assert_eq!(matches(name, referer), expected, "{name} {referer}");
        }
        assert!(expression("^a|b").is_err() && expression("a|^b").is_err() && name_pattern("~a").is_err());
        assert_eq!(name_pattern(""), Ok(None));
    }

    #[test]
    fn blocked_headers_have_no_scheme() {
        for (referer, expected) in [
            ("", true),
            ("foo", true),
            ("http://a.b", true),
            ("https:/long.example", true),
            ("httpx://long.example", true),
            ("http://long.example", false),
            ("HTTPS://long.example", false),
            ("http://i.ru", false),
        ] {
            assert_eq!(pattern::matches(BLOCKED, false, referer), expected, "{referer}");
        }
    }
}
