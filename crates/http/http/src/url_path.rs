//! Paths of URLs written by the operator: prefixes, and templates with captured parts of a request's path.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::path::{AmbiguousPath, RequestPath};

/// Bytes that are encoded in a captured part of a path: all but `pchar` of RFC 3986 section 3.3 and the slash. A semicolon
/// is encoded, since it would begin parameters.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b'=')
    .remove(b':')
    .remove(b'@')
    .remove(b'/');

/// Bytes that are encoded in a captured part of a query: all that separate parameters, too.
const IN_QUERY: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/').remove(b':');

/// Maximum length of a path and query: that of `http::uri::PathAndQuery`.
const LONGEST: usize = u16::MAX as usize - 1;

/// A normalized, percent-encoded path that begins with a slash, without query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlPath(Box<str>);

impl UrlPath {
    /// The path as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UrlPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for UrlPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = if !text.starts_with('/') {
            "it begins with a slash"
        } else if text.contains(['?', '#']) {
            "it ends before \"?\" and \"#\""
        } else if !is_normalized(text) {
            "it has no empty segments, no \".\" and \"..\", and other characters than those of URLs are percent-encoded"
        } else {
            return Ok(Self(text.into()));
        };
        Err(format!("{text:?} is not a path: {fault}, as \"/api\""))
    }
}

/// Whether every server interprets `path` in the same way.
fn is_normalized(path: &str) -> bool {
    let is_right = |read: RequestPath<'_>| *read.forwarded == *path;
    path.bytes().all(|byte| is_of_urls(byte, b";%"))
        && !path.contains("//")
        && RequestPath::read(path).is_ok_and(is_right)
}

/// Whether a byte may be in a path as it is, or is one of `others`.
fn is_of_urls(byte: u8, others: &[u8]) -> bool {
    percent_encode(&[byte], IN_PATH).all(|text| text.len() == 1) || others.contains(&byte)
}

/// A path and optional query with `{1}` or `{name}` for parts that a regular expression captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTemplate {
    path: Box<[Part]>,
    /// `None` leaves the query of the request.
    query: Option<Box<[Part]>>,
    /// Whether the query of the request follows that of the template.
    keeps_query: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    /// Number of a group.
    Group(usize),
}

impl PathTemplate {
    /// Reads a template. `group` returns the number of the group with a name or number.
    ///
    /// A `?` begins parameters, which the query of the request follows; a `?` at the end of the text drops the query of the
    /// request.
    ///
    /// # Errors
    ///
    /// The reason, with the correction.
    pub fn new(text: &str, group: impl Fn(&str) -> Option<usize>) -> Result<Self, String> {
        // nginx and many other programs write groups in this form.
        if let Some(at) = text.find('$')
            && let Some(digit) = text[at + 1..].chars().next().filter(char::is_ascii_digit)
        {
            return Err(format!("${digit} is written {{{digit}}}"));
        }
        let (keeps_query, text) = text.strip_suffix('?').map_or((true, text), |text| (false, text));
        let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
        let parts = |text| parts(text, &group);
        let template = Self {
            path: parts(path)?,
            query: query.or((!keeps_query).then_some("")).map(parts).transpose()?,
            keeps_query,
        };
        if !path.starts_with(['/', '{']) {
            return Err("it begins with a slash or a group".to_owned());
        }
        // One letter for each group shows whether the text around the groups is normalized.
        let sample = template.expand(|_| b"x", None).ok().filter(|sample| {
            let (path, query) = sample.split_once('?').unwrap_or((sample, ""));
            is_normalized(path) && query.bytes().all(|byte| is_of_urls(byte, b";%?"))
        });
        if sample.is_none() || text.contains("//") {
            let fault = "it has no empty segments, no \".\" and \"..\", and other characters than those of URLs are percent-encoded";
            return Err(fault.to_owned());
        }
        Ok(template)
    }

    /// The path, and the query if there is one, for the captured `groups` of a normalized path.
    ///
    /// # Errors
    ///
    /// [`AmbiguousPath`] if the groups form a path that is not normalized, for example with `..`, or one that is too long.
    pub fn expand<'g>(
        &self,
        groups: impl Fn(usize) -> &'g [u8],
        query: Option<&str>,
    ) -> Result<String, AmbiguousPath> {
        let mut target = String::from("/");
        for part in &self.path {
            match part {
                Part::Text(text) => push_segments(&mut target, text),
                Part::Group(group) => {
                    percent_encode(groups(*group), IN_PATH)
                        .for_each(|piece| push_segments(&mut target, piece));
                }
            }
            // Within the loop, because a template may repeat a group of 64 KiB many times.
            if target.len() > LONGEST {
                return Err(AmbiguousPath);
            }
        }
        // A captured part may contain dot segments, or form one with the text beside it.
        if RequestPath::read(&target)?.forwarded != target {
            return Err(AmbiguousPath);
        }
        let parameters = self.query.as_deref().unwrap_or_default();
        if !parameters.is_empty() {
            target.push('?');
        }
        for part in parameters {
            match part {
                Part::Text(text) => target.push_str(text),
                Part::Group(group) => target.extend(percent_encode(groups(*group), IN_QUERY)),
            }
            if target.len() > LONGEST {
                return Err(AmbiguousPath);
            }
        }
        // An empty query adds no `&` behind the parameters of the template, as in nginx.
        if let Some(query) =
            query.filter(|query| self.keeps_query && (parameters.is_empty() || !query.is_empty()))
        {
            target.push(if parameters.is_empty() { '?' } else { '&' });
            target.push_str(query);
        }
        Ok(target)
    }
}

