//! Resolution of routes: their paths and their actions.

use std::collections::HashMap;
use std::path::Path;

use brisk_config_file::KeyPath;
use brisk_http::url_path::UrlPath;
use brisk_rules::{BodyTemplate, GroupPattern, Maps, Pattern, RedirectTarget, RoutePath};
use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::{
    Action, FixedResponse, FormedResponse, Redirect, StaticSettings, UpstreamAction, keys, upstream_path,
};
use crate::features::{Context, HostScope, PathKeys, RouteScope, RouteSettings, conditions};
use crate::redirect as locations;

/// Resolves the routes of a host. Mistaken ones are reported and omitted.
pub(crate) fn routes(host: &HostScope<'_>, context: &mut Context<'_>) -> Vec<RouteSettings> {
    let path = host.key("route");
    conditions::open_below(host, context);
    let mut taken = HashMap::new();
    let mut settings = Vec::new();
    for (index, keys) in host.keys.site.route.iter().enumerate() {
        // Routes with one path and equal conditions: the second one would never be used.
        let path = path.index(index);
        let conditions = keys.conditions.when.as_ref().map(|when| format!("{when:?}")).unwrap_or_default();
        let requests = (&keys.paths.path, keys.paths.exact, conditions);
        if let Some(first) = taken.insert(requests, path.clone()) {
            let is_conditional = keys.conditions.when.is_some();
            let same = if is_conditional { "path and these conditions" } else { "path" };
            context.findings.wrong(&path.key("path"), format!("{first} has this {same} already"));
        }
        let route_path = route_path(&keys.paths, &path, context);
        let route = RouteScope { keys, host, path: &path, route_path: route_path.as_ref() };
        let action = action(&route, context);
        settings.extend(RouteSettings::resolve(&route, action, context));
    }
    settings
}

fn route_path(raw: &PathKeys, path: &KeyPath, context: &mut Context<'_>) -> Option<RoutePath> {
    let text = &raw.path;
    let right = if !text.starts_with('/') {
        Some("it begins with a slash, as \"/api\"")
    } else if text.contains(['?', '#']) {
        Some("it ends before \"?\" and \"#\"")
    } else if text.contains('*') {
        Some("it needs no \"*\": a path stands for all below it")
    } else if text.contains('%') {
        Some("it is written decoded, without \"%\"")
    } else if text.contains("//") || text.split('/').any(|segment| matches!(segment, "." | "..")) {
        Some("it has no empty segments and none of \".\" and \"..\"")
    } else {
        None
    };
    if let Some(right) = right {
        context.findings.wrong(&path.key("path"), format!("{text:?} is not the path of a route: {right}"));
        return None;
    }
    Some(if raw.exact { RoutePath::Exact(text.clone()) } else { RoutePath::Prefix(text.clone()) })
}

/// Exactly one of the four.
fn action(route: &RouteScope<'_>, context: &mut Context<'_>) -> Option<Action> {
    let (raw, path) = (&route.keys.action, route.path);
    if raw.directory.is_none() {
        let of_static = [
            ("precompressed", raw.precompressed.is_some()),
            ("fallback", raw.fallback.is_some()),
            ("index", raw.index.is_some()),
            ("listing", raw.listing.is_some()),
            ("rewrite_files", raw.rewrite_files.is_some()),
        ];
        for (key, _) in of_static.iter().filter(|(_, is_written)| *is_written) {
            context.findings.wrong(&path.key(key), "has no effect without `static`");
        }
    }
    if !route.has_upstream() {
        upstream_path::refuse(route, context);
    }
    let written = [
        ("upstream", raw.upstream.is_some()),
        ("static", raw.directory.is_some()),
        ("respond", raw.respond.is_some()),
        ("redirect", raw.redirect.is_some()),
    ];
    let names: Vec<_> =
        written.iter().filter(|(_, written)| *written).map(|(name, _)| format!("`{name}`")).collect();
    match names.len() {
        1 => {}
        0 => {
            context.findings.incomplete(
                path,
                "nothing answers: write one of `upstream`, `static`, `respond`, `redirect`",
            );
            return None;
        }
        _ => {
            context
                .findings
                .incomplete(path, format!("{} cannot both answer: keep one", names.join(" and ")));
            return None;
        }
    }
    // The path is checked for an unknown upstream too.
    let upstream = raw.any_upstream().and_then(|named| upstream(named, route, context));
    if let Some(folder) = &raw.directory {
        let files = static_files(folder, route, context)?;
        return match raw.fallback {
            Some(keys::Fallback::Upstream(_)) => Some(Action::StaticOrUpstream(files, upstream?)),
            _ => Some(Action::Static(files)),
        };
    }
    let fixed = raw.respond.as_ref().and_then(|respond| fixed(respond, route, context));
    let redirect = raw.redirect.as_ref().and_then(|to| redirect(to, route, context));
    upstream.map(Action::Upstream).or(fixed).or(redirect)
}

