//! Variables of nginx in texts, and their counterparts in brisk.

use std::collections::{BTreeMap, BTreeSet};

use crate::directive::Directive;
use crate::nginx::context::Context;
use crate::report::Class;
use crate::toml::{self, Keys};

/// Use of a text in brisk, which decides about the permitted variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A header, a key of a limit, or the source of a table.
    Value,
    /// The target of a redirect.
    Redirect,
    /// A rewritten path: groups only.
    Path,
    /// The body of a fixed response.
    Body,
    /// A line of the access log.
    Log,
}

/// Values of variables at a place: those of `set`, and whether groups of an expression exist.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    pub(crate) set: BTreeMap<String, String>,
    /// Whether `$1` and names are groups of the `path_regex` of the route.
    pub(crate) groups: bool,
    /// The expression with the named groups, `(?P<name>...)`.
    pub(crate) pattern: String,
}

impl Values {
    /// The values at a place where the groups of `pattern` exist too.
    pub(crate) fn with_groups(mut self, pattern: &str) -> Self {
        self.groups = true;
        pattern.clone_into(&mut self.pattern);
        let names = pattern.split("(?P<").skip(1).filter_map(|part| part.split_once('>'));
        // A mark for groups, which have no value before a request. It is a character that no ordinary text
        // has.
        self.set.extend(names.map(|(name, _)| (name.to_owned(), "\u{2}".to_owned())));
        self
    }

    /// Whether a text has a named group, as `$name` or `${name}`.
    pub(crate) fn names_group(&self, text: &str) -> bool {
        let mut parts = text.split('$').skip(1).filter_map(|part| Some(variable(part).ok()?.0));
        parts.any(|name| self.set.get(name).is_some_and(|value| value == "\u{2}"))
    }

    /// A text with the fixed values of variables in their places.
    pub(crate) fn fill(&self, text: &str) -> String {
        // In reverse order, so that `$hostname` is replaced before `$host`, its beginning.
        let fixed = self.set.iter().rev().filter(|(_, value)| !value.contains(['{', '\u{2}']));
        fixed.fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value)
        })
    }
}

/// Counterparts with the same value.
const SAME: &[(&str, &str)] = &[
    ("remote_addr", "{client.address}"),
    ("binary_remote_addr", "{client.address}"),
    ("realip_remote_addr", "{client.address}"),
    ("proxy_protocol_addr", "{client.address}"),
    ("remote_port", "{client.port}"),
    ("server_addr", "{server.address}"),
    ("server_port", "{server.port}"),
    ("request_id", "{request.id}"),
    ("request_method", "{request.method}"),
    ("scheme", "{request.scheme}"),
    ("server_protocol", "{request.version}"),
    ("host", "{request.host}"),
    ("http_host", "{request.header.host}"),
    ("content_type", "{request.header.content-type}"),
    ("content_length", "{request.header.content-length}"),
    ("uri", "{request.path}"),
    ("document_uri", "{request.path}"),
    ("remote_user", "{user}"),
    ("args", "{request.query}"),
    ("query_string", "{request.query}"),
    ("request_uri", "{request.target}"),
    ("ssl_protocol", "{tls.version}"),
    ("ssl_cipher", "{tls.cipher}"),
    ("ssl_server_name", "{tls.server_name}"),
    ("ssl_client_s_dn", "{client.certificate.subject}"),
    ("ssl_client_fingerprint", "{tls.client.fingerprint}"),
    ("upstream_addr", "{upstream.address}"),
    ("msec", "{time.unix}"),
];

/// Counterparts in lines of the access log only.
const LOGGED: &[(&str, &str)] = &[
    ("time_local", "{time.common}"),
    ("request", "{request.line}"),
    ("status", "{response.status}"),
    ("body_bytes_sent", "{response.bytes}"),
    ("request_length", "{request.bytes}"),
    ("request_time", "{duration}"),
    ("upstream_response_time", "{upstream.time}"),
    ("time_iso8601", "{time}"),
    ("connection", "{connection}"),
    ("connection_requests", "{connection.requests}"),
];

/// Stands for a brace of the text until the variables have their names.
const BRACE: char = '\u{3}';

/// Number of `map`s that refer to each other at most.
const DEEPEST: usize = 8;

