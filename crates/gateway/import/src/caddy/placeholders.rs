//! Placeholders of Caddy in texts, such as `{remote_host}`, and the variables of brisk for them, such as `{client.address}`.

use crate::caddy::environment;
use crate::caddy::host_name::HostName;
use crate::caddy::state::State;
use crate::caddy::world::World;

/// Use of a text in brisk, which decides about the permitted variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A header, or another value.
    Value,
    /// The target of a `redirect`.
    Redirect,
    /// The `body` of a fixed response.
    Body,
}

/// Placeholders with a counterpart, in their short form: `{http.request.uri.path}` is `path` here.
const SAME: &[(&str, &str)] = &[
    ("host", "{request.host}"),
    ("hostport", "{request.header.host}"),
    ("port", "{server.port}"),
    ("http.request.port", "{server.port}"),
    ("http.request.local.host", "{server.address}"),
    ("http.request.local.port", "{server.port}"),
    ("method", "{request.method}"),
    ("path", "{request.path}"),
    ("uri", "{request.target}"),
    ("query", "{request.query}"),
    ("?query", "{request.query_part}"),
    ("http.request.uri.prefixed_query", "{request.query_part}"),
    ("scheme", "{request.scheme}"),
    ("http.request.proto", "{request.version}"),
    ("remote", "{client.address}:{client.port}"),
    ("remote_host", "{client.address}"),
    ("http.request.remote.host", "{client.address}"),
    ("remote_port", "{client.port}"),
    ("http.request.remote.port", "{client.port}"),
    ("client_ip", "{client.address}"),
    ("http.vars.client_ip", "{client.address}"),
    ("uuid", "{request.id}"),
    ("tls_version", "{tls.version}"),
    ("http.request.tls.version", "{tls.version}"),
    ("tls_cipher", "{tls.cipher}"),
    ("http.request.tls.cipher_suite", "{tls.cipher}"),
    ("tls_client_fingerprint", "{tls.client.fingerprint}"),
    ("http.request.tls.client.fingerprint", "{tls.client.fingerprint}"),
    ("tls_client_subject", "{client.certificate.subject}"),
    ("http.request.tls.client.subject", "{client.certificate.subject}"),
    ("http.request.tls.server_name", "{tls.server_name}"),
];

/// Beginnings of placeholders whose rest is a name: `{header.X-A}` becomes `{request.header.x-a}`.
const NAMED: &[(&str, &str)] = &[
    ("header.", "request.header."),
    ("http.request.header.", "request.header."),
    ("cookie.", "request.cookie."),
    ("http.request.cookie.", "request.cookie."),
    ("query.", "request.query."),
    ("http.request.uri.query.", "request.query."),
    ("rp.header.", "response.header."),
    ("http.reverse_proxy.header.", "response.header."),
];

/// Beginnings of placeholders of Caddy; all other texts in braces are texts.
const FAMILIES: [&str; 20] = [
    "http.",
    "labels.",
    "path.",
    "file.",
    "re.",
    "vars.",
    "rp.",
    "resp.",
    "err.",
    "file_match.",
    "orig_",
    "tls_",
    "system.",
    "time.",
    "env.",
    "upstream_",
    "dir",
    "file",
    "%",
    "client_ip",
];

/// The next placeholder: the text before it, its name, and the text behind it.
pub(crate) fn split(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(at) = text[from..].find('{') {
        let start = from + at + 1;
        let length = text[start..].find(|next: char| !is_name(next)).unwrap_or(text.len() - start);
        // Caddy writes `\{` for a brace that begins no placeholder.
        let is_escaped = text[..start - 1].ends_with('\\');
        if length > 0
            && text[start + length..].starts_with('}')
            && !is_escaped
            && !text[start..].starts_with('$')
        {
            return Some((&text[..start - 1], &text[start..start + length], &text[start + length + 1..]));
        }
        from = start;
    }
    None
}

fn is_name(next: char) -> bool {
    next.is_ascii_alphanumeric() || "._-?%/[]$:".contains(next)
}

/// Whether a text has placeholders: `{path}`, and not `{"a": 1}`.
pub(crate) fn has_any(text: &str) -> bool {
    split(text).is_some()
}

/// The text with brisk's variables. The error names the placeholder without a counterpart, such as `{file.a}`.
pub(crate) fn template(text: &str, state: &State<'_>, world: &World, use_of: Use) -> Result<String, String> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, name, behind)) = split(rest) {
        result.push_str(&escaped(before));
        match counterpart(name, state, world, use_of)? {
            Some(own) => result.push_str(&own),
            None => result.push_str(&escaped(&format!("{{{name}}}"))),
        }
        rest = behind;
    }
    result.push_str(&escaped(rest));
    Ok(result)
}

/// A text whose braces are no variables of brisk, except those of the environment: `{a` becomes `{{a`, and `{$A}` stays.
fn escaped(text: &str) -> String {
    let text = text.replace("\\{", "{").replace("\\}", "}");
    let mut result = String::new();
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        result.push(next);
        if next == '{' && rest.peek().is_some_and(|next| next.is_ascii_lowercase() || next.is_ascii_digit()) {
            result.push('{');
        }
    }
    result
}

