//! Sites and the hosts of brisk for them, with their routes.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::caddy::context::Context;
use crate::caddy::environment::{has_variable, host_name};
use crate::caddy::host_name::HostName;
use crate::caddy::matcher::{Formula, Named};
use crate::caddy::path::{Place, Shape};
use crate::caddy::plan::{Action, Plan};
use crate::caddy::program;
use crate::caddy::run::{Frame, follow};
use crate::caddy::state::State;
use crate::caddy::step::Step;
use crate::caddy::world::{Facts, View, World};
use crate::directive::Directive;
use crate::nginx::condition::When;
use crate::nginx::location::Route;
use crate::toml::Keys;

/// Keys of `[[host.route]]` that `[[host]]` has too.
const SHARED: [&str; 3] = ["response_headers", "compression", "access_log"];

/// The program of a site.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    pub(crate) site: &'a Directive,
    pub(crate) steps: Vec<Step<'a>>,
    /// The folder that the site has for all requests: `root` without a matcher.
    pub(crate) root: Option<String>,
    places: Vec<Place>,
    restricted: Vec<Shape>,
}

impl<'a> Program<'a> {
    /// The program of the block of a site, with the `places` of its routes.
    pub(crate) fn new(context: &Context<'a>, site: &'a Directive) -> Self {
        let steps = program::steps(context, site.inner(), &Named::new(), true, 0);
        let mut places = vec![Place { path: "/".to_owned(), exact: false }];
        program::places(&steps, "", &mut places);
        places.sort();
        places.dedup();
        let is_root = |step: &&Step<'_>| step.directive.name == "root" && !step.has_matcher;
        let root = steps.iter().find(is_root).map(|step| context.path(step.arg(0)));
        let mut restricted = Vec::new();
        program::restricted(&steps, &mut restricted);
        Self { site, steps, root, places, restricted }
    }

    /// Names of hosts that conditions of the site compare, with their texts.
    fn compared(&self) -> BTreeMap<String, String> {
        fn gather(steps: &[Step<'_>], all: &mut BTreeMap<String, String>) {
            for step in steps {
                step.formula.visit(&mut |part| {
                    if let Formula::Host(names) = part {
                        all.extend(names.iter().map(|own| (own.name.clone(), own.text.clone())));
                    }
                });
                gather(&step.inner, all);
            }
        }
        let mut all = BTreeMap::new();
        gather(&self.steps, &mut all);
        all
    }

    /// The names of the site divided into hosts: those that conditions compare have one of their own. A site for all names has none.
    pub(crate) fn hosts(&self, names: &[String]) -> Vec<(Vec<String>, HostName)> {
        let compared = self.compared();
        let own: BTreeMap<String, &String> = names.iter().map(|name| (host_name(name), name)).collect();
        let is_covered = |name: &String| {
            let parent = name.split_once('.').filter(|(label, _)| *label != "*");
            parent.is_some_and(|(_, parent)| own.contains_key(&format!("*.{parent}")))
        };
        let mut hosts: Vec<(Vec<String>, HostName)> = Vec::new();
        for (name, text) in &compared {
            let same = own.get(name).copied();
            if own.is_empty() || same.is_some() || is_covered(name) {
                hosts.push((vec![same.unwrap_or(text).clone()], HostName::Name(name.clone())));
            }
        }
        let named = names.iter().map(|text| (host_name(text), text));
        let rest: Vec<_> = named.filter(|(name, _)| !compared.contains_key(name)).collect();
        // A wildcard of a matcher may find any name, and a name without a value may be any of the others.
        let is_apart = compared.keys().any(|name| name.starts_with('*'))
            || (!compared.is_empty() && rest.iter().any(|(name, _)| has_variable(name)));
        match rest.as_slice() {
            [] if names.is_empty() => hosts.push((Vec::new(), HostName::Other)),
            [] => {}
            all if is_apart || all.len() == 1 => hosts
                .extend(all.iter().map(|(name, text)| (vec![(*text).clone()], HostName::Name(name.clone())))),
            all => {
                hosts.push((all.iter().map(|(_, text)| (*text).clone()).collect(), HostName::Other));
            }
        }
        hosts
    }

    /// The [`Route`]s for a host: first those of `hidden`, then by the length of `path`. `keys` gets those of all routes.
    pub(crate) fn routes(
        &self,
        context: &Context<'a>,
        host: &HostName,
        is_tls: Option<bool>,
        keys: &mut Keys,
    ) -> Vec<Route> {
        let mut known: BTreeMap<Place, Vec<Plan>> = BTreeMap::new();
        let mut places = self.places.clone();
        places.sort_by_key(|place| (place.path.len(), place.exact));
        let facts = Facts { places: places.iter().cloned().collect(), restricted: self.restricted.clone() };
        let facts = Rc::new(facts);
        for place in places {
            if context.is_spent(1) {
                return vec![refused(self.site)];
            }
            let world = World::new(place.clone(), host.clone(), is_tls, Rc::clone(&facts));
            let mut plans = Vec::new();
            follow(context, vec![Frame::new(&self.steps)], State::default(), world, 0, &mut plans);
            if context.is_spent(0) {
                return vec![refused(self.site)];
            }
            let is_same =
                outer(&place).find_map(|outer| known.get(&outer)).is_some_and(|outer| *outer == plans);
            // Routes equal to those of the place around are left out: brisk uses the latter.
            if !is_same {
                known.insert(place, plans);
            }
        }
        lift(&mut known, keys);
        let places: BTreeSet<Place> = known.keys().cloned().collect();
        let mut all: Vec<_> = known.into_iter().collect();
        all.sort_by_key(|(place, _)| (std::cmp::Reverse(place.path.len()), !place.exact));
        let mut routes = hidden(context, all.iter().flat_map(|(_, plans)| plans));
        if context.is_spent(0) {
            return vec![refused(self.site)];
        }
        for (place, plans) in all {
            let outer = outer(&place).find(|outer| places.contains(outer));
            routes.extend(plans.into_iter().map(|plan| plan.route(&place, outer.as_ref())));
        }
        routes
    }
}

/// Routes that hide the files of the configuration, which Caddy never sends. Other views of paths have a fixed file.
fn hidden<'p>(context: &Context<'_>, plans: impl Iterator<Item = &'p Plan>) -> Vec<Route> {
    let folders: BTreeSet<_> = plans
        .filter_map(|plan| match &plan.action {
            Action::Static { root, view: View::Moved { strip, add }, .. } => Some((root, strip, add)),
            _ => None,
        })
        .collect();
    let mut paths = BTreeSet::new();
    for (root, strip, add) in folders {
        for below in context.hidden(root) {
            let Some(rest) = below.strip_prefix(add.as_str()) else { continue };
            if rest.is_empty() || rest.starts_with('/') {
                let path = format!("{strip}{rest}");
                paths.insert(if path.is_empty() { "/".to_owned() } else { path });
            }
        }
    }
    let route = |path| {
        let keys = Keys::of("respond", "{ status = 404 }");
        let comment = "Caddy hides its configuration".to_owned();
        Route { path, exact: true, when: When::default(), keys, comment }
    };
    paths.into_iter().map(route).collect()
}