impl Context<'_> {
    /// A text with brisk's variables in place of nginx's. The error names the variable without a counterpart.
    pub(crate) fn template(&self, text: &str, values: &Values, use_of: Use) -> Result<String, String> {
        // As one variable, because it is the question mark with the query, or nothing.
        let text = text.replace("$is_args$args", "\u{1}").replace("$is_args$query_string", "\u{1}");
        // Values of headers and logs have no line breaks. A body is kept as it is.
        let text = if use_of == Use::Body { &text } else { text.trim_end_matches(['\r', '\n']) };
        let mut result = String::new();
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            rest = &rest[next.len_utf8()..];
            match next {
                '\u{1}' if use_of == Use::Path => {}
                '\u{1}' if use_of == Use::Log => {
                    return Err("the access log of brisk has no variable for $is_args$args".to_owned());
                }
                '\u{1}' => result.push_str("{request.query_part}"),
                '$' => {
                    let (name, behind) = variable(rest)?;
                    result.push_str(&self.counterpart(name, values, use_of)?);
                    rest = behind;
                }
                '{' => result.push(BRACE),
                next => result.push(next),
            }
        }
        Ok(with_braces(&result, use_of))
    }

    fn counterpart(&self, name: &str, values: &Values, use_of: Use) -> Result<String, String> {
        let is_group = name.bytes().all(|byte| byte.is_ascii_digit());
        if is_group || values.set.get(name).is_some_and(|value| value == "\u{2}") {
            let is_allowed = values.groups && matches!(use_of, Use::Redirect | Use::Body | Use::Path);
            let reason = format!(
                "${name} is a group of an expression, which brisk has in redirects, bodies and rewritten paths only"
            );
            return if is_allowed { Ok(format!("{{{name}}}")) } else { Err(reason) };
        }
        if let Some(value) = values.set.get(name) {
            return Ok(value.clone());
        }
        if use_of == Use::Path {
            return Err(format!("rewritten paths of brisk have no variable for ${name}"));
        }
        if use_of == Use::Redirect && matches!(name, "host" | "http_host" | "server_name") {
            return Ok("{host}".to_owned());
        }
        if use_of == Use::Redirect && name == "request_uri" {
            return Ok("{path}".to_owned());
        }
        if use_of == Use::Log {
            return logged(name);
        }
        if use_of == Use::Body && name == "upstream_addr" {
            return Err("the response has no server when its body is formed".to_owned());
        }
        if matches!(name, "uri" | "document_uri") && use_of != Use::Redirect {
            return Ok("{request.decoded_path}".to_owned());
        }
        if let Some((_, own)) = SAME.iter().find(|(known, _)| *known == name) {
            return Ok((*own).to_owned());
        }
        if name == "ssl_client_verify" && use_of != Use::Redirect {
            return Ok(self.verified_clients());
        }
        if name == "request" && matches!(use_of, Use::Value | Use::Body) {
            return Ok("{request.method} {request.target} {request.version}".to_owned());
        }
        if let Some(table) = self.table_variable(name, use_of) {
            return table;
        }
        let lower = |name: &str| name.replace('_', "-");
        let of_response = name.strip_prefix("upstream_http_").or_else(|| name.strip_prefix("sent_http_"));
        if let Some(header) = of_response.filter(|_| use_of == Use::Value) {
            return Ok(format!("{{response.header.{}}}", lower(header)));
        }
        if use_of == Use::Value && matches!(name, "upstream_status" | "status") {
            return Ok("{response.status}".to_owned());
        }
        for (prefix, own) in [("http_", "header"), ("cookie_", "cookie"), ("arg_", "query")] {
            if let Some(name) = name.strip_prefix(prefix).filter(|name| !name.is_empty()) {
                let name = if own == "header" { lower(name) } else { name.to_owned() };
                return Ok(format!("{{request.{own}.{name}}}"));
            }
        }
        Err(format!("brisk has no variable for ${name}"))
    }

    /// The result of the verification of a client's certificate (`SUCCESS`, `NONE`): brisk accepts no others.
    fn verified_clients(&self) -> String {
        let mut keys = Keys::of("from", toml::text("{tls.client.fingerprint}"));
        keys.set("patterns", "[{ regex = \".\", value = \"SUCCESS\" }]");
        keys.set("default", "\"NONE\"");
        let name = self.tables.borrow_mut().named("map", "client-verify", &keys, String::new());
        format!("{{map.{name}}}")
    }

    /// The counterpart of the variable of a `map` or `geo`, `{map.NAME}`; none for another variable.
    fn table_variable(&self, name: &str, use_of: Use) -> Option<Result<String, String>> {
        if let Some(geo) = self.geos.get(name) {
            return Some(self.geo_table(name, geo));
        }
        let map = self.maps.get(name)?;
        if use_of == Use::Redirect && map.inner().iter().any(|line| line.arg(0).contains('$')) {
            return Some(self.scheme_of(map));
        }
        Some(self.map(name).map(|name| format!("{{map.{name}}}")))
    }

    /// The scheme of the request for a `map` whose results are schemes. Other tables with variables are not for redirects, because
    /// a client could choose where they lead.
    fn scheme_of(&self, map: &Directive) -> Result<String, String> {
        let is_scheme = |line: &Directive| matches!(line.arg(0), "http" | "https" | "$scheme");
        if !map.inner().iter().all(is_scheme) {
            return Err("a client could choose the target by a map with variables".to_owned());
        }
        let detail = "redirects have the scheme of the request";
        self.note_whole(map, &Class::Difference(detail.to_owned()));
        Ok("{request.scheme}".to_owned())
    }

    /// Whether a template of brisk, or a table that it refers to, has one of `parts`.
    pub(crate) fn has_any(&self, template: &str, parts: &[&str]) -> bool {
        let tables = self.tables.borrow();
        let (mut texts, mut known) = (vec![template.to_owned()], BTreeSet::new());
        while let Some(text) = texts.pop() {
            // Two braces begin no variable.
            let text = text.replace("{{", "");
            if parts.iter().any(|part| text.contains(part)) {
                return true;
            }
            for name in text.split("{map.").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)) {
                let table = tables.get(&format!("[map.{name}]"));
                if let Some(table) = table.filter(|_| known.insert(name.to_owned())) {
                    texts.extend(table.keys.0.iter().map(|(_, value)| value.clone()));
                }
            }
        }
        false
    }

    /// Writes the table of a `map` once, and returns its name.
    fn map(&self, variable: &str) -> Result<String, String> {
        let map = self.maps[variable];
        let name = toml::name(variable);
        if self.tables.borrow().get(&format!("[map.{name}]")).is_some() {
            return Ok(name);
        }
        // Without this mark, two maps that refer to each other would overflow the stack.
        let is_open = self.open.borrow().iter().any(|open| open == variable);
        if is_open || self.open.borrow().len() == DEEPEST {
            return Err(format!("the map of ${variable} refers to itself"));
        }
        self.open.borrow_mut().push(variable.to_owned());
        let keys = self.map_keys(map);
        self.open.borrow_mut().pop();
        let keys = keys?;
        self.table(format!("[map.{name}]"), keys, map);
        self.carried(map);
        Ok(name)
    }
}

