//! The path and query of a request to an upstream, formed from those of the client's request.

use std::borrow::Cow;
use std::sync::Arc;

use brisk_http::message::RequestParts;
use brisk_http::path::RequestPath;
use brisk_http::url_path::{PathTemplate, UrlPath};
use brisk_http::validate::Refusal;
use http::StatusCode;
use http::uri::PathAndQuery;
use regex::bytes::Captures;

use crate::pattern::GroupPattern;

/// Maximum length in bytes of a path whose groups are searched, which takes at most a few milliseconds.
const LONGEST: usize = 4096;

/// The path of a request to an upstream. The path of the server's URL precedes it.
#[derive(Clone, Debug, Default)]
pub enum UpstreamPath {
    /// The whole path of the client's request.
    #[default]
    Whole,
    /// The path with another prefix.
    Replaced {
        /// The prefix that is removed. All paths of the route are equal to it or below it.
        prefix: String,
        /// The path in its place; `None` for no other.
        by: Option<UrlPath>,
    },
    /// The path of the first template whose expression matches; the whole path if none does.
    Rewritten(Arc<[PathRewrite]>),
}

impl UpstreamPath {
    /// The path without `prefix`.
    pub fn below(prefix: &str) -> Self {
        Self::Replaced { prefix: prefix.to_owned(), by: None }
    }

    /// The target for a server with the path `base`: the client's own target, unless it must be normalized or changed.
    ///
    /// # Errors
    ///
    /// [`Refusal`] for a path that cannot be formed, with `414` for a matching path of more than 4 KiB.
    pub fn target(
        &self,
        base: &str,
        head: &RequestParts,
        path: &RequestPath<'_>,
    ) -> Result<PathAndQuery, Refusal> {
        let query = head.uri.query();
        let changed = match self {
            Self::Whole => Cow::Borrowed(&*path.forwarded),
            Self::Replaced { prefix, by } => replaced(path, prefix, by.as_ref())?,
            Self::Rewritten(all) => match all.iter().find_map(|one| one.apply(&path.decoded, query)) {
                // `apply` has the query of the client in its result already.
                Some(target) => return parse(base, &target?, None),
                None => Cow::Borrowed(&*path.forwarded),
            },
        };
        match head.uri.path_and_query() {
            // RFC 9112 section 3.2.1: origin form begins with a path, so a target of a query alone gets `/`.
            // A clone of the target of the client shares its bytes.
            Some(asked) if base.is_empty() && asked.path() == changed && asked.as_str().starts_with('/') => {
                Ok(asked.clone())
            }
            _ => parse(base, &changed, query),
        }
    }
}

/// `path` with `by` in place of `prefix`.
fn replaced<'p>(
    path: &'p RequestPath<'_>,
    prefix: &str,
    by: Option<&UrlPath>,
) -> Result<Cow<'p, str>, Refusal> {
    let rest = path.below(prefix)?;
    let is_prefix = path.forwarded.len() == prefix.trim_end_matches('/').len();
    Ok(match by.map(UrlPath::as_str) {
        None => rest,
        // `rest` begins with a slash for the prefix itself too; the replacement is sent as the operator wrote it.
        Some(by) if is_prefix => by.to_owned().into(),
        Some(by) => format!("{}{rest}", by.trim_end_matches('/')).into(),
    })
}

fn parse(base: &str, path: &str, query: Option<&str>) -> Result<PathAndQuery, Refusal> {
    let target = match query {
        Some(query) => format!("{base}{path}?{query}"),
        None => format!("{base}{path}"),
    };
    PathAndQuery::from_maybe_shared(target).map_err(|_| Refusal::bad_request("target"))
}

/// Templates for paths that match an expression.
#[derive(Clone, Debug)]
pub struct PathRewrite {
    pattern: GroupPattern,
    to: PathTemplate,
    /// Further templates, for [`Self::all`].
    others: Vec<PathTemplate>,
}

