//! Tests of `acl` lines: samples of a request with patterns, and their counterparts in brisk.

use std::sync::Arc;

use crate::haproxy::acl::{Conditions, Flags};
use crate::haproxy::counter::{numbers, size};
use crate::haproxy::formula::{Formula, Need};
use crate::haproxy::host_name::Names;
use crate::haproxy::path_test::{Match, Pattern, divided};
use crate::haproxy::sample::{Call, Sample};
use crate::haproxy::when::{Network, Part, Test, Value};
use crate::nginx::pattern;

/// Ends of the names of samples that state the way of the comparison.
const SUFFIXES: [(&str, Match); 7] = [
    ("_beg", Match::Begin),
    ("_end", Match::End),
    ("_sub", Match::Part),
    ("_dir", Match::Folder),
    ("_dom", Match::Domain),
    ("_reg", Match::Expression),
    ("_str", Match::Exact),
];

impl Conditions<'_, '_> {
    /// The condition that a sample matches one of the patterns.
    pub(crate) fn test(&self, criterion: &str, flags: &Flags, patterns: &[String]) -> Formula {
        let Some(sample) = Sample::read(criterion) else {
            return Formula::unknown("the parentheses of the test are not closed");
        };
        let (mut sample, mut kind) = (sample, None);
        for (suffix, own) in SUFFIXES {
            if let Some(name) = sample.fetch.name.strip_suffix(suffix).filter(|name| !name.is_empty()) {
                (sample.fetch.name, kind) = (name.to_owned(), Some(own));
                break;
            }
        }
        let method = flags.method.as_deref();
        let kind = match method {
            None | Some("bool" | "int" | "ip" | "found") => kind,
            Some("str") => Some(Match::Exact),
            Some(method) => match SUFFIXES.iter().find(|(suffix, _)| suffix[1..] == *method) {
                Some((_, kind)) => Some(*kind),
                None => return Formula::unknown(format!("brisk does not compare by {method}")),
            },
        };
        let sample = match self.resolved(sample) {
            Ok(sample) => sample,
            Err(reason) => return Formula::unknown(reason),
        };
        let request = Request { sample, kind: kind.unwrap_or(Match::Exact), ignore_case: flags.ignore_case };
        let is_found = method == Some("found");
        constant(&request, is_found, patterns)
            .or_else(|| self.mapped(&request, is_found, patterns))
            .unwrap_or_else(|| self.compared(&request, is_found, patterns))
    }

    /// Tests of the result of a `map`, whose file lists the values of the sample.
    fn mapped(&self, request: &Request, is_found: bool, patterns: &[String]) -> Option<Formula> {
        let (map, before) = request.sample.converters.split_last()?;
        let kind = map_kind(&map.name)?;
        let lines = match self.context.files.borrow_mut().lines(map.arg(0)) {
            Ok(lines) => lines,
            Err(reason) => return Some(Formula::unknown(reason)),
        };
        let wanted = |value: &str| {
            let accepts = |text: &String| {
                let pattern =
                    Pattern { kind: request.kind, text: text.clone(), ignore_case: request.ignore_case };
                pattern.accepts(value)
            };
            is_found || patterns.iter().any(accepts)
        };
        let default = map.args.get(1).is_some_and(|default| wanted(default));
        let entries = lines.iter().map(|line| line.split_once([' ', '\t']).unwrap_or((line, "")));
        let (accepted, others): (Vec<_>, Vec<_>) = entries.partition(|(_, value)| wanted(value.trim()));
        if default {
            let reason = "the default of the map is accepted too";
            return Some(if others.is_empty() { Formula::True } else { Formula::unknown(reason) });
        }
        let keys: Vec<_> = accepted.into_iter().map(|(key, _)| key.to_owned()).collect();
        let sample = Sample { fetch: request.sample.fetch.clone(), converters: before.to_vec() };
        Some(self.compared(&Request { sample, kind, ignore_case: request.ignore_case }, false, &keys))
    }

