//! Expressions of tables, with their results.

use std::borrow::Cow;
use std::iter;

use crate::pattern::{GroupPattern, Pattern};
use crate::template::{Outcome, Values};

/// Maximum length in bytes of a value in which expressions are searched, as of paths that are rewritten.
const LONGEST: usize = 4096;

/// An expression of a table, and the result for values that match it.
#[derive(Clone, Debug)]
pub struct MapPattern(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// The same result for all values.
    Fixed(Pattern, Outcome),
    /// A result with the text of groups.
    Formed(GroupPattern, Box<[Piece]>),
}

#[derive(Clone, Debug)]
enum Piece {
    Text(Box<str>),
    /// Number of a group.
    Group(usize),
}

impl MapPattern {
    /// Names of groups and variables in `value`: texts in braces that begin with a digit, a letter or `_`. After `{{` is none.
    pub fn names(value: &str) -> impl Iterator<Item = &str> {
        let mut rest = value;
        iter::from_fn(move || {
            loop {
                let (_, after) = rest.split_once('{')?;
                rest = after.strip_prefix('{').unwrap_or(after);
                if begins_name(after) {
                    return Some(after.split_once('}').map_or(after, |(name, _)| name));
                }
            }
        })
    }

    /// An expression with a result without groups.
    pub fn fixed(pattern: Pattern, outcome: Outcome) -> Self {
        Self(Kind::Fixed(pattern, outcome))
    }

    /// An expression with groups. `{1}` or `{name}` in `value` is the text of a group, `{{` is a brace.
    ///
    /// # Errors
    ///
    /// The reason if a brace is open or a group does not exist, with the correction.
    pub fn formed(pattern: GroupPattern, value: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = value;
        while let Some((before, after)) = rest.split_once('{') {
            literal.push_str(before);
            rest = after.strip_prefix('{').unwrap_or(after);
            // Also after `{{`: the second brace begins no name, and `rest` is behind it.
            if !begins_name(after) {
                literal.push('{');
                continue;
            }
            let (name, after) = after.split_once('}').ok_or_else(|| {
                format!("\"{{{after}\" has no closing brace; write \"{{{{\" for a brace before a name")
            })?;
            let group = pattern.group(name).ok_or_else(|| {
                format!("the expression has no group {{{name}}}; write \"{{{{\" for a brace before a name")
            })?;
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal).into()));
            }
            pieces.push(Piece::Group(group));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal.into()));
        }
        Ok(Self(Kind::Formed(pattern, pieces.into())))
    }

    /// Whether the result contains text of the value that matches.
    pub(crate) fn has_groups(&self) -> bool {
        matches!(self.0, Kind::Formed(..))
    }

    /// The result without groups, if it is one.
    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        match &self.0 {
            Kind::Fixed(_, outcome) => Some(outcome),
            Kind::Formed(..) => None,
        }
    }

    /// The result if `value` matches, with `values` of the variables in it, otherwise `None`. No expression matches a value of more
    /// than 4 KiB, since a table may have many.
    pub fn result(&self, value: &[u8], values: &impl Values) -> Option<Cow<'_, [u8]>> {
        if value.len() > LONGEST {
            return None;
        }
        match &self.0 {
            Kind::Fixed(pattern, outcome) => pattern.is_match(value).then(|| outcome.text(values)),
            Kind::Formed(pattern, pieces) => {
                // First by the automaton, since the search for groups costs the size of the expression times the length.
                if !pattern.is_match(value) {
                    return None;
                }
                let groups = pattern.captures(value)?;
                let mut result = Vec::new();
                for piece in pieces {
                    result.extend_from_slice(match piece {
                        Piece::Text(text) => text.as_bytes(),
                        Piece::Group(group) => groups.get(*group).map_or(&b""[..], |text| text.as_bytes()),
                    });
                }
                Some(result.into())
            }
        }
    }
}

fn begins_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formed(regex: &str, value: &str) -> Result<MapPattern, String> {
        MapPattern::formed(GroupPattern::new(regex).expect(regex), value)
    }

    #[test]
    fn a_result_has_the_text_of_groups() {
        for (regex, value, text, expected) in [
            ("^https://(.*)$", "http://{1}", &b"https://a.test/b%20c"[..], Some(&b"http://a.test/b%20c"[..])),
            ("^(?P<one>.)(.)?", "{2}{one}-{0}", b"x", Some(b"x-x")),
            ("(?-u:(.))$", "{1}", b"\xff", Some(b"\xff")),
            ("^(a)$", "{{1}{1}{}", b"a", Some(b"{1}a{}")),
            ("^(a)$", "{1}", b"b", None),
        ] {
            assert!(MapPattern::names(value).next().is_some(), "{value}");
            let pattern = formed(regex, value).expect(value);
            assert_eq!(pattern.result(text, &()).as_deref(), expected, "{regex} {value}");
        }
        let has_none = |text: &&str| MapPattern::names(text).next().is_none();
        assert!(["", "a", "{}", r#"{"a":"b"}"#, "{ 1}", "{{1}"].iter().all(has_none));
        assert_eq!(MapPattern::names("{1}{{2}{{{a.b}{").collect::<Vec<_>>(), ["1", "a.b"]);
    }

    #[test]
    fn a_value_above_4_kib_has_no_groups() {
        let pattern = formed("^(a*)$", "{1}").expect("a group");
        assert!(pattern.result(&b"a".repeat(LONGEST), &()).is_some());
        assert!(pattern.result(&b"a".repeat(LONGEST + 1), &()).is_none());
    }

    #[test]
    fn a_wrong_result_is_refused_with_the_correction() {
        for (value, reason) in [
            ("{2}", "the expression has no group {2}; write \"{{\""),
            ("{name}", "the expression has no group {name}"),
            ("a{1", "\"{1\" has no closing brace"),
        ] {
            assert!(formed("(.)", value).expect_err(value).contains(reason), "{value}");
        }
    }
}
