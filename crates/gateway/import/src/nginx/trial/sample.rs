//! Texts that an expression of `location`, `if` or `map` matches.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

use crate::nginx::pattern;

/// Repetitions of a part at most.
const MOST: u32 = 8;

/// Bytes of a text at most.
const LONGEST: usize = 200;

/// Paths that match an expression, one for each of its first alternatives.
pub(super) fn paths(text: &str, ignore_case: bool) -> Vec<String> {
    let is_path = |path: &String| path.starts_with('/') && pattern::matches(text, ignore_case, path);
    let path_of = |sample: String| {
        // An expression that is not anchored matches a part of a path.
        [sample.clone(), format!("/x{sample}"), format!("/{sample}")].into_iter().find(is_path)
    };
    texts(text, ignore_case).into_iter().filter_map(path_of).collect()
}

/// Texts that match an expression, one for each of its first alternatives.
pub(super) fn texts(text: &str, ignore_case: bool) -> Vec<String> {
    let Ok(translated) = pattern::translate(text, ignore_case) else { return Vec::new() };
    let parser = ParserBuilder::new().unicode(false).utf8(false).build().parse(&translated);
    let Ok(hir) = parser else { return Vec::new() };
    let mut found: Vec<String> = Vec::new();
    for choice in 0..3 {
        let mut bytes = Vec::new();
        sample(&hir, choice, &mut bytes);
        found.extend(String::from_utf8(bytes).ok().filter(|sample| !found.contains(sample)));
    }
    found
}

fn sample(hir: &Hir, choice: usize, out: &mut Vec<u8>) {
    if out.len() > LONGEST {
        return;
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => out.extend_from_slice(&literal.0),
        HirKind::Class(class) => out.push(member(class)),
        HirKind::Repetition(repetition) => {
            let most = repetition.max.unwrap_or(MOST);
            for _ in 0..repetition.min.max(1).min(most).min(MOST) {
                sample(&repetition.sub, choice, out);
            }
        }
        HirKind::Capture(capture) => sample(&capture.sub, choice, out),
        HirKind::Concat(parts) => parts.iter().for_each(|part| sample(part, choice, out)),
        HirKind::Alternation(parts) => {
            if let Some(part) = parts.get(choice % parts.len().max(1)) {
                sample(part, choice, out);
            }
        }
    }
}

/// A byte of a class such as `[a-z]` or `.`: a letter or digit, if it has one.
fn member(class: &Class) -> u8 {
    let ranges: Vec<(u32, u32)> = match class {
        Class::Bytes(class) => {
            class.ranges().iter().map(|own| (own.start().into(), own.end().into())).collect()
        }
        Class::Unicode(class) => {
            class.ranges().iter().map(|own| (own.start().into(), own.end().into())).collect()
        }
    };
    let has = |byte: u8| ranges.iter().any(|(start, end)| (*start..=*end).contains(&u32::from(byte)));
    let usual = (b'a'..=b'z').chain(b'0'..=b'9').chain(b'A'..=b'Z').chain(b'!'..=b'~');
    usual.filter(|byte| *byte != b'/').find(|byte| has(*byte)).unwrap_or(b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_match_their_expression() {
        for (pattern, expected) in [
            (r"^/a/(\d{2,4})/(one|two)\.css$", &["/a/00/one.css", "/a/00/two.css"][..]),
            (r"\.(php|inc)$", &["/x.php", "/x.inc"]),
            ("^/[^b-z]+/.*$", &["/a/a"]),
            ("casefull", &["/xcasefull"]),
            ("(?!a)b.c", &[]),
        ] {
            assert_eq!(paths(pattern, false), expected, "{pattern}");
        }
    }
}
