//! Path matchers of Caddy, and their meaning for the requests of a route of brisk.

use regex::escape;

use crate::nginx::pattern;

/// Form of a pattern of the matcher `path`, which compares without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// All paths: `*` or `/*`.
    Every,
    /// This path, such as `/a`.
    Exact(String),
    /// Paths that begin with this text: `/a/*` has `/a/`.
    Prefix(String),
    /// Paths that end with this text: `*.php` has `.php`.
    Suffix(String),
    /// Other paths, by a regular expression: `/a/*/b` has `(?i)^/a/[^/]*/b$`.
    Expression(String),
}

impl Shape {
    /// The form of a pattern; `None` for those with `{`, `%` or `\`.
    pub(crate) fn of(text: &str) -> Option<Self> {
        if text.contains(['{', '%', '\\']) {
            return None;
        }
        let stars = text.matches('*').count();
        let (starts, ends) = (text.starts_with('*'), text.ends_with('*'));
        Some(match stars {
            _ if text == "*" || text == "/*" => Self::Every,
            2 if starts && ends => Self::Expression(format!("(?i){}", escape(&text[1..text.len() - 1]))),
            1 if starts => Self::Suffix(text[1..].to_owned()),
            1 if ends => Self::prefix(&text[..text.len() - 1]),
            0 if !text.contains(['?', '[']) => Self::exact(text),
            _ => Self::Expression(format!("(?i)^{}$", glob(text))),
        })
    }

    fn prefix(text: &str) -> Self {
        let ends_in_segment = text.ends_with(|last: char| !last.is_ascii_alphanumeric() && last != '/');
        if is_plain(text) && !ends_in_segment {
            Self::Prefix(text.to_owned())
        } else {
            Self::Expression(format!("(?i)^{}", escape(text)))
        }
    }

    fn exact(text: &str) -> Self {
        if is_plain(text) {
            Self::Exact(text.to_owned())
        } else {
            Self::Expression(format!("(?i)^{}$", escape(text)))
        }
    }

    /// The [`Place`] in brisk at which the pattern begins to decide; `None` unless it is `Exact` or a `Prefix`.
    pub(crate) fn place(&self) -> Option<Place> {
        match self {
            Self::Exact(path) => Some(Place { path: path.clone(), exact: true }),
            Self::Prefix(path) => Some(Place { path: path.clone(), exact: false }),
            _ => None,
        }
    }

    /// A `Prefix` that may end within a segment, as `/api*` does.
    pub(crate) fn cut(&self) -> Option<&str> {
        match self {
            Self::Prefix(path) if !path.ends_with('/') => Some(path),
            _ => None,
        }
    }

    /// Whether all requests of a place match, or none; otherwise the expression that decides. `widely` also finds paths in another
    /// case, and `/apix` for `/api*`. `forced` also finds paths that would have a place of their own.
    pub(crate) fn decide(&self, place: &Place, widely: bool, forced: bool) -> Decision {
        let path = place.path.as_str();
        let below = |text: &str| starts_with(text, path);
        match self {
            Self::Every => Decision::Always,
            Self::Exact(own) if place.exact => Decision::of(own.eq_ignore_ascii_case(path)),
            Self::Exact(own) if below(own) && (forced || widely && has_letter(own)) => {
                Decision::Expression(format!("(?i)^{}$", escape(own)))
            }
            Self::Prefix(own) if starts_with(path, own) => Decision::Always,
            Self::Prefix(own) if !place.exact && below(own) && (forced || widely && has_letter(own)) => {
                Decision::Expression(format!("(?i)^{}", escape(own)))
            }
            Self::Exact(_) | Self::Prefix(_) => Decision::Never,
            Self::Suffix(own) if place.exact => Decision::of(starts_with(&reversed(path), &reversed(own))),
            Self::Suffix(own) => Decision::Expression(format!("(?i){}$", escape(own))),
            Self::Expression(own) => expression(own, place),
        }
    }
}