    /// Tests of a part of the request.
    fn compared(&self, request: &Request, is_found: bool, patterns: &[String]) -> Formula {
        let sample = &request.sample;
        let name = sample.name();
        let argument = sample.fetch.arg(0);
        match name {
            _ if sample.is_host() => host(request, is_found, patterns),
            "path" | "url" | "base" if !is_found => path(request, patterns),
            "src" if sample.converters.is_empty() && !is_found => networks(patterns),
            "method" if !is_found => methods(patterns),
            "ssl_sni" if self.proxy.is_tcp() => host(request, is_found, patterns),
            // Without the first message of TLS, brisk passes nothing on.
            "ssl_hello_type" if self.proxy.is_tcp() && patterns == ["1"] => Formula::True,
            "ssl_ver" if self.proxy.is_tcp() => Formula::True,
            "wait_end" => Formula::True,
            "hdr" | "cook" | "url_param" => named(request, is_found, patterns),
            "hdr_cnt" | "cook_cnt" if argument.eq_ignore_ascii_case("host") => host(request, true, &[]),
            "hdr_cnt" | "fhdr_cnt" | "cook_cnt" => counted(request, patterns),
            "hdr_val" | "body_size" | "hdr_ip" => size(&request.sample, patterns),
            "hdr_len" | "path_len" | "url_len" => Formula::unknown("brisk does not compare lengths"),
            _ => self.state(name, sample, patterns),
        }
    }
}

/// A comparison with its sample.
#[derive(Debug)]
struct Request {
    sample: Sample,
    kind: Match,
    ignore_case: bool,
}

impl Request {
    /// Whether letters of any case match. None if a converter changes the sample in another way.
    fn is_folded(&self, texts: &[String]) -> Option<bool> {
        let mut ignore_case = self.ignore_case;
        for Call { name, .. } in &self.sample.converters {
            match name.as_str() {
                "lower" if !texts.iter().any(|text| text.bytes().any(|byte| byte.is_ascii_uppercase())) => {
                    ignore_case = true;
                }
                "url_dec" => {}
                _ => return None,
            }
        }
        Some(ignore_case)
    }
}

/// Tests whose result is fixed, or which concern the connection.
fn constant(request: &Request, is_found: bool, patterns: &[String]) -> Option<Formula> {
    let sample = &request.sample;
    let is_exact = request.kind == Match::Exact && !request.ignore_case && !is_found;
    let truth = |holds: bool| if holds { Formula::True } else { Formula::False };
    let is_true =
        |patterns: &[String]| !patterns.iter().any(|word| matches!(&**word, "0" | "false" | "no" | "off"));
    let formula = match sample.name() {
        "always_true" | "proto_http" | "rep_proto_http" => truth(is_true(patterns)),
        "always_false" => truth(!is_true(patterns)),
        "bool" => truth(matches!(sample.fetch.arg(0), "1" | "true") == is_true(patterns)),
        "ssl_fc" if is_true(patterns) => Formula::Secure,
        "ssl_fc" => Formula::Secure.not(),
        "dst_port" | "fc_dst_port" => {
            numbers(patterns).map_or_else(|| Formula::unknown("the port is not a number"), Formula::Port)
        }
        "http_auth" => Formula::Need(Need::User { list: sample.fetch.arg(0).to_owned(), groups: Vec::new() }),
        "http_auth_group" => {
            Formula::Need(Need::User { list: sample.fetch.arg(0).to_owned(), groups: patterns.to_vec() })
        }
        "ssl_c_used" | "ssl_fc_has_crt" if is_true(patterns) => {
            Formula::Need(Need::Certificate { names: Vec::new() })
        }
        // brisk refuses clients whose certificate is not valid.
        "ssl_c_verify" if patterns == ["0"] => Formula::True,
        "ssl_c_s_dn"
            if sample.fetch.arg(0).eq_ignore_ascii_case("cn") && is_exact && !patterns.is_empty() =>
        {
            Formula::Need(Need::Certificate { names: patterns.to_vec() })
        }
        _ => return None,
    };
    if sample.converters.is_empty() { Some(formula) } else { None }
}

