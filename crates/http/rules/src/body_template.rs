//! Bodies of responses with variables.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::pattern::GroupPattern;
use crate::template::{Maps, Part, Values, parse_with_groups, value_of};
use crate::variable::Variable;

/// Maximum number of bytes of all values in a body together. Further bytes are cut off.
const LONGEST: usize = 64 << 10;

/// The body of a response: text with variables, as in headers, and with groups, as in redirects.
///
/// Values are escaped for the media type: in HTML and XML, they are text without markup, and in JSON the content of a string in
/// double quotes. In other types, they are unchanged.
#[derive(Clone, Debug)]
pub struct BodyTemplate {
    parts: Box<[Part]>,
    /// The expression whose groups are variables, if one is used.
    expression: Option<GroupPattern>,
    syntax: Syntax,
}

/// Treatment of values in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syntax {
    Plain,
    Markup,
    Json,
}

impl BodyTemplate {
    /// Reads a body of the media type `kind`. Tables come from `maps`, and `{1}` or `{name}` is a group of `expression`, which
    /// matches the paths of requests.
    ///
    /// # Errors
    ///
    /// The reason, with the correction.
    pub fn new(
        text: &str,
        kind: &str,
        maps: &Maps,
        expression: Option<&GroupPattern>,
    ) -> Result<Self, String> {
        let read = Self::with_own(text, &[], maps, expression)?;
        Ok(Self { syntax: Syntax::of(kind), ..read })
    }

    /// Reads a text like [`Self::new`], with further variables, and without escaping of values.
    ///
    /// # Errors
    ///
    /// The reason, with the correction.
    pub fn with_own(
        text: &str,
        own: &[(&str, Variable)],
        maps: &Maps,
        expression: Option<&GroupPattern>,
    ) -> Result<Self, String> {
        let parts = parse_with_groups(&with_literal_braces(text), own, maps, expression)?;
        if parts.iter().any(Part::needs_response) {
            return Err("variables of the response have no value in its body".to_owned());
        }
        let has_group = |part: &Part| matches!(part, Part::Variable(Variable::Group(_)));
        // Without a group, no request needs the search, whose cost is the size of
        // the expression times the path.
        let expression = expression.filter(|_| parts.iter().any(has_group)).cloned();
        Ok(Self { parts: parts.into(), expression, syntax: Syntax::Plain })
    }

    /// The body, if it has no variables.
    pub fn fixed(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether the body has a variable; those of tables do not count.
    pub fn has(&self, variable: &Variable) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Variable(own) if own == variable))
    }

    /// Whether the body depends on the groups of an expression, and so on the normalized path.
    pub fn has_groups(&self) -> bool {
        self.expression.is_some()
    }

    /// The body for a request. `path` is its normalized path, in which groups are searched if [there are
    /// any](Self::has_groups). The size is at most that of the text and 64 KiB of values.
    pub fn form(&self, values: &impl Values, path: &[u8]) -> Vec<u8> {
        let groups = self.expression.as_ref().and_then(|expression| expression.captures(path));
        let (mut body, mut rest) = (Vec::new(), LONGEST);
        for part in &self.parts {
            let value = match part {
                Part::Text(text) => {
                    body.extend_from_slice(text.as_bytes());
                    continue;
                }
                Part::Map(map) => map.find(values),
                Part::Variable(variable) => Cow::Owned(value_of(variable, values, groups.as_ref())),
            };
            // An escaped value is never shorter than the value, so bytes after `rest` could not be sent.
            let escaped = self.syntax.escape(&value[..value.len().min(rest)], rest);
            rest -= escaped.len();
            body.extend_from_slice(&escaped);
        }
        body
    }
}

/// Doubles braces that precede no name of a variable, as in scripts and styles. A name consists of letters, digits, `.`, `-` and
/// `_`, and begins with a lower-case letter or a digit.
fn with_literal_braces(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find('{') {
        let (before, braces) = rest.split_at(place);
        rest = braces.trim_start_matches('{');
        let count = braces.len() - rest.len();
        let is_name = rest.split_once('}').is_some_and(|(name, _)| {
            name.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
        });
        all.push_str(before);
        // Before a name, the operator has doubled braces of the text.
        all.push_str(&"{".repeat(if is_name { count } else { 2 * count }));
    }
    all + rest
}

impl Syntax {
    fn of(kind: &str) -> Self {
        let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        // `contains` includes types such as `application/xhtml+xml` and `image/svg+xml`.
        if essence.contains("html") || essence.contains("xml") {
            Self::Markup
        } else if essence.contains("json") {
            Self::Json
        } else {
            Self::Plain
        }
    }

