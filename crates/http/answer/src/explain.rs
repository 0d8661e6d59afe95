//! Explanation of the decision about a request: its host and route, the routes that it fails, stages and action.
//!
//! Nothing is opened or sent: the explanation follows from the settings alone, except that files of static routes are looked
//! up by name.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use brisk_beacon::Beacons;
use brisk_http::message::{RequestParts, Response};
use brisk_http::path::{RequestPath, one_leading_slash};
use brisk_rules::{Examined, Failing, Pairs, Routes};
use brisk_transform::body::Body;
use brisk_upstream_group::settings::GroupSettings;
use brisk_visits::Visits;
use http::header;
use percent_encoding::percent_decode_str;

use crate::error::ServiceError;
use crate::features::ordered;
use crate::files::{is_hidden_name, is_rewritten, location};
use crate::forwarding::Forwarding;
use crate::hosts::{Hosts, Origin};
use crate::redirect;
use crate::settings::{
    Action, FixedResponse, FormedResponse, RoutePath, RouteSettings, ServiceSettings, StaticSettings,
    UpstreamAction,
};
use crate::stage::{Groups, HostContext, StageContext, StageTarget};
use crate::stages::RouteStages;
use crate::variables::HeadValues;
use crate::visits::{BEACON_PATH, SCRIPT_PATH};

/// Servers of a group that an explanation lists.
const SERVERS: usize = 3;

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Index of the host; `None` if no host has the name.
    pub host: Option<usize>,
    /// Routes with a matching path that precede the chosen one, in their order, each with the first condition that the
    /// request does not meet.
    pub passed_over: Vec<(usize, String)>,
    /// Index of the chosen route.
    pub route: Option<usize>,
    /// Names of the stages, in their order.
    pub stages: Vec<&'static str>,
    /// The response or its source.
    pub action: String,
}

/// Explains the decision about a request over HTTPS with an absolute target, by a client with the address `client`.
///
/// # Errors
///
/// [`ServiceError`] for settings from which no [`Service`](crate::Service) can be built.
#[expect(clippy::too_many_lines, reason = "one step of a request after the other")]
pub fn explain(
    settings: &ServiceSettings,
    groups: &[GroupSettings],
    head: &RequestParts,
    client: IpAddr,
) -> Result<Explanation, ServiceError> {
    let without = |host, action: &str| Explanation {
        host,
        passed_over: Vec::new(),
        route: None,
        stages: Vec::new(),
        action: action.to_owned(),
    };
    let hosts = Hosts::new(settings, 0..settings.hosts.len())?;
    let authority = head.uri.authority().map_or("", |authority| authority.as_str());
    let Ok(host) = hosts.find(authority, Origin::Plain) else {
        return Ok(without(None, "421 Misdirected Request: no host has this name"));
    };
    let index = *host.value();
    // Stages that measure visits are part of the explanation whether visits are stored or not.
    let beacons = settings.beacons.clone().unwrap_or_else(|| Beacons::new(Visits::off()));
    let settings = ServiceSettings { beacons: Some(beacons), ..settings.clone() };
    let forwarding = Forwarding::new(settings.trusted_proxies.clone(), settings.underscores);
    let forwarding = Rc::new(forwarding.reading(settings.client_header.clone()));
    // Only a worker has groups.
    let context = HostContext::new(index, &settings, (&forwarding, Groups(&|_| None)))?;
    let stages = |target| RouteStages::compile(&StageContext { host: Some(&context), target }).names();
    let unrouted =
        |action| Explanation { stages: stages(StageTarget::Unrouted), ..without(Some(index), action) };
    let Ok(path) = RequestPath::read(head.uri.path()) else {
        return Ok(unrouted("400 Bad Request: servers could disagree about the meaning of the path"));
    };
    // In the order of the service: reserved paths precede the routes.
    if let Some((target, action)) = reserved(&context, &path) {
        return Ok(Explanation { stages: stages(target), ..without(Some(index), action) });
    }
    let routes = &context.settings.routes;
    let (mut passed_over, mut refused) = (Vec::new(), None);
    let examined = Examined {
        method: &head.method,
        is_tunnel: false,
        path: &path.decoded,
        query: head.uri.query(),
        headers: &head.headers,
        client,
        pairs: Pairs::default(),
    };
    // By the table and the order of the service, so that the explanation cannot differ from it.
    let compiled = Routes::new(ordered(routes));
    let found = compiled.find(&path.decoded, |route| {
        let Some(conditions) = &routes[*route].conditions else { return true };
        match conditions.failing(&examined) {
            None => true,
            Some(Failing::Excess(excess)) => {
                // As in the service: a condition that cannot be examined may be one that protects the path.
                refused = Some(excess);
                true
            }
            Some(failing) => {
                passed_over.push((*route, failing.to_string()));
                false
            }
        }
    });
    if let Some(excess) = refused {
        let explained = unrouted(&format!("{}: {excess}", excess.status()));
        return Ok(Explanation { passed_over, ..explained });
    }
    let slash = slash(routes, &examined, head, |upstream| upstream.final_slash);
    let is_prefix = |route: &usize| matches!(routes[*route].path, RoutePath::Prefix(_));
    if let Some(slash) = slash.filter(|_| found.is_none_or(is_prefix)) {
        return Ok(Explanation { passed_over, ..unrouted(&slash) });
    }
    let found = found.copied();
    let chosen = found.map(|route| &routes[route]);
    let explained = match chosen {
        Some(route) if route.internal.is_internal => Explanation {
            route: found,
            ..unrouted("404 Not Found: the route is internal, so only a response of an upstream leads to it")
        },
        Some(route) => Explanation {
            route: found,
            stages: stages(StageTarget::Route(route)),
            ..without(Some(index), &action(route, groups, head, &path))
        },
        None if routes.is_empty() => without(Some(index), "the built-in page: the host has no routes"),
        None => unrouted(&unmatched(routes, &examined, head)),
    };
    Ok(Explanation { passed_over, ..explained })
}