/// Appends a part of a path. Two slashes where parts meet become one.
fn push_segments(target: &mut String, part: &str) {
    let part = if target.ends_with('/') { part.strip_prefix('/').unwrap_or(part) } else { part };
    target.push_str(part);
}

fn parts(text: &str, group: &impl Fn(&str) -> Option<usize>) -> Result<Box<[Part]>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) =
            after.split_once('}').ok_or_else(|| format!("\"{{{after}\" has no closing brace"))?;
        let group = group(name).ok_or_else(|| format!("the expression has no group {{{name}}}"))?;
        if !before.is_empty() {
            parts.push(Part::Text(before.into()));
        }
        parts.push(Part::Group(group));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.into()));
    }
    Ok(parts.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Result<PathTemplate, String> {
        PathTemplate::new(text, |name| match name {
            "name" => Some(1),
            number => number.parse().ok().filter(|number| *number < 3),
        })
    }

    fn expand(text: &str, groups: [&str; 2], query: Option<&str>) -> Result<String, AmbiguousPath> {
        let group = |number: usize| groups[number - 1].as_bytes();
        template(text).expect(text).expand(group, query)
    }

    #[test]
    fn groups_are_encoded_for_their_place() {
        for (text, groups, target) in [
            ("/new/{1}", ["a/b", ""], "/new/a/b"),
            ("{1}", ["/a b", ""], "/a%20b"),
            ("{name}/{2}", ["/a?#;", "ü%2e\n"], "/a%3F%23%3B/%C3%BC%252e%0A"),
            ("/x/{1}{2}", ["/a/", "/b"], "/x/a/b"),
            ("/x?a={1}&b={2}", ["&=+ ", "/ok"], "/x?a=%26%3D%2B%20&b=/ok"),
            ("/{1}", ["/evil.example/", ""], "/evil.example/"),
            ("/{1}", ["https:/evil.example", ""], "/https:/evil.example"),
        ] {
            let expanded = expand(text, groups, None);
            if target.contains("%0A") {
                assert_eq!(expanded, Err(AmbiguousPath), "control characters are refused");
            } else {
                assert_eq!(expanded.as_deref(), Ok(target), "{text} {groups:?}");
            }
        }
    }

    #[test]
    fn no_groups_form_a_path_that_leaves_the_template() {
        for (text, groups) in [
            ("/x/{1}{2}/y", [".", "."]),
            ("/x/{1}", ["../y", ""]),
            ("/x/{1}", ["a/..", ""]),
            ("/x/{1}", [".", ""]),
            ("/x/{1}", ["a\\b", ""]),
            ("/x/{1}", ["a\r\nHost: b", ""]),
            ("/x/{1}", ["..;/y", ""]),
        ] {
            assert_eq!(expand(text, groups, None), Err(AmbiguousPath), "{text} {groups:?}");
        }
        let long = "a".repeat(LONGEST);
        assert_eq!(expand("/{1}{1}", [&long, ""], None), Err(AmbiguousPath));
        assert_eq!(expand("/?{1}{1}", [&long, ""], None), Err(AmbiguousPath));
    }

    #[test]
    fn the_query_of_a_request_follows_that_of_the_template() {
        for (text, query, target) in [
            ("/x", Some("a=1"), "/x?a=1"),
            ("/x", None, "/x"),
            ("/x?id={1}", Some("a=1"), "/x?id=7&a=1"),
            ("/x?id={1}", None, "/x?id=7"),
            ("/x?", Some("a=1"), "/x"),
            ("/x?id={1}?", Some("a=1"), "/x?id=7"),
        ] {
            assert_eq!(expand(text, ["7", ""], query).as_deref(), Ok(target), "{text} {query:?}");
        }
    }

    #[test]
    fn a_wrong_template_is_refused_with_the_correction() {
        for (text, reason) in [
            ("/x/$1", "$1 is written {1}"),
            ("/x/{3}", "the expression has no group {3}"),
            ("/x/{1", "no closing brace"),
            ("x/{1}", "begins with a slash"),
            ("", "begins with a slash"),
            ("/../{1}", "no empty segments"),
            ("//{1}", "no empty segments"),
            ("/a b", "percent-encoded"),
            ("/a%zz", "percent-encoded"),
            ("/a?b c", "percent-encoded"),
            ("/a#b", "percent-encoded"),
        ] {
            let error = template(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_path_of_a_url_is_normalized() {
        for right in ["/", "/api", "/api/v2/", "/a%20b"] {
            assert_eq!(right.parse::<UrlPath>().expect(right).as_str(), right);
        }
        for wrong in ["", "api", "/a?b", "/a#b", "//a", "/a/../b", "/a b", "/ü", "/a%", "/a\\b", "/a\"b"] {
            assert!(wrong.parse::<UrlPath>().is_err(), "{wrong:?}");
        }
    }
}
