//! `error_page`: files, and responses of routes (`error_pages = { 404 = { route = "/x" } }`).

use std::mem;

use crate::directive::Directive;
use crate::nginx::condition::When;
use crate::nginx::host::HOST;
use crate::nginx::location::{At, Kind, Location, Route, program};
use crate::nginx::pattern;
use crate::nginx::program::check_redirect;
use crate::nginx::scope::{PASSES, Scope};
use crate::nginx::site::Site;
use crate::nginx::variables::{Use, Values};
use crate::toml::{self, Keys};

/// Paths of routes for pages that have no path in nginx: named locations (`@name`) and redirects.
const UNNAMED: &str = "/.error";

/// Keys that only routes of clients have, and no route with `internal = true`.
const OF_CLIENTS: [&str; 4] = ["limits", "access_log", "trace", "keep_alive"];

impl<'a> Site<'_, 'a> {
    /// Pages for errors, of the levels above `from`.
    pub(crate) fn error_pages(&self, scope: &Scope<'a>, from: usize, keys: &mut Keys) {
        if scope.level("error_page") <= from && scope.level("proxy_intercept_errors") <= from {
            return;
        }
        let mut pages = Keys::default();
        for page in scope.all("error_page") {
            self.error_page(page, &mut pages);
        }
        let intercepts = ["proxy_intercept_errors", "fastcgi_intercept_errors", "uwsgi_intercept_errors"];
        // The first of the three in the scope decides, because a location has one protocol.
        if let Some(intercept) = scope.all_of(&intercepts).1.first() {
            self.context.carried(intercept);
            let has_upstream = keys.get("upstream").is_some()
                || keys.get("fallback").is_some_and(|fallback| fallback.starts_with('{'));
            if intercept.arg(0) == "on" && !pages.is_empty() && (from == 0 || has_upstream) {
                pages.set("intercept", "true");
            }
        }
        if !pages.is_empty() {
            keys.set("error_pages", pages.inline());
        }
    }

    fn error_page(&self, page: &'a Directive, pages: &mut Keys) {
        let (statuses, status, uri) = parts(page);
        let is_error = |status: &String| status.parse().is_ok_and(|status: u16| (400..600).contains(&status));
        if !statuses.iter().any(is_error) {
            let detail = "brisk has pages for errors only: other responses of servers are sent as they are";
            return self.context.different(page, detail);
        }
        let value = match self.page(page, status, uri) {
            Ok(value) => value,
            Err(reason) => {
                let action = "write the page as error_pages = { 404 = \"404.html\" } or { 404 = { route = \"/PATH\" } }";
                return self.context.missing(page, reason, action);
            }
        };
        self.context.carried(page);
        for status in statuses {
            if is_error(status) {
                pages.set(status, value.clone());
            } else {
                self.context.different(page, format!("brisk has no page for status {status}"));
            }
        }
    }

    /// The value of one page.
    fn page(&self, page: &'a Directive, status: Option<&str>, uri: &str) -> Result<String, String> {
        if let Some((file, folder)) = self.page_file(page).or_else(|| self.named_file(page)) {
            self.context.carried(folder);
            return Ok(file);
        }
        if let Some(code) = status.filter(|code| !code.is_empty())
            && !code.parse().is_ok_and(|code: u16| (200..600).contains(&code))
        {
            return Err(format!("{code} is no status of a page in brisk"));
        }
        let template = |text| self.context.template(text, &Values::default(), Use::Redirect);
        let mut table = Keys::default();
        let mut pages = self.pages.borrow_mut();
        let mut code = status;
        let route = if let Some(name) = uri.strip_prefix('@') {
            self.named(uri).ok_or("there is no location with this name")?;
            if !pages.named.iter().any(|known| known == uri) {
                pages.named.push(uri.to_owned());
            }
            // For a named location, nginx keeps method and body. brisk makes a new request.
            self.context.different(page, "the request for the page becomes GET, without its body");
            format!("{UNNAMED}/{name}{{request.target}}")
        } else if uri.starts_with('/') {
            pages.paths.push(uri.split(['?', '$']).next().unwrap_or_default().to_owned());
            template(uri)?
        } else {
            let to = template(uri)?;
            check_redirect(&to)?;
            // The number of the directive makes the path unique.
            let path = format!("{UNNAMED}/{}", page.id);
            // The status is that of the redirect, so the page has none of its own.
            let status = code.take().filter(|code| matches!(*code, "301" | "302" | "303" | "307" | "308"));
            let to = format!("{{ to = {}, status = {} }}", toml::text(&to), status.unwrap_or("302"));
            pages.routes.push(internal(path.clone(), true, Keys::of("redirect", to), page.comment()));
            path
        };
        table.set("route", toml::text(&route));
        match code {
            None => {}
            Some("") => table.set("status", "\"route\""),
            Some(code) => table.set("status", code),
        }
        Ok(table.inline())
    }

    /// The file of a page that keeps the status of the error, and the directive with its folder.
    fn page_file(&self, page: &Directive) -> Option<(String, &'a Directive)> {
        let (_, status, uri) = parts(page);
        if status.is_some() || !uri.starts_with('/') || uri.contains(['$', '?']) {
            return None;
        }
        let location = self.find(uri)?;
        let folder = *location.scope.all_of(&["root", "alias"]).1.first()?;
        let sources = [&PASSES[..], &["return", "try_files"]].concat();
        let is_file = location.scope.all_of(&sources).0 <= HOST;
        let path = if folder.name == "alias" {
            // Also for the locations inside of the one that has the folder.
            let has_folder = |own: &&Location<'a>| own.scope.own().iter().any(|line| line.id == folder.id);
            let (Kind::Prefix { path, .. } | Kind::Exact(path)) =
                &self.locations.iter().find(has_folder)?.kind
            else {
                return None;
            };
            format!("{}{}", folder.arg(0), uri.strip_prefix(path.as_str())?)
        } else {
            format!("{}/{}", folder.arg(0).trim_end_matches('/'), uri.trim_start_matches('/'))
        };
        // Without its folder, the file is on another machine.
        let exists = self.context.is_file(&path) || !self.context.has_file_or_folder(folder.arg(0));
        (is_file && !path.contains('$') && exists).then(|| (self.context.file(&path), folder))
    }

    /// The file of a page whose named location changes all paths to it: `rewrite ^ /502.html break`.
    fn named_file(&self, page: &Directive) -> Option<(String, &'a Directive)> {
        let (_, status, uri) = parts(page);
        let location = self.named(uri).filter(|_| status.is_none())?;
        let [step] = program(location.scope.own())[..] else { return None };
        let is_every = step.name == "rewrite" && pattern::is_every(&step.arg(0).replace(['(', ')'], ""));
        let file =
            Some(step.arg(1)).filter(|file| is_every && file.starts_with('/') && !file.contains('$'))?;
        self.check_source(file).ok()?;
        let root =
            location.scope.one("root").filter(|root| step.arg(2) == "break" && !root.arg(0).contains('$'))?;
        let path = format!("{}{file}", root.arg(0).trim_end_matches('/'));
        let exists = self.context.is_file(&path) || !self.context.has_file_or_folder(root.arg(0));
        let is_file = location.scope.all_of(&PASSES).0 <= HOST;
        (is_file && exists).then(|| {
            self.context.carried(step);
            (self.context.file(&path), root)
        })
    }

    /// Whether the response of an `internal` location is a page.
    pub(crate) fn is_page(&self, location: &Location<'a>) -> bool {
        let pages = self.index.pages.get_or_init(|| {
            let own = self.locations.iter().flat_map(|location| location.scope.own());
            // Once each: all locations inherit the pages of the server.
            let pages = own.filter(|line| line.name == "error_page").chain(self.scope.all("error_page"));
            let leads_to = |page: &'a Directive| {
                let fixed = parts(page).2.split(['?', '$']).next().unwrap_or_default();
                let is_route = fixed.starts_with('/') && self.page_file(page).is_none();
                self.find(fixed).filter(|_| is_route).map(|found| found.number)
            };
            pages.filter_map(leads_to).collect()
        });
        pages.contains(&location.number)
    }

    /// Completes the routes of a host whose table has `keys` by those of its pages.
    pub(crate) fn add_pages(&self, keys: &Keys, routes: &mut Vec<Route>) {
        // The routes of a page may have further pages.
        for index in 0.. {
            let name = self.pages.borrow().named.get(index).cloned();
            let Some(name) = name else { break };
            if let Some(location) = self.named(&name) {
                self.named_page(location, &format!("{UNNAMED}/{}", &name[1..]), routes);
            }
        }
        routes.append(&mut self.pages.borrow_mut().routes);
        for path in &self.pages.borrow().paths {
            let is_of = |route: &Route| {
                path.strip_prefix(&route.path).is_some_and(|rest| {
                    rest.is_empty() || (!route.exact && (route.path.ends_with('/') || rest.starts_with('/')))
                })
            };
            if !routes.iter().any(is_of) {
                let comment = "nginx has no files without `root`".to_owned();
                routes.push(internal(path.clone(), true, Keys::of("respond", "{ status = 404 }"), comment));
            }
        }
        let pages: Vec<_> = routes
            .iter()
            .map(|route| &route.keys)
            .chain([keys])
            .filter_map(|keys| keys.get("error_pages"))
            .collect();
        let pages = pages.concat();
        let has_redirects = routes.iter().any(|route| route.keys.get("internal_redirects").is_some());
        for route in routes.iter_mut().filter(|route| route.keys.get("internal").is_some()) {
            // brisk refuses an internal route to which nothing leads. Its path must stay closed all the same.
            if !has_redirects && !pages.contains(&format!("\"{}", route.path)) {
                route.keys = Keys::of("respond", "{ status = 404 }");
            }
        }
    }

    /// The routes of a named location at `path`.
    fn named_page(&self, location: &Location<'a>, path: &str, routes: &mut Vec<Route>) {
        let start = routes.len();
        let at = At { path: "/".to_owned(), exact: false, when: When::default(), values: Values::default() };
        self.location(location, &at, routes);
        for route in &mut routes[start..] {
            let changes = ["rewrite_path", "replace_prefix", "strip_prefix"];
            // The route gets the path of the error below `/.error`, which conditions and changes of the path
            // would not fit.
            if route.when.has_path() || changes.iter().any(|key| route.keys.get(key).is_some()) {
                *route = Self::refusal(location, &at, When::default());
                if let Some(directive) = location.directive {
                    let reason = "the location has conditions for the path, or changes it";
                    self.context.missing(directive, reason, "write a route for the page of the error");
                }
            }
            // The path of the route precedes that of the request. The server gets only the latter.
            if route.keys.get("upstream").is_some() {
                route.keys.set("strip_prefix", "true");
            }
            let (keys, when) = (mem::take(&mut route.keys), mem::take(&mut route.when));
            let comment = mem::take(&mut route.comment);
            *route = Route { when, ..internal(path.to_owned(), false, keys, comment) };
        }
    }
}

/// Statuses, status of the response (`=200`, `=`), and target of an `error_page`.
fn parts(page: &Directive) -> (&[String], Option<&str>, &str) {
    let Some((uri, rest)) = page.args.split_last() else { return (&[], None, "") };
    match rest.split_last() {
        Some((last, statuses)) if last.starts_with('=') => (statuses, last.strip_prefix('='), uri),
        _ => (rest, None, uri),
    }
}

/// A route for pages only.
fn internal(path: String, exact: bool, mut keys: Keys, comment: String) -> Route {
    // `brisk check` refuses these keys in internal routes: they concern the request of the client.
    keys.0.retain(|(key, _)| !OF_CLIENTS.contains(&&**key));
    keys.set("internal", "true");
    Route { path, exact, when: When::default(), keys, comment }
}
