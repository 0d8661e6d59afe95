//! Texts with variables: the log format of HAProxy (`%ci`, `%[src]`), and its counterparts in brisk (`{client.address}`).

use crate::haproxy::grammar::has_variable;
use crate::haproxy::host_name::HostName;
use crate::haproxy::sample::Sample;

/// Use of a text in brisk, which decides about the permitted variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A header, as in `http-request set-header`.
    Value,
    /// A header of a response, as in `http-response set-header`.
    Response,
    /// The target of a `redirect`.
    Redirect,
    /// The body of a fixed response, as `lf-string`.
    Body,
    /// A line of the access log: `log-format`.
    Log,
}

/// Part of a text: `a%[src]%ci` has one `Piece` of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Sample(Sample),
    /// A variable of the log format without brackets, as `%ci`.
    Alias(String),
}

/// The facts at a place that decide about variables.
pub(crate) struct Place<'p> {
    pub(crate) host: &'p HostName,
    pub(crate) secure: bool,
    pub(crate) frontend: &'p str,
    pub(crate) backend: &'p str,
    pub(crate) resolve: &'p dyn Fn(Sample) -> Result<Sample, String>,
}

/// Variables of the log format: `%ci` is `{client.address}`.
const ALIASES: [(&str, &str); 31] = [
    ("ci", "{client.address}"),
    ("cp", "{client.port}"),
    ("fi", "{server.address}"),
    ("fp", "{server.port}"),
    ("t", "{time.common}"),
    ("tr", "{time.common}"),
    ("T", "{time.common}"),
    ("trg", "{time.common}"),
    ("Tl", "{time.common}"),
    ("trl", "{time.common}"),
    ("Ts", "{time.unix}"),
    ("ms", "{time.unix}"),
    ("si", "{upstream.address}"),
    ("s", "{upstream.address}"),
    ("ST", "{response.status}"),
    ("B", "{response.bytes}"),
    ("U", "{request.bytes}"),
    ("r", "{request.line}"),
    ("HM", "{request.method}"),
    ("HP", "{request.path}"),
    ("HPO", "{request.path}"),
    ("HU", "{request.target}"),
    ("HQ", "{request.query}"),
    ("HV", "{request.version}"),
    ("ID", "{request.id}"),
    ("Ta", "{duration}"),
    ("Tt", "{duration}"),
    ("Tr", "{upstream.time}"),
    ("sslv", "{tls.version}"),
    ("sslc", "{tls.cipher}"),
    ("tsc", "{error}"),
];

/// Samples with a counterpart: `%[src]` is `{client.address}`.
const SAMPLES: [(&str, &str); 19] = [
    ("src", "{client.address}"),
    ("src_port", "{client.port}"),
    ("dst", "{server.address}"),
    ("dst_port", "{server.port}"),
    ("fc_dst_port", "{server.port}"),
    ("method", "{request.method}"),
    ("path", "{request.path}"),
    ("url", "{request.target}"),
    ("pathq", "{request.target}"),
    ("uri", "{request.target}"),
    ("capture.req.uri", "{request.target}"),
    ("capture.req.method", "{request.method}"),
    ("query", "{request.query}"),
    ("unique-id", "{request.id}"),
    ("uuid", "{request.id}"),
    ("ssl_fc_sni", "{tls.server_name}"),
    ("ssl_fc_protocol", "{tls.version}"),
    ("ssl_fc_cipher", "{tls.cipher}"),
    ("ssl_c_s_dn", "{client.certificate.subject}"),
];

/// The variable of brisk for a [`Sample`]: `{request.header.x-id}` for `req.hdr(X-Id)`, `{request.cookie.a}` for `cook(a)`.
pub(crate) fn variable(sample: &Sample) -> Option<String> {
    let argument = sample.fetch.arg(0);
    if sample.is_host() && sample.name() == "hdr" {
        let is_changed = !sample.converters.is_empty();
        return Some(if is_changed { "{request.host}" } else { "{request.header.host}" }.to_owned());
    }
    if !sample.converters.is_empty() {
        return None;
    }
    let part = match sample.name() {
        "hdr" => "header",
        "cook" => "cookie",
        "url_param" => "query",
        name => {
            let found = SAMPLES.iter().find(|(own, _)| *own == name)?;
            let is_plain = sample.fetch.args.is_empty() || matches!(name, "unique-id" | "uuid");
            return is_plain.then(|| found.1.to_owned());
        }
    };
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let name = if part == "header" { argument.to_ascii_lowercase() } else { argument.to_owned() };
    is_name(argument).then(|| format!("{{request.{part}.{name}}}"))
}

