//! Differences between the syntax of PCRE, which nginx has, and that of the crate `regex`. Some texts are valid in both with
//! different meanings, such as `a++`, `\<` and `[a&&b]`: a restriction with such an expression would let requests through.

/// Reason for expressions without a counterpart.
const SYNTAX: &str = "brisk's expressions do not have the syntax of this one";

/// Parts of an expression: an escaped character, a class in brackets, the beginning of a group, a quantifier in braces, or one
/// character.
pub(crate) fn tokens(pattern: &str) -> Vec<&str> {
    let (mut all, mut rest) = (Vec::new(), pattern);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\\' if rest.starts_with("\\x{") => rest.find('}').map_or(rest.len(), |end| end + 1),
            '\\' => rest.char_indices().nth(2).map_or(rest.len(), |(end, _)| end),
            '[' => class_length(rest),
            '(' if rest.starts_with("(?") => opening_length(rest),
            '{' => braces_length(rest).unwrap_or(1),
            first => first.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        all.push(token);
        rest = behind;
    }
    all
}

/// Length of the class in brackets at the beginning of the text.
fn class_length(text: &str) -> usize {
    let mut at = if text.starts_with("[^") { 2 } else { 1 };
    // A bracket at the beginning is a member.
    at += usize::from(text[at..].starts_with(']'));
    while let Some(next) = text[at..].chars().next() {
        at += match next {
            ']' => return at + 1,
            '\\' => text[at..].char_indices().nth(2).map_or(text.len() - at, |(end, _)| end),
            '[' => named_class(&text[at..]).map_or(1, str::len),
            next => next.len_utf8(),
        };
    }
    text.len()
}

/// The class with a name, such as `[:alpha:]`, at the beginning of the text.
fn named_class(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("[:")?;
    let end = inner.find(|next: char| !next.is_ascii_lowercase() && next != '^')?;
    inner[end..].starts_with(":]").then(|| &text[..end + 4])
}

/// Length of the beginning of a group: `(?:`, `(?<name>`, `(?i)`.
fn opening_length(text: &str) -> usize {
    let inner = &text[2..];
    if inner.starts_with("<=") || inner.starts_with("<!") {
        return 4;
    }
    if inner.starts_with([':', '=', '!', '>', '|']) {
        return 3;
    }
    let end = if inner.starts_with('<') || inner.starts_with("P<") {
        inner.find('>')
    } else {
        inner.find([':', ')'])
    };
    end.map_or(text.len(), |end| end + 3)
}

