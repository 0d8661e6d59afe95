//! Settings of hosts and routes beside their action.

use crate::directive::Directive;
use crate::nginx::access::ALL;
use crate::nginx::content::REFUSED;
use crate::nginx::flow::Flow;
use crate::nginx::headers::Inherited;
use crate::nginx::host::HOST;
use crate::nginx::limits::Limits;
use crate::nginx::location::Location;
use crate::nginx::scope::Scope;
use crate::nginx::site::Site;
use crate::nginx::upstream::Protocol;
use crate::nginx::variables::Values;
use crate::toml::{self, Keys};

/// A folder that is closed for all clients becomes a refusal.
fn shorten(keys: &mut Keys) {
    let is_closed = keys.get("deny").is_some_and(|networks| networks == toml::list(ALL));
    let others = ["allow", "upstream", "basic_auth", "forward_auth", "satisfy"];
    if is_closed && !others.iter().any(|key| keys.get(key).is_some()) && keys.get("static").is_some() {
        keys.0.retain(|(key, _)| matches!(&**key, "error_pages" | "response_headers" | "access_log"));
        keys.set("respond", "{ status = 403 }");
    }
}

/// Makes a route refuse all requests with [`REFUSED`], because one of its restrictions is not carried.
fn refuse(keys: &mut Keys) {
    *keys = Keys::of("respond", REFUSED);
}