/// The text of a log format in brisk: `%[src]:%[src_port]` becomes `{client.address}:{client.port}`. The error is the reason
/// why it has none.
pub(crate) fn text(format: &str, use_of: Use, place: &Place<'_>) -> Result<String, String> {
    if has_variable(format) && use_of == Use::Body {
        return Err("bodies of brisk have no variables of the environment".to_owned());
    }
    let mut result = String::new();
    for piece in pieces(format)? {
        match piece {
            Piece::Text(text) => result.push_str(&escaped(&text, use_of)),
            Piece::Alias(name) => result.push_str(&alias(&name, use_of, place)?),
            Piece::Sample(sample) => result.push_str(&value(&(place.resolve)(sample)?, use_of, place)?),
        }
    }
    Ok(result)
}

fn alias(name: &str, use_of: Use, place: &Place<'_>) -> Result<String, String> {
    match name {
        "f" | "ft" => return Ok(place.frontend.to_owned()),
        "b" => return Ok(place.backend.to_owned()),
        // States and counters that have no counterpart are left out of lines.
        _ => {}
    }
    let found = ALIASES.iter().find(|(own, _)| *own == name).map(|(_, own)| (*own).to_owned());
    let is_of_log = |own: &String| {
        [
            "{time",
            "{response.bytes",
            "{request.bytes",
            "{request.line",
            "{duration",
            "{upstream.time",
            "{error",
        ]
        .iter()
        .any(|start| own.starts_with(start))
    };
    match found {
        Some(own) if use_of == Use::Log || !is_of_log(&own) => Ok(own),
        // The fields of a line keep their places.
        _ if use_of == Use::Log => Ok("-".to_owned()),
        _ => Err(format!("brisk has no variable for %{name}")),
    }
}

fn value(sample: &Sample, use_of: Use, place: &Place<'_>) -> Result<String, String> {
    let name = sample.name();
    let no_variable = || format!("brisk has no variable for %[{}]", sample.fetch.name);
    match name {
        "str" if sample.converters.is_empty() => return Ok(escaped(sample.fetch.arg(0), use_of)),
        "ssl_fc" if sample.converters.is_empty() => {
            return Ok(if place.secure { "1" } else { "0" }.to_owned());
        }
        "ssl_fc" if matches!(sample.converters.as_slice(), [call] if call.name == "iif") => {
            let text = sample.converters[0].arg(usize::from(!place.secure));
            return Ok(escaped(text, use_of));
        }
        "be_name" => return Ok(place.backend.to_owned()),
        "fe_name" => return Ok(place.frontend.to_owned()),
        "env" | "hostname" => return Err(no_variable()),
        _ => {}
    }
    if use_of == Use::Response && sample.converters.is_empty() {
        match sample.fetch.name.as_str() {
            "status" => return Ok("{response.status}".to_owned()),
            "res.hdr" | "res.fhdr" => {
                return Ok(format!("{{response.header.{}}}", sample.fetch.arg(0).to_lowercase()));
            }
            "srv_name" => return Ok("{upstream.address}".to_owned()),
            _ => {}
        }
    }
    if use_of == Use::Redirect && sample.is_host() {
        return Ok(place
            .host
            .text()
            .filter(|name| !name.contains('*'))
            .unwrap_or_else(|| "{request.host}".to_owned()));
    }
    if use_of == Use::Log && matches!(name, "hdr") {
        let secret = ["authorization", "cookie", "proxy-authorization"];
        if secret.contains(&&*sample.fetch.arg(0).to_ascii_lowercase()) {
            return Err("the access log of brisk has no secrets of clients".to_owned());
        }
    }
    variable(sample).ok_or_else(no_variable)
}

/// The parts of a log format; `%%` is a `%`.
fn pieces(format: &str) -> Result<Vec<Piece>, String> {
    let mut all = Vec::new();
    let mut text = String::new();
    let mut rest = format;
    while let Some((before, behind)) = rest.split_once('%') {
        text.push_str(before);
        rest = behind;
        if let Some(behind) = rest.strip_prefix('%') {
            text.push('%');
            rest = behind;
            continue;
        }
        if let Some(flags) = rest.strip_prefix('{') {
            // Flags such as `+Q` state quotes and encodings; they have no part here.
            rest = flags.split_once('}').ok_or("a % has flags without an end")?.1;
        }
        let piece;
        if let Some(inner) = rest.strip_prefix('[') {
            let end = closing(inner).ok_or("a %[ has no end")?;
            let sample = Sample::read(&inner[..end]).ok_or("the parentheses of a sample are not closed")?;
            piece = Piece::Sample(sample);
            rest = &inner[end + 1..];
        } else {
            let end = rest.find(|next: char| !next.is_ascii_alphabetic()).unwrap_or(rest.len());
            // A % without a name is itself, as in older versions.
            if end == 0 {
                text.push('%');
                continue;
            }
            piece = Piece::Alias(rest[..end].to_owned());
            rest = &rest[end..];
        }
        if !text.is_empty() {
            all.push(Piece::Text(std::mem::take(&mut text)));
        }
        all.push(piece);
    }
    text.push_str(rest);
    if !text.is_empty() {
        all.push(Piece::Text(text));
    }
    Ok(all)
}

