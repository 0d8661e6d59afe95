//! Regular expressions: from the syntax of PCRE to that of the crate `regex`, and their fixed beginnings.

use regex::bytes::{Regex, RegexBuilder};

use crate::nginx::dialect;

/// Size of a compiled expression at most, in bytes.
const LARGEST: usize = 1 << 20;

/// Size of a compiled expression that is small, in bytes.
const SMALL: usize = 64 << 10;

/// Length of an exception at the end of an expression at most: its translation has the square of it.
const LONGEST: usize = 100;

/// An expression that brisk accepts too.
pub(crate) fn translate(pattern: &str, ignore_case: bool) -> Result<String, String> {
    let text = without_final_exception(pattern);
    let text = dialect::converted(text.as_deref().unwrap_or(pattern))?;
    let text = if ignore_case { format!("(?i){text}") } else { text };
    match compile(&text) {
        Ok(_) => Ok(text),
        Err(_) => Err("brisk's expressions do not have the syntax of this one".to_owned()),
    }
}

/// The expression as brisk compiles it.
fn compile(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).unicode(false).size_limit(LARGEST).build()
}

/// The expression without an exception at its end: `/\.(?!well-known)` becomes `/\.(?:[^w]|w[^e]|...)`. The exception is a fixed
/// text, because all others, such as `\d` or a choice, end at several places.
fn without_final_exception(text: &str) -> Option<String> {
    let tokens = dialect::tokens(text);
    let start = tokens.iter().position(|token| *token == "(?!")?;
    let end = tokens.iter().rposition(|token| *token == ")")?;
    if start > end || !matches!(tokens[end + 1..], [] | [".", "*"] | [".", "*", "$"]) {
        return None;
    }
    let literal = |token: &&str| match token.strip_prefix('\\').unwrap_or(token) {
        own if own.starts_with(|first: char| first.is_ascii_alphanumeric()) => {
            (own == *token).then(|| own.to_owned())
        }
        own if own != *token || matches!(own, "-" | "_" | "/") => Some(regex::escape(own)),
        _ => None,
    };
    let letters = tokens[start + 1..end].iter().map(literal).collect::<Option<Vec<_>>>()?;
    if letters.is_empty() || letters.len() > LONGEST {
        return None;
    }
    let prefix = |length: usize| letters[..length].concat();
    let others = (0..letters.len()).map(|length| format!("{}[^{}]", prefix(length), letters[length]));
    let ends = (0..letters.len()).map(|length| format!("{}$", prefix(length)));
    let choice = others.chain(ends).collect::<Vec<_>>().join("|");
    Some(format!("{}(?:{choice})", tokens[..start].concat()))
}

/// An expression for more paths, which has no look-around and gives back: all matches of the first one match it too. None if parts
/// that it leaves out may be groups that others refer to.
pub(crate) fn wider(pattern: &str) -> Option<String> {
    let tokens = dialect::tokens(pattern);
    let is_reference =
        |token: &&str| token.starts_with('\\') && token.ends_with(|last: char| last.is_ascii_digit());
    if tokens.iter().any(is_reference) {
        return None;
    }
    let (mut text, mut depth, mut left_out, mut repeats) = (String::new(), 0_usize, None, 0);
    for token in tokens {
        if token.starts_with('(') && !(token.starts_with("(?") && token.ends_with(')')) {
            depth += 1;
            if dialect::is_look_around(token) && left_out.is_none() {
                left_out = Some(depth);
            }
        }
        repeats = if dialect::is_quantifier(token) { repeats + 1 } else { 0 };
        let is_possessive = repeats == 2 && token == "+";
        if left_out.is_none() && !is_possessive {
            text.push_str(if token == "(?>" { "(?:" } else { token });
        }
        if token == ")" {
            left_out = left_out.filter(|start| *start != depth);
            depth = depth.checked_sub(1)?;
        }
    }
    left_out.is_none().then_some(text)
}

/// The text with which every match begins, if the expression is anchored by `^`; empty otherwise.
pub(crate) fn fixed_start(pattern: &str) -> String {
    let Some(rest) = pattern.strip_prefix('^') else { return String::new() };
    // An alternative outside of groups may begin otherwise.
    if has_outer_alternative(pattern) {
        return String::new();
    }
    let mut text = String::new();
    let mut characters = rest.chars().peekable();
    while let Some(next) = characters.next() {
        let literal = match next {
            '\\' => match characters.next() {
                // A backslash before a letter or digit is a class, an anchor or a reference, and no text.
                Some(escaped) if !escaped.is_ascii_alphanumeric() => escaped,
                _ => return text,
            },
            '.' | '[' | '(' | ')' | '*' | '+' | '?' | '{' | '|' | '$' | '^' => return text,
            next => next,
        };
        // The character is optional, so it is no part of every match.
        if matches!(characters.peek(), Some('*' | '?' | '{')) {
            return text;
        }
        text.push(literal);
        if characters.peek() == Some(&'+') {
            return text;
        }
    }
    text
}

