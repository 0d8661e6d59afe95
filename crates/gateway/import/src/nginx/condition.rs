//! Conditions: `when` of routes, and the forms of `if` that have a counterpart there.

use std::net::IpAddr;

use crate::directive::Directive;
use crate::nginx::context::Context;
use crate::nginx::location::has_parameters;
use crate::nginx::method_list::common_methods;
use crate::nginx::variables::variable;
use crate::nginx::{maps, method_map, pattern};
use crate::toml::{self, Keys};

/// Conditions of a route that all have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct When(Vec<(&'static str, String, String)>);

impl When {
    /// A condition with one value: `methods`, `networks` and `path_regex`.
    pub(crate) fn plain(key: &'static str, value: String) -> Self {
        Self(vec![(key, String::new(), value)])
    }

    /// A test of a header, cookie or parameter of the query.
    pub(crate) fn test(key: &'static str, name: &str, test: String) -> Self {
        Self(vec![(key, name.to_owned(), test)])
    }

    /// A test of a header.
    pub(crate) fn header(name: &str, test: String) -> Self {
        Self::test("headers", name, test)
    }

    /// Both conditions; none if they are about the same part of the request.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        let clash = |(key, name, _): &&(&'static str, String, String)| {
            other.0.iter().any(|(own, own_name, _)| own == key && own_name.eq_ignore_ascii_case(name))
        };
        let differs = |condition: &&(&'static str, String, String)| !other.0.contains(condition);
        let is_method = |condition: &&(&'static str, String, String)| condition.0 == "methods";
        if self.0.iter().filter(clash).filter(differs).any(|condition| !is_method(&condition)) {
            return None;
        }
        let mut all: Vec<_> = self.0.iter().filter(differs).chain(&other.0).cloned().collect();
        let lists: Vec<_> = all.iter().filter(is_method).map(|(_, _, list)| list.clone()).collect();
        if let [first, second] = lists.as_slice() {
            let both = common_methods(first, second);
            all.retain(|(key, _, _)| *key != "methods");
            all.push(("methods", String::new(), both));
        }
        Some(Self(all))
    }

    /// Whether no method meets the condition.
    pub(crate) fn is_never(&self) -> bool {
        self.0.iter().any(|(key, _, value)| *key == "methods" && value == "[]")
    }

    /// Whether another condition is that a header, cookie or parameter of this one has any value.
    pub(crate) fn implies(&self, other: &Self) -> bool {
        let [(key, name, test)] = other.0.as_slice() else { return false };
        let is_present = |(own, own_name, own_test): &(&'static str, String, String)| {
            own == key && own_name.eq_ignore_ascii_case(name) && own_test != "false"
        };
        test == "true" && self.0.iter().any(is_present)
    }

    /// Names of the headers, cookies or parameters that are tested, by the key of the table.
    pub(crate) fn names(&self, key: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(own, _, _)| *own == key).map(|(_, name, _)| name.as_str())
    }

    /// Whether there is no condition.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the route has an expression for its path, whose groups a redirect can use.
    pub(crate) fn has_path(&self) -> bool {
        self.0.iter().any(|(key, _, _)| *key == "path_regex")
    }

    /// Whether all paths of the route match an expression of brisk.
    pub(crate) fn is_of_path(&self, pattern: &str) -> bool {
        self.0.iter().any(|(key, _, value)| *key == "path_regex" && *value == toml::raw(pattern))
    }

    /// Whether the methods have this one, as TOML.
    fn has_method(&self, method: &str) -> bool {
        self.0.iter().any(|(key, _, value)| *key == "methods" && value.contains(method))
    }

    /// Whether there is only a `path_regex` for scripts of PHP.
    pub(crate) fn is_about_scripts(&self) -> bool {
        matches!(self.0.as_slice(), [("path_regex", _, value)] if value.contains(r"\.php") || value.contains("[.]php"))
    }

    /// The inline table.
    pub(crate) fn toml(&self) -> String {
        let mut keys = Keys::default();
        for key in ["methods", "networks", "path_regex"] {
            for (_, _, value) in self.0.iter().filter(|(own, _, _)| *own == key) {
                keys.set(key, value.clone());
            }
        }
        for key in ["headers", "query", "cookies"] {
            let mut tests = Keys::default();
            for (_, name, test) in self.0.iter().filter(|(own, _, _)| *own == key) {
                tests.set(name, test.clone());
            }
            if !tests.is_empty() {
                keys.set(key, tests.inline());
            }
        }
        keys.inline()
    }
}

