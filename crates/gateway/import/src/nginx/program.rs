//! The directives of nginx's rewrite module, executed at the time of the translation: `if`, `rewrite`, `return`, `set`.

use crate::directive::Directive;
use crate::nginx::condition::When;
use crate::nginx::flow::{Flow, Rewrite};
use crate::nginx::location::{Route, program};
use crate::nginx::pattern::{self, is_every};
use crate::nginx::site::Site;
use crate::nginx::variables::{Use, Values};
use crate::toml::{self, Keys};

/// Length of the value of a `set` at most, which values inside of each other would exceed.
const LONGEST: usize = 4096;

/// Result of a `rewrite`.
pub(crate) enum Step {
    /// The next directive follows.
    Next,
    /// The routes for all requests exist.
    Done,
    /// The path is changed.
    Changed(Rewrite),
}

impl<'a> Site<'_, 'a> {
    /// Adds the routes of a location: one for each condition that ends the processing, and one for all other requests.
    pub(crate) fn run(&self, flow: Flow<'_, 'a>, steps: &[&'a Directive], routes: &mut Vec<Route>) {
        let (location, at) = (flow.location, flow.at);
        if self.effort.step(|| self.steps(flow, steps, &mut *routes)).is_some() {
            return;
        }
        if let Some(place) = location.directive.or(steps.first().copied()) {
            self.context.missing(
                place,
                "the conditions have too many combinations",
                "write the routes by hand; until then the route refuses requests",
            );
        }
        routes.push(Self::refusal(location, at, at.when.clone()));
    }

    fn steps(&self, mut flow: Flow<'_, 'a>, steps: &[&'a Directive], routes: &mut Vec<Route>) {
        let context = self.context;
        let mut rewrites: Vec<Rewrite> = Vec::new();
        // Whether nginx goes on with the next `rewrite` after a match.
        let mut goes_on = false;
        for (index, step) in steps.iter().enumerate() {
            match step.name.as_str() {
                "set" => self.set(step, &mut flow.values),
                "break" => {
                    context.carried(step);
                    break;
                }
                "return" => return self.end(&flow, step, routes),
                "rewrite" if self.strips(&flow, &steps[index..]) => {
                    flow.strips = true;
                    break;
                }
                "rewrite" if self.precedes_end(&flow, step, &steps[index + 1..]) => {
                    let reason = "the directives behind it, which nginx executes before it looks for the new path, end requests";
                    context.missing(
                        step,
                        reason,
                        "write the routes by hand; until then they refuse requests",
                    );
                    if Self::refuse_changed(&flow, step, routes) {
                        return;
                    }
                }
                "rewrite" => match self.rewrite(&flow, step, routes) {
                    Ok(Step::Changed(changed)) if !goes_on => {
                        rewrites.push(changed);
                        goes_on = self.chooses_location(step);
                        if self.ends_all(step) {
                            break;
                        }
                    }
                    Ok(Step::Next) => {}
                    Ok(Step::Done) => return,
                    other => {
                        let once = || "a route of brisk changes a path once".to_owned();
                        let reason = other.err().unwrap_or_else(once);
                        context.missing(step, reason, "write it as redirect or rewrite_path of a route");
                        if !is_redirect(step) && Self::refuse_changed(&flow, step, routes) {
                            return;
                        }
                    }
                },
                _ => {
                    if self.certified(&mut flow, step) {
                        continue;
                    }
                    let rest = &steps[index + 1..];
                    let is_done = self.linked(&mut flow, step, rest, routes);
                    if is_done.unwrap_or_else(|| self.branch(&flow, step, rest, routes)) {
                        return;
                    }
                }
            }
        }
        self.finish(&flow, &rewrites, routes);
    }

    fn set(&self, step: &Directive, values: &mut Values) {
        // A snippet of Debian sets it, and `cgi` recognizes the use of the variable.
        if step.arg(1) == "$fastcgi_path_info" {
            return self.context.carried(step);
        }
        let name = step.arg(0).trim_start_matches('$').to_owned();
        match self.context.template(step.arg(1), values, Use::Value) {
            // Values can contain values: each `set` may double the length.
            Ok(value) if value.len() > LONGEST => {
                self.context.missing(step, "the value is too long", "write a shorter one");
            }
            Ok(_) if name == "args" => {
                let action = "write rewrite_path with a query in the route";
                self.context.missing(step, "brisk does not change the query of a request alone", action);
            }
            Ok(value) if name == "limit_rate" && toml::bytes(&value).is_none() => {
                let action = "write a route for each rate, with bandwidth";
                self.context.missing(step, "the rate depends on a variable", action);
            }
            Ok(value) => {
                self.context.carried(step);
                values.set.insert(name, value);
            }
            Err(reason) => self.context.missing(step, reason, "write the value in each place of its use"),
        }
    }

    /// The route of a `return`.
    fn end(&self, flow: &Flow<'_, 'a>, step: &Directive, routes: &mut Vec<Route>) {
        match self.returned(flow, step) {
            Ok(keys) => routes.push(self.answer(flow, flow.when.clone(), keys)),
            Err(reason) => {
                let action = "write the response by hand; until then the route refuses requests";
                self.context.missing(step, reason, action);
                routes.push(Self::refusal(flow.location, flow.at, flow.when.clone()));
            }
        }
    }

    /// A `rewrite`: redirects add a route, `break` and the end of the directives return the changed path.
    pub(crate) fn rewrite(
        &self,
        flow: &Flow<'_, 'a>,
        step: &'a Directive,
        routes: &mut Vec<Route>,
    ) -> Result<Step, String> {
        let context = self.context;
        let (source, target) = anchored(step).unwrap_or_else(|| (step.arg(0).into(), step.arg(1).into()));
        let (source, target) = (source.as_str(), target.as_str());
        // The expression cannot match below this prefix, so the rewrite never applies here.
        if !pattern::can_match(source, false, &flow.at.path) && !flow.at.exact {
            context.carried(step);
            return Ok(Step::Next);
        }
        let source_pattern = pattern::translate(source, false)?;
        let groups = flow.values.clone().with_groups(&source_pattern);
        let is_every = is_every(source);
        let condition = When::plain("path_regex", toml::raw(&source_pattern));
        let condition = if is_every { When::default() } else { condition };
        let after = || if is_every { Step::Done } else { Step::Next };
        let both = || flow.when.and(&condition).ok_or("the location has an expression for the path too");
        if is_redirect(step) {
            let keys = self.redirect(target, step.arg(2), &groups)?;
            // A redirect of the server precedes the choice of a location, so an expression of the location is no condition.
            let is_first = flow.when == flow.at.when && self.program.iter().any(|own| own.id == step.id);
            let when = if is_first { condition.clone() } else { both()? };
            routes.push(self.answer(flow, when, keys));
            context.carried(step);
            return Ok(after());
        }
        let kept = without_query(target);
        let to = context.template(&kept, &groups, Use::Path)?;
        // A `rewrite` of all paths may use the names of the location.
        let is_named = is_every && flow.values.names_group(&kept);
        let source_pattern = if is_named { flow.values.pattern.clone() } else { source_pattern };
        let next = self.target(&kept);
        // nginx would search the locations again and find this one, up to ten times.
        let stays = next.is_none_or(|next| std::ptr::eq(next, flow.location));
        let is_last = self.chooses_location(step);
        let changed = (source, kept.as_str());
        let hidden = if is_last { self.reached(changed, flow, next)? } else { None };
        if hidden.is_none() && (!is_last || stays) {
            context.carried(step);
            return Ok(Step::Changed((source_pattern, to)));
        }
        let next = flow.to(next.ok_or("no location fits the new path")?);
        let Ok(both) = both() else {
            // Without the change, the files of this location would be open.
            let reason = "the location has an expression for the path too";
            let action = "write a route with when.path_regex; until then it refuses requests";
            context.missing(step, reason, action);
            routes.push(Self::refusal(flow.location, flow.at, flow.when.clone()));
            return Ok(Step::Done);
        };
        let next = Flow { when: both.clone(), ..next };
        // Its conditions would hold for the new path, and are not part of this flow: the route refuses
        // instead.
        let is_except = |line: &Directive| line.name == "limit_except";
        let has_conditions = !program(next.scope.own()).is_empty() || next.scope.own().iter().any(is_except);
        if has_conditions || hidden.is_some() {
            let reason = "the location of the new path has conditions of its own, or one for some of the paths has restrictions";
            let action = "write a route for these paths; until then the route refuses requests";
            context.missing(step, reason, action);
            routes.push(Self::refusal(flow.location, flow.at, both));
            return Ok(after());
        }
        let mut keys = Keys::default();
        self.action(&next, &[(source_pattern, to)], &mut keys)?;
        self.settings(&next, &mut keys);
        context.carried(step);
        routes.push(Self::restricted(flow.location, flow.at, both, keys));
        Ok(after())
    }

    /// The redirect of a `rewrite`. The query of the client follows, unless the target ends with a question mark.
    fn redirect(&self, target: &str, kind: &str, groups: &Values) -> Result<Keys, String> {
        let plain = target.trim_end_matches('?');
        let mut to = self.context.template(plain, groups, Use::Redirect)?;
        if !target.ends_with('?') && !target.contains("$args") && !target.contains("$request_uri") {
            to.push_str(if plain.contains('?') { "&{request.query}" } else { "{request.query_part}" });
        }
        check_redirect(&to)?;
        let status = if kind == "permanent" { 301 } else { 302 };
        let mut keys = Keys::default();
        keys.set("redirect", format!("{{ to = {}, status = {status} }}", toml::text(&to)));
        Ok(keys)
    }

    /// The keys for a `return`.
    fn returned(&self, flow: &Flow<'_, 'a>, step: &Directive) -> Result<Keys, String> {
        let context = self.context;
        let (status, text) = match step.arg(0).parse::<u16>() {
            Ok(status) => (status, step.args.get(1).map(String::as_str)),
            // A `return` with a URL alone is a temporary redirect.
            Err(_) => (302, Some(step.arg(0))),
        };
        let mut keys = Keys::default();
        let mut values = flow.values.clone();
        values.groups &= flow.when.has_path();
        match (status, text) {
            (301 | 302 | 303 | 307 | 308, Some(url)) => {
                // Clients ignore spaces before the URL.
                let to = context.template(url.trim_start(), &values, Use::Redirect)?;
                check_redirect(&to)?;
                let to = toml::text(&to);
                let table = if status == 308 { to } else { format!("{{ to = {to}, status = {status} }}") };
                keys.set("redirect", table);
            }
            (444, _) => {
                context
                    .different(step, "brisk sends 403 in place of closing the connection without a response");
                keys.set("respond", "{ status = 403 }");
            }
            (_, text) => {
                let text = text.unwrap_or_default();
                let body = context.template(text, &values, Use::Body)?;
                keys.set("respond", self.respond(flow, status, &body));
                let kind = self.media_type(flow).unwrap_or_default();
                // A value in HTML may be that of a client: without escapes, it would be cross-site scripting.
                if text.contains('$') && ["html", "xml", "json"].iter().any(|own| kind.contains(own)) {
                    context.different(step, "brisk escapes the values for the media type of the response");
                }
            }
        }
        context.carried(step);
        Ok(keys)
    }

    /// The table of a fixed response.
    fn respond(&self, flow: &Flow<'_, 'a>, status: u16, text: &str) -> String {
        let mut respond = Keys::default();
        if status != 200 || text.is_empty() {
            respond.set("status", status.to_string());
        }
        if !text.is_empty() {
            respond.set("body", toml::raw(text));
            if let Some(kind) = self.media_type(flow) {
                respond.set("content_type", toml::text(&kind));
            }
        }
        respond.inline()
    }

    /// The media type of fixed responses, unless it is that of brisk.
    fn media_type(&self, flow: &Flow<'_, 'a>) -> Option<String> {
        let directive = flow.scope.one("default_type")?;
        self.context.carried(directive);
        let charset = flow.scope.one("charset").filter(|charset| charset.arg(0) != "off");
        if let Some(charset) = charset {
            self.context.carried(charset);
        }
        let kind = directive.arg(0);
        let charset = charset.filter(|_| kind.starts_with("text/"));
        let full = charset.map_or_else(|| kind.to_owned(), |set| format!("{kind}; charset={}", set.arg(0)));
        // brisk sends this media type without a key.
        Some(full).filter(|kind| kind != "text/plain; charset=utf-8")
    }
}

/// Whether a `rewrite` is a redirect of the client.
pub(crate) fn is_redirect(step: &Directive) -> bool {
    let target = step.arg(1);
    matches!(step.arg(2), "redirect" | "permanent") || target.contains("://") || target.starts_with("$scheme")
}

/// A path without the query of the client, which brisk appends.
pub(crate) fn without_query(target: &str) -> String {
    let kept = ["?$args", "?$query_string", "&$args", "&$query_string"];
    kept.iter().fold(target.to_owned(), |target, query| target.replace(query, ""))
}

/// Expression and target of a redirect such as `^(.+)/+$` to `$1`, with the slash of each path in both: `^/(.*)/+$` and `/$1`.
fn anchored(step: &Directive) -> Option<(String, String)> {
    let source = step.arg(0).strip_prefix("^(.+)").or_else(|| step.arg(0).strip_prefix("^(.*)"))?;
    let target = step.arg(1).strip_prefix("$1").filter(|_| is_redirect(step))?;
    Some((format!("^/(.*){source}"), format!("/$1{target}")))
}

/// Refuses redirects whose host a client could choose, as brisk does.
pub(crate) fn check_redirect(to: &str) -> Result<(), String> {
    let host = to.split_once("://").map_or("", |(_, rest)| rest);
    let is_variable = host.starts_with('{') && !host.starts_with("{{");
    let allowed = ["{host}", "{request.host}", "{tls.server_name}", "{server.", "{map."];
    if is_variable && !allowed.iter().any(|own| host.starts_with(own)) {
        return Err("a client could choose the host of the redirect".to_owned());
    }
    let starts = ["/", "{path}", "{request.path}", "{request.target}", "{map."];
    let is_path = to.contains("://") || starts.iter().any(|start| to.starts_with(start));
    if is_path { Ok(()) } else { Err("the target is neither a path nor a URL".to_owned()) }
}