/// The action for a path without a route: a redirect to the final slash of a route, a refusal of conditions, or `404`.
fn unmatched(routes: &[RouteSettings], examined: &Examined<'_>, head: &RequestParts) -> String {
    slash(routes, examined, head, |upstream| !upstream.final_slash)
        .unwrap_or_else(|| "404 Not Found: no route has this path and these conditions".to_owned())
}

/// The redirect to the final slash of one of certain routes.
fn slash(
    routes: &[RouteSettings],
    examined: &Examined<'_>,
    head: &RequestParts,
    is_one: impl Fn(&UpstreamAction) -> bool,
) -> Option<String> {
    let routes = routes.iter().filter(|route| route.action.upstream().is_some_and(&is_one));
    let slashless = routes.filter_map(|route| Some((route, redirect::slashless(route)?)));
    for (route, (_, location)) in slashless.filter(|(_, (path, _))| *path.as_bytes() == *examined.path) {
        match route.conditions.as_ref().map_or(Ok(true), |conditions| conditions.hold(examined)) {
            Ok(true) => return Some(redirected(&redirect::final_slash(&location, head))),
            Ok(false) => {}
            Err(excess) => return Some(format!("{}: {excess}", excess.status())),
        }
    }
    None
}

fn redirected(response: &Response<Body>) -> String {
    let location = response.headers().get(header::LOCATION);
    let location = location.map(|location| String::from_utf8_lossy(location.as_bytes()));
    format!("redirect: {} to {}", response.status(), location.unwrap_or_default())
}

/// The stages and the action of a path that the gateway serves itself.
fn reserved<'a>(
    context: &HostContext<'a>,
    path: &RequestPath<'_>,
) -> Option<(StageTarget<'a>, &'static str)> {
    let is = |own: &str| *path.decoded == *own.as_bytes();
    let preconnect = context.settings.preconnect.as_ref().filter(|preconnect| is(&preconnect.path));
    if let Some(preconnect) = preconnect {
        return Some((StageTarget::Preconnect(preconnect), "204 No Content: the path of `preconnect`"));
    }
    context.visits.as_ref()?;
    if is(SCRIPT_PATH) {
        return Some((StageTarget::Script, "the script of `visits`"));
    }
    is(BEACON_PATH).then_some((StageTarget::Beacon, "receives the measurements of `visits`"))
}

fn action(
    route: &RouteSettings,
    groups: &[GroupSettings],
    head: &RequestParts,
    path: &RequestPath<'_>,
) -> String {
    match &route.action {
        Action::Upstream(upstream) => self::upstream(route, upstream, groups, head, path),
        Action::Static(files) | Action::StaticOrUpstream(files, _) => match location(&route.path) {
            Some(location)
                if *path.decoded == *route.path.as_str().as_bytes()
                    && !is_rewritten(files.rewrite.as_deref(), path) =>
            {
                format!("redirect: 301 Moved Permanently to {location}{}", query_part(head.uri.query()))
            }
            _ => match (file(files, route.path.as_str(), path, head.uri.query()), route.action.upstream()) {
                (Ok(file), _) => file,
                (Err(missing), Some(upstream)) => {
                    format!("{}; {missing}", self::upstream(route, upstream, groups, head, path))
                }
                (Err(missing), None) => format!("404 Not Found: {missing}"),
            },
        },
        Action::Fixed(FixedResponse { status, .. }) | Action::Formed(FormedResponse { status, .. }) => {
            format!("respond: {status}")
        }
        Action::Redirect(to) => {
            let authority = head.uri.authority().map_or("", |authority| authority.as_str());
            match redirect::answer(to, &HeadValues(head), authority, &path.decoded) {
                Ok(response) => redirected(&response),
                Err(refusal) => refusal.status.to_string(),
            }
        }
        Action::Page(_) => "the built-in page".to_owned(),
    }
}