/// Place of the `]` that ends a sample, outside of quotes and parentheses.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_usize, None);
    for (at, next) in text.char_indices() {
        match next {
            '"' | '\'' if quote.is_none() => quote = Some(next),
            _ if quote == Some(next) => quote = None,
            _ if quote.is_some() => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ']' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

/// A text without variables as brisk writes it: a `{` that would begin a variable is doubled.
pub(crate) fn escaped(text: &str, use_of: Use) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let (before, braces) = rest.split_at(at);
        rest = braces.trim_start_matches('{');
        let count = braces.len() - rest.len();
        let begins = rest.starts_with(|next: char| next.is_ascii_lowercase() || next.is_ascii_digit());
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let is_name = begins
            && (use_of != Use::Body
                || rest.split_once('}').is_some_and(|(name, _)| name.bytes().all(is_of_name)));
        let is_doubled = is_name || (use_of != Use::Body && count > 1);
        result.push_str(before);
        result.push_str(&"{".repeat(if is_doubled { 2 * count } else { count }));
    }
    result + rest
}

/// The parts of a text of the form `BEFORE%[path]` or `%[path,regsub(EXPRESSION,TEXT)]`, which form a path.
pub(crate) fn path_parts(
    format: &str,
    resolve: &dyn Fn(Sample) -> Result<Sample, String>,
) -> Result<Path, String> {
    let parts = pieces(format)?;
    let is_path = |sample: &Sample| sample.name() == "path";
    match parts.as_slice() {
        [Piece::Text(text)] => Ok(Path::Fixed(text.clone())),
        [Piece::Text(text), Piece::Sample(sample)] => {
            let sample = resolve(sample.clone())?;
            if is_path(&sample) && sample.converters.is_empty() {
                return Ok(Path::Before(text.clone()));
            }
            Err("the new path has no counterpart".to_owned())
        }
        [Piece::Sample(sample)] => {
            let sample = resolve(sample.clone())?;
            match sample.converters.as_slice() {
                [] if is_path(&sample) => Ok(Path::Same),
                [call] if is_path(&sample) && call.name == "regsub" && !call.arg(2).contains('g') => Ok(
                    Path::Replaced(call.arg(0).to_owned(), call.arg(1).to_owned(), call.arg(2).contains('i')),
                ),
                _ => Err("the new path has no counterpart".to_owned()),
            }
        }
        _ => Err("the new path has no counterpart".to_owned()),
    }
}

/// A new path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    Same,
    Fixed(String),
    /// A text before the path: `/a%[path]`.
    Before(String),
    /// The first match of an expression is replaced (`regsub`); whether its case is ignored (the flag `i`).
    Replaced(String, String, bool),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_the_variables_of_brisk() {
        let host = HostName::Exact("a.example".to_owned());
        let place = Place {
            host: &host,
            secure: true,
            frontend: "web",
            backend: "app",
            resolve: &|sample| Ok(sample),
        };
        for (format, use_of, expected) in [
            ("%[src]:%[src_port]", Use::Value, Ok("{client.address}:{client.port}")),
            (
                "https://www.%[hdr(host)]%[capture.req.uri]",
                Use::Redirect,
                Ok("https://www.a.example{request.target}"),
            ),
            ("100%% {x} %[req.hdr(X-Id)]", Use::Value, Ok("100% {{x} {request.header.x-id}")),
            (
                "%ci %{+Q}r %ST %f/%b %hr",
                Use::Log,
                Ok("{client.address} {request.line} {response.status} web/app -"),
            ),
            ("%[ssl_fc]%[ssl_fc,iif(s,)]", Use::Value, Ok("1s")),
            ("%[rand(5)]", Use::Value, Err("brisk has no variable for %[rand]")),
            ("%[src", Use::Value, Err("a %[ has no end")),
        ] {
            let own = text(format, use_of, &place);
            assert_eq!(own.as_deref().map_err(String::as_str), expected, "{format}");
        }
    }

    #[test]
    fn paths_are_fixed_have_a_beginning_or_are_replaced() {
        let path = |format: &str| path_parts(format, &|sample| Ok(sample)).ok();
        assert_eq!(path("/a%[path]"), Some(Path::Before("/a".to_owned())));
        assert_eq!(
            path("%[path,regsub(^/api/,/)]"),
            Some(Path::Replaced("^/api/".to_owned(), "/".to_owned(), false))
        );
        assert_eq!((path("/x"), path("%[src]")), (Some(Path::Fixed("/x".to_owned())), None));
    }
}
