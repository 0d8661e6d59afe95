//! `consolidate`: other origins below paths of a host.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use brisk_answer::settings::{
    Action, Consolidation, Cookies, MappedOrigin, Origin, OriginMap, Prefix, RoutePath, RouteSettings,
    UpstreamAction, UpstreamPath,
};
use brisk_config_file::KeyPath;
use brisk_upstream::settings::GroupSettings;

use super::context::Context;
use super::routes::no_upstream;
use crate::raw::{self, Consolidate};

/// The origins of a host, and the routes that serve them.
pub(super) struct Consolidated {
    pub(super) settings: Arc<Consolidation>,
    /// Routes, before the defaults of the host are applied.
    pub(super) routes: Vec<RouteSettings>,
}

/// The origins of `host`, whose table is at `path`.
pub(super) fn of_host(
    host: &raw::Host,
    config: &raw::Config,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Consolidated> {
    let all = path.key("consolidate");
    if host.consolidate.is_empty() {
        return None;
    }
    if host.route.is_empty() {
        context.findings.wrong(&all, "needs a route for the host's own pages: write [[host.route]]");
    }
    let most = OriginMap::MOST_ORIGINS;
    if host.consolidate.len() > most {
        let message = format!("{} origins are too many: a host has {most} at most", host.consolidate.len());
        context.findings.wrong(&all, message);
        return None;
    }
    let mut found = Found::default();
    for (text, written) in &host.consolidate {
        found.add(text, written, host, config, &all.key(text), context);
    }
    for place in &found.map.origins {
        neighbours(place, host, path, context);
    }
    let Found { map, cookies, routes, .. } = found;
    Some(Consolidated { settings: Arc::new(Consolidation { map: Arc::new(map), cookies }), routes })
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
        host: &raw::Host,
        config: &raw::Config,
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
        let clash = places
            .iter()
            .find(|place| lies_within(new, place.prefix.as_str()) || lies_within(place.prefix.as_str(), new));
        if let Some(clash) = clash {
            let message = format!("{new:?} and {:?} of {} overlap", clash.prefix.as_str(), clash.origin);
            return context.findings.wrong(&place_of_path(path, context), message);
        }
        let Some(group) = group(&origin, table, config, path, context) else { return };
        let place = Some(self.map.origins.len());
        let unchanged = table.integrity.then(|| prefix.unchanged());
        for (prefix, rewrite) in [(Some(&prefix), true), (unchanged.as_ref(), false)] {
            let Some(prefix) = prefix else { continue };
            let path = UpstreamPath::below(prefix.as_str());
            let action = Action::Upstream(UpstreamAction::new(group.clone(), path));
            let path = RoutePath::Prefix(prefix.as_str().to_owned());
            self.routes.push(RouteSettings { place, rewrite, ..RouteSettings::new(path, action) });
        }
        self.cookies.push(match table.cookies {
            Some(raw::Cookies::None) => Cookies::None,
            Some(raw::Cookies::Host) => Cookies::Host,
            Some(raw::Cookies::Own) | None => Cookies::Own,
        });
        self.map.origins.push(MappedOrigin { origin, prefix, unchanged });
    }
}

/// Position of the path, which may be in a table.
fn place_of_path(path: &KeyPath, context: &Context<'_>) -> KeyPath {
    let table = path.key("path");
    if context.findings.written(&table) { table } else { path.clone() }
}

fn origin(text: &str, host: &raw::Host, path: &KeyPath, context: &mut Context<'_>) -> Option<Origin> {
    let origin = match text.parse::<Origin>() {
        Ok(origin) => origin,
        Err(error) => {
            context.findings.wrong(path, format!("{text:?} is not an origin: {error}"));
            return None;
        }
    };
    let is_name = |name: &String| match name.strip_prefix('*') {
        Some(suffix) => {
            origin.host().split_once('.').is_some_and(|(_, rest)| suffix.strip_prefix('.') == Some(rest))
        }
        None => name.eq_ignore_ascii_case(origin.host()),
    };
    if origin.is_secure() && origin.port() == 443 && host.names.iter().any(is_name) {
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
    table: &raw::ConsolidateTable,
    config: &raw::Config,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<String> {
    let Some(name) = &table.upstream else {
        let name = origin.to_string();
        if config.upstream.contains_key(&name) {
            let message =
                format!("there is an [upstream.{name:?}]: write upstream = {name:?} if it is meant");
            context.findings.wrong(path, message);
            return None;
        }
        return Some(name);
    };
    if !config.upstream.contains_key(name) {
        // An upstream that exists but is invalid has been reported already.
        if !context.findings.written(&KeyPath::of("upstream").key(name)) {
            no_upstream(name, config, &path.key("upstream"), context);
        }
        return None;
    }
    Some(name.clone())
}

/// Whether a path is `prefix` or below it.
fn lies_within(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Routes and endpoints of the host that meet a place.
fn neighbours(place: &MappedOrigin, host: &raw::Host, path: &KeyPath, context: &mut Context<'_>) {
    let prefix = place.prefix.as_str();
    for (index, route) in host.route.iter().enumerate() {
        let route_path = path.key("route").index(index);
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
    if host.preconnect.as_ref().is_some_and(|preconnect| lies_within(&preconnect.path, prefix)) {
        let message = format!("{} is served there already, by `consolidate`", place.origin);
        context.findings.wrong(&path.key("preconnect"), message);
    }
}

/// A group for each origin that names no upstream.
pub(super) fn groups(config: &raw::Config) -> Vec<GroupSettings> {
    let mut groups = BTreeMap::new();
    for (text, Consolidate(table)) in config.host.iter().flat_map(|host| &host.consolidate) {
        let Ok(origin) = text.parse::<Origin>() else { continue };
        let name = origin.to_string();
        let server =
            name.parse().ok().filter(|_| table.upstream.is_none() && !config.upstream.contains_key(&name));
        if let Some(server) = server {
            groups.entry(name.clone()).or_insert_with(|| GroupSettings::new(name, [server]));
        }
    }
    groups.into_values().collect()
}

/// Names of the upstreams that serve origins.
pub(super) fn upstreams(config: &raw::Config) -> impl Iterator<Item = &String> {
    let written = config.host.iter().flat_map(|host| host.consolidate.values());
    written.filter_map(|Consolidate(table)| table.upstream.as_ref())
}
