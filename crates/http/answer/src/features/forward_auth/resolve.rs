//! `forward_auth` of routes: another server that decides about requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brisk_config_file::KeyPath;
use brisk_upstream_group::settings::GroupSettings;
use http::uri::PathAndQuery;
use http::{HeaderName, header};

use super::keys::CopiedNames;
use super::{CopiedHeader, ForwardAuth, keys};
use crate::features::{Context, HostKeys, RouteScope};

/// Headers that describe a message or its connection, and no user.
const OF_MESSAGES: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The server that decides about requests for a route.
pub(super) fn of_route(
    raw: &keys::ForwardAuth,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> Option<ForwardAuth> {
    let path = route.key("forward_auth");
    let copied = copied(&raw.copy_headers, &path.key("copy_headers"), context);
    if !raw.copy_headers.is_empty() && !route.has_upstream() {
        context.findings.wrong(&path.key("copy_headers"), "has no effect without `upstream` of the route");
    }
    let returned = names(&raw.copy_to_response, &path.key("copy_to_response"), context);
    let (group, target) = match (&raw.url, &raw.upstream) {
        (Some(url), None) => {
            let Some((server, target)) = split(url) else {
                let message = format!(
                    "{url:?} is not the URL of a server: write one as \"http://127.0.0.1:9091/verify\""
                );
                context.findings.wrong(&path.key("url"), message);
                return None;
            };
            if raw.path.is_some() {
                context.findings.wrong(&path.key("path"), "has no effect beside `url`, which contains it");
            }
            // The group is named as its server, so that routes with the same server share connections.
            (server.to_owned(), target)
        }
        (None, Some(name)) => {
            // Application servers get no variables here: PHP-FPM would run no script
            // and seem to permit every request.
            if !context.has_http_upstream(name, &path.key("upstream")) {
                return None;
            }
            (name.clone(), raw.path.as_deref().unwrap_or("/"))
        }
        _ => {
            let message = "nothing decides: write either `url`, or the name of an `upstream` and a `path`";
            context.findings.incomplete(&path, message);
            return None;
        }
    };
    // `PathAndQuery` drops a fragment without an error.
    let parsed =
        target.parse::<PathAndQuery>().ok().filter(|_| target.starts_with('/') && !target.contains('#'));
    if parsed.is_none() {
        let key = if raw.url.is_some() { "url" } else { "path" };
        context.findings.wrong(&path.key(key), format!("{target:?} is not a path: write one as \"/verify\""));
    }
    Some(ForwardAuth { group, path: parsed?, copied, returned })
}

fn names(written: &[String], path: &KeyPath, context: &mut Context<'_>) -> Arc<[HeaderName]> {
    let names = written.iter().enumerate();
    names.filter_map(|(index, text)| name(text, &path.index(index), context)).collect()
}

fn name(text: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<HeaderName> {
    let fault = match HeaderName::from_bytes(text.as_bytes()) {
        Ok(name) if !OF_MESSAGES.contains(&name) => return Some(name),
        Ok(_) => format!("{text:?} describes a message, not a user"),
        Err(_) => format!("{text:?} is not the name of a header: write one as \"Remote-User\""),
    };
    context.findings.wrong(path, fault);
    None
}

fn copied(written: &CopiedNames, path: &KeyPath, context: &mut Context<'_>) -> Arc<[CopiedHeader]> {
    match written {
        CopiedNames::Same(list) => {
            let names = names(list, path, context);
            names.iter().map(|name| CopiedHeader { name: name.clone(), source: name.clone() }).collect()
        }
        CopiedNames::Renamed(table) => {
            let renamed = |(to, from): (&String, &String)| {
                let path = path.key(to);
                let source = name(from, &path, context)?;
                Some(CopiedHeader { name: name(to, &path, context)?, source })
            };
            table.iter().filter_map(renamed).collect()
        }
    }
}

/// Server and path of a URL.
fn split(url: &str) -> Option<(&str, &str)> {
    let start = url.find("://")? + 3;
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |end| start + end);
    let (server, target) = url.split_at(end);
    server.parse::<brisk_upstream_group::settings::ServerUrl>().ok()?;
    Some((server, if target.is_empty() { "/" } else { target }))
}

/// Groups of the servers that `hosts` have written as URLs, with the usual settings, except for those in `upstreams`.
pub fn groups<'k>(
    hosts: impl Iterator<Item = &'k HostKeys>,
    upstreams: &BTreeSet<String>,
) -> Vec<GroupSettings> {
    let urls = settings(hosts).filter_map(|raw| split(raw.url.as_ref()?));
    let new = urls.filter(|(server, _)| !upstreams.contains(*server));
    let groups: BTreeMap<_, _> = new
        .filter_map(|(name, _)| Some((name, GroupSettings::new(name.to_owned(), [name.parse().ok()?]))))
        .collect();
    groups.into_values().collect()
}

/// Names of the upstreams that decide.
pub fn upstreams<'k>(hosts: impl Iterator<Item = &'k HostKeys>) -> impl Iterator<Item = &'k String> {
    settings(hosts).filter_map(|raw| raw.upstream.as_ref())
}

fn settings<'k>(hosts: impl Iterator<Item = &'k HostKeys>) -> impl Iterator<Item = &'k keys::ForwardAuth> {
    hosts.flat_map(|host| &host.site.route).filter_map(|route| route.forward_auth.forward_auth.as_ref())
}