/// Length of a quantifier in braces. PCRE reads other braces as characters.
fn braces_length(text: &str) -> Option<usize> {
    let end = text.find('}')?;
    let (least, most) = text[1..end].split_once(',').unwrap_or((&text[1..end], ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    (!least.is_empty() && is_number(least) && is_number(most)).then_some(end + 1)
}

/// Whether the part is a quantifier.
pub(crate) fn is_quantifier(token: &str) -> bool {
    matches!(token, "*" | "+" | "?") || token.starts_with('{') && token.len() > 1
}

/// Whether the part begins a look-around.
pub(crate) fn is_look_around(token: &str) -> bool {
    matches!(token, "(?=" | "(?!" | "(?<=" | "(?<!")
}

/// The expression in the syntax of `regex`, with the same meaning.
pub(crate) fn converted(pattern: &str) -> Result<String, String> {
    let all = tokens(pattern);
    if all.iter().any(|token| is_look_around(token)) {
        return Err("the expression has look-around, which brisk's expressions do not have".to_owned());
    }
    let (mut text, mut repeats) = (String::new(), 0);
    for token in all {
        if is_quantifier(token) {
            // `a++` gives nothing back in PCRE, and repeats `a+` in `regex`.
            if repeats > 0 && !(repeats == 1 && token == "?") {
                return Err("the expression has quantifiers that give nothing back".to_owned());
            }
            repeats += 1;
            text.push_str(token);
            continue;
        }
        repeats = 0;
        match token.as_bytes() {
            [b'\\', ..] => text.push_str(&escape(token).ok_or(SYNTAX)?),
            [b'[', ..] => text.push_str(&class(token).ok_or(SYNTAX)?),
            [b'(', b'?', ..] => text.push_str(&opening(token).ok_or(SYNTAX)?),
            b"{" => text.push_str("\\{"),
            _ => text.push_str(token),
        }
    }
    if text.contains("(*") { Err(SYNTAX.to_owned()) } else { Ok(text) }
}

/// An escaped character outside of classes.
fn escape(token: &str) -> Option<String> {
    let escaped = token[1..].chars().next()?;
    match escaped {
        'A' | 'B' | 'D' | 'S' | 'W' | 'a' | 'b' | 'd' | 'f' | 'n' | 'r' | 's' | 't' | 'w' | 'x' | 'z' => {
            Some(token.to_owned())
        }
        // Others, such as `\1`, `\K` and `\h`, do not exist in `regex` or mean something else.
        escaped if escaped.is_ascii_alphanumeric() => None,
        '-' => Some("-".to_owned()),
        escaped => Some(regex::escape(escaped.encode_utf8(&mut [0; 4]))),
    }
}

/// The beginning of a group.
fn opening(token: &str) -> Option<String> {
    let inner = &token[2..];
    if let Some(name) = inner.strip_prefix("P<").or_else(|| inner.strip_prefix('<')) {
        return Some(format!("(?P<{name}"));
    }
    let flags = inner.strip_suffix([':', ')'])?;
    flags.bytes().all(|flag| b"ims-".contains(&flag)).then(|| token.to_owned())
}

/// Last part of a class.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Nothing, several characters (`\d`), or the end of a range: a hyphen is a member.
    Whole,
    One,
    Hyphen,
}

/// A class. `regex` has operators (`&&`, `--`, `~~`) and classes inside of classes, which PCRE has not.
fn class(token: &str) -> Option<String> {
    let inner = token[1..].strip_suffix(']')?;
    let (start, mut rest) = inner.strip_prefix('^').map_or(("[", inner), |rest| ("[^", rest));
    let (mut text, mut last) = (start.to_owned(), Last::Whole);
    while let Some(next) = rest.chars().next() {
        let (member, length, is_several) = member(rest, next)?;
        let behind = &rest[length..];
        if next == '-' && last == Last::One && !behind.is_empty() && !is_set(behind) {
            text.push('-');
            last = Last::Hyphen;
        } else {
            text.push_str(&member);
            last = if is_several || last == Last::Hyphen { Last::Whole } else { Last::One };
        }
        rest = behind;
    }
    text.push(']');
    Some(text)
}

/// The member at the beginning of the text, its length there, and whether it has several characters.
fn member(text: &str, first: char) -> Option<(String, usize, bool)> {
    match first {
        '\\' => {
            let escaped = text[1..].chars().next()?;
            match escaped {
                'd' | 'D' | 's' | 'S' | 'w' | 'W' => Some((format!("\\{escaped}"), 2, true)),
                'a' | 'f' | 'n' | 'r' | 't' => Some((format!("\\{escaped}"), 2, false)),
                'x' => {
                    let number =
                        text.get(2..4).filter(|number| number.bytes().all(|b| b.is_ascii_hexdigit()))?;
                    Some((format!("\\x{number}"), 4, false))
                }
                escaped if escaped.is_ascii_alphanumeric() => None,
                escaped => {
                    let own = regex::escape(escaped.encode_utf8(&mut [0; 4]));
                    Some((own, 1 + escaped.len_utf8(), false))
                }
            }
        }
        '[' => match named_class(text) {
            Some(name) => Some((name.to_owned(), name.len(), true)),
            None => Some(("\\[".to_owned(), 1, false)),
        },
        '-' | ']' | '&' | '~' | '^' => Some((format!("\\{first}"), 1, false)),
        first => Some((first.to_string(), first.len_utf8(), false)),
    }
}

/// Whether the text begins with a member of several characters, so that a hyphen before it is a member too.
fn is_set(text: &str) -> bool {
    named_class(text).is_some()
        || ["\\d", "\\D", "\\s", "\\S", "\\w", "\\W"].iter().any(|set| text.starts_with(set))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_keep_their_meaning() {
        for (pattern, expected) in [
            (r"^\/a(?<id>\d+)$", r"^/a(?P<id>\d+)$"),
            (r"\<script\>", "<script>"),
            (r"[\w-.]+[]a-]*?", r"[\w\-.]+[\]a\-]*?"),
            ("[a&&b~~c[d]", r"[a\&\&b\~\~c\[d]"),
            ("[a-c-e][[:alpha:]-z]", r"[a-c\-e][[:alpha:]\-z]"),
            (r"[\\/]\\/", r"[\\/]\\/"),
            ("a{2}b{,3}c{x}", r"a{2}b\{,3}c\{x}"),
            ("(?i:a)(?:b)(?i)c", "(?i:a)(?:b)(?i)c"),
            (r"\x41\x{2F}", r"\x41\x{2F}"),
        ] {
            assert_eq!(converted(pattern).as_deref(), Ok(expected), "{pattern}");
        }
    }

    #[test]
    fn expressions_with_another_meaning_are_refused() {
        for pattern in [
            "a++", "a*+b", "a?+", "a{2}+", "(?>a)", "(?R)", "(?x)a b", "(*UTF8)a", r"\h", r"\1", r"\Qa\E",
            r"\u0041", r"[\b]", "(?#a)", "(?=a)", "a(?<!b)",
        ] {
            assert!(converted(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn all_texts_have_parts() {
        for pattern in ["[", "[^", "[]", "(?", "(?<", "\\", "\\x{", "{", "{1", "[[:a", "é[é]\\é", "[\\"] {
            assert_eq!(tokens(pattern).concat(), pattern);
            let _ = converted(pattern);
        }
    }
}
