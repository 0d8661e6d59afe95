//! `error_pages` of hosts and routes: files that are read with the configuration.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use brisk_config_file::KeyPath;
use brisk_rules::RedirectTarget;
use http::StatusCode;

use super::keys::{self, ErrorPagesKeys, PageStatus};
use super::pages::{ErrorPage, ErrorPages, PageSource};
use super::route::{ErrorRoute, RouteStatus};
use crate::features::{Context, HostScope, PathKeys, RouteScope};

/// Maximum size of a page in bytes. Pages are in memory.
const LARGEST: u64 = 1 << 20;

/// The pages of a host.
pub(super) fn of_host(
    keys: &ErrorPagesKeys,
    host: &HostScope<'_>,
    context: &mut Context<'_>,
) -> Option<Arc<ErrorPages>> {
    let pages = keys.error_pages.as_ref()?;
    Some(Arc::new(pages_of(pages, ErrorPages::default(), (host, &host.key("error_pages")), context)))
}

/// The pages of a route: its own, and those of its host for other statuses. An empty table switches the pages of the host off.
pub(super) fn of_route(
    keys: &ErrorPagesKeys,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> Option<Arc<ErrorPages>> {
    let inherited = route.host.settings.error_pages.as_ref();
    let Some(pages) = &keys.error_pages else { return inherited.cloned() };
    if pages.pages.is_empty() && pages.intercept.is_none() {
        return None;
    }
    let path = route.key("error_pages");
    if pages.intercept.is_some() && !route.has_upstream() {
        context.findings.wrong(&path.key("intercept"), "has no effect without `upstream`");
    }
    let inherited = inherited.map(|pages| ErrorPages::clone(pages)).unwrap_or_default();
    Some(Arc::new(pages_of(pages, inherited, (route.host, &path), context)))
}

fn pages_of(
    raw: &keys::ErrorPages,
    mut pages: ErrorPages,
    (host, path): (&HostScope<'_>, &KeyPath),
    context: &mut Context<'_>,
) -> ErrorPages {
    // An own page for a class precedes inherited pages for its statuses.
    for (class, statuses) in [("4xx", 400..=499), ("5xx", 500..=599)] {
        if raw.pages.contains_key(class) {
            pages.by_status.retain(|status, _| !statuses.contains(&status.as_u16()));
        }
    }
    for (key, page) in &raw.pages {
        let path = path.key(key);
        let status = key.parse().ok().filter(|status| (400..600).contains(status));
        let status = status.and_then(|status: u16| StatusCode::from_u16(status).ok());
        if status.is_none() && !matches!(key.as_str(), "4xx" | "5xx") {
            context.findings.wrong(
                &path,
                "is not the status of an error: write one from 400 to 599, \"4xx\" or \"5xx\" for all of a class, or `intercept`",
            );
            continue;
        }
        let page = match page {
            keys::Page::File(file) => self::page(file, &path, context).map(PageSource::File),
            keys::Page::Route(page) => {
                route_page(page, host, &path, context).map(|page| PageSource::Route(Arc::new(page)))
            }
        };
        let Some(page) = page else { continue };
        match status {
            Some(status) => drop(pages.by_status.insert(status, page)),
            None if key == "4xx" => pages.client_errors = Some(page),
            None => pages.server_errors = Some(page),
        }
    }
    pages.intercept = raw.intercept.unwrap_or(pages.intercept);
    pages
}

/// The response of a route as a page.
fn route_page(
    raw: &keys::RoutePage,
    host: &HostScope<'_>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<ErrorRoute> {
    let status = match raw.status {
        None => RouteStatus::Error,
        Some(PageStatus::Route) => RouteStatus::Route,
        Some(PageStatus::Code(code)) => {
            let code = context.findings.within(&path.key("status"), Some(code), 200, &(200..=599));
            RouteStatus::Code(StatusCode::from_u16(code).ok()?)
        }
    };
    let path = path.key("route");
    let fixed = fixed_part(&raw.route);
    if !fixed.starts_with('/') || fixed.starts_with("//") {
        let message = format!("{:?} is no path of this host: it begins with one slash", raw.route);
        context.findings.wrong(&path, message);
        return None;
    }
    // No return: further mistakes of the page are reported as well.
    if !host.keys.site.route.iter().any(|route| leads_to(raw, &route.paths)) {
        let message = format!("no route of the host has the path {fixed}");
        context.findings.wrong(&path, message);
    }
    // Without groups: a page of the host is for requests of all routes, whose expressions differ.
    match RedirectTarget::new(&raw.route, &context.maps, None) {
        Ok(to) => {
            context.note_fingerprints(|variable| to.has(variable));
            Some(ErrorRoute { to, status })
        }
        Err(reason) => {
            context.findings.wrong(&path, format!("{:?} is no path of this host: {reason}", raw.route));
            None
        }
    }
}

/// The path up to its first variable or its query.
fn fixed_part(path: &str) -> &str {
    path.split(['{', '?']).next().unwrap_or_default()
}

/// Whether the path of `page` may lead to `route`.
pub(crate) fn leads_to(page: &keys::RoutePage, route: &PathKeys) -> bool {
    let (fixed, path) = (fixed_part(&page.route), route.path.as_str());
    // A variable follows, so the page may be any path that begins with the fixed part.
    let is_open = page.route[fixed.len()..].starts_with('{');
    let below = fixed.strip_prefix(path);
    let is_below = below.is_some_and(|rest| rest.is_empty() || path.ends_with('/') || rest.starts_with('/'));
    (is_open && path.starts_with(fixed)) || if route.exact { below == Some("") } else { is_below }
}

/// The page in `file`.
pub(crate) fn page(file: &Path, path: &KeyPath, context: &mut Context<'_>) -> Option<ErrorPage> {
    let file = context.file(file);
    match read(&file) {
        Ok(content) if content.len() as u64 > LARGEST => {
            let message =
                format!("{} is larger than 1 MiB, and error pages are kept in memory", file.display());
            context.findings.wrong(path, message);
            None
        }
        Ok(content) => Some(ErrorPage::new(&file, content)),
        Err(error) => {
            context.findings.wrong(path, format!("cannot read {}: {error}", file.display()));
            None
        }
    }
}

/// The content of a file, up to one byte more than a page may have.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(file)?.take(LARGEST + 1).read_to_end(&mut content)?;
    Ok(content)
}