fn upstream(
    route: &RouteSettings,
    upstream: &UpstreamAction,
    groups: &[GroupSettings],
    head: &RequestParts,
    path: &RequestPath<'_>,
) -> String {
    let Some(group) = groups.iter().find(|group| group.name == upstream.group) else {
        return format!("upstream \"{}\", which does not exist", upstream.group);
    };
    let base = group.base_path();
    let target = match upstream.path.target(base, head, path) {
        Ok(target) => target,
        Err(refusal) => return format!("{}: the path cannot be changed for the upstream", refusal.status),
    };
    let urls = group.servers.iter().take(SERVERS).map(|server| {
        let url = server.url.to_string();
        // Without a space, the path of a socket and the target would read as one path.
        let separator = if url.contains("unix:") { " " } else { "" };
        // The target begins with the path of the URL already.
        format!("{}{separator}{target}", url.strip_suffix(base).unwrap_or(&url))
    });
    let urls = urls.collect::<Vec<_>>().join(" or ");
    let more = match group.servers.len().saturating_sub(SERVERS) {
        0 => String::new(),
        more => format!(" or {more} more"),
    };
    let split = route.split.as_ref().map_or_else(String::new, |split| {
        format!("; for {} % of the visitors upstream \"{}\"", split.share, split.group)
    });
    let mirror = route.mirror.as_ref().map_or_else(String::new, |mirror| {
        format!("; {} % mirrored to upstream \"{}\"", mirror.share, mirror.group)
    });
    format!("upstream \"{}\": {} {urls}{more}{split}{mirror}", group.name, head.method)
}

/// The paths below the folder that the templates of a route form; `None` if no expression matches.
fn formed(files: &StaticSettings, path: &RequestPath<'_>) -> Option<Vec<Vec<u8>>> {
    let all = files.rewrite.as_ref()?.iter().find_map(|rewrite| rewrite.all(&path.decoded))?;
    // A query of the template is not that of a file.
    let decoded =
        |target: &String| percent_decode_str(target.split('?').next().unwrap_or_default()).collect();
    Some(all.iter().map(decoded).collect())
}

/// The file, or the reason for which there is none. `query` is that of the request.
fn file(
    files: &StaticSettings,
    route: &str,
    path: &RequestPath<'_>,
    query: Option<&str>,
) -> Result<String, String> {
    if let Some(only) = &files.only {
        let name = percent_decode_str(only.as_str()).decode_utf8_lossy();
        return Ok(format!("file {}{name}", files.root.display()));
    }
    let formed = formed(files, path);
    let is_formed = formed.is_some();
    let below = || path.decoded.get(route.trim_end_matches('/').len()..).unwrap_or_default().to_vec();
    let names = formed.unwrap_or_else(|| vec![below()]);
    if names.is_empty() {
        return Err("no path below the folder can be formed".to_owned());
    }
    let is_served = |name: &&Vec<u8>| !name.split(|byte| *byte == b'/').any(is_hidden_name);
    let is_own =
        |name: &[u8]| !is_formed || route == "/" && *name == *path.decoded && !name.starts_with(b"//");
    // As in the service: a redirect to the final slash comes behind the files of later paths.
    let is_redirect = |name: &&Vec<u8>| is_own(name) && lacks_slash(files, name);
    let (redirects, others): (Vec<_>, Vec<_>) = names.iter().filter(is_served).partition(is_redirect);
    let all = others.into_iter().chain(redirects);
    let all = all.map(|name| found(files, (path, query), name, is_own(name)));
    // The first path with a file, or else the reason for the last one.
    let found = all.reduce(Result::or).ok_or("a name that begins with a dot is not served")?;
    match &files.fallback {
        Some(fallback) => {
            found.or_else(|missing| Ok(format!("fallback {}{fallback}: {missing}", files.root.display())))
        }
        None => found,
    }
}