/// Tests of the path.
fn path(request: &Request, texts: &[String]) -> Formula {
    let Some(ignore_case) = request.is_folded(texts) else {
        return Formula::unknown("the converters of the path have no counterpart");
    };
    let name = request.sample.name();
    let mut any = Vec::new();
    let mut patterns = Vec::new();
    for text in texts {
        if name == "base" {
            let Some((host, path)) =
                text.split_once('/').filter(|_| matches!(request.kind, Match::Begin | Match::Exact))
            else {
                return Formula::unknown("brisk compares host and path separately");
            };
            let host = Pattern { kind: Match::Exact, text: host.to_owned(), ignore_case: true };
            let path = Pattern { kind: request.kind, text: format!("/{path}"), ignore_case };
            any.push(Formula::all([
                Formula::Host(Arc::new(Names::new([host]))),
                Formula::Test(Arc::new(Test::Path(vec![path]))),
            ]));
            continue;
        }
        // A URL has the query too.
        if name == "url" && (request.kind != Match::Begin || text.contains('?')) {
            return Formula::unknown("brisk compares the path without its query");
        }
        match pattern_of(request.kind, text, ignore_case) {
            // Each path begins with a slash.
            Ok(pattern) if pattern.kind == Match::Begin && matches!(&*pattern.text, "" | "/") => {
                any.push(Formula::True);
            }
            Ok(pattern) => patterns.push(pattern),
            Err(reason) => any.push(Formula::unknown(reason)),
        }
    }
    any.extend(divided(patterns).into_iter().map(|list| Formula::Test(Arc::new(Test::Path(list)))));
    Formula::any(any)
}

/// The pattern for a path, which brisk compares without percent-encoding.
fn pattern_of(kind: Match, text: &str, ignore_case: bool) -> Result<Pattern, String> {
    if kind == Match::Expression {
        let text = pattern::translate(text, false)?;
        return Ok(Pattern { kind, text, ignore_case });
    }
    let text = decoded(text).ok_or("the encoded text is not UTF-8")?;
    Ok(Pattern { kind, text, ignore_case })
}

/// The text without percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8(bytes).ok()
}

fn host(request: &Request, is_found: bool, patterns: &[String]) -> Formula {
    if is_found {
        return Formula::True;
    }
    let mut all = Vec::new();
    for text in patterns {
        let text = if request.kind == Match::Expression {
            match pattern::translate(text, false) {
                Ok(text) => text,
                Err(reason) => return Formula::unknown(reason),
            }
        } else {
            text.clone()
        };
        all.push(Pattern { kind: request.kind, text, ignore_case: true });
    }
    Formula::Host(Arc::new(Names::new(all)))
}

fn networks(patterns: &[String]) -> Formula {
    match patterns.iter().map(|text| Network::read(text)).collect::<Option<Vec<_>>>() {
        Some(networks) if networks.is_empty() => Formula::False,
        Some(networks) => Formula::Test(Arc::new(Test::Networks(networks))),
        None => Formula::unknown("a name in place of an address is not resolved"),
    }
}

/// Methods. `GET` of brisk includes HEAD.
fn methods(patterns: &[String]) -> Formula {
    let is_method = |text: &String| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
    };
    if !patterns.iter().all(is_method) {
        return Formula::unknown("the text is not a method");
    }
    let methods: std::collections::BTreeSet<_> =
        patterns.iter().map(|text| text.to_ascii_uppercase()).collect();
    let test = |methods| Formula::Test(Arc::new(Test::Methods(methods)));
    if methods.is_empty() {
        return Formula::False;
    }
    if methods.contains("GET") && !methods.contains("HEAD") {
        let head = test(std::iter::once("HEAD".to_owned()).collect());
        return Formula::all([head.not(), test(methods)]);
    }
    test(methods)
}

