//! Regular expressions: from the syntax of PCRE to that of the crate `regex`, and their fixed beginnings.

use regex::bytes::{Regex, RegexBuilder};

/// Size of a compiled expression at most, in bytes.
const LARGEST: usize = 1 << 20;

/// An expression that brisk accepts too.
pub(crate) fn translate(pattern: &str, ignore_case: bool) -> Result<String, String> {
    // The crate reads `\/` and `(?<name>` as PCRE does; quantifiers of PCRE that give nothing back have no counterpart.
    let text = if ignore_case { format!("(?i){pattern}") } else { pattern.to_owned() };
    let text =
        // One spelling of named groups, which `with_groups` looks for. Look-behind begins alike, and is
        // restored.
        text.replace("\\/", "/").replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!");
    let text = without_final_exception(&text).unwrap_or(text);
    // As brisk compiles it: bytes instead of characters, and a bounded size.
    match RegexBuilder::new(&text).unicode(false).size_limit(LARGEST).build() {
        Ok(_) => Ok(text),
        Err(_) if text.contains("(?=") || text.contains("(?!") || text.contains("(?<") => {
            Err("the expression has look-around, which brisk's expressions do not have".to_owned())
        }
        Err(_) => Err("brisk's expressions do not have the syntax of this one".to_owned()),
    }
}

/// The expression without an exception at its end: `/\.(?!well-known)` becomes `/\.(?:[^w]|w[^e]|...)`.
fn without_final_exception(text: &str) -> Option<String> {
    let (start, exception) = text.split_once("(?!")?;
    let exception = exception.trim_end_matches('$').trim_end_matches(".*").strip_suffix(')')?;
    let letters: Vec<char> = exception.trim_end_matches('/').chars().filter(|next| *next != '\\').collect();
    if letters.is_empty()
        || !letters.iter().all(|next| next.is_ascii_alphanumeric() || matches!(next, '-' | '_'))
    {
        return None;
    }
    let prefix = |length: usize| letters[..length].iter().collect::<String>();
    let others = (0..letters.len()).map(|length| format!("{}[^{}]", prefix(length), letters[length]));
    let ends = (0..letters.len()).map(|length| format!("{}$", prefix(length)));
    Some(format!("{start}(?:{})", others.chain(ends).collect::<Vec<_>>().join("|")))
}

/// An expression for more paths, which has no look-around and gives back: all matches of the first one match it too. None if parts
/// that it leaves out may be groups that others refer to.
pub(crate) fn wider(pattern: &str) -> Option<String> {
    let mut text = pattern.replace("(?>", "(?:").replace("++", "+").replace("*+", "*").replace("?+", "?");
    // A reference to a group needs that group, also if it is inside of a removed part.
    if (1..=9).any(|group| text.contains(&format!("\\{group}"))) {
        return None;
    }
    while let Some(start) = ["(?=", "(?!", "(?<=", "(?<!"].iter().filter_map(|kind| text.find(kind)).min() {
        let (mut depth, mut is_escaped, mut is_set, mut end) = (0_usize, false, false, None);
        for (at, next) in text[start..].char_indices() {
            match next {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                ']' => is_set = false,
                '[' => is_set = true,
                // Within an escape or a set, a parenthesis is an ordinary character.
                '(' if !is_set => depth += 1,
                ')' if !is_set => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                end = Some(start + at + next.len_utf8());
                break;
            }
        }
        text.replace_range(start..end?, "");
    }
    Some(text)
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

/// Whether an expression is `^` and a text without a query or an encoding.
pub(crate) fn is_literal_start(pattern: &str) -> bool {
    let start = fixed_start(pattern);
    let is_plain = start.starts_with('/') && !start.contains(['?', '%', '\\']);
    is_plain && pattern.replace('\\', "") == format!("^{start}")
}

fn has_outer_alternative(pattern: &str) -> bool {
    let (mut depth, mut is_escaped, mut is_set) = (0_usize, false, false);
    for next in pattern.chars() {
        match next {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ']' => is_set = false,
            '[' => is_set = true,
            _ if is_set => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// Whether a path below `prefix` can match an anchored expression.
pub(crate) fn can_match(pattern: &str, ignore_case: bool, prefix: &str) -> bool {
    let start = fixed_start(pattern);
    let (start, prefix) =
        if ignore_case { (start.to_lowercase(), prefix.to_lowercase()) } else { (start, prefix.to_owned()) };
    start.starts_with(&prefix) || prefix.starts_with(&start)
}

/// The texts of an expression that only lists texts, as `^(GET|HEAD)$` does.
pub(crate) fn alternatives(pattern: &str) -> Option<Vec<String>> {
    let text = pattern.strip_prefix('^')?.strip_suffix('$')?;
    let text = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text);
    // A group without a capture lists the same texts.
    let text = text.strip_prefix("?:").unwrap_or(text);
    let parts: Vec<_> = text.split('|').map(str::to_owned).collect();
    let is_plain = |part: &String| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphabetic());
    parts.iter().all(is_plain).then_some(parts)
}

/// Whether an expression of PCRE matches `text`; not if brisk does not have its syntax.
pub(crate) fn matches(pattern: &str, ignore_case: bool, text: &str) -> bool {
    let compiled = translate(pattern, ignore_case).ok().and_then(|pattern| Regex::new(&pattern).ok());
    compiled.is_some_and(|compiled| compiled.is_match(text.as_bytes()))
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
    }

    #[test]
    fn wider_expressions_have_no_look_around() {
        assert_eq!(wider(r"^/(?!public/)(a|b)\.php$").as_deref(), Some(r"^/(a|b)\.php$"));
        assert_eq!(wider(r"/(?=[)]x(y))z++").as_deref(), Some("/z+"));
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
    }

    #[test]
    fn lists_of_texts_are_found() {
        assert_eq!(alternatives("^(GET|HEAD)$"), Some(vec!["GET".to_owned(), "HEAD".to_owned()]));
        assert_eq!(alternatives("^(GET|H.)$"), None);
    }
}