/// The [`Decision`] of an expression for the requests of a place.
pub(crate) fn expression(own: &str, place: &Place) -> Decision {
    let (text, ignore_case) = own.strip_prefix("(?i)").map_or((own, false), |text| (text, true));
    if place.exact {
        return Decision::of(pattern::matches(text, ignore_case, &place.path));
    }
    if pattern::is_every(text) {
        return Decision::Always;
    }
    let can_match = pattern::can_match(text, ignore_case, &place.path);
    if can_match { Decision::Expression(own.to_owned()) } else { Decision::Never }
}

/// A path of a route in brisk: the keys `path` and `exact`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) path: String,
    pub(crate) exact: bool,
}

/// Whether the requests of a place match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Always,
    Never,
    /// Those whose path matches the expression, for the key `path_regex`.
    Expression(String),
}

impl Decision {
    fn of(is_match: bool) -> Self {
        if is_match { Self::Always } else { Self::Never }
    }
}

/// Whether brisk accepts the text as the `path` of a route.
pub(crate) fn is_plain(text: &str) -> bool {
    let is_foreign = |next: char| next.is_control() || " ?#\"<>\\^`{|};%".contains(next);
    text.starts_with('/')
        && !text.contains("//")
        && !text.contains(is_foreign)
        && !text.split('/').any(|segment| matches!(segment, "." | ".."))
}

fn starts_with(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|own| own.eq_ignore_ascii_case(start))
}

fn has_letter(text: &str) -> bool {
    text.contains(|next: char| next.is_alphabetic())
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

/// The expression for a pattern with `*`, `?` and sets within segments: `*` becomes `[^/]*`, and `[ab]` stays.
fn glob(text: &str) -> String {
    let mut result = String::new();
    let mut is_set = false;
    for next in text.chars() {
        match next {
            ']' if is_set => {
                is_set = false;
                result.push(']');
            }
            _ if is_set => result.push(next),
            '[' => {
                is_set = true;
                result.push('[');
            }
            '*' => result.push_str("[^/]*"),
            '?' => result.push_str("[^/]"),
            next => result.push_str(&escape(next.encode_utf8(&mut [0; 4]))),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str, exact: bool) -> Place {
        Place { path: path.to_owned(), exact }
    }

    #[test]
    fn patterns_have_the_forms_of_caddy() {
        for (text, shape) in [
            ("*", Shape::Every),
            ("/*", Shape::Every),
            ("/api/*", Shape::Prefix("/api/".into())),
            ("/api*", Shape::Prefix("/api".into())),
            ("/wp-*", Shape::Expression("(?i)^/wp\\-".into())),
            ("/a", Shape::Exact("/a".into())),
            ("*.php", Shape::Suffix(".php".into())),
            ("*/x/*", Shape::Expression("(?i)/x/".into())),
            ("/a/*/b", Shape::Expression("(?i)^/a/[^/]*/b$".into())),
        ] {
            assert_eq!(Shape::of(text), Some(shape), "{text}");
        }
        assert_eq!((Shape::of("/a%20b"), Shape::of("/{x}")), (None, None));
    }

    #[test]
    fn places_decide_about_patterns() {
        let api = Shape::of("/api/*").expect("a shape");
        assert_eq!(api.decide(&place("/api/", false), false, false), Decision::Always);
        assert_eq!(api.decide(&place("/api/v1/", false), false, false), Decision::Always);
        assert_eq!(api.decide(&place("/", false), false, false), Decision::Never);
        assert_eq!(api.decide(&place("/", false), true, false), Decision::Expression("(?i)^/api/".into()));
        assert_eq!(api.decide(&place("/API/x", true), false, false), Decision::Always);
        let php = Shape::of("*.php").expect("a shape");
        assert_eq!(php.decide(&place("/a.PHP", true), false, false), Decision::Always);
        assert_eq!(php.decide(&place("/", false), false, false), Decision::Expression("(?i)\\.php$".into()));
        let exact = Shape::of("/a").expect("a shape");
        assert_eq!(exact.decide(&place("/", false), false, false), Decision::Never);
        assert_eq!(exact.decide(&place("/b/", false), true, false), Decision::Never);
    }
}