/// Headers, cookies and parameters.
fn named(request: &Request, is_found: bool, patterns: &[String]) -> Formula {
    let sample = &request.sample;
    let (part, name) = match sample.name() {
        "hdr" => (Part::Header, sample.fetch.arg(0).to_ascii_lowercase()),
        "cook" => (Part::Cookie, sample.fetch.arg(0).to_owned()),
        _ => (Part::Query, sample.fetch.arg(0).to_owned()),
    };
    let is_first = sample.fetch.args.len() < 2 || sample.fetch.arg(1) == "-1";
    if name.is_empty() || !is_first {
        return Formula::unknown("the test concerns one of several values");
    }
    if part == Part::Header && name == "host" {
        return Formula::unknown("brisk compares the host by its name only");
    }
    let test = |value| Formula::Test(Arc::new(Test::Named(part, name.clone(), value)));
    if is_found {
        return test(Value::Any);
    }
    let Some(ignore_case) = request.is_folded(patterns) else {
        return Formula::unknown("the converters of the value have no counterpart");
    };
    // HAProxy divides the values of headers at commas.
    let is_list = part == Part::Header && !sample.fetch.name.ends_with("fhdr");
    let mut any = Vec::new();
    let mut expressions = Vec::new();
    for text in patterns {
        let escaped = pattern::escaped(text);
        let (start, end) = if is_list { (r"(?:^|,)\s*", r"\s*(?:,|$)") } else { ("^", "$") };
        expressions.push(match request.kind {
            Match::Exact if !is_list && !ignore_case && patterns.len() == 1 => {
                any.push(test(Value::Equal(text.clone())));
                continue;
            }
            Match::Exact => format!("{start}{escaped}{end}"),
            Match::Begin => format!("{start}{escaped}"),
            Match::End => format!("{escaped}{end}"),
            Match::Part => escaped,
            Match::Folder => format!("(?:^|[/,]){escaped}(?:[/,]|$)"),
            Match::Domain => format!("(?:^|[/.,:]){escaped}(?:[/.,:]|$)"),
            Match::Expression => match pattern::translate(text, false) {
                Ok(text) => text,
                Err(reason) => {
                    any.push(Formula::unknown(reason));
                    continue;
                }
            },
        });
    }
    let lists = divided(
        expressions.into_iter().map(|text| Pattern { kind: Match::Expression, text, ignore_case }).collect(),
    );
    any.extend(lists.iter().map(|list| test(Value::Expression(crate::haproxy::path_test::any(list)))));
    Formula::any(any)
}

/// The comparison of a converter `map`.
pub(crate) fn map_kind(name: &str) -> Option<Match> {
    Some(match name {
        "map" | "map_str" => Match::Exact,
        "map_beg" => Match::Begin,
        "map_end" => Match::End,
        "map_sub" => Match::Part,
        "map_dir" => Match::Folder,
        "map_dom" => Match::Domain,
        "map_reg" => Match::Expression,
        _ => return None,
    })
}

/// Numbers of headers or cookies: whether there is one.
fn counted(request: &Request, patterns: &[String]) -> Formula {
    let words: Vec<_> = patterns.iter().map(String::as_str).collect();
    let found = Request {
        sample: Sample {
            fetch: Call {
                name: request.sample.name().trim_end_matches("_cnt").trim_start_matches('f').to_owned(),
                args: request.sample.fetch.args.clone(),
            },
            converters: Vec::new(),
        },
        kind: Match::Exact,
        ignore_case: false,
    };
    match words.as_slice() {
        ["gt", "0"] | ["ge", "1"] => named(&found, true, &[]),
        ["0"] | ["eq", "0"] | ["lt", "1"] => named(&found, true, &[]).not(),
        _ => Formula::unknown("brisk does not count headers and cookies"),
    }
}