/// Texts that are true in nginx: all except the empty one and `0`.
pub(crate) const TRUE: &str = "^0?[^0]|^00";

/// Meaning of an `if`.
#[derive(Debug)]
pub(crate) enum Condition {
    /// One of several conditions, or none of them.
    Any {
        any: Vec<When>,
        negated: bool,
    },
    Never,
    /// There is no file for the path (`!-e $request_filename`).
    NoFile,
    /// There is a file for the path.
    File,
    /// A fixed file exists.
    Switch(String),
    /// `$invalid_referer`.
    Referer,
}

/// The comparison of an `if`: the variable, the operator and the value.
fn comparison(directive: &Directive) -> Result<(String, String, String), String> {
    // With a character that no ordinary argument has, so that a quoted argument with spaces stays whole.
    let joined = directive.args.join("\u{1}");
    let inner = joined
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'))
        .ok_or("the condition has no parentheses")?;
    let parts: Vec<_> =
        inner.split('\u{1}').map(|part| part.trim_matches(' ')).filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [one] => match one.find(['=', '~', '!']) {
            // Operators without spaces.
            Some(at) if at > 0 && one.starts_with('$') => {
                let (name, rest) = one.split_at(at);
                let end = rest.find(|next| !matches!(next, '=' | '~' | '!' | '*')).unwrap_or(rest.len());
                Ok((name.to_owned(), rest[..end].to_owned(), rest[end..].to_owned()))
            }
            _ => Ok(((*one).to_owned(), String::new(), String::new())),
        },
        [operator, file] if operator.starts_with(['-', '!']) => {
            Ok(((*file).to_owned(), (*operator).to_owned(), String::new()))
        }
        [name, operator] => Ok(((*name).to_owned(), (*operator).to_owned(), String::new())),
        [name, operator, rest @ ..] => Ok(((*name).to_owned(), (*operator).to_owned(), rest.join(" "))),
        [] => Err("the condition is empty".to_owned()),
    }
}

