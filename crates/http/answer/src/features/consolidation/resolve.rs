//! `consolidate`: other origins below paths of a host.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use brisk_config_file::KeyPath;
use brisk_rewrite::{MappedOrigin, Origin, OriginMap, Prefix};
use brisk_rules::{RoutePath, UpstreamPath};
use brisk_transform::consolidate::{Consolidation, Cookies};
use brisk_upstream_group::settings::GroupSettings;

use super::RouteConsolidation;
use super::keys::{self, Consolidate, HostConsolidationKeys};
use crate::features::action::{Action, UpstreamAction};
use crate::features::{Context, HostKeys, HostScope, RouteSettings};

/// The origins of a host. The routes that serve them are added to `context`.
pub(super) fn of_host(
    written: &HostConsolidationKeys,
    host: &HostScope<'_>,
    context: &mut Context<'_>,
) -> Option<Arc<Consolidation>> {
    let (all, written) = (host.key("consolidate"), &written.consolidate);
    if written.is_empty() {
        return None;
    }
    if host.keys.site.route.is_empty() {
        context.findings.wrong(&all, "needs a route for the host's own pages: write [[host.route]]");
    }
    let most = OriginMap::MOST_ORIGINS;
    if written.len() > most {
        let message = format!("{} origins are too many: a host has {most} at most", written.len());
        context.findings.wrong(&all, message);
        return None;
    }
    let mut found = Found::default();
    for (text, written) in written {
        found.add(text, written, host.keys, &all.key(text), context);
    }
    for place in &found.map.origins {
        neighbours(place, host, context);
    }
    let Found { map, cookies, routes, .. } = found;
    context.added_routes.extend(routes);
    Some(Arc::new(Consolidation { map: Arc::new(map), cookies }))
}

#[derive(Default)]
struct Found {
    map: OriginMap,
    cookies: Vec<Cookies>,
    routes: Vec<RouteSettings>,
    /// Position of each origin.
    written: HashMap<Origin, KeyPath>,
}

impl Found {
    fn add(
        &mut self,
        text: &str,
        written: &Consolidate,
        host: &HostKeys,
        path: &KeyPath,
        context: &mut Context<'_>,
    ) {
        let Consolidate(table) = written;
        if text.starts_with('/') && table.path.contains("://") {
            let message =
                format!("the origin comes first: write consolidate = {{ {:?} = {text:?} }}", table.path);
            return context.findings.wrong(path, message);
        }
        let (Some(origin), Some(prefix)) =
            (origin(text, host, path, context), prefix(&table.path, path, context))
        else {
            return;
        };
        if let Some(first) = self.written.insert(origin.clone(), path.clone()) {
            return context.findings.wrong(path, format!("{first} is this origin already"));
        }
        let (new, places) = (prefix.as_str(), &self.map.origins);
        // With overlapping prefixes, two origins could claim one path.
        let clash = places
            .iter()
            .find(|place| lies_within(new, place.prefix.as_str()) || lies_within(place.prefix.as_str(), new));
        if let Some(clash) = clash {
            let message = format!("{new:?} and {:?} of {} overlap", clash.prefix.as_str(), clash.origin);
            return context.findings.wrong(&place_of_path(path, context), message);
        }
        let Some(group) = group(&origin, table, path, context) else { return };
        let place = Some(self.map.origins.len());
        let unchanged = table.integrity.then(|| prefix.unchanged());
        // Style sheets with a digest are served byte by byte, so the second route rewrites nothing.
        for (prefix, rewrites) in [(Some(&prefix), true), (unchanged.as_ref(), false)] {
            let Some(prefix) = prefix else { continue };
            let path = UpstreamPath::below(prefix.as_str());
            let action = Action::Upstream(UpstreamAction::new(group.clone(), path));
            let path = RoutePath::Prefix(prefix.as_str().to_owned());
            let consolidation = RouteConsolidation { place, rewrites };
            self.routes.push(RouteSettings { consolidation, ..RouteSettings::new(path, action) });
        }
        self.cookies.push(match table.cookies {
            Some(keys::Cookies::None) => Cookies::None,
            Some(keys::Cookies::Host) => Cookies::Host,
            Some(keys::Cookies::Own) | None => Cookies::Own,
        });
        self.map.origins.push(MappedOrigin { origin, prefix, unchanged });
    }
}