/// The text with braces for [`BRACE`], doubled where brisk would read the beginning of a variable.
fn with_braces(text: &str, use_of: Use) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find(BRACE) {
        let (before, braces) = rest.split_at(place);
        rest = braces.trim_start_matches(BRACE);
        let count = braces.len() - rest.len();
        // A variable of brisk begins with a small letter or a digit, so all other braces are text.
        let first = |first: char| first.is_ascii_lowercase() || first.is_ascii_digit();
        let is_name = rest.starts_with(first)
            && (use_of != Use::Body
                || rest.split_once('}').is_some_and(|(name, _)| name.bytes().all(is_of_name)));
        let is_single = !is_name && !rest.starts_with('{') && (use_of == Use::Body || count == 1);
        result.push_str(before);
        result.push_str(&"{".repeat(if is_single { count } else { 2 * count }));
    }
    result + rest
}

/// Whether names of variables in bodies have this byte.
fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-_".contains(&byte)
}

/// The counterpart in a line of the access log.
fn logged(name: &str) -> Result<String, String> {
    if let Some((_, own)) = LOGGED.iter().chain(SAME).find(|(known, _)| *known == name) {
        return Ok((*own).to_owned());
    }
    // Log lines must not contain credentials.
    let secrets = ["http_authorization", "http_cookie", "http_proxy_authorization"];
    match name.strip_prefix("http_").filter(|_| !secrets.contains(&name)) {
        Some(header) => Ok(format!("{{request.header.{}}}", header.replace('_', "-"))),
        None => Err(format!("the access log of brisk has no variable for ${name}")),
    }
}

/// The name at the beginning of `text`, which follows a `$`, and the text behind it.
pub(crate) fn variable(text: &str) -> Result<(&str, &str), String> {
    if let Some(inner) = text.strip_prefix('{') {
        let (name, behind) = inner.split_once('}').ok_or("a variable has no closing brace")?;
        return Ok((name, behind));
    }
    let is_digit = text.starts_with(|next: char| next.is_ascii_digit());
    // nginx knows `$1` to `$9`: in `$12`, the second digit is text.
    let end = if is_digit {
        1
    } else {
        text.find(|next: char| !next.is_ascii_alphanumeric() && next != '_').unwrap_or(text.len())
    };
    if end == 0 { Err("a $ without the name of a variable".to_owned()) } else { Ok(text.split_at(end)) }
}

/// The name, if the text is one variable and nothing else.
pub(crate) fn only_variable(text: &str) -> Option<&str> {
    let (name, behind) = variable(text.strip_prefix('$')?).ok()?;
    behind.is_empty().then_some(name)
}