impl Context<'_> {
    /// The meaning of an `if`. The error is the reason why it has no counterpart.
    pub(crate) fn condition(&self, directive: &Directive) -> Result<Condition, String> {
        let (subject, operator, value) = comparison(directive)?;
        if operator.starts_with('-') || operator.starts_with("!-") {
            return file_test(&subject, &operator);
        }
        let (name, behind) =
            variable(subject.strip_prefix('$').ok_or("the condition does not begin with a variable")?)?;
        if !behind.is_empty() {
            return Err("a condition of brisk concerns one variable".to_owned());
        }
        if name == "invalid_referer" {
            return match (&*operator, &*value) {
                ("", _) | ("=", "1") => Ok(Condition::Referer),
                _ => Err("$invalid_referer is compared in another way".to_owned()),
            };
        }
        let negated = operator.starts_with('!');
        let wanted = |result: &str| match operator.trim_start_matches('!') {
            // In nginx, an empty text and `0` are false.
            "" => !matches!(result, "" | "0"),
            _ => result == value,
        };
        let is_table = self.maps.contains_key(name) || self.geos.contains_key(name);
        // With another operator, each line of the table would have to be matched here. A wrong result would
        // lose a refusal.
        if is_table && !matches!(&*operator, "" | "=" | "!=") {
            return Err("the result of the map is compared in another way than =".to_owned());
        }
        if let Some(map) = self.maps.get(name) {
            return self.map_condition(map, &wanted, negated);
        }
        if let Some(geo) = self.geos.get(name) {
            return self.geo_condition(geo, &wanted, negated);
        }
        // Without a negation, the routes of the rest have no condition that a further `if` would repeat.
        match (&*operator, &*value) {
            ("=", "") => return Ok(Condition::Any { any: empty(name)?, negated: false }),
            ("!=", "") => return Ok(Condition::Any { any: vec![test(name, "~", ".")?], negated: false }),
            _ => {}
        }
        let any = vec![test(name, &operator, &value)?];
        self.compared(directive, name, &any);
        Ok(Condition::Any { any, negated })
    }

    /// The condition of an `if` that only refuses requests, with an expression for more values in place of one with look-around.
    pub(crate) fn wider(&self, directive: &Directive) -> Option<When> {
        let first = directive.inner().first().filter(|first| first.name == "return")?;
        let is_refusal = first.arg(0).parse().is_ok_and(|status: u16| status >= 400);
        let (subject, operator, value) = comparison(directive).ok()?;
        let (name, behind) = variable(subject.strip_prefix('$')?).ok()?;
        let is_table = self.maps.contains_key(name) || self.geos.contains_key(name);
        if !is_refusal || is_table || !behind.is_empty() || !matches!(&*operator, "~" | "~*") {
            return None;
        }
        test(name, &operator, &pattern::wider(&value)?).ok()
    }

    /// Notes the differences of a comparison in brisk.
    fn compared(&self, directive: &Directive, name: &str, any: &[When]) {
        if name.starts_with("arg_") || name.starts_with("cookie_") {
            self.different(directive, "brisk compares the name with its case, and decoded parameters");
        }
        let has = |method: &str| any.iter().any(|when| when.has_method(method));
        if has("\"GET\"") && !has("\"HEAD\"") {
            self.different(directive, "GET includes HEAD in brisk");
        }
    }

    /// The conditions under which a `map` has a true value, or a given one.
    fn map_condition(
        &self,
        map: &Directive,
        wanted: &dyn Fn(&str) -> bool,
        negated: bool,
    ) -> Result<Condition, String> {
        let (chosen, flip) = self.chosen_lines(map, wanted)?;
        let any =
            chosen.into_iter().map(|line| Self::line_condition(map, line)).collect::<Result<Vec<_>, _>>()?;
        self.carried_whole(map);
        Ok(any_of(any.concat(), negated != flip))
    }

    /// The condition for one line of a `map`.
    pub(crate) fn line_condition(map: &Directive, line: &Directive) -> Result<Vec<When>, String> {
        if let Some((between, other)) = method_map::parts(map.arg(0)) {
            return method_map::key_tests(&line.name, between, other);
        }
        let source =
            map.arg(0).strip_prefix('$').ok_or("the map does not have one variable as its source")?;
        if maps::is_wildcard(map, line) {
            return Err("the key of the map is a name with a wildcard".to_owned());
        }
        key_test(source, &line.name)
    }
}

/// One of several conditions, or none of them if `negated`. One of no conditions is [`Condition::Never`].
pub(crate) fn any_of(any: Vec<When>, negated: bool) -> Condition {
    if any.is_empty() && !negated { Condition::Never } else { Condition::Any { any, negated } }
}

/// The tests of a key of a `map`, of which one has to hold. nginx compares texts without their case.
pub(crate) fn key_test(source: &str, key: &str) -> Result<Vec<When>, String> {
    let (operator, value) = maps::comparison(key);
    let has_letters = value.bytes().any(|byte| byte.is_ascii_alphabetic());
    match source {
        _ if operator == "=" && value.is_empty() => empty(source),
        "request_method" if operator == "=" => Ok(vec![test(source, "=", &value.to_ascii_uppercase())?]),
        "remote_addr" => Ok(vec![test(source, operator, &value)?]),
        _ if operator == "=" && has_letters => {
            Ok(vec![test(source, "~*", &format!("^{}$", pattern::escaped(&value)))?])
        }
        _ => Ok(vec![test(source, operator, &value)?]),
    }
}

/// The tests for a variable that is missing, or has no value.
fn empty(name: &str) -> Result<Vec<When>, String> {
    Ok(vec![test(name, "=", "")?, test(name, "~", "^$")?])
}