    /// The first bytes of an escaped value, at most `limit`. An escape sequence is never cut.
    fn escape(self, value: &[u8], limit: usize) -> Cow<'_, [u8]> {
        if self == Self::Plain {
            return Cow::Borrowed(value);
        }
        let mut escaped = String::new();
        // Half a character at the end of a cut value would make the whole body invalid.
        for next in String::from_utf8_lossy(value).chars() {
            let start = escaped.len();
            // Writing into a text does not fail.
            let _ = match (self, next) {
                (Self::Markup, '&' | '<' | '>' | '"' | '\'') => write!(escaped, "&#{};", u32::from(next)),
                // `<` could end a script in a page that contains the JSON.
                (Self::Json, '"' | '\\' | '<' | '\0'..='\x1f') => {
                    write!(escaped, "\\u{:04x}", u32::from(next))
                }
                _ => escaped.write_char(next),
            };
            if escaped.len() > limit {
                escaped.truncate(start);
                break;
            }
        }
        Cow::Owned(escaped.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same bytes for every variable.
    struct Everywhere<'a>(&'a [u8]);

    impl Values for Everywhere<'_> {
        fn append(&self, _: &Variable, out: &mut Vec<u8>) {
            out.extend_from_slice(self.0);
        }
    }

    fn formed(text: &str, kind: &str, value: &[u8]) -> String {
        let body = BodyTemplate::new(text, kind, &Maps::new(), None).expect(text);
        String::from_utf8_lossy(&body.form(&Everywhere(value), b"")).into_owned()
    }

    #[test]
    fn values_have_the_syntax_of_the_media_type() {
        let value = b"<a b=\"c\">\\&'\n\x01";
        for (kind, expected) in [
            ("text/plain; charset=utf-8", "<a b=\"c\">\\&'\n\u{1}"),
            ("text/css", "<a b=\"c\">\\&'\n\u{1}"),
            ("Text/HTML", "&#60;a b=&#34;c&#34;&#62;\\&#38;&#39;\n\u{1}"),
            ("image/svg+xml", "&#60;a b=&#34;c&#34;&#62;\\&#38;&#39;\n\u{1}"),
            ("application/problem+json", "\\u003ca b=\\u0022c\\u0022>\\u005c&'\\u000a\\u0001"),
        ] {
            let expected = format!("<p>\u{e4}{{x}} {expected}");
            assert_eq!(formed("<p>\u{e4}{{x} {request.path}", kind, value), expected, "{kind}");
        }
    }

    #[test]
    fn values_are_bounded_and_texts_are_complete() {
        let text = "{request.path}{request.path}{request.path}{request.path}end\n";
        for (kind, value) in [("text/plain", &b"a<b"[..]), ("text/html", b"a<b"), ("text/json", b"a<b")] {
            let body = formed(text, kind, &value.repeat(10_000));
            assert!(body.len() <= LONGEST + 4 && body.len() > LONGEST - 6, "{kind}: {}", body.len());
            assert!(body.ends_with("end\n"), "{kind}");
        }
        assert!(!formed("{request.path}", "text/html", &b"<".repeat(40_000)).ends_with('&'));
    }

    #[test]
    fn groups_of_the_path_are_values() {
        let expression = GroupPattern::new("^/(?P<first>[^/]*)(/x)?").expect("an expression");
        let body = |text| BodyTemplate::new(text, "text/html", &Maps::new(), Some(&expression));
        let groups = body("{first} {1} {2}.").expect("a body");
        assert!(groups.has_groups() && !body("{request.path}").expect("a body").has_groups());
        assert_eq!(groups.form(&Everywhere(b""), b"/<>/y"), b"&#60;&#62; &#60;&#62; .");
        assert_eq!(groups.form(&Everywhere(b""), b"other"), b"  .");
        let text = "p {color: red} a{b:c} {\"d\": {}} {request.path";
        assert_eq!(body(text).expect("a body").fixed(), Some(text));
        assert_eq!(body("{{first} { x} {{ x }}").expect("a body").fixed(), Some("{first} { x} {{ x }}"));
        assert_eq!(body("{{{{first}} {{{1}").expect("a body").form(&Everywhere(b""), b"/a"), b"{{first}} {a");
    }

    #[test]
    fn a_wrong_body_is_refused_with_the_correction() {
        for (text, reason) in [
            ("{color}", "{color} is no variable"),
            ("{response.status}", "variables of the response"),
            ("{1}", "write one into `when.path_regex`"),
            ("{map.x}", "there is no table [map.x]"),
        ] {
            let error = BodyTemplate::new(text, "text/html", &Maps::new(), None).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