fn upstream(
    (name, key): (&str, &str),
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> Option<UpstreamAction> {
    let path = upstream_path::of_route(route, context);
    let final_slash = final_slash(route, context);
    let action = UpstreamAction { final_slash, ..UpstreamAction::new(name, path) };
    context.has_upstream(name, &route.key(key)).then_some(action)
}

fn final_slash(route: &RouteScope<'_>, context: &mut Context<'_>) -> bool {
    let is_wanted = route.keys.action.final_slash == Some(true);
    let has_slash =
        matches!(route.route_path, Some(RoutePath::Prefix(path)) if path.ends_with('/') && path != "/");
    if is_wanted && route.route_path.is_some() && !(has_slash && route.keys.action.upstream.is_some()) {
        let message = "has no effect without `upstream` and a `path` that ends with a slash, as \"/api/\"";
        context.findings.wrong(&route.key("final_slash"), message);
    }
    is_wanted
}

fn static_files(folder: &Path, route: &RouteScope<'_>, context: &mut Context<'_>) -> Option<StaticSettings> {
    let (raw, path) = (&route.keys.action, route.path);
    let root = context.base.join(folder);
    let is_awaited = route.keys.paths.exact && may_come(&root);
    // A warning only: nginx starts without the file, so an imported configuration must be valid too.
    if is_awaited {
        let path = path.key("static");
        let warning =
            format!("{path}: the file {} does not exist: requests get 404 until it does", root.display());
        context.findings.warn(warning);
    }
    if root.is_file() || is_awaited {
        return single_file(&root, raw, route, context);
    }
    if !root.is_dir() {
        let what = if root.exists() { "is no folder and no file" } else { "does not exist" };
        context.findings.wrong(&path.key("static"), format!("the folder {} {what}", root.display()));
        return None;
    }
    let fallback = match &raw.fallback {
        Some(keys::Fallback::File(text)) => fallback(text, &root, &path.key("fallback"), context),
        Some(keys::Fallback::Upstream(_)) | None => None,
    };
    let (precompressed, listing) = (raw.precompressed.unwrap_or(false), raw.listing.unwrap_or(false));
    let index = raw.index.as_ref().map(|names| index(names, &path.key("index"), context)).unwrap_or_default();
    let rewrite = upstream_path::of_files(route, context);
    Some(StaticSettings { root, only: None, precompressed, index, listing, fallback, rewrite })
}

/// Paths of the pages of folders.
fn index(names: &[String], path: &KeyPath, context: &mut Context<'_>) -> Vec<UrlPath> {
    if names.is_empty() {
        context.findings.wrong(path, "names no page: remove the line, or write one as \"index.html\"");
    }
    let mut pages = Vec::new();
    for (number, name) in names.iter().enumerate() {
        // A hidden name, or a path, would be a file that no request finds otherwise.
        let page = Some(name).filter(|name| !name.starts_with('.') && !name.contains('/'));
        match page.and_then(|name| locations::encoded(&format!("/{name}")).parse().ok()) {
            Some(page) if !name.is_empty() => pages.push(page),
            _ => {
                let message = format!("{name:?} is not the name of a page: write one as \"index.html\"");
                context.findings.wrong(&path.index(number), message);
            }
        }
    }
    pages
}

/// Whether a missing file may be written later: its name has an extension, and its folder exists.
fn may_come(file: &Path) -> bool {
    !file.exists() && file.extension().is_some() && file.parent().is_some_and(Path::is_dir)
}

/// One file as the content of one path.
fn single_file(
    file: &Path,
    raw: &keys::ActionKeys,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> Option<StaticSettings> {
    let of_folders = [
        ("fallback", raw.fallback.is_some()),
        ("index", raw.index.is_some()),
        ("listing", raw.listing.is_some()),
        ("rewrite_path", raw.rewrite_path.is_some() && !route.has_upstream()),
        ("rewrite_files", raw.rewrite_files.is_some()),
    ];
    for (key, is_written) in of_folders {
        if is_written {
            context.findings.wrong(&route.key(key), "has no effect on a single file in `static`");
        }
    }
    if !route.keys.paths.exact {
        let message =
            format!("{} is a file: write exact = true too, or the name of a folder", file.display());
        context.findings.wrong(&route.key("static"), message);
        return None;
    }
    // The parent of a name without a folder is the empty path.
    let root = file.parent().filter(|root| !root.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file.file_name()?.to_str().ok_or_else(|| "the name of the file is not UTF-8".to_owned());
    let only = name.and_then(|name| locations::encoded(&format!("/{name}")).parse());
    let only = only.map_err(|error| context.findings.wrong(&route.key("static"), error)).ok()?;
    let precompressed = raw.precompressed.unwrap_or(false);
    Some(StaticSettings { only: Some(only), precompressed, ..StaticSettings::new(root) })
}

/// Path of the file for paths without one. Warns if the file does not exist: the folder may be filled later.
fn fallback(text: &str, root: &Path, path: &KeyPath, context: &mut Context<'_>) -> Option<UrlPath> {
    let parsed = match text.parse::<UrlPath>() {
        Ok(parsed) if !text.ends_with('/') => parsed,
        Ok(_) => {
            context.findings.wrong(path, format!("{text:?} is no file: write one as \"/index.html\""));
            return None;
        }
        Err(error) => {
            context.findings.wrong(path, error);
            return None;
        }
    };
    let file = root.join(text.trim_start_matches('/'));
    // A name with escapes has another spelling on disk.
    if !text.contains('%') && !file.is_file() {
        let missing = file.display();
        context.findings.warn(format!("{path}: there is no file {missing}: paths without a file get 404"));
    }
    Some(parsed)
}

fn fixed(raw: &keys::Respond, route: &RouteScope<'_>, context: &mut Context<'_>) -> Option<Action> {
    let path = route.key("respond");
    // RFC 9110 section 15.2: 1xx are interim responses.
    let status = context.findings.within(&path.key("status"), raw.status, 200, &(200..=599));
    let status = StatusCode::from_u16(status).ok()?;
    let kind = raw.content_type.as_deref().unwrap_or("text/plain; charset=utf-8");
    let Ok(content_type) = HeaderValue::from_str(kind) else {
        let message = format!("{kind:?} is not a content type: write one as \"text/html; charset=utf-8\"");
        context.findings.wrong(&path.key("content_type"), message);
        return None;
    };
    let body = raw.body.as_deref().unwrap_or_default();
    // RFC 9110 section 6.4.1.
    if matches!(status.as_u16(), 204 | 205 | 304) && !body.is_empty() {
        context
            .findings
            .wrong(&path.key("body"), format!("a response with status {} has no body", status.as_u16()));
    }
    let formed = with_groups(route, context, |maps, groups| BodyTemplate::new(body, kind, maps, groups))?;
    match formed {
        // A body without variables is formed once, not for each request.
        Ok(body) => Some(if let Some(text) = body.fixed() {
            let body = Bytes::from(text.to_owned());
            Action::Fixed(FixedResponse { status, content_type, body })
        } else {
            context.note_fingerprints(|variable| body.has(variable));
            Action::Formed(FormedResponse { status, content_type, body })
        }),
        Err(reason) => {
            let message = format!("{reason}; write \"{{{{\" for a brace of the text");
            context.findings.wrong(&path.key("body"), message);
            None
        }
    }
}

/// Forms a text with `form`, from the tables and from the expression of the route, whose groups are variables. `None` if the
/// expression is mistaken; the mistake is reported.
pub(crate) fn with_groups<T>(
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
    form: impl Fn(&Maps, Option<&GroupPattern>) -> Result<T, String>,
) -> Option<Result<T, String>> {
    let written = route.keys.conditions.when.as_ref().and_then(|when| when.path_regex.as_deref());
    let expression = match written.map(GroupPattern::new).transpose() {
        Ok(expression) => expression,
        // A text without groups does not need them.
        Err(_) if form(&context.maps, None).is_ok() => None,
        Err(reason) => {
            // A mistake of the expression itself is reported with the conditions.
            if written.is_some_and(|text| Pattern::new(text).is_ok()) {
                let message = format!("the expression is not usable for groups: {reason}");
                context.findings.wrong(&route.key("when").key("path_regex"), message);
            }
            return None;
        }
    };
    Some(form(&context.maps, expression.as_ref()))
}

fn redirect(raw: &keys::Redirect, route: &RouteScope<'_>, context: &mut Context<'_>) -> Option<Action> {
    let path = &route.key("redirect");
    let code = raw.status.unwrap_or(308);
    if !matches!(code, 301 | 302 | 303 | 307 | 308) {
        let message = format!("{code} is not the status of a redirect: write 301, 302, 303, 307 or 308");
        context.findings.wrong(&path.key("status"), message);
        return None;
    }
    let to = path.key("to");
    // A text in place of the table is the target itself.
    let path = if context.findings.written(&to) { &to } else { path };
    match with_groups(route, context, |maps, groups| RedirectTarget::new(&raw.to, maps, groups))? {
        Ok(to) => {
            context.note_fingerprints(|variable| to.has(variable));
            Some(Action::Redirect(Redirect { status: StatusCode::from_u16(code).ok()?, to }))
        }
        Err(reason) => {
            context.findings.wrong(path, format!("{:?} is no place to redirect to: {reason}", raw.to));
            None
        }
    }
}
