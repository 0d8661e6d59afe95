//! The action of a route: an upstream, files, or a refusal in place of something that brisk does not have.

use crate::nginx::access::foreign;
use crate::nginx::condition::When;
use crate::nginx::context::Context;
use crate::nginx::files::finds_only;
use crate::nginx::flow::{Flow, Rewrite};
use crate::nginx::host::HOST;
use crate::nginx::location::{At, Location, Route};
use crate::nginx::method_map;
use crate::nginx::pattern::{covers, is_every};
use crate::nginx::scope::PASSES;
use crate::nginx::site::Site;
use crate::nginx::variables::only_variable;
use crate::toml::{self, Keys};

/// The value of `respond` in place of something that is not carried.
pub(crate) const REFUSED: &str = "{ status = 501 }";

impl<'a> Site<'_, 'a> {
    /// The routes for requests that no directive of the rewrite module has ended.
    pub(crate) fn finish(&self, flow: &Flow<'_, 'a>, rewrites: &[Rewrite], routes: &mut Vec<Route>) {
        self.rewritten_paths(flow, routes);
        // Before the last route: with equal paths, brisk takes the first route whose condition holds.
        for (condition, name, value) in self.choices(flow) {
            if let Some(mut flow) = flow.with(&condition).filter(|flow| !flow.when.is_never()) {
                flow.values.set.insert(name, value);
                self.final_route(&flow, rewrites, routes);
            }
        }
        let is_part = |pattern: &str| {
            let (level, passes) = flow.scope.all_of(&PASSES);
            let leads_to_files = level <= 2 || passes.is_empty();
            leads_to_files && !is_every(pattern) && !covers(pattern, &flow.at.path)
        };
        // Files that the expression does not match are below another folder.
        if let [(pattern, _)] = rewrites
            && is_part(pattern)
            && let Some(matching) = flow.with(&When::plain("path_regex", toml::raw(pattern)))
        {
            self.final_route(&matching, rewrites, routes);
            return self.final_route(flow, &[], routes);
        }
        self.final_route(flow, rewrites, routes);
    }

    fn final_route(&self, flow: &Flow<'_, 'a>, rewrites: &[Rewrite], routes: &mut Vec<Route>) {
        let mut keys = Keys::default();
        match self.action(flow, rewrites, &mut keys) {
            Ok(()) if keys.is_empty() => {}
            Ok(()) => {
                let limits = self.settings(flow, &mut keys);
                let is_closed = keys.get("upstream").is_none()
                    && !keys.get("fallback").is_some_and(|next| next.starts_with('{'));
                // brisk refuses `internal_redirects` without an upstream, whose headers name the target.
                if !is_closed && !flow.location.is_internal() && self.has_targets(&flow.scope) {
                    keys.set("internal_redirects", "true");
                }
                if let Some(limits) = limits.filter(|limits| !limits.exempt.is_empty())
                    && let Some(free) = flow.with(&When::plain("networks", toml::list(limits.exempt)))
                {
                    // Limits of brisk have no exceptions, so the excluded networks get a route of their own,
                    // before the one with the limits.
                    let mut keys = keys.clone();
                    keys.0.retain(|(key, _)| key != "limits");
                    if !limits.strict.is_empty() {
                        keys.set("limits", toml::list(limits.strict));
                    }
                    routes.push(Self::route(flow.location, flow.at, free.when, keys));
                }
                routes.push(Self::restricted(flow.location, flow.at, flow.when.clone(), keys));
            }
            Err(_) => routes.push(Self::refusal(flow.location, flow.at, flow.when.clone())),
        }
    }

    /// Upstreams that a `map` of `proxy_pass` chooses: conditions, the variable and its value.
    fn choices(&self, flow: &Flow<'_, 'a>) -> Vec<(When, String, String)> {
        let Some(pass) = flow.scope.one("proxy_pass") else { return Vec::new() };
        let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let behind = || pass.arg(0).split_once("://$").map(|(_, name)| name).filter(is_name);
        let Some(name) = only_variable(pass.arg(0)).or_else(behind) else { return Vec::new() };
        let Some(map) = self.context.maps.get(name) else { return Vec::new() };
        // The conditions of the lines that follow, and lines about all requests that do not meet them.
        let (mut choices, mut within, mut others) = (Vec::new(), When::default(), Vec::new());
        let is_value = |line: &str| !matches!(line, "default" | "hostnames" | "volatile" | "include");
        let mut lines: Vec<_> = map.inner().iter().filter(|line| is_value(&line.name)).collect();
        // An exact text wins, wherever it stands.
        lines.sort_by_key(|line| line.name.starts_with('~'));
        let choice = |when: When, value: &str| (when, name.to_owned(), value.to_owned());
        for line in lines {
            if let Some(both) = method_map::excluded(map, line).and_then(|methods| within.and(&methods)) {
                others.push(choice(std::mem::replace(&mut within, both), line.arg(0)));
                continue;
            }
            match Context::line_condition(map, line) {
                Ok(any) => {
                    let any = any.iter().filter_map(|when| within.and(when));
                    choices.extend(any.map(|when| choice(when, line.arg(0))));
                }
                Err(reason) => self.context.missing(line, reason, "write a route with `when` for this value"),
            }
        }
        if !others.is_empty() {
            let by_default = map.inner().iter().find(|line| line.name == "default");
            choices.push(choice(within, by_default.map_or("", |line| line.arg(0))));
        }
        choices.extend(others.into_iter().rev());
        choices
    }

    /// A route that only responds; nginx applies limits and restrictions after such directives.
    pub(crate) fn answer(&self, flow: &Flow<'_, 'a>, when: When, mut keys: Keys) -> Route {
        let mut inherited = self.inherited.clone();
        self.context.response_headers(&flow.scope, 2, &flow.values, &mut inherited, &mut keys);
        self.access_log(&flow.scope, &mut keys);
        self.content_keys(flow, &mut keys);
        self.error_pages(&flow.scope, HOST, &mut keys);
        // nginx ends such a request before it looks at `allow`, `deny` and limits, so the lists of the host
        // must not apply here.
        if self.scope.all_of(&["allow", "deny"]).0 > 0 {
            keys.set("deny", "[]");
        }
        if self.scope.all_of(&["limit_req", "limit_conn"]).0 > 0 {
            keys.set("limits", "[]");
        }
        Self::route(flow.location, flow.at, when, keys)
    }

    /// A route with its settings. With [`REFUSED`], its comment has the words `NOT CARRIED`.
    pub(crate) fn restricted(location: &Location<'a>, at: &At, when: When, keys: Keys) -> Route {
        let is_refusal = keys.get("respond") == Some(REFUSED);
        let mut route = Self::route(location, at, when, keys);
        if is_refusal {
            route.comment.push_str(" (NOT CARRIED: see the report)");
        }
        route
    }

    /// A route that refuses requests, because something of the location is not carried.
    pub(crate) fn refusal(location: &Location<'a>, at: &At, when: When) -> Route {
        let mut keys = Keys::default();
        keys.set("respond", REFUSED);
        Self::restricted(location, at, when, keys)
    }

    /// The action of a `location`. Errors are in the report already.
    pub(crate) fn action(
        &self,
        flow: &Flow<'_, 'a>,
        rewrites: &[Rewrite],
        keys: &mut Keys,
    ) -> Result<(), String> {
        let result = self.effort.step(|| self.content(flow, rewrites, keys));
        result.unwrap_or_else(|| Err("locations lead to each other".to_owned()))
    }

    fn content(&self, flow: &Flow<'_, 'a>, rewrites: &[Rewrite], keys: &mut Keys) -> Result<(), String> {
        let carried: &[_] = if flow.links.is_some() { &["secure_link", "secure_link_secret"] } else { &[] };
        if let Some(unknown) = foreign(&flow.scope, carried) {
            self.context.missing(
                unknown,
                format!("brisk does not have the restriction {}", unknown.name),
                "restrict the route by other keys; until then it refuses requests",
            );
            return Err("a restriction".to_owned());
        }
        let (level, passes) = flow.scope.all_of(&PASSES);
        // Only with a level of its own: `http` and `server` cannot have these directives.
        if let Some(pass) = passes.first().filter(|_| level > 2) {
            return self.pass(pass, flow, rewrites, keys).inspect_err(|reason| {
                let action = "serve the path by another program, or write the route by hand";
                self.context.missing(pass, reason.as_str(), action);
            });
        }
        if let Some(files) = flow.scope.one("try_files") {
            let result = match rewrites {
                [] => self.try_files(files, flow, keys),
                _ if finds_only(files) => self.formed_files(rewrites, flow, keys),
                _ => self.formed_or_server(rewrites, files, flow, keys),
            };
            match &result {
                Ok(()) => self.context.carried(files),
                Err(reason) => {
                    self.context.missing(files, reason.as_str(), "write static with fallback in a route");
                }
            }
            return result;
        }
        match rewrites {
            [] => self.files(flow, keys),
            _ => self.changed_files(rewrites, flow, keys),
        }
    }
}
