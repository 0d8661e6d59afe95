//! Prefixes that are no paths of brisk: prefixes that end within a segment, as `/wp-`, and the further paths of a restricted prefix,
//! such as `/adminx` of `/admin`. Their routes stand at the next shorter prefix, with an expression.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::nginx::closing::closes;
use crate::nginx::condition::When;
use crate::nginx::location::{At, Kind, Location, Route, program};
use crate::nginx::pattern;
use crate::nginx::scope::PASSES;
use crate::nginx::site::Site;
use crate::nginx::variables::Values;
use crate::toml;

/// Directives with which nginx redirects requests to the final slash of a prefix: `/api` to `/api/`.
const SERVERS: [&str; 6] =
    ["proxy_pass", "grpc_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "memcached_pass"];

impl<'a> Site<'_, 'a> {
    /// The routes of longer prefixes whose requests come to the path of this one.
    pub(crate) fn parts(&self, location: &Location<'a>, stopping: bool, routes: &mut Vec<Route>) {
        let Kind::Prefix { path: base, .. } = &location.kind else { return };
        let guests = self.index.guests.get_or_init(|| self.guests());
        for part in guests.get(location.number).into_iter().flatten().map(|number| &self.locations[*number]) {
            let Kind::Prefix { path, stop } = &part.kind else { continue };
            if *stop != stopping {
                continue;
            }
            let end = if self.is_part(part) { "" } else { "[^/]" };
            let when = When::plain("path_regex", toml::raw(&format!("^{}{end}", pattern::escaped(path))));
            self.location(
                part,
                &At { path: base.clone(), exact: false, when, values: Values::default() },
                routes,
            );
        }
    }

    /// For each location, the prefixes whose requests come to its path, the longest first.
    fn guests(&self) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new(); self.locations.len()];
        for part in &self.locations {
            if let Some(base) = self.base(part).or_else(|| self.neighbour(part))
                && let Kind::Prefix { path, .. } = &part.kind
            {
                all[base.number].push((Reverse(path.len()), part.number));
            }
        }
        let sorted = all.into_iter().map(|mut guests| {
            // Of equal lengths, the first location comes first.
            guests.sort_unstable();
            guests.into_iter().map(|(_, number)| number).collect()
        });
        sorted.collect()
    }

    /// Gives the routes of prefixes with a server the redirect to their final slash: `final_slash`. nginx sends it before it tries
    /// expressions and shorter prefixes. Where no other route matches, brisk sends it by itself.
    pub(crate) fn final_slashes(&self, routes: &mut [Route]) {
        let path_of = |location: &Location<'a>| match &location.kind {
            Kind::Prefix { path, .. } => Some(path.clone()),
            _ => None,
        };
        let has_server = |location: &&Location<'a>| {
            location.scope.own().iter().any(|line| SERVERS.contains(&line.name.as_str()))
        };
        let servers: BTreeSet<_> = self.locations.iter().filter(has_server).filter_map(path_of).collect();
        let known: BTreeSet<_> = routes.iter().map(|route| route.path.clone()).collect();
        let others = routes.iter().filter(|route| !route.exact && !route.when.has_path());
        let others: BTreeSet<_> = others.map(|route| route.path.clone()).collect();
        let is_hidden = |bare: &str| {
            let mut ends = bare.match_indices('/').map(|(end, _)| end);
            ends.any(|end| others.contains(&bare[..=end]) || others.contains(&bare[..end]))
                || self.expressions().any(|expression| self.matches(expression, bare))
        };
        let is_one = |route: &&mut Route| {
            !route.exact
                && servers.contains(&route.path)
                && route.keys.get("upstream").is_some()
                && route.keys.get("internal").is_none()
        };
        for route in routes.iter_mut().filter(is_one) {
            let bare = route.path.strip_suffix('/').filter(|bare| !known.contains(*bare));
            if bare.is_some_and(is_hidden) {
                route.keys.set("final_slash", "true");
            }
        }
    }

    /// The prefix at which brisk has to find a longer one: one that ends within a segment, or that names a file.
    pub(crate) fn base(&self, location: &Location<'a>) -> Option<&Location<'a>> {
        if self.is_part(location) { self.around(location) } else { None }
    }

    /// The next shorter prefix that has a route at its own path.
    fn around(&self, location: &Location<'a>) -> Option<&Location<'a>> {
        let mut above = self.above(location)?;
        while self.is_part(above) {
            above = self.above(above)?;
        }
        Some(above)
    }

    /// The prefix whose path in brisk has the requests for `/adminx` of a location `/admin` that refuses requests.
    pub(crate) fn neighbour(&self, location: &Location<'a>) -> Option<&Location<'a>> {
        let Kind::Prefix { path, .. } = &location.kind else { return None };
        if path.ends_with('/') || !closes(location.scope.own()) { None } else { self.around(location) }
    }

    /// Whether a prefix has no route at its own path: its requests come to [`Self::base`].
    fn is_part(&self, location: &Location<'a>) -> bool {
        let Kind::Prefix { path, .. } = &location.kind else { return false };
        let is_segment = path.ends_with(|last: char| last == '/' || last.is_ascii_alphanumeric());
        path != "/" && !(is_segment && self.folder_exists(location, path))
    }

    /// The next shorter prefix, of whole segments, that contains a prefix.
    fn above(&self, location: &Location<'a>) -> Option<&Location<'a>> {
        let Kind::Prefix { path, .. } = &location.kind else { return None };
        let prefixes = self.index.prefixes.get_or_init(|| {
            let prefixes = self.locations.iter().filter_map(|location| match &location.kind {
                Kind::Prefix { path, .. } => Some((path.clone(), location.number)),
                _ => None,
            });
            prefixes.collect()
        });
        let slashes = path.match_indices('/').rev().map(|(place, _)| place);
        let starts = slashes.flat_map(|place| [&path[..=place], &path[..place]]);
        let mut shorter = starts.filter(|start| start.len() < path.len());
        shorter.find_map(|start| Some(&self.locations[*prefixes.get(start)?]))
    }

    /// Whether the folder of a location with files exists. Without its root, the files are on another machine.
    fn folder_exists(&self, location: &Location<'a>, path: &str) -> bool {
        let ends = program(location.scope.own()).iter().any(|step| step.name == "return");
        let passes = ends || location.scope.all_of(&PASSES).0 > 2;
        match location.scope.all_of(&["root", "alias"]).1.first() {
            Some(folder) if folder.name == "root" && !passes => self.context.has_folder(folder.arg(0), path),
            _ => true,
        }
    }
}
