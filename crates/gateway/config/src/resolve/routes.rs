//! `[[host.route]]`: the action for each path.

use std::collections::HashMap;
use std::sync::Arc;

use brisk_answer::settings::{
    Action, ErrorPages, FixedResponse, KeepAlive, Redirect, RedirectTarget, RequestLimit, RoutePath,
    RouteSettings, StaticSettings, Trace, UpstreamAction, UpstreamPath, UrlPath,
};
use brisk_config_file::{KeyPath, SizeLimit};
use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::context::Context;
use super::{
    access, compression, diversions, early_data, early_hints, error_pages, forward_auth, headers, keep_alive,
    pace, request_limits, upstream_path, when,
};
use crate::raw;
use crate::values;

/// Resolves the routes of one host, including the routes for `places`. Invalid ones are reported and omitted.
pub(super) fn routes(
    host: &raw::Host,
    config: &raw::Config,
    (kept, error_pages, limits): (Option<KeepAlive>, Option<Arc<ErrorPages>>, Arc<[RequestLimit]>),
    places: Vec<RouteSettings>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Vec<RouteSettings> {
    let inherited = Inherited {
        host,
        early: early_data::Inherited::of(host, path, context),
        compression: compression::Inherited::of(host, path, context),
        keep_alive: kept,
        error_pages,
        limits,
    };
    let path = path.key("route");
    when::open_below(host, &path, context);
    let mut taken = HashMap::new();
    let mut settings = Vec::new();
    for (index, route) in host.route.iter().enumerate() {
        let path = path.index(index);
        let conditions = route.when.as_ref().map(|when| format!("{when:?}")).unwrap_or_default();
        if let Some(first) = taken.insert((&route.path, route.exact, conditions), path.clone()) {
            let same = if route.when.is_some() { "path and these conditions" } else { "path" };
            context.findings.wrong(&path.key("path"), format!("{first} has this {same} already"));
        }
        if route.rewrite.is_some() && host.consolidate.is_empty() {
            context.findings.wrong(&path.key("rewrite"), "has no effect without `consolidate` of the host");
        }
        settings.extend(self::route(route, config, &inherited, &path, context));
    }
    let limit = config.server.limits.body_size.unwrap_or(SizeLimit(None));
    settings.extend(places.into_iter().map(|place| RouteSettings {
        body_limit: limit.0,
        compression: inherited.compression.of_host(),
        is_never_compressed: inherited.compression.is_off(),
        keep_alive: kept,
        error_pages: inherited.error_pages.clone(),
        limits: Arc::clone(&inherited.limits),
        trace: trace(host.trace),
        ..place
    }));
    settings
}

/// Defaults of a host for its routes.
struct Inherited<'c> {
    host: &'c raw::Host,
    early: early_data::Inherited<'c>,
    compression: compression::Inherited,
    keep_alive: Option<KeepAlive>,
    error_pages: Option<Arc<ErrorPages>>,
    limits: Arc<[RequestLimit]>,
}

fn route(
    raw: &raw::Route,
    config: &raw::Config,
    inherited: &Inherited<'_>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<RouteSettings> {
    let limit = raw.body_size.or(config.server.limits.body_size).unwrap_or(SizeLimit(None));
    let route_path = route_path(raw, path, context);
    let upstream_path = upstream_path::of_route(raw, path, context);
    let split = diversions::split(raw, config, path, context);
    let mirror = diversions::mirror(raw, config, path, context);
    let mut action = action(raw, upstream_path, config, path, context);
    if let Some(Action::Upstream(upstream)) = &mut action {
        (upstream.split, upstream.mirror) = (split, mirror);
    }
    let conditions = when::of_route(raw, path, context);
    let early_data = inherited.early.policy(raw, route_path.as_ref(), path, context);
    let buffer_request = buffer_request(raw, limit, path, context);
    let compression = inherited.compression.of_route(raw, path, context);
    let request_headers = headers::of_requests(raw, path, context);
    let response_headers = headers::of_responses(raw, path, context);
    let error_pages = error_pages::of_route(raw, inherited.error_pages.as_ref(), path, context);
    let early_hints = early_hints::of_route(raw, path, context);
    let forward_auth = forward_auth::of_route(raw, config, path, context);
    let access = access::of_route(raw, inherited.host, path, context);
    let keep_alive = keep_alive::of_route(raw, inherited.keep_alive, path, context);
    let limits = request_limits::of_route(raw, &inherited.limits, path, context);
    let timeouts = pace::timeouts(raw, path, context);
    let bandwidth = pace::bandwidth(raw, path, context);
    if raw.precompressed.is_some() && raw.directory.is_none() {
        context.findings.wrong(&path.key("precompressed"), "has no effect without `static`");
    }
    if raw.fallback.is_some() && raw.directory.is_none() {
        context.findings.wrong(&path.key("fallback"), "has no effect without `static`");
    }
    if raw.listing.is_some() && raw.directory.is_none() {
        context.findings.wrong(&path.key("listing"), "has no effect without `static`");
    }
    // Last, so that all mistakes of the route are reported.
    Some(RouteSettings {
        path: route_path?,
        conditions,
        action: action?,
        body_limit: limit.0,
        buffer_request,
        early_data,
        compression,
        is_never_compressed: inherited.compression.is_off_for(raw),
        request_headers,
        response_headers,
        error_pages,
        early_hints,
        learned_hints: Arc::default(),
        keep_alive,
        place: None,
        rewrite: raw.rewrite.is_none_or(|raw::RewriteDocuments(is_on)| is_on),
        access,
        forward_auth,
        limits,
        trace: trace(raw.trace.or(inherited.host.trace)),
        timeouts,
        bandwidth,
    })
}