/// The test of one variable, without its negation.
fn test(name: &str, operator: &str, value: &str) -> Result<When, String> {
    let expression = match operator.trim_start_matches('!') {
        "~" => Some(pattern::translate(value, false)?),
        "~*" => Some(pattern::translate(value, true)?),
        "=" | "" => None,
        other => return Err(format!("{other} is no operator of a condition")),
    };
    let text_test = |is_set: bool| match &expression {
        Some(expression) => format!("{{ regex = {} }}", toml::raw(expression)),
        None if is_set => format!("{{ regex = {} }}", toml::raw(TRUE)),
        None if value.is_empty() => "false".to_owned(),
        None => toml::text(value),
    };
    let is_set = operator.is_empty();
    match name {
        "request_method" => match (&expression, pattern::alternatives(value)) {
            (None, _) => Ok(When::plain("methods", toml::list([value]))),
            // `~*` ignores case, brisk does not: methods have their usual spelling, in capitals.
            (Some(_), Some(all)) if operator.ends_with('*') => {
                let all = all.iter().map(|method| method.to_ascii_uppercase());
                Ok(When::plain("methods", toml::list(all)))
            }
            (Some(_), Some(all)) => Ok(When::plain("methods", toml::list(all))),
            _ => Err("methods are compared as whole words".to_owned()),
        },
        // nginx compares `$request_uri` with its query, `path_regex` without: only a start without a query
        // has one meaning in both.
        "request_uri" if !pattern::is_literal_start(value) || expression.is_none() => {
            Err("$request_uri has the query too: brisk compares a literal start of it only".to_owned())
        }
        "uri" | "document_uri" | "request_uri" if has_parameters(value) => {
            Err("the paths of brisk have no parameters of segments, such as ;x=1".to_owned())
        }
        "uri" | "document_uri" | "request_uri" => match expression {
            Some(expression) => Ok(When::plain("path_regex", toml::raw(&expression))),
            None if !is_set && value.starts_with('/') => {
                Ok(When::plain("path_regex", toml::raw(&format!("^{}$", pattern::escaped(value)))))
            }
            None => Err("the path is never empty".to_owned()),
        },
        "remote_addr" if expression.is_none() && !is_set && value.parse::<IpAddr>().is_ok() => {
            Ok(When::plain("networks", toml::list([value])))
        }
        "host" | "http_host" | "server_name" => Err("routes of brisk do not test the host".to_owned()),
        _ => match name.split_once('_') {
            // The name of a header in a variable has underscores for hyphens.
            Some(("http", header)) => Ok(When::test("headers", &header.replace('_', "-"), text_test(is_set))),
            Some(("cookie", cookie)) => Ok(When::test("cookies", cookie, text_test(is_set))),
            // nginx does not decode parameters.
            Some(("arg", _)) if value.contains('%') => {
                Err("brisk compares decoded parameters of the query".to_owned())
            }
            Some(("arg", parameter)) => Ok(When::test("query", parameter, text_test(is_set))),
            _ => Err(format!("conditions of brisk cannot test ${name}")),
        },
    }
}

fn file_test(subject: &str, operator: &str) -> Result<Condition, String> {
    let is_request =
        matches!(subject, "$request_filename" | "$document_root$uri" | "$document_root$document_uri");
    match operator {
        "!-e" | "!-f" | "!-d" if is_request => Ok(Condition::NoFile),
        "-e" | "-f" if is_request => Ok(Condition::File),
        "-e" | "-f" => Ok(Condition::Switch(subject.to_owned())),
        _ => Err("conditions of brisk cannot test files".to_owned()),
    }
}

/// Whether the directive is `if` with a condition about the name of the host, and ends all requests that meet it.
pub(crate) fn is_host_condition(directive: &Directive) -> bool {
    let subject = directive.arg(0).trim_start_matches('(');
    directive.name == "if"
        && matches!(subject, "$host" | "$http_host" | "$server_name")
        && directive.args.len() > 2
        && directive.inner().iter().any(|step| match step.name.as_str() {
            "return" => true,
            "rewrite" => {
                // With another expression, some requests would pass on to the rest of the server, which a
                // host of its own does not have.
                matches!(step.arg(2), "redirect" | "permanent")
                    && pattern::is_every(&step.arg(0).replace(['(', ')'], ""))
            }
            _ => false,
        })
}
