//! The routes of one host: the longest matching path wins.

use crate::settings::RoutePath;

/// Values by path. A lookup costs one comparison per route whose path is at least as long as the matching one.
#[derive(Debug)]
pub(crate) struct Routes<T> {
    /// Sorted by descending length of the path; for equal paths, the exact path first.
    entries: Vec<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    path: RoutePath,
    value: T,
}

impl<T> Routes<T> {
    /// Sorts `routes`. If two have the same path, the first one wins.
    pub(crate) fn new(routes: impl IntoIterator<Item = (RoutePath, T)>) -> Self {
        let mut entries: Vec<_> = routes.into_iter().map(|(path, value)| Entry { path, value }).collect();
        entries.sort_by_key(|entry| {
            let is_prefix = matches!(entry.path, RoutePath::Prefix(_));
            (usize::MAX - entry.path.as_str().len(), is_prefix)
        });
        Self { entries }
    }

    /// The route for a path without percent-encoding, such as `RequestPath::decoded`.
    pub(crate) fn find(&self, path: &[u8]) -> Option<&T> {
        self.entries.iter().find(|entry| takes(&entry.path, path)).map(|entry| &entry.value)
    }
}

fn takes(route: &RoutePath, path: &[u8]) -> bool {
    match route {
        RoutePath::Exact(exact) => path == exact.as_bytes(),
        RoutePath::Prefix(prefix) => path
            .strip_prefix(prefix.as_bytes())
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || prefix.ends_with('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(paths: &[RoutePath]) -> Routes<usize> {
        Routes::new(paths.iter().cloned().zip(0..))
    }

    fn prefix(path: &str) -> RoutePath {
        RoutePath::Prefix(path.to_owned())
    }

    fn exact(path: &str) -> RoutePath {
        RoutePath::Exact(path.to_owned())
    }

    #[test]
    fn the_longest_path_that_fits_decides_whatever_the_order() {
        let routes = routes(&[prefix("/"), prefix("/api/v2"), prefix("/api")]);
        assert_eq!(routes.find(b"/api/v2/users"), Some(&1));
        assert_eq!(routes.find(b"/api/v1"), Some(&2));
        assert_eq!(routes.find(b"/other"), Some(&0));
    }

    #[test]
    fn a_path_fits_whole_segments() {
        let routes = routes(&[prefix("/api")]);
        assert!(routes.find(b"/api").is_some());
        assert!(routes.find(b"/api/").is_some());
        assert!(routes.find(b"/apix").is_none());
        assert!(routes.find(b"/API").is_none());
    }

    #[test]
    fn a_path_with_a_slash_takes_only_what_is_below() {
        let routes = routes(&[prefix("/api/")]);
        assert!(routes.find(b"/api").is_none());
        assert!(routes.find(b"/api/").is_some());
        assert!(routes.find(b"/api/users").is_some());
    }

    #[test]
    fn an_exact_path_wins_over_its_prefix_and_takes_nothing_below() {
        let routes = routes(&[prefix("/x"), exact("/x")]);
        assert_eq!(routes.find(b"/x"), Some(&1));
        assert_eq!(routes.find(b"/x/y"), Some(&0));
    }

    #[test]
    fn without_a_route_that_fits_there_is_none() {
        assert_eq!(routes(&[]).find(b"/"), None);
    }
}
