//! Prefixes that are no paths of brisk: prefixes that end within a segment, as `/wp-`, and the further paths of a restricted prefix,
//! such as `/adminx` of `/admin`. Their routes stand at the next shorter prefix, with an expression.

use crate::nginx::closing::closes;
use crate::nginx::condition::When;
use crate::nginx::location::{At, Kind, Location, PASSES, Route, program};
use crate::nginx::pattern;
use crate::nginx::site::Site;
use crate::nginx::variables::Values;
use crate::toml;

impl<'a> Site<'_, 'a> {
    /// The routes of longer prefixes whose requests come to the path of this one.
    pub(crate) fn parts(&self, location: &Location<'a>, stopping: bool, routes: &mut Vec<Route>) {
        let mut parts: Vec<_> = self
            .locations
            .iter()
            .filter_map(|part| match &part.kind {
                Kind::Prefix { path, stop } if *stop == stopping => {
                    let base = self.base(part);
                    Some((part, path, base.or_else(|| self.neighbour(part))?))
                }
                _ => None,
            })
            .filter(|(_, _, base)| std::ptr::eq(*base, location))
            .collect();
        parts.sort_by_key(|(_, path, _)| std::cmp::Reverse(path.len()));
        for (part, path, base) in parts {
            let Kind::Prefix { path: base, .. } = &base.kind else { continue };
            let end = if self.is_part(part) { "" } else { "[^/]" };
            let when = When::plain("path_regex", toml::raw(&format!("^{}{end}", pattern::escaped(path))));
            self.location(
                part,
                &At { path: base.clone(), exact: false, when, values: Values::default() },
                routes,
            );
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
        let above = self.locations.iter().filter(|other| match &other.kind {
            Kind::Prefix { path: other, .. } => {
                let behind = path.strip_prefix(other.as_str()).filter(|behind| !behind.is_empty());
                behind.is_some_and(|behind| other.ends_with('/') || behind.starts_with('/'))
            }
            _ => false,
        });
        above.max_by_key(|other| match &other.kind {
            Kind::Prefix { path, .. } => path.len(),
            _ => 0,
        })
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