/// The places whose routes get the requests of a place without routes, the nearest first: `/a/b` has `/a/`, `/a` and `/`.
fn outer(place: &Place) -> impl Iterator<Item = Place> {
    let path = place.path.clone();
    let own = place.exact.then(|| Place { path: path.clone(), exact: false });
    let ends: Vec<usize> = path.char_indices().filter(|(_, next)| *next == '/').map(|(at, _)| at).collect();
    let above = ends.into_iter().rev().flat_map(move |at| {
        let with = (at + 1 < path.len()).then(|| Place { path: path[..=at].to_owned(), exact: false });
        let without = (at > 0).then(|| Place { path: path[..at].to_owned(), exact: false });
        with.into_iter().chain(without)
    });
    own.into_iter().chain(above)
}

/// Moves keys of `SHARED` to the host if they have one value in all routes that can have them.
fn lift(known: &mut BTreeMap<Place, Vec<Plan>>, keys: &mut Keys) {
    for key in SHARED {
        if keys.get(key).is_some() {
            continue;
        }
        let is_free = |plan: &&mut Plan| match plan.action {
            Action::Refuse => false,
            Action::Empty | Action::Redirect(_) => key != "compression",
            _ => true,
        };
        let mut values =
            known.values_mut().flatten().filter(is_free).map(|plan| plan.keys.get(key).map(str::to_owned));
        let Some(Some(first)) = values.next() else { continue };
        if !values.all(|value| value.as_deref() == Some(first.as_str())) {
            continue;
        }
        known.values_mut().flatten().for_each(|plan| plan.keys.0.retain(|(own, _)| own != key));
        keys.set(key, first);
    }
}

/// The only route of a site whose conditions are too many: `respond = { status = 501 }` at `/`.
fn refused(site: &Directive) -> Route {
    Route {
        path: "/".to_owned(),
        exact: false,
        when: When::default(),
        keys: Keys::of("respond", "{ status = 501 }"),
        comment: format!("NOT CARRIED, see the report: {}", site.comment()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_places_are_the_nearest_first() {
        let place = Place { path: "/a/b/".to_owned(), exact: true };
        let all: Vec<_> = outer(&place).map(|place| place.path).collect();
        assert_eq!(all, ["/a/b/", "/a/b", "/a/", "/a", "/"]);
    }
}