/// Position of the path, which may be in a table.
fn place_of_path(path: &KeyPath, context: &Context<'_>) -> KeyPath {
    let table = path.key("path");
    if context.findings.written(&table) { table } else { path.clone() }
}

fn origin(text: &str, host: &HostKeys, path: &KeyPath, context: &mut Context<'_>) -> Option<Origin> {
    let origin = match text.parse::<Origin>() {
        Ok(origin) => origin,
        Err(error) => {
            context.findings.wrong(path, format!("{text:?} is not an origin: {error}"));
            return None;
        }
    };
    let is_name = |name: &String| match name.strip_prefix('*') {
        // A wildcard is one label.
        Some(suffix) => {
            origin.host().split_once('.').is_some_and(|(_, rest)| suffix.strip_prefix('.') == Some(rest))
        }
        None => name.eq_ignore_ascii_case(origin.host()),
    };
    // RFC 6454 section 5: another scheme or port is another origin.
    if origin.is_secure() && origin.port() == 443 && host.site.names.iter().any(is_name) {
        context.findings.wrong(path, format!("{origin} is this host itself: name another origin"));
        return None;
    }
    if !origin.is_secure() {
        context.findings.warn(format!(
            "{path}: {origin} is asked without TLS, and browsers take its answers for those of an https page"
        ));
    }
    Some(origin)
}

fn prefix(text: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<Prefix> {
    let place = place_of_path(path, context);
    let parsed = text.parse::<Prefix>();
    parsed
        .map_err(|error| {
            context.findings.wrong(&place, format!("{text:?} is not a place for an origin: {error}"));
        })
        .ok()
}

/// The group that the origin's requests go to.
fn group(
    origin: &Origin,
    table: &keys::ConsolidateTable,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<String> {
    let Some(name) = &table.upstream else {
        // The name of the group is the origin, so that several hosts share its servers and connections.
        let name = origin.to_string();
        if context.upstreams.contains(&name) {
            let message =
                format!("there is an [upstream.{name:?}]: write upstream = {name:?} if it is meant");
            context.findings.wrong(path, message);
            return None;
        }
        return Some(name);
    };
    context.has_upstream(name, &path.key("upstream")).then(|| name.clone())
}

/// Whether a path is `prefix` or below it.
fn lies_within(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Routes and endpoints of the host that meet a place.
fn neighbours(place: &MappedOrigin, host: &HostScope<'_>, context: &mut Context<'_>) {
    let prefix = place.prefix.as_str();
    for (index, route) in host.keys.site.route.iter().enumerate() {
        let (route, route_path) = (&route.paths, host.key("route").index(index));
        if route.path.trim_end_matches('/') == prefix {
            let message = format!("{} is served there already, by `consolidate`", place.origin);
            context.findings.wrong(&route_path.key("path"), message);
        } else if lies_within(&route.path, prefix) {
            context.findings.warn(format!(
                "{route_path}: {:?} is not asked of {}, which `consolidate` serves below {prefix:?}",
                route.path, place.origin
            ));
        }
    }
    if host
        .keys
        .preconnect
        .preconnect
        .as_ref()
        .is_some_and(|preconnect| lies_within(&preconnect.path, prefix))
    {
        let message = format!("{} is served there already, by `consolidate`", place.origin);
        context.findings.wrong(&host.key("preconnect"), message);
    }
}

/// A group for each origin of `hosts` that names no upstream, except for those in `upstreams`.
pub fn groups<'k>(
    hosts: impl Iterator<Item = &'k HostKeys>,
    upstreams: &BTreeSet<String>,
) -> Vec<GroupSettings> {
    let mut groups = BTreeMap::new();
    for (text, Consolidate(table)) in hosts.flat_map(|host| &host.consolidation.consolidate) {
        let Ok(origin) = text.parse::<Origin>() else { continue };
        let name = origin.to_string();
        let server = name.parse().ok().filter(|_| table.upstream.is_none() && !upstreams.contains(&name));
        if let Some(server) = server {
            groups.entry(name.clone()).or_insert_with(|| GroupSettings::new(name, [server]));
        }
    }
    groups.into_values().collect()
}

/// Names of the upstreams that serve origins.
pub fn upstreams<'k>(hosts: impl Iterator<Item = &'k HostKeys>) -> impl Iterator<Item = &'k String> {
    let written = hosts.flat_map(|host| host.consolidation.consolidate.values());
    written.filter_map(|Consolidate(table)| table.upstream.as_ref())
}