fn trace(raw: Option<raw::Trace>) -> Option<Trace> {
    match raw? {
        raw::Trace::Off => None,
        raw::Trace::Continue => Some(Trace::Continue),
        raw::Trace::New => Some(Trace::Begin),
    }
}

/// Checks that buffering has an upstream to protect and a limit, since buffered bodies occupy disk space.
fn buffer_request(raw: &raw::Route, limit: SizeLimit, path: &KeyPath, context: &mut Context<'_>) -> bool {
    let path = path.key("buffer_request");
    if raw.buffer_request.is_some() && raw.upstream.is_none() {
        context.findings.wrong(&path, "has no effect without `upstream`");
    } else if raw.buffer_request == Some(true) && limit.0.is_none() {
        let message = "needs a limit for what is buffered: write body_size = \"10MiB\" for this route";
        context.findings.wrong(&path, message);
    }
    raw.buffer_request.unwrap_or(false)
}

fn route_path(raw: &raw::Route, path: &KeyPath, context: &mut Context<'_>) -> Option<RoutePath> {
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
fn action(
    raw: &raw::Route,
    upstream_path: UpstreamPath,
    config: &raw::Config,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Action> {
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
    let upstream =
        raw.upstream.as_ref().and_then(|name| upstream(name, upstream_path, config, path, context));
    let folder = raw.directory.as_ref().and_then(|folder| static_files(folder, raw, path, context));
    let fixed = raw.respond.as_ref().and_then(|respond| fixed(respond, &path.key("respond"), context));
    let redirect = raw.redirect.as_ref().and_then(|to| redirect(to, &path.key("redirect"), context));
    upstream.or(folder).or(fixed).or(redirect)
}

fn upstream(
    name: &str,
    upstream_path: UpstreamPath,
    config: &raw::Config,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Action> {
    if !config.upstream.contains_key(name) {
        // An upstream that exists but is invalid has been reported already.
        if !context.findings.written(&KeyPath::of("upstream").key(name)) {
            no_upstream(name, config, &path.key("upstream"), context);
        }
        return None;
    }
    Some(Action::Upstream(UpstreamAction::new(name, upstream_path)))
}

pub(super) fn no_upstream(name: &str, config: &raw::Config, path: &KeyPath, context: &mut Context<'_>) {
    if name.contains("://") {
        let message = format!(
            "{name:?} is a URL and here stands a name: write [upstream.app] with servers = [{name:?}], and \"app\" here"
        );
        context.findings.wrong(path, message);
    } else if config.upstream.is_empty() {
        context
            .findings
            .wrong(path, format!("there is no upstream: write [upstream.{name}] with its `servers`"));
    } else {
        context.findings.unknown(path, name, config.upstream.keys().cloned().collect());
    }
}

fn static_files(
    folder: &std::path::Path,
    raw: &raw::Route,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Action> {
    let root = context.base.join(folder);
    if !root.is_dir() {
        let what = if root.exists() { "is not a folder" } else { "does not exist" };
        context.findings.wrong(&path.key("static"), format!("the folder {} {what}", root.display()));
        return None;
    }
    let fallback =
        raw.fallback.as_ref().and_then(|text| fallback(text, &root, &path.key("fallback"), context));
    let (precompressed, listing) = (raw.precompressed.unwrap_or(false), raw.listing.unwrap_or(false));
    Some(Action::Static(StaticSettings { root, precompressed, listing, fallback }))
}

/// Path of the file for paths without one. Warns if the file does not exist: the folder may be filled later.
fn fallback(
    text: &str,
    root: &std::path::Path,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<UrlPath> {
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
    if !text.contains('%') && !file.is_file() {
        let missing = file.display();
        context.findings.warn(format!("{path}: there is no file {missing}: paths without a file get 404"));
    }
    Some(parsed)
}

fn fixed(raw: &raw::Respond, path: &KeyPath, context: &mut Context<'_>) -> Option<Action> {
    let status = context.findings.within(&path.key("status"), raw.status, 200, &(200..=599));
    let status = StatusCode::from_u16(status).ok()?;
    let content_type = raw.content_type.as_deref().unwrap_or("text/plain; charset=utf-8");
    let Ok(content_type) = HeaderValue::from_str(content_type) else {
        let message =
            format!("{content_type:?} is not a content type: write one as \"text/html; charset=utf-8\"");
        context.findings.wrong(&path.key("content_type"), message);
        return None;
    };
    let body = raw.body.clone().unwrap_or_default();
    // RFC 9110 section 6.4.1.
    if matches!(status.as_u16(), 204 | 205 | 304) && !body.is_empty() {
        context
            .findings
            .wrong(&path.key("body"), format!("a response with status {} has no body", status.as_u16()));
    }
    Some(Action::Fixed(FixedResponse { status, content_type, body: Bytes::from(body) }))
}

fn redirect(raw: &values::Redirect, path: &KeyPath, context: &mut Context<'_>) -> Option<Action> {
    let code = raw.status.unwrap_or(308);
    if !matches!(code, 301 | 302 | 303 | 307 | 308) {
        let message = format!("{code} is not the status of a redirect: write 301, 302, 303, 307 or 308");
        context.findings.wrong(&path.key("status"), message);
        return None;
    }
    let to = path.key("to");
    let path = if context.findings.written(&to) { &to } else { path };
    match RedirectTarget::new(&raw.to, &context.maps) {
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