impl PathRewrite {
    /// Replaces paths that match `pattern` by `to`, in which `{1}` or `{name}` is the text of a group.
    ///
    /// # Errors
    ///
    /// The reason if `to` is no template for `pattern`, with the correction.
    pub fn new(pattern: GroupPattern, to: &str) -> Result<Self, String> {
        let to = PathTemplate::new(to, |name| pattern.group(name))?;
        Ok(Self { pattern, to, others: Vec::new() })
    }

    /// Adds a template for [`Self::all`].
    ///
    /// # Errors
    ///
    /// The reason if `to` is no template for the expression, with the correction.
    pub fn add(&mut self, to: &str) -> Result<(), String> {
        self.others.push(PathTemplate::new(to, |name| self.pattern.group(name))?);
        Ok(())
    }

    /// Whether the expression matches a normalized, decoded path, so that [`Self::apply`] forms another one or fails.
    pub fn is_match(&self, path: &[u8]) -> bool {
        self.pattern.is_match(path)
    }

    /// The new path and query for a normalized, decoded path; `None` if the path does not match.
    ///
    /// # Errors
    ///
    /// [`Refusal`] for groups that form no path, with `414` for a matching path of more than 4 KiB.
    pub fn apply(&self, path: &[u8], query: Option<&str>) -> Option<Result<String, Refusal>> {
        Some(self.groups(path)?.and_then(|groups| expanded(&self.to, &groups, query)))
    }

    /// The paths of all templates in their order, without those that cannot be formed; `None` if the path does not match.
    pub fn all(&self, path: &[u8]) -> Option<Vec<String>> {
        let Ok(groups) = self.groups(path)? else { return Some(Vec::new()) };
        let templates = [&self.to].into_iter().chain(&self.others);
        Some(templates.filter_map(|to| expanded(to, &groups, None).ok()).collect())
    }

    /// The groups of a path that matches `pattern`; a [`Refusal`] for one of more than 4 KiB.
    fn groups<'p>(&self, path: &'p [u8]) -> Option<Result<Captures<'p>, Refusal>> {
        if !self.is_match(path) {
            return None;
        }
        // After the match by the automaton, so that other paths have no limit of length here.
        if path.len() > LONGEST {
            return Some(Err(Refusal::new(StatusCode::URI_TOO_LONG, "path-length")));
        }
        self.pattern.captures(path).map(Ok)
    }
}

fn expanded(to: &PathTemplate, groups: &Captures<'_>, query: Option<&str>) -> Result<String, Refusal> {
    let group = |number| groups.get(number).map_or(&b""[..], |text| text.as_bytes());
    to.expand(group, query).map_err(Refusal::from)
}

#[cfg(test)]
mod tests {
    use brisk_http::message::Request;

    use super::*;

    fn target(path: &UpstreamPath, base: &str, uri: &str) -> Result<String, u16> {
        let (head, ()) = Request::get(uri).body(()).expect("a request").into_parts();
        let read = RequestPath::read(head.uri.path()).expect("a path");
        path.target(base, &head, &read)
            .map(|target| target.as_str().to_owned())
            .map_err(|refusal| refusal.status.as_u16())
    }

    fn replaced(prefix: &str, by: &str) -> UpstreamPath {
        UpstreamPath::Replaced { prefix: prefix.to_owned(), by: Some(by.parse().expect("a path")) }
    }

    fn rewritten(pattern: &str, to: &str) -> UpstreamPath {
        let pattern = GroupPattern::new(pattern).expect("a pattern");
        UpstreamPath::Rewritten([PathRewrite::new(pattern, to).expect("a template")].into())
    }

    #[test]
    fn a_query_alone_is_sent_with_its_path() {
        for (uri, expected) in
            [("https://a.test?q", "/?q"), ("https://a.test/?q", "/?q"), ("https://a.test", "/")]
        {
            assert_eq!(target(&UpstreamPath::Whole, "", uri).as_deref(), Ok(expected), "{uri}");
        }
    }

