//! Media types and patterns of media types.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use http::HeaderValue;

/// A pattern of media types: `text/html`, `text/*` or `*+json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaPattern(Form);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Exact(String),
    /// Including the slash.
    Top(String),
    /// Including the plus sign.
    Suffix(String),
}

/// The text is not a [`MediaPattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a media type as \"text/html\", or all of a kind as \"text/*\" or \"*+json\"")]
pub struct MediaPatternError;

impl FromStr for MediaPattern {
    type Err = MediaPatternError;

    fn from_str(text: &str) -> Result<Self, MediaPatternError> {
        let is_token = |part: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
            !part.is_empty() && part.bytes().all(allowed)
        };
        let lower = text.to_ascii_lowercase();
        if let Some(suffix) = lower.strip_prefix("*+").filter(|suffix| is_token(suffix)) {
            return Ok(Self(Form::Suffix(format!("+{suffix}"))));
        }
        match lower.split_once('/') {
            Some((top, "*")) if is_token(top) => Ok(Self(Form::Top(format!("{top}/")))),
            Some((top, below)) if is_token(top) && is_token(below) => Ok(Self(Form::Exact(lower))),
            _ => Err(MediaPatternError),
        }
    }
}

impl MediaPattern {
    /// Whether the pattern matches a type without parameters, such as `text/html`.
    pub(super) fn fits(&self, essence: &[u8]) -> bool {
        let starts = |start: &str| essence.get(..start.len()).is_some_and(|part| same(part, start));
        let ends = |end: &str| {
            let at = essence.len().checked_sub(end.len());
            at.is_some_and(|at| same(&essence[at..], end))
        };
        match &self.0 {
            Form::Exact(exact) => same(essence, exact),
            Form::Top(top) => starts(top),
            Form::Suffix(suffix) => ends(suffix),
        }
    }
}

fn same(bytes: &[u8], text: &str) -> bool {
    bytes.eq_ignore_ascii_case(text.as_bytes())
}

/// The media type in `Content-Type` without parameters (RFC 9110 section 8.3.1).
pub(super) fn essence(content_type: &[u8]) -> &[u8] {
    let end = memchr::memchr(b';', content_type).unwrap_or(content_type.len());
    content_type[..end].trim_ascii()
}

/// The media type that the file at the decoded `path` is sent with; `None` if its extension is unknown.
pub(crate) fn of_file(path: &[u8]) -> Option<HeaderValue> {
    let path =
        if path.ends_with(b"/") { Path::new("index.html") } else { Path::new(OsStr::from_bytes(path)) };
    mime_guess::from_path(path).first_raw().map(HeaderValue::from_static)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, content_type: &str) -> bool {
        pattern.parse::<MediaPattern>().expect(pattern).fits(essence(content_type.as_bytes()))
    }

    #[test]
    fn patterns_fit_types_without_their_parameters_and_without_case() {
        assert!(fits("text/html", "Text/HTML ; charset=utf-8"));
        assert!(fits("TEXT/*", "text/css"));
        assert!(fits("*+json", "application/ld+JSON;profile=x"));
        for (pattern, other) in [
            ("text/html", "text/htm"),
            ("text/*", "textual/x"),
            ("*+json", "application/json"),
            ("*+json", "x"),
        ] {
            assert!(!fits(pattern, other), "{pattern} {other}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["", "text", "*", "*/*", "text/", "/html", "text/html; q=1", "text/h*", "*+", "te xt/x"] {
            assert_eq!(text.parse::<MediaPattern>(), Err(MediaPatternError), "{text}");
        }
    }
}