/// The variable for a placeholder; `None` if `name` is a text.
fn counterpart(name: &str, state: &State<'_>, world: &World, use_of: Use) -> Result<Option<String>, String> {
    let short = name
        .strip_prefix("http.request.uri.")
        .or_else(|| name.strip_prefix("http.request."))
        .filter(|rest| SAME.iter().any(|(own, _)| own == rest))
        .unwrap_or(name);
    let short = match short {
        "http.request.uri" => "uri",
        "http.request.orig_uri" | "orig_uri" if world.view.is_original() => "uri",
        "http.request.orig_uri.path" | "orig_path" if world.view.is_original() => "path",
        other => other,
    };
    let depends = matches!(short, "path" | "uri");
    if depends && !world.view.is_original() {
        return Err(format!("{{{name}}} is the path after a rewrite, for which brisk has no variable here"));
    }
    if is_changed(short, world) {
        return Err(format!("{{{name}}} is changed before, and brisk has the value of the client"));
    }
    if use_of == Use::Redirect && matches!(short, "host" | "hostport") {
        return Ok(Some("{host}".to_owned()));
    }
    if use_of == Use::Redirect && short == "uri" {
        return Ok(Some("{path}".to_owned()));
    }
    if let Some((_, own)) = SAME.iter().find(|(known, _)| *known == short) {
        return Ok(Some((*own).to_owned()));
    }
    if let Some((start, own)) = NAMED.iter().find(|(start, _)| name.starts_with(start)) {
        if own.starts_with("response") && use_of != Use::Value {
            return Err(format!("{{{name}}} has no value here in brisk"));
        }
        return Ok(Some(format!("{{{own}{}}}", name[start.len()..].to_ascii_lowercase())));
    }
    if let Some(variable) = name.strip_prefix("env.") {
        let marker = format!("{{${variable}}}");
        return Ok(Some(if use_of == Use::Body { environment::resolve(&marker) } else { marker }));
    }
    special(name, state, world, use_of)
}

/// Whether a directive before has changed the part of the request.
fn is_changed(name: &str, world: &World) -> bool {
    let own = |(start, own): &(&str, &'static str)| name.strip_prefix(start).map(|rest| (*own, rest));
    match NAMED.iter().find_map(own) {
        Some(("request.header.", header)) => world.has_changed(header),
        Some(("request.cookie.", _)) => world.has_changed("cookie"),
        Some(("request.query.", _)) => world.has_changed_query(),
        _ if matches!(name, "host" | "hostport") || name.contains("labels.") => world.has_changed("host"),
        _ => false,
    }
}

/// Groups of expressions, parts of the host, and variables of `vars`.
fn special(name: &str, state: &State<'_>, world: &World, use_of: Use) -> Result<Option<String>, String> {
    let group = name.strip_prefix("re.").or_else(|| name.strip_prefix("http.regexp."));
    if let Some(group) = group {
        let group = group.rsplit('.').next().unwrap_or(group);
        if use_of == Use::Value || world.expression().is_none() {
            return Err(format!(
                "{{{name}}} is a group of an expression, which brisk has in redirects and bodies of its route only"
            ));
        }
        return Ok(Some(format!("{{{group}}}")));
    }
    let label = name.strip_prefix("labels.").or_else(|| name.strip_prefix("http.request.host.labels."));
    if let Some(index) = label {
        let HostName::Name(host) = &world.host else { return Err(format!("{{{name}}} depends on the host")) };
        let label = index.parse::<usize>().ok().and_then(|index| host.rsplit('.').nth(index));
        return match label {
            Some(label) if label != "*" => Ok(Some(label.to_owned())),
            _ => Err(format!("{{{name}}} is a part of the host, for which brisk has no variable")),
        };
    }
    let variable = name.strip_prefix("vars.").or_else(|| name.strip_prefix("http.vars."));
    if let Some(value) = variable.and_then(|variable| state.vars.get(variable)) {
        return Ok(Some(value.clone()));
    }
    let is_foreign =
        FAMILIES.iter().any(|family| name.starts_with(family)) || state.mapped.iter().any(|own| own == name);
    if is_foreign { Err(format!("brisk has no variable for {{{name}}}")) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caddy::path::Place;

    #[test]
    fn placeholders_become_variables() {
        let place = Place { path: "/".to_owned(), exact: false };
        let world =
            World::new(place, HostName::Name("a.b.example".to_owned()), Some(true), std::rc::Rc::default());
        let text = |text: &str, use_of| template(text, &State::default(), &world, use_of);
        assert_eq!(text("https://www.{host}{uri}", Use::Redirect).as_deref(), Ok("https://www.{host}{path}"));
        assert_eq!(
            text("{http.request.header.X-Y} {labels.2}", Use::Value).as_deref(),
            Ok("{request.header.x-y} a")
        );
        assert_eq!(text("{\"a\": {b}}", Use::Body).as_deref(), Ok("{\"a\": {{b}}"));
        assert_eq!(text("\\{x\\}", Use::Body).as_deref(), Ok("{{x}"));
        assert_eq!(text("{$A:b}{?query}", Use::Value).as_deref(), Ok("{$A:b}{request.query_part}"));
        assert!(text("{time.now}", Use::Value).is_err() && text("{re.x.1}", Use::Redirect).is_err());
    }
}