    #[test]
    fn the_path_of_a_server_precedes_that_of_the_request() {
        for (path, uri, expected) in [
            (UpstreamPath::Whole, "/a?q", "/base/a?q"),
            (UpstreamPath::Whole, "/", "/base/"),
            (UpstreamPath::below("/api"), "/api/x", "/base/x"),
            (UpstreamPath::below("/api"), "/api", "/base/"),
            (replaced("/api", "/v2"), "/api/x", "/base/v2/x"),
            (rewritten("^/u/(.+)$", "/user?id={1}"), "/u/7?q", "/base/user?id=7&q"),
        ] {
            assert_eq!(target(&path, "/base", uri).as_deref(), Ok(expected), "{path:?} {uri}");
        }
    }

    #[test]
    fn a_prefix_is_replaced_by_another() {
        for (prefix, by, uri, expected) in [
            ("/api", "/v2", "/api/x%20y?q", "/v2/x%20y?q"),
            ("/api", "/v2", "/api", "/v2"),
            ("/api", "/v2/", "/api", "/v2/"),
            ("/api/", "/v2/", "/api/x/", "/v2/x/"),
            ("/api", "/", "/api/x", "/x"),
            ("/api", "/", "/api//evil.example/", "/evil.example/"),
            ("/api", "/v2", "/api//x", "/v2/x"),
            ("/", "/v2", "/x", "/v2/x"),
            ("/", "/v2", "/", "/v2/"),
        ] {
            let path = replaced(prefix, by);
            assert_eq!(target(&path, "", uri).as_deref(), Ok(expected), "{prefix} {by} {uri}");
        }
        assert_eq!(target(&replaced("/api", "/v2"), "", "/%61pi/x"), Err(400));
    }

    #[test]
    fn a_path_that_matches_is_rewritten_and_others_stay() {
        let path = rewritten("^/(?P<lang>de|en)/(.*)$", "/{2}?lang={lang}");
        for (uri, expected) in [
            ("/de/a%20b?q=1", "/a%20b?lang=de&q=1"),
            ("/en/", "/?lang=en"),
            ("/en/?", "/?lang=en"),
            ("/fr/a?q", "/fr/a?q"),
            ("/d%65/%61;x/b", "/a/b?lang=de"),
        ] {
            assert_eq!(target(&path, "", uri).as_deref(), Ok(expected), "{uri}");
        }
        assert_eq!(target(&rewritten("^/a(.)b(.)$", "/x/{1}{2}"), "", "/a.b."), Err(400));
        let long = format!("/de/{}", "a".repeat(LONGEST));
        assert_eq!(target(&path, "", &long), Err(414));
        assert_eq!(target(&path, "", &long[3..]).as_deref(), Ok(&long[3..]), "no match");
        assert_eq!(target(&rewritten("^/a(b)?$", "/x{1}"), "", "/a").as_deref(), Ok("/x"));
    }

    #[test]
    fn the_first_expression_that_matches_decides() {
        let rewrite = |pattern: &str, to: &str| {
            PathRewrite::new(GroupPattern::new(pattern).expect("a pattern"), to).expect("a template")
        };
        let all =
            UpstreamPath::Rewritten([rewrite("^/a/b/(.*)$", "/b/{1}"), rewrite("^/a(/.*)$", "{1}")].into());
        for (uri, expected) in [("/a/b/c?q", "/b/c?q"), ("/a/c", "/c"), ("/c", "/c")] {
            assert_eq!(target(&all, "", uri).as_deref(), Ok(expected), "{uri}");
        }
    }

    #[test]
    fn several_templates_form_several_paths() {
        let pattern = GroupPattern::new("^/v/(.*)$").expect("a pattern");
        let mut rewrite = PathRewrite::new(pattern, "/{1}").expect("a template");
        rewrite.add("/other/{1}.html").expect("a template");
        assert!(rewrite.add("/{2}").is_err());
        assert_eq!(rewrite.all(b"/v/a b"), Some(vec!["/a%20b".to_owned(), "/other/a%20b.html".to_owned()]));
        assert_eq!(rewrite.all(b"/v/.."), Some(vec!["/other/...html".to_owned()]), "a segment of two dots");
        assert_eq!(rewrite.all(b"/x"), None);
        assert_eq!(rewrite.all(format!("/v/{}", "a".repeat(LONGEST)).as_bytes()), Some(Vec::new()));
    }
}
