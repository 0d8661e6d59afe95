//! Warnings about variables of nginx, HAProxy and Caddy, which are plain text for brisk.

use brisk_config_file::{KeyPath, Segment};

use super::context::Context;

// A whole name is before the family that contains it, such as `$http_host` before `$http_`: the first entry
// counts.
/// Variables with the variable of brisk; a name that ends with `_` or `(` begins a family with the name of a header, cookie or
/// parameter.
const COUNTERPARTS: [(&str, &str); 56] = [
    ("$remote_addr", "{client.address}"),
    ("$binary_remote_addr", "{client.address}"),
    ("$remote_port", "{client.port}"),
    ("$remote_user", "{user}"),
    ("$server_addr", "{server.address}"),
    ("$server_port", "{server.port}"),
    ("$server_name", "{tls.server_name}"),
    ("$ssl_server_name", "{tls.server_name}"),
    ("$ssl_protocol", "{tls.version}"),
    ("$ssl_cipher", "{tls.cipher}"),
    ("$ssl_client_s_dn", "{client.certificate.subject}"),
    ("$ssl_client_fingerprint", "{tls.client.fingerprint}"),
    ("$host", "{request.host}"),
    ("$http_host", "{request.host}"),
    ("$scheme", "{request.scheme}"),
    ("$request_method", "{request.method}"),
    ("$request_uri", "{request.target}"),
    ("$document_uri", "{request.path}"),
    ("$uri", "{request.path}"),
    ("$args", "{request.query}"),
    ("$is_args", "{request.query_part}"),
    ("$query_string", "{request.query}"),
    ("$request_id", "{request.id}"),
    ("$msec", "{time.unix}"),
    ("$server_protocol", "{request.version}"),
    ("$upstream_addr", "{upstream.address}"),
    ("$upstream_status", "{response.status}"),
    ("$status", "{response.status}"),
    ("$upstream_http_", "{response.header.NAME}"),
    ("$sent_http_", "{response.header.NAME}"),
    ("$http_", "{request.header.NAME}"),
    ("$cookie_", "{request.cookie.NAME}"),
    ("$arg_", "{request.query.NAME}"),
    ("%[src]", "{client.address}"),
    ("%[src_port]", "{client.port}"),
    ("%[dst]", "{server.address}"),
    ("%[dst_port]", "{server.port}"),
    ("%[path]", "{request.path}"),
    ("%[query]", "{request.query}"),
    ("%[method]", "{request.method}"),
    ("%[ssl_fc_sni]", "{tls.server_name}"),
    ("%[ssl_fc_protocol]", "{tls.version}"),
    ("%[ssl_fc_cipher]", "{tls.cipher}"),
    ("%[status]", "{response.status}"),
    ("%[res.hdr(", "{response.header.NAME}"),
    ("%[hdr(host)]", "{request.host}"),
    ("%[req.hdr(", "{request.header.NAME}"),
    ("%[hdr(", "{request.header.NAME}"),
    ("%[req.cook(", "{request.cookie.NAME}"),
    ("%[url_param(", "{request.query.NAME}"),
    ("{http.request.host}", "{request.host}"),
    ("{http.request.uri}", "{request.target}"),
    ("{http.request.uri.path}", "{request.path}"),
    ("{http.request.remote.host}", "{client.address}"),
    ("{http.request.method}", "{request.method}"),
    ("{http.request.header.", "{request.header.NAME}"),
];

/// Keys whose values are regular expressions, secrets, names or commands, in which these characters have another meaning.
const OTHER: [&str; 6] = ["path_regex", "regex", "password", "secret", "command", "token"];

/// Warns of each text with a variable of another program.
pub(super) fn review(context: &mut Context<'_>) {
    for (path, text) in context.shared.findings.texts() {
        let is_other = path.segments().iter().any(|segment| {
            matches!(segment, Segment::Key(key) if OTHER.contains(&key.as_str()) || key.ends_with("_regex"))
        });
        if is_other {
            continue;
        }
        // Styles and scripts in a body are full of `$name` and `{...}`, so only names of the table are
        // reported there.
        let is_body = matches!(path.segments().last(), Some(Segment::Key(key)) if key == "body");
        if let Some((variable, counterpart)) = variable(text, is_body) {
            context.shared.findings.warn(warning(&path, variable, counterpart, is_body));
        }
    }
}