/// The file at `below`, or the reason for which there is none. `is_own`: whether `below` is the path that the client names.
fn found(
    files: &StaticSettings,
    (path, query): (&RequestPath<'_>, Option<&str>),
    below: &[u8],
    is_own: bool,
) -> Result<String, String> {
    let asked = below_root(files, below);
    let is_folder = asked.is_dir();
    let lacks_slash = lacks_slash(files, below);
    let file = if is_folder { page(files, &asked) } else { asked.clone() };
    if lacks_slash && !is_own {
        Err("a folder at a changed path has no redirect to its final slash".to_owned())
    } else if lacks_slash && (files.listing || file.is_file()) {
        let location = one_leading_slash(&path.forwarded);
        Ok(format!("redirect: 307 Temporary Redirect to {location}/{}", query_part(query)))
    } else if file.is_file() {
        Ok(format!("file {}", file.display()))
    } else if files.listing && is_folder {
        Ok(format!("list of the files in {}", asked.display()))
    } else {
        Err(format!("no file {}", file.display()))
    }
}

/// Whether the path `below` is a folder without the final slash.
fn lacks_slash(files: &StaticSettings, below: &[u8]) -> bool {
    !below.is_empty() && !below.ends_with(b"/") && below_root(files, below).is_dir()
}

/// The file or folder at the path `below`.
fn below_root(files: &StaticSettings, below: &[u8]) -> PathBuf {
    // Without slashes at its beginning: `join` with an absolute path would drop the root.
    files.root.join(String::from_utf8_lossy(below).trim_start_matches('/'))
}

/// The query at the end of a location.
fn query_part(query: Option<&str>) -> String {
    query.map(|query| format!("?{query}")).unwrap_or_default()
}

/// The page of `folder`: the first that exists, or else the last one.
fn page(files: &StaticSettings, folder: &Path) -> PathBuf {
    let pages = files.index.iter().map(|page| page.as_str().trim_start_matches('/'));
    let mut pages: Vec<_> = pages.map(|page| percent_decode_str(page).decode_utf8_lossy()).collect();
    if pages.is_empty() {
        pages.push("index.html".into());
    }
    let mut pages = pages.iter().map(|page| folder.join(&**page)).rev();
    let last = pages.next().unwrap_or_default();
    pages.rev().find(|page| page.is_file()).unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use brisk_certs::UnknownName;
    use brisk_http::message::Request;
    use http::{Method, StatusCode};

    use super::*;
    use crate::settings::{
        Conditions, FixedResponse, GroupPattern, HostSettings, HttpsRedirect, Maps, PathRewrite, Redirect,
        RedirectTarget, Underscores, UpstreamPath, Variants,
    };

    fn route(path: &str, methods: &[Method], action: Action) -> RouteSettings {
        let conditions = Conditions { methods: methods.to_vec(), ..Conditions::default() };
        let conditions = Some(Arc::new(conditions)).filter(|_| !methods.is_empty());
        RouteSettings { conditions, ..RouteSettings::new(RoutePath::Prefix(path.to_owned()), action) }
    }

    fn explained(target: &str) -> Explanation {
        let content_type = http::HeaderValue::from_static("text/plain");
        let closed = FixedResponse { status: StatusCode::FORBIDDEN, content_type, body: bytes::Bytes::new() };
        let to = RedirectTarget::new("https://{host}/new{path}", &Maps::new(), None).expect("a target");
        let to = Redirect { status: StatusCode::FOUND, to };
        let upstream = UpstreamAction::new("app", UpstreamPath::below("/api"));
        let routes = vec![
            route("/", &[], Action::Redirect(to)),
            route("/api", &[], Action::Upstream(upstream)),
            route("/api", &[Method::PUT], Action::Fixed(closed.clone())),
            route("/api/x", &[Method::POST, Method::PATCH], Action::Fixed(closed)),
        ];
        let host = HostSettings { routes, ..HostSettings::new(brisk_tls::HostSettings::new(["a.example"])) };
        let settings = ServiceSettings {
            hosts: vec![host],
            unknown_host: UnknownName::Refuse,
            trusted_proxies: Vec::new(),
            client_header: None,
            underscores: Underscores::Drop,
            variants: Variants::default(),
            beacons: None,
            redirect: HttpsRedirect::new(443),
            challenges: None,
        };
        let urls = ["http://app:1/base", "http://app:2/base"].map(|url| url.parse().expect("a URL"));
        let (head, ()) = Request::get(target).body(()).expect("a request").into_parts();
        explain(&settings, &[GroupSettings::new("app", urls)], &head, [10, 0, 0, 1].into()).expect("settings")
    }

    #[test]
    fn routes_before_the_chosen_one_have_the_condition_that_fails() {
        let Explanation { host, passed_over, route, stages, action } =
            explained("https://a.example/api/x?q=1");
        assert_eq!((host, route), (Some(0), Some(1)));
        let reasons: Vec<_> = passed_over.iter().map(|(index, reason)| (*index, reason.as_str())).collect();
        assert_eq!(reasons, [(3, "the method is not POST or PATCH"), (2, "the method is not PUT")]);
        assert_eq!(stages, ["KeepAlive", "Priority", "EarlyData", "HeadMethod", "ConnectionClose"]);
        assert_eq!(action, "upstream \"app\": GET http://app:1/base/x?q=1 or http://app:2/base/x?q=1");
    }

    #[test]
    fn a_folder_without_its_final_slash_has_the_response_of_the_service() {
        let folder = tempfile::TempDir::new().expect("a folder");
        fs::create_dir(folder.path().join("docs")).expect("a folder");
        fs::write(folder.path().join("docs/index.html"), "page").expect("a file");
        let pattern = GroupPattern::new("^/files/v[0-9]+/(.*)$").expect("a pattern");
        let rewrite = Some([PathRewrite::new(pattern, "/{1}").expect("a template")].into());
        let files = StaticSettings { rewrite, ..StaticSettings::new(folder.path()) };
        let fallback = Some("/docs/index.html".parse().expect("a path"));
        let with_fallback = StaticSettings { fallback, ..files.clone() };
        let explained = |files: &StaticSettings, target: &str| {
            let route = route("/files", &[], Action::Static(files.clone()));
            let (head, ()) = Request::get(target).body(()).expect("a request").into_parts();
            action(&route, &[], &head, &RequestPath::read(target).expect("a path"))
        };
        let page = folder.path().join("docs/index.html");
        let reason = "a folder at a changed path has no redirect to its final slash";
        for (files, target, expected) in [
            (&files, "/files", "redirect: 301 Moved Permanently to /files/".to_owned()),
            (&files, "/files/docs", "redirect: 307 Temporary Redirect to /files/docs/".to_owned()),
            (&files, "/files/v1/docs/", format!("file {}", page.display())),
            (&files, "/files/v1/docs", format!("404 Not Found: {reason}")),
            (&with_fallback, "/files/v1/docs", format!("fallback {}: {reason}", page.display())),
        ] {
            assert_eq!(explained(files, target), expected, "{target}");
        }
    }

    #[test]
    fn the_first_path_with_a_file_is_named() {
        let folder = tempfile::TempDir::new().expect("a folder");
        fs::create_dir(folder.path().join("docs")).expect("a folder");
        for name in ["docs/index.html", "docs.html", "about.html"] {
            fs::write(folder.path().join(name), "page").expect("a file");
        }
        let pattern = GroupPattern::new("^.*$").expect("a pattern");
        let mut rewrite = PathRewrite::new(pattern, "/old{0}").expect("a template");
        for to in ["{0}", "{0}.html"] {
            rewrite.add(to).expect("a template");
        }
        let files = StaticSettings { rewrite: Some([rewrite].into()), ..StaticSettings::new(folder.path()) };
        let path = |target| RequestPath::read(target).expect("a path");
        let name = |name: &str| Ok(format!("file {}", folder.path().join(name).display()));
        let file = |route, target| file(&files, route, &path(target), Some("a=1"));
        assert_eq!(file("/", "/about"), name("about.html"));
        assert_eq!(file("/", "/docs"), name("docs.html"));
        assert_eq!(file("/docs", "/docs"), name("docs.html"));
        let missing = format!("no file {}", folder.path().join("none.html").display());
        assert_eq!(file("/", "/none"), Err(missing));
        fs::remove_file(folder.path().join("docs.html")).expect("a file");
        let redirect = "redirect: 307 Temporary Redirect to /docs/?a=1";
        assert_eq!(file("/", "/docs").as_deref(), Ok(redirect));
    }

    #[test]
    fn requests_without_a_route_have_their_response() {
        assert_eq!(explained("https://a.example/x").action, "redirect: 302 Found to https://a.example/new/x");
        for (target, host, status) in [
            ("https://b.example/", None, "421"),
            ("https://a.example/a\\b", Some(0), "400"),
            ("https://a.example/%61pi/x", Some(0), "400"),
        ] {
            let Explanation { host: found, action, .. } = explained(target);
            assert!(found == host && action.starts_with(status), "{target}: {action}");
        }
    }
}
