//! Tests of headers, cookies and parameters.

use std::sync::Arc;

use crate::haproxy::formula::Formula;
use crate::haproxy::path_test::{Match, Pattern, any, divided};
use crate::haproxy::sample::{Call, Sample};
use crate::haproxy::test::Request;
use crate::haproxy::when::{Part, Test, Value};
use crate::nginx::{dialect, pattern};

/// Headers, cookies and parameters.
pub(crate) fn named(request: &Request, is_found: bool, patterns: &[String]) -> Formula {
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
    let mut all = Vec::new();
    let mut expressions = Vec::new();
    for text in patterns {
        if request.kind == Match::Exact && !is_list && !ignore_case && patterns.len() == 1 {
            all.push(test(Value::Equal(text.clone())));
            continue;
        }
        match expression(request.kind, text, is_list) {
            Ok(text) => expressions.push(text),
            Err(reason) => all.push(Formula::unknown(reason)),
        }
    }
    let lists = divided(
        expressions.into_iter().map(|text| Pattern { kind: Match::Expression, text, ignore_case }).collect(),
    );
    all.extend(lists.iter().map(|list| test(Value::Expression(any(list)))));
    Formula::any(all)
}

/// The expression of brisk for a value, or for one of the values between commas.
fn expression(kind: Match, text: &str, is_list: bool) -> Result<String, String> {
    let escaped = pattern::escaped(text);
    let (start, end, comma) = if is_list { (r"(?:^|,)\s*", r"\s*(?:,|$)", ",") } else { ("^", "$", "") };
    let between = |set: &str| {
        let bare = text.trim_matches(|next| set.contains(next));
        let own = pattern::escaped(bare);
        let all = format!("(?:{start}|[{set}]){own}(?:[{set}]|{end})");
        if bare.is_empty() { Err("the text has no letters".to_owned()) } else { Ok(all) }
    };
    Ok(match kind {
        _ if !comma.is_empty() && text.contains(comma) => return Err(COMMA.to_owned()),
        Match::Exact => format!("{start}{escaped}{end}"),
        Match::Begin => format!("{start}{escaped}"),
        Match::End => format!("{escaped}{end}"),
        Match::Part => escaped,
        Match::Folder => between("/?")?,
        Match::Domain => between("/?.:")?,
        Match::Expression => {
            let text = pattern::translate(text, false)?;
            if is_list { element(&text).ok_or(COMMA)? } else { text }
        }
    })
}

/// Reason for texts that HAProxy compares with each value.
const COMMA: &str = "HAProxy compares each value between commas alone: write the test with req.fhdr";

/// An expression for one of the values between commas, without the spaces around it. `None` if a match could reach beyond one
/// value.
fn element(expression: &str) -> Option<String> {
    let tokens = dialect::tokens(expression);
    let is_literal = |at: usize| {
        tokens.get(at).is_some_and(|own| {
            let is_plain = |text: &str| text.len() == 1 && !text.contains([' ', ',']);
            match own.strip_prefix('\\') {
                Some(own) => is_plain(own) && own.bytes().all(|byte| byte.is_ascii_punctuation()),
                None => is_plain(own) && !".^$|()[]{}?*+\t".contains(own),
            }
        })
    };
    // Between two characters, the part is within a value.
    let is_inside = |at: usize| {
        let next = tokens.get(at + 2).is_some_and(|next| dialect::is_quantifier(next));
        at > 0 && is_literal(at - 1) && is_literal(at + 1) && !next
    };
    let mut result = String::new();
    for (at, token) in tokens.iter().enumerate() {
        let is_any = || tokens.get(at + 1) == Some(&"*") || is_inside(at);
        result.push_str(match *token {
            "^" if at == 0 || tokens[..at] == ["(?i)"] => r"(?:^|,)\s*",
            "$" if at + 1 == tokens.len() => r"\s*(?:,|$)",
            "." if is_any() => "[^,]",
            " " if is_inside(at) => " ",
            "(" | ")" | "(?:" | "(?i)" | "|" | "\\d" | "\\w" => token,
            own if is_literal(at) || dialect::is_quantifier(own) || is_plain_class(own) => own,
            _ => return None,
        });
    }
    Some(result)
}

/// Whether a class in brackets has letters and digits only.
fn is_plain_class(token: &str) -> bool {
    let inner = token.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    let parts = inner.map(|inner| inner.replace("a-z", "a").replace("A-Z", "a").replace("0-9", "a"));
    parts.is_some_and(|parts| !parts.is_empty() && parts.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Numbers of headers or cookies: whether there is one.
pub(crate) fn counted(request: &Request, patterns: &[String]) -> Formula {
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