/// Whether an expression without groups matches all paths.
pub(crate) fn is_every(pattern: &str) -> bool {
    matches!(pattern, "^" | "^/" | ".*" | "^.*$" | "^.*" | "^/.*$" | "^/.*")
}

/// Whether an expression matches all paths that begin with a prefix, as `^/api/(.*)$` those of `/api/`.
pub(crate) fn covers(pattern: &str, prefix: &str) -> bool {
    let rest = pattern.strip_prefix('^').and_then(|rest| rest.strip_prefix(escaped(prefix).as_str()));
    rest.is_some_and(|rest| matches!(rest, "" | ".*" | ".*$" | "(.*)" | "(.*)$"))
}

/// Whether an expression is `^` and a text without a query or an encoding.
pub(crate) fn is_literal_start(pattern: &str) -> bool {
    let start = fixed_start(pattern);
    let is_plain = start.starts_with('/') && !start.contains(['?', '%', '\\']);
    is_plain && pattern.replace('\\', "") == format!("^{start}")
}

/// Whether the expression has alternatives outside of groups.
pub(crate) fn has_outer_alternative(pattern: &str) -> bool {
    let mut depth = 0_usize;
    dialect::tokens(pattern).into_iter().any(|token| {
        match token {
            ")" => depth = depth.saturating_sub(1),
            token if token.starts_with('(') && !(token.starts_with("(?") && token.ends_with(')')) => {
                depth += 1;
            }
            _ => {}
        }
        token == "|" && depth == 0
    })
}

/// The texts of which every match has one at its beginning: [`fixed_start`], with each text of a group behind it that lists texts.
pub(crate) fn fixed_starts(pattern: &str) -> Vec<String> {
    let start = fixed_start(pattern);
    let alternatives = || -> Option<Vec<String>> {
        // The group follows the text directly if the text is written without escapes and quantifiers.
        let rest = pattern.strip_prefix('^')?.strip_prefix(start.as_str())?;
        let (inner, behind) = rest.strip_prefix("(?:").or_else(|| rest.strip_prefix('('))?.split_once(')')?;
        let is_optional = behind.starts_with(['*', '?', '{']);
        let mut all = vec![start.clone()];
        for token in dialect::tokens(inner) {
            let plain = token
                .strip_prefix('\\')
                .filter(|own| own.starts_with(|next: char| next.is_ascii_punctuation()));
            let is_plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_/".contains(&byte));
            match (token, plain) {
                ("|", _) => all.push(start.clone()),
                (_, Some(text)) => all.last_mut()?.push_str(text),
                (text, None) if is_plain => all.last_mut()?.push_str(text),
                _ => return None,
            }
        }
        (!is_optional).then_some(all)
    };
    if start.is_empty() { vec![start] } else { alternatives().unwrap_or_else(|| vec![start]) }
}

/// Whether a path below `prefix` can match an anchored expression.
pub(crate) fn can_match(pattern: &str, ignore_case: bool, prefix: &str) -> bool {
    fits(&fixed_starts(pattern), ignore_case, prefix)
}

/// Whether a path below `prefix` can match an anchored expression with these [`fixed_starts`].
pub(crate) fn fits(starts: &[String], ignore_case: bool, prefix: &str) -> bool {
    fn is_one(start: &str, prefix: &str) -> bool {
        start.starts_with(prefix) || prefix.starts_with(start)
    }
    if ignore_case {
        let prefix = prefix.to_lowercase();
        return starts.iter().any(|start| is_one(&start.to_lowercase(), &prefix));
    }
    starts.iter().any(|start| is_one(start, prefix))
}

/// The texts of an expression that only lists texts, as `^(GET|HEAD)$` does.
pub(crate) fn alternatives(pattern: &str) -> Option<Vec<String>> {
    let text = pattern.strip_prefix('^')?.strip_suffix('$')?;
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    if inner.is_none() && text.contains('|') {
        // `^GET|HEAD$` only has a fixed beginning or a fixed end.
        return None;
    }
    let text = inner.unwrap_or(text);
    let text = text.strip_prefix("?:").unwrap_or(text);
    let parts: Vec<_> = text.split('|').map(str::to_owned).collect();
    let is_plain = |part: &String| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphabetic());
    parts.iter().all(is_plain).then_some(parts)
}

/// Number of groups of an expression of brisk.
pub(crate) fn groups(pattern: &str) -> Option<usize> {
    compiled(pattern, false).map(|compiled| compiled.captures_len() - 1)
}

/// The expression as brisk compiles it: without tables of Unicode, which this crate does not have either.
pub(crate) fn compiled(pattern: &str, ignore_case: bool) -> Option<Regex> {
    let text = translate(pattern, ignore_case).ok()?;
    RegexBuilder::new(&text).unicode(false).build().ok()
}