impl<'a> Site<'_, 'a> {
    /// Settings of the host, which its routes inherit.
    pub(crate) fn host_settings(&mut self, keys: &mut Keys) {
        let scope = self.scope.clone();
        let values = Values::default();
        let context = self.context;
        let mut inherited = Inherited { access_log: context.logged_to(&scope), ..Inherited::default() };
        context.request_headers(&scope, 0, &values, &mut inherited, keys);
        context.response_headers(&scope, 0, &values, &mut inherited, keys);
        if inherited.access_log != "true" {
            keys.set("access_log", &*inherited.access_log);
        }
        context.networks(&scope, keys);
        context.compression(&scope, 0, keys);
        // A host cannot exclude networks from its limits, so its routes get them.
        if let Some(limits) =
            context.limits(&scope, 0).filter(|limits| limits.exempt.is_empty() && !limits.names.is_empty())
        {
            keys.set("limits", toml::list(limits.names));
        }
        self.inherited = inherited;
        self.error_pages(&scope, 0, keys);
    }

    /// Settings of a route. Returns its limits.
    pub(crate) fn settings(&self, flow: &Flow<'_, 'a>, keys: &mut Keys) -> Option<Limits> {
        let (context, scope) = (self.context, &flow.scope);
        // With a fallback, `fallback_upstream` has written these keys from the location of the server.
        if keys.get("fallback").is_none_or(|fallback| !fallback.starts_with('{'))
            && keys.get("upstream").is_some()
        {
            self.route_settings(flow, keys);
        }
        let mut inherited = self.inherited.clone();
        context.response_headers(scope, HOST, &flow.values, &mut inherited, keys);
        self.access_log(scope, keys);
        self.content_keys(flow, keys);
        // With `satisfy any`, the networks of the host are one of the restrictions of the route.
        let is_any = scope.one("satisfy").is_some_and(|satisfy| satisfy.arg(0) == "any");
        if is_any || scope.all_of(&["allow", "deny"]).0 > HOST {
            context.networks(scope, keys);
            let is_open = self.scope.all_of(&["allow", "deny"]).0 == 0;
            // An empty list ends restrictions of the host. Where the host has none, it is left out.
            keys.0.retain(|(key, value)| !(is_open && key == "deny" && value == "[]"));
        }
        context.compression(scope, HOST, keys);
        if context.passwords(scope, keys).is_err() {
            // Without its restriction, the route must not be open.
            refuse(keys);
            return None;
        }
        self.auth_request(scope, keys);
        context.satisfy(scope, keys);
        context.sizes(scope, &flow.values, keys);
        if keys.get("upstream").is_some() {
            self.mirror(scope, keys);
        }
        self.error_pages(scope, HOST, keys);
        // After all restrictions are known, because one of them may open the folder for some clients.
        shorten(keys);
        let exempting = context.limits(&self.scope, 0).is_some_and(|limits| !limits.exempt.is_empty());
        let limits = context.limits(scope, if exempting { 0 } else { HOST })?;
        if !limits.names.is_empty() {
            keys.set("limits", toml::list(&limits.names));
        }
        Some(limits)
    }

    /// Settings of a route with an upstream.
    pub(crate) fn route_settings(&self, flow: &Flow<'_, 'a>, keys: &mut Keys) {
        let mut inherited = self.inherited.clone();
        self.context.request_headers(&flow.scope, HOST, &flow.values, &mut inherited, keys);
        if let Some(buffering) = flow.scope.one("proxy_request_buffering") {
            self.context.unneeded(
                buffering,
                "brisk forwards bodies as they arrive; write buffer_request = true for slow clients",
            );
        }
    }

    /// Keys of all routes, also of those that only respond: signed links and replaced texts.
    pub(crate) fn content_keys(&self, flow: &Flow<'_, 'a>, keys: &mut Keys) {
        if let Some(links) = &flow.links {
            keys.set("signed_links", &**links);
        }
        if flow.certified {
            keys.set("client_certificate", "{}");
        }
        self.replaced_texts(flow, keys);
    }

    /// `access_log` of a location.
    pub(crate) fn access_log(&self, scope: &Scope<'a>, keys: &mut Keys) {
        let own = self.context.logged_to(scope);
        if own != self.inherited.access_log {
            keys.set("access_log", own);
        }
    }

    /// `auth_request`: the server of the location that it names.
    fn auth_request(&self, scope: &Scope<'a>, keys: &mut Keys) {
        let Some(question) = scope.one("auth_request") else { return };
        let context = self.context;
        if question.arg(0) == "off" {
            return context.carried(question);
        }
        let target = self.find(question.arg(0)).and_then(|location| self.server_of(location));
        let url = target.and_then(|(location, pass)| {
            let plain = pass.arg(0).trim_end_matches("$request_uri").trim_end_matches("$is_args$args");
            let (protocol, rest) = Protocol::of(plain)?;
            let (authority, path) = rest.find('/').map_or((rest, question.arg(0)), |at| rest.split_at(at));
            (!authority.contains('$')).then_some((location, pass, protocol, authority, path))
        });
        // Without the server that decides, the route must not be open.
        let Some((location, pass, protocol, authority, path)) = url else {
            context.missing(
                question,
                "the location of the permission is not carried",
                "write forward_auth = { url = \"http://...\" }; until then the route refuses requests",
            );
            return refuse(keys);
        };
        let mut table = Keys::default();
        if context.groups.contains_key(authority) {
            match context.upstream(protocol, authority, &location.scope, pass, None) {
                Ok(name) => {
                    table.set("upstream", toml::text(&name));
                    table.set("path", toml::text(path));
                }
                Err(reason) => {
                    context.missing(
                        question,
                        reason,
                        "write forward_auth by hand; until then the route refuses requests",
                    );
                    return refuse(keys);
                }
            }
        } else {
            let url = if matches!(protocol, Protocol::Https) { "https" } else { "http" };
            table.set("url", toml::text(&format!("{url}://{authority}{path}")));
        }
        let blocks = self.find(question.arg(0)).into_iter().chain([location]);
        for directive in blocks.flat_map(|location| location.scope.own()) {
            if directive.name == "proxy_set_header" || directive.name == "proxy_pass_request_body" {
                context.unneeded(
                    directive,
                    "the question of brisk has no body, and the original request in its headers",
                );
            }
        }
        context.carried(pass);
        context.carried(question);
        context.copied_headers(scope, &mut table);
        keys.set("forward_auth", table.inline());
    }

    /// The location with the server for a request of the gateway to a location, and its `proxy_pass`: a named one behind
    /// `try_files /no/file @name`.
    fn server_of<'s>(&'s self, location: &'s Location<'a>) -> Option<(&'s Location<'a>, &'a Directive)> {
        if let Some(pass) = location.scope.one("proxy_pass") {
            return Some((location, pass));
        }
        let files = location.scope.one("try_files")?;
        let (last, before) = files.args.split_last()?;
        let named = self.named(last).filter(|_| before.iter().all(|file| file == "/dev/null"))?;
        self.context.carried(files);
        Some((named, named.scope.one("proxy_pass")?))
    }

    fn mirror(&self, scope: &Scope<'a>, keys: &mut Keys) {
        let Some(mirror) = scope.one("mirror").filter(|mirror| mirror.arg(0) != "off") else { return };
        let target =
            self.find(mirror.arg(0)).and_then(|location| Some((location, location.scope.one("proxy_pass")?)));
        let name = target.and_then(|(location, pass)| {
            let plain = pass.arg(0).trim_end_matches("$request_uri");
            let (protocol, rest) = Protocol::of(plain)?;
            (!rest.contains(['$', '/']))
                .then(|| self.context.upstream(protocol, rest, &location.scope, pass, None).ok())?
                .inspect(|_| self.context.carried(pass))
        });
        match name {
            Some(name) => {
                self.context.carried(mirror);
                keys.set("mirror", format!("{{ upstream = {} }}", toml::text(&name)));
            }
            None => self.context.missing(
                mirror,
                "the copies go to a location that is not carried, or to another path",
                "write mirror = { upstream = \"NAME\" }",
            ),
        }
    }
}
