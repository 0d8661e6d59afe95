//! The routes of one host: the longest matching path wins, then the first route of that path whose conditions hold.

/// Condition on the path of a request. The path is compared without percent-encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoutePath {
    /// This path only.
    Exact(String),
    /// This path and the paths below it: `/api` matches `/api` and `/api/users` but not `/apix`; `/api/` matches only
    /// paths below it.
    Prefix(String),
}

impl RoutePath {
    /// The path as configured.
    pub fn as_str(&self) -> &str {
        let (Self::Exact(path) | Self::Prefix(path)) = self;
        path
    }
}

/// Values by [`RoutePath`]. A lookup is a binary search, then one comparison per configured path that is a prefix of the
/// request's.
#[derive(Debug)]
pub struct Routes<T> {
    /// Sorted by the bytes of the path, each path once.
    places: Vec<Place<T>>,
}

/// The routes of one path.
#[derive(Debug)]
struct Place<T> {
    path: Box<[u8]>,
    exact: Vec<T>,
    prefix: Vec<T>,
    /// The longest other path that is a prefix of this one, byte by byte, as index into [`Routes::places`].
    parent: Option<usize>,
}

impl<T> Routes<T> {
    /// Sorts `routes`. Routes with the same path keep their order, in which [`Self::find`] examines them.
    pub fn new(routes: impl IntoIterator<Item = (RoutePath, T)>) -> Self {
        let mut routes: Vec<_> = routes.into_iter().collect();
        // By bytes: each prefix of a path is then the entry before the path or one of its parents.
        routes.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
        let mut places: Vec<Place<T>> = Vec::new();
        for (path, value) in routes {
            let bytes = path.as_str().as_bytes();
            if places.last().is_none_or(|last| *last.path != *bytes) {
                let parent = places.len().checked_sub(1).and_then(|last| prefix_of(&places, last, bytes));
                places.push(Place { path: bytes.into(), exact: Vec::new(), prefix: Vec::new(), parent });
            }
            let Some(place) = places.last_mut() else { continue };
            match path {
                RoutePath::Exact(_) => place.exact.push(value),
                RoutePath::Prefix(_) => place.prefix.push(value),
            }
        }
        Self { places }
    }

    /// The first route for a path without percent-encoding, such as `RequestPath::decoded`, that `holds`.
    pub fn find(&self, path: &[u8], mut holds: impl FnMut(&T) -> bool) -> Option<&T> {
        // Every prefix of the path that is in the list is the last entry up to the path, or one of its parents.
        let last = self.places.partition_point(|place| *place.path <= *path).checked_sub(1)?;
        let mut next = prefix_of(&self.places, last, path);
        while let Some(place) = next.map(|index| &self.places[index]) {
            let rest = &path[place.path.len()..];
            let exact = if rest.is_empty() { &place.exact[..] } else { &[] };
            let is_below = rest.first().is_none_or(|byte| *byte == b'/') || place.path.ends_with(b"/");
            let below = if is_below { &place.prefix[..] } else { &[] };
            // An exact path is more specific than the same path as a prefix.
            if let Some(found) = exact.iter().chain(below).find(|value| holds(value)) {
                return Some(found);
            }
            next = place.parent;
        }
        None
    }
}

/// The place at `index`, or the first of its parents, whose path is a prefix of `path`.
fn prefix_of<T>(places: &[Place<T>], index: usize, path: &[u8]) -> Option<usize> {
    std::iter::successors(Some(index), |index| places[*index].parent)
        .find(|index| path.starts_with(&places[*index].path))
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
        assert_eq!(routes.find(b"/api/v2/users", |_| true), Some(&1));
        assert_eq!(routes.find(b"/api/v1", |_| true), Some(&2));
        assert_eq!(routes.find(b"/other", |_| true), Some(&0));
    }

    #[test]
    fn a_path_fits_whole_segments() {
        let routes = routes(&[prefix("/api")]);
        assert!(routes.find(b"/api", |_| true).is_some());
        assert!(routes.find(b"/api/", |_| true).is_some());
        assert!(routes.find(b"/apix", |_| true).is_none());
        assert!(routes.find(b"/API", |_| true).is_none());
    }

    #[test]
    fn a_path_with_a_slash_takes_only_what_is_below() {
        let routes = routes(&[prefix("/api/")]);
        assert!(routes.find(b"/api", |_| true).is_none());
        assert!(routes.find(b"/api/", |_| true).is_some());
        assert!(routes.find(b"/api/users", |_| true).is_some());
    }

    #[test]
    fn an_exact_path_wins_over_its_prefix_and_takes_nothing_below() {
        let routes = routes(&[prefix("/x"), exact("/x")]);
        assert_eq!(routes.find(b"/x", |_| true), Some(&1));
        assert_eq!(routes.find(b"/x/y", |_| true), Some(&0));
    }

    #[test]
    fn without_a_route_that_fits_there_is_none() {
        assert_eq!(routes(&[]).find(b"/", |_| true), None);
    }

    #[test]
    fn a_route_that_does_not_hold_is_passed_over_for_the_next_in_order() {
        let routes = routes(&[prefix("/"), prefix("/x"), exact("/x"), prefix("/x"), prefix("/x/")]);
        let mut seen = Vec::new();
        assert_eq!(
            routes.find(b"/x", |route| {
                seen.push(*route);
                false
            }),
            None
        );
        assert_eq!(seen, [2, 1, 3, 0]);
        assert_eq!(routes.find(b"/x/y", |route| *route != 4), Some(&1));
    }

    #[test]
    fn a_lookup_agrees_with_a_comparison_of_all_paths() {
        let names = ["/", "/a", "/a/", "/a/b", "/aa", "/a/b/c", "/a-b", "/a/bb", "/b/", "/b/c"];
        for skipped in 0..1 << names.len() {
            let kept = |index: &usize| skipped >> index & 1 == 0;
            let paths: Vec<_> = (0..names.len()).filter(kept).map(|index| prefix(names[index])).collect();
            let routes = routes(&paths);
            for path in names.iter().copied().chain(["/a/b/", "/a/b/cd", "/b", "/ab", "/a-b/c", "/c"]) {
                let fits = |route: &&RoutePath| {
                    let rest = path.strip_prefix(route.as_str());
                    rest.is_some_and(|rest| {
                        rest.is_empty() || rest.starts_with('/') || route.as_str().ends_with('/')
                    })
                };
                let longest = paths.iter().filter(fits).max_by_key(|route| route.as_str().len());
                let found = routes.find(path.as_bytes(), |_| true).map(|index| &paths[*index]);
                assert_eq!(found, longest, "{path} in {paths:?}");
            }
        }
    }
}