fn warning(path: &KeyPath, variable: &str, counterpart: Option<&str>, is_body: bool) -> String {
    let program = match variable.as_bytes()[0] {
        b'$' => "nginx",
        b'%' => "HAProxy",
        _ => "Caddy or Traefik",
    };
    let advice = match counterpart {
        _ if is_body => "the body is sent as it is written".to_owned(),
        Some(counterpart) => {
            format!("brisk writes {counterpart}, in request_headers, response_headers and redirect")
        }
        None => "docs/pages.md lists the variables of brisk".to_owned(),
    };
    format!("{path}: {variable} is a variable of {program}, and is used here as plain text: {advice}")
}

/// The first variable of another program in `text`, and its counterpart. In a body, only known names are variables.
fn variable(text: &str, is_body: bool) -> Option<(&str, Option<&'static str>)> {
    let mut rest = text;
    while let Some(at) = rest.find(['$', '%', '{']) {
        rest = &rest[at..];
        let name = dollar(rest).or_else(|| enclosed(rest, "%[", "]")).or_else(|| enclosed(rest, "{{", "}}"));
        let name = name.or_else(|| enclosed(rest, "{http.", "}"));
        if let Some(name) = name {
            let counterpart = counterpart(name);
            if counterpart.is_some() || !is_body {
                return Some((name, counterpart));
            }
        }
        // One byte at a time: the found character is ASCII, and another variable may begin inside of this
        // one.
        rest = &rest[1..];
    }
    None
}

/// `$name`, `${name}` or `$1` at the begin of `text`.
fn dollar(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    if let Some(inner) = name.strip_prefix('{') {
        return inner.find('}').map(|end| &text[..end + 3]);
    }
    let end =
        name.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(name.len());
    let is_group = end == 1 && name.starts_with(|letter: char| letter.is_ascii_digit());
    let is_name = name.starts_with(|letter: char| letter.is_ascii_lowercase()) && end > 1;
    (is_group || is_name).then(|| &text[..=end])
}

fn enclosed<'t>(text: &'t str, begin: &str, end: &str) -> Option<&'t str> {
    let inner = text.strip_prefix(begin)?;
    inner.find(end).map(|at| &text[..begin.len() + at + end.len()])
}

fn counterpart(name: &str) -> Option<&'static str> {
    let plain = name.strip_prefix("${").and_then(|name| name.strip_suffix('}'));
    let name = plain.map_or_else(|| name.to_owned(), |plain| format!("${plain}"));
    let is = |known: &str| name == known || known.ends_with(['_', '(', '.']) && name.starts_with(known);
    COUNTERPARTS.iter().find(|(known, _)| is(known)).map(|(_, counterpart)| *counterpart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_other_programs_are_found_with_their_counterparts() {
        for (text, found) in [
            ("$remote_addr", Some(("$remote_addr", Some("{client.address}")))),
            ("https://$host$request_uri", Some(("$host", Some("{request.host}")))),
            ("a ${http_user_agent}", Some(("${http_user_agent}", Some("{request.header.NAME}")))),
            ("/new$1", Some(("$1", None))),
            ("$my_own_map", Some(("$my_own_map", None))),
            ("%[src]", Some(("%[src]", Some("{client.address}")))),
            ("%[req.hdr(x-a),lower]", Some(("%[req.hdr(x-a),lower]", Some("{request.header.NAME}")))),
            ("{{ .Host }}", Some(("{{ .Host }}", None))),
            ("{http.request.host}", Some(("{http.request.host}", Some("{request.host}")))),
            ("{client.address}", None),
            ("$", None),
            ("5 $, 10$ and $A", None),
            ("100 %", None),
            ("%{x", None),
        ] {
            assert_eq!(variable(text, false), found, "{text}");
        }
        assert_eq!(variable("price: $5, ${name} {{ x }}", true), None);
        assert!(variable("your address: $remote_addr", true).is_some());
    }

    #[test]
    fn every_counterpart_is_a_variable() {
        for (_, counterpart) in COUNTERPARTS {
            let name = counterpart.trim_matches(['{', '}']).replace("NAME", "x");
            assert!(name.parse::<brisk_answer::settings::Variable>().is_ok(), "{counterpart}");
        }
    }
}