/// The expression as brisk compiles it, and its size at most, in bytes.
pub(crate) fn sized(pattern: &str, ignore_case: bool) -> Option<(Regex, usize)> {
    let text = translate(pattern, ignore_case).ok()?;
    [SMALL, LARGEST].into_iter().find_map(|size| {
        let compiled = RegexBuilder::new(&text).unicode(false).size_limit(size).build().ok()?;
        Some((compiled, size))
    })
}

/// Whether an expression of PCRE matches `text`; not if brisk does not have its syntax.
pub(crate) fn matches(pattern: &str, ignore_case: bool, text: &str) -> bool {
    compiled(pattern, ignore_case).is_some_and(|compiled| compiled.is_match(text.as_bytes()))
}

/// The expression that matches `text` itself.
pub(crate) fn escaped(text: &str) -> String {
    regex::escape(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_translated_or_refused() {
        assert_eq!(translate(r"^\/a(?<id>\d+)$", true).as_deref(), Ok(r"(?i)^/a(?P<id>\d+)$"));
        assert!(translate("(?!x.y)a", false).is_err_and(|reason| reason.contains("look-around")));
        assert!(matches(r"/\.(?!well-known)", false, "/.git") && matches(r"/\.(?!well-known)", false, "/.w"));
        assert!(!matches(r"/\.(?!well-known)", false, "/.well-known/x"));
        assert!(translate("(?<=x)", false).is_err());
        assert!(translate("(", false).is_err());
        for text in ["++", "(?>a)", r"\<", "[a&&b]"] {
            assert_eq!(
                translate(&format!("x{text}"), true).is_err(),
                !text.starts_with(['\\', '[']),
                "{text}"
            );
        }
    }

    #[test]
    fn exceptions_at_the_end_are_fixed_texts() {
        for (pattern, path, expected) in [
            ("^/(?!static/)", "/static-old", true),
            ("^/(?!static/)", "/static/x", false),
            ("^/(?!static/).*$", "/static", true),
            (r"/(?!a\.b)", "/axb", true),
            (r"/(?!a\.b)", "/a.b", false),
            (r"/(?!a\-b)", "/a", true),
        ] {
            assert!(translate(pattern, false).is_ok(), "{pattern}");
            assert_eq!(matches(pattern, false, path), expected, "{pattern} {path}");
        }
        for pattern in [r"^/u/(?!\d)", "/(?!a|b)", "/(?!a.)", "/(?!ab)$", "/(?!ab)c", "/(?!a+)", "/(?!)"] {
            assert!(translate(pattern, false).is_err(), "{pattern}");
        }
    }

    #[test]
    fn wider_expressions_have_no_look_around() {
        assert_eq!(wider(r"^/(?!public/)(a|b)\.php$").as_deref(), Some(r"^/(a|b)\.php$"));
        assert_eq!(wider(r"/(?=[)]x(y))z++").as_deref(), Some("/z+"));
        assert_eq!(wider(r"(?i)[a*+](?>b)(?!c(?=d))e").as_deref(), Some("(?i)[a*+](?:b)e"));
        assert_eq!((wider(r"(a)\1"), wider("(?!a")), (None, None));
    }

    #[test]
    fn fixed_starts_end_before_the_first_choice() {
        for (pattern, start) in [
            (r"^/a\.b/(.*)$", "/a.b/"),
            ("/a", ""),
            ("^/ab?c", "/a"),
            ("^/a|^/b", ""),
            ("^/a/(x|y)", "/a/"),
            ("^/ab+", "/ab"),
        ] {
            assert_eq!(fixed_start(pattern), start, "{pattern}");
        }
        assert!(can_match("^/api/v", false, "/api/"));
        assert!(!can_match("^/api/v", false, "/web/"));
        assert!(can_match(r"\.php$", false, "/web/"));
        for (pattern, prefix, expected) in [
            ("^/(?:build|tests)(?:$|/)", "/index.php", false),
            ("^/(?:build|index)(?:$|/)", "/index.php", true),
            ("^/(build|tests)?", "/index.php", true),
            ("^/(build|te.ts)", "/index.php", true),
            ("^/(build|)", "/index.php", true),
            (r"^/(?:\.|indie|db_)", "/index.php", false),
            (r"^/(?:\d|indie)", "/index.php", true),
            (r"^/(a\)|index)", "/index.php", true),
            (r"^\/(build)", "/index.php", true),
        ] {
            assert_eq!(can_match(pattern, false, prefix), expected, "{pattern} {prefix}");
        }
    }

    #[test]
    fn lists_of_texts_are_found() {
        assert_eq!(alternatives("^(GET|HEAD)$"), Some(vec!["GET".to_owned(), "HEAD".to_owned()]));
        assert_eq!(alternatives("^(GET|H.)$"), None);
        assert_eq!(alternatives("^GET|HEAD$"), None);
    }
}
