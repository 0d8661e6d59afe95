//! Tests of `acl` lines: samples of a request with patterns, and their counterparts in brisk.

use std::sync::Arc;

use crate::haproxy::acl::{Conditions, Flags};
use crate::haproxy::counter::{numbers, size};
use crate::haproxy::formula::{Formula, Need};
use crate::haproxy::host_name::Names;
use crate::haproxy::map::map_kind;
use crate::haproxy::path_test::{Match, Pattern, divided};
use crate::haproxy::sample::{Call, Sample};
use crate::haproxy::values::{counted, named};
use crate::haproxy::when::{Network, Test};
use crate::nginx::pattern;

/// Ends of the names of samples that state the way of the comparison: `path_beg` is `path` with `-m beg`.
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
    /// The condition that the sample `criterion` matches one of the `patterns`: `path_beg` with `/a` becomes a `Test::Path`.
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
        if !fits(method, &sample) {
            let method = method.unwrap_or_default();
            return Formula::unknown(format!("brisk does not compare {} by {method}", sample.fetch.name));
        }
        let request = Request { sample, kind: kind.unwrap_or(Match::Exact), ignore_case: flags.ignore_case };
        let is_found = method == Some("found");
        constant(&request, is_found, patterns)
            .or_else(|| self.mapped(&request, is_found, patterns))
            .unwrap_or_else(|| self.compared(&request, is_found, patterns))
    }

    /// Tests of a part of the request.
    pub(crate) fn compared(&self, request: &Request, is_found: bool, patterns: &[String]) -> Formula {
        let sample = &request.sample;
        let name = sample.name();
        let argument = sample.fetch.arg(0);
        match name {
            _ if sample.is_host() => host(request, is_found, patterns),
            "path" | "url" | "base" if !is_found => path(request, patterns),
            "src" if sample.converters.is_empty() && !is_found => networks(patterns),
            "method" if !is_found && request.is_method() => methods(patterns),
            "ssl_sni" if self.proxy.is_tcp() => host(request, is_found, patterns),
            // Without the first message of TLS, brisk passes nothing on.
            "ssl_hello_type" if self.proxy.is_tcp() && patterns == ["1"] => Formula::True,
            "ssl_ver" if self.proxy.is_tcp() => Formula::True,
            // It only waits for the end of the inspection.
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

/// A comparison with its [`Sample`]; `ignore_case` is the flag `-i`.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) sample: Sample,
    pub(crate) kind: Match,
    pub(crate) ignore_case: bool,
}

impl Request {
    /// Whether the whole method is compared, of which converters change the case only.
    fn is_method(&self) -> bool {
        let is_case = |call: &Call| matches!(&*call.name, "lower" | "upper");
        self.kind == Match::Exact && self.sample.converters.iter().all(is_case)
    }

    /// Whether letters of any case match. `None` if a converter changes the sample in another way.
    pub(crate) fn is_folded(&self, texts: &[String]) -> Option<bool> {
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

/// Whether brisk compares a sample as `-m` states: a text as text, a number as number, an address as address.
fn fits(method: Option<&str>, sample: &Sample) -> bool {
    let is_map = sample.converters.last().is_some_and(|call| map_kind(&call.name).is_some());
    let is_text = is_map
        || sample.is_host()
        || matches!(
            sample.name(),
            "hdr" | "cook" | "url_param" | "path" | "url" | "base" | "method" | "ssl_sni" | "ssl_c_s_dn"
        );
    match method {
        None | Some("found") => true,
        Some("ip") => !is_map && sample.name() == "src",
        Some("int" | "bool") => !is_text && sample.name() != "src",
        Some(_) => is_text || !matches!(sample.name(), "src" | "dst_port" | "fc_dst_port" | "ssl_fc"),
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

/// Tests of the path: `path`, `url` and `base`.
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

/// Reason for encoded texts without a counterpart.
const ENCODED: &str = "brisk compares the path without percent-encoding";

/// The pattern for a path, which brisk compares without percent-encoding.
fn pattern_of(kind: Match, text: &str, ignore_case: bool) -> Result<Pattern, String> {
    if kind == Match::Expression {
        if text.contains('%') {
            return Err(ENCODED.to_owned());
        }
        let text = pattern::translate(text, false)?;
        return Ok(Pattern { kind, text, ignore_case });
    }
    let pattern = decoded(text).map(|text| Pattern { kind, text, ignore_case }).ok_or(ENCODED)?;
    // Delimiters alone are no folder or domain.
    if matches!(kind, Match::Folder | Match::Domain) && pattern.bare().is_empty() {
        return Err("the text has no letters".to_owned());
    }
    Ok(pattern)
}

/// The text without percent-encoding. `None` if it has an encoded slash or percent sign, because paths of brisk have none.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if matches!(byte, Some(b'/' | b'%')) {
            return None;
        }
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8(bytes).ok()
}

fn host(request: &Request, is_found: bool, patterns: &[String]) -> Formula {
    if is_found {
        return Formula::True;
    }
    let (mut all, mut any) = (Vec::new(), Vec::new());
    for text in patterns {
        match host_text(request.kind, text) {
            Ok(text) => all.push(Pattern { kind: request.kind, text, ignore_case: true }),
            Err(reason) => any.push(Formula::unknown(reason)),
        }
    }
    any.push(Formula::Host(Arc::new(Names::new(all))));
    Formula::any(any)
}

/// The text for names, which have no port in brisk.
fn host_text(kind: Match, text: &str) -> Result<String, String> {
    let port = Err("brisk compares the host without its port".to_owned());
    match kind {
        Match::Exact => Ok(text.to_owned()),
        Match::Expression => {
            // An optional port is never there.
            let mut bare = text.to_owned();
            for optional in [r"(:[0-9]+)?", r"(?::[0-9]+)?", r"(:\d+)?", r"(?::\d+)?"] {
                bare = bare.replace(optional, "");
            }
            if bare.replace("(?:", "(").contains(':') { port } else { pattern::translate(&bare, false) }
        }
        Match::End if !text.starts_with(':') && text.matches(':').count() < 2 => Ok(text.to_owned()),
        _ if text.contains(':') => port,
        _ => Ok(text.to_owned()),
    }
}

fn networks(patterns: &[String]) -> Formula {
    match patterns.iter().map(|text| Network::read(text)).collect::<Option<Vec<_>>>() {
        Some(networks) if networks.is_empty() => Formula::False,
        Some(networks) => Formula::Test(Arc::new(Test::Networks(networks))),
        None => Formula::unknown("a name in place of an address is not resolved"),
    }
}

/// Methods. `GET` of brisk includes `HEAD`, which `method GET` of HAProxy does not accept.
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
