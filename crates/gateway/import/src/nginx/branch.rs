//! The forms of `if` that become routes, a fallback, or a setting of the host.

use std::slice;

use crate::directive::Directive;
use crate::nginx::closing::closes;
use crate::nginx::condition::Condition;
use crate::nginx::flow::Flow;
use crate::nginx::location::{Route, program};
use crate::nginx::site::Site;
use crate::report::Class;
use crate::toml::Keys;

/// Reason for conditions that one route cannot have together.
pub(crate) const CLASH: &str = "a route has one condition of each kind for the same part of a request";

impl<'a> Site<'_, 'a> {
    /// Handles an `if`. Whether it has added the routes of the rest too.
    pub(crate) fn branch(
        &self,
        flow: &Flow<'_, 'a>,
        step: &'a Directive,
        rest: &[&'a Directive],
        routes: &mut Vec<Route>,
    ) -> bool {
        let context = self.context;
        if is_missing_script(flow, step) {
            let reason = "brisk requests no script that does not exist".to_owned();
            context.note_whole(step, &Class::NotNeeded(reason));
            return false;
        }
        match context.condition(step) {
            Ok(Condition::Any { any, negated }) => {
                let flows: Vec<_> = any.iter().filter_map(|condition| flow.with(condition)).collect();
                // All or none: with one alternative left out, requests would pass that the `if` refuses.
                if flows.len() < any.len() {
                    return self.unexpressed(flow, step, CLASH, routes);
                }
                let flows: Vec<_> = flows.into_iter().filter(|flow| !flow.when.is_never()).collect();
                context.carried(step);
                self.alternatives(flow, flows, negated, step, rest, routes);
                negated
            }
            Ok(Condition::Never) => {
                context.note_whole(step, &Class::NotNeeded("the condition never holds".to_owned()));
                false
            }
            Ok(Condition::Referer) => self.referers(flow, step, rest, routes),
            Ok(Condition::File | Condition::NoFile) => self.missing_file(flow, step, rest, routes),
            Ok(Condition::Switch(file)) => self.switch(flow, step, &file, routes),
            Err(reason) => {
                // For the whole host, a wider refusal could close it.
                let is_of_server = self.program.iter().any(|own| own.id == step.id);
                let wider = context.wider(step).filter(|_| !is_of_server);
                let Some(inner) = wider.and_then(|when| flow.with(&when)) else {
                    return self.unexpressed(flow, step, &reason, routes);
                };
                context.carried(step);
                context.different(
                    step,
                    format!("{reason}: the route refuses all requests of the expression without it"),
                );
                self.alternatives(flow, vec![inner], false, step, rest, routes);
                false
            }
        }
    }

    /// The routes inside of an `if` under each of several conditions. A negated condition holds for all requests that the routes
    /// of the conditions, which come first, do not handle.
    fn alternatives(
        &self,
        flow: &Flow<'_, 'a>,
        flows: Vec<Flow<'_, 'a>>,
        negated: bool,
        step: &'a Directive,
        rest: &[&'a Directive],
        routes: &mut Vec<Route>,
    ) {
        let mut inner = program(step.inner());
        // After an `if` that ends nothing, nginx continues behind the block.
        if !inner.iter().any(|inner| matches!(&*inner.name, "return" | "break")) {
            inner.extend(rest);
        }
        for flow in flows {
            if negated {
                self.run(flow, rest, routes);
            } else {
                self.run(flow.inside(step), &inner, routes);
            }
        }
        if negated {
            self.run(flow.inside(step), &inner, routes);
        }
    }

    /// `if (-f FILE) { return 503; }`, the switch to maintenance. Whether it has added a route for all requests.
    fn switch(&self, flow: &Flow<'_, 'a>, step: &Directive, file: &str, routes: &mut Vec<Route>) -> bool {
        let root = flow.scope.one("root").map_or("", |root| root.arg(0));
        let file = file.replace("$document_root", root);
        let is_503 = step.inner().iter().any(|inner| inner.name == "return" && inner.arg(0) == "503");
        // A host has one such file. A second one would replace the first in silence.
        let known = self.maintenance.borrow().clone();
        if !is_503 || file.contains('$') || known.is_some_and(|known| known != file) {
            let reason = "a file as a switch means 503 for the whole host: maintenance = { file = \"FILE\" }";
            return self.unexpressed(flow, step, reason, routes);
        }
        self.context.carried_whole(step);
        let detail = "the whole host responds with 503, and brisk looks for the file once a second";
        self.context.different(step, detail);
        self.maintenance.replace(Some(file));
        false
    }

    /// `if (!-e $request_filename)` with a rewrite or a proxy, as `try_files` would have it.
    fn missing_file(
        &self,
        flow: &Flow<'_, 'a>,
        step: &'a Directive,
        rest: &[&'a Directive],
        routes: &mut Vec<Route>,
    ) -> bool {
        let context = self.context;
        if let Some(absent) = self.absent_paths(flow, step, routes) {
            context.carried_whole(step);
            self.run(Flow { absent, ..flow.clone() }, rest, routes);
            return true;
        }
        let inner = flow.inside(step);
        let has = |name: &str| step.inner().iter().any(|line| line.name == name);
        let is_file = step.args.iter().any(|arg| matches!(arg.trim_start_matches('('), "-f" | "-e"));
        let only_stops = is_file && step.inner().iter().all(|inner| inner.name == "break");
        let rewrite = step.inner().iter().find(|inner| inner.name == "rewrite");
        let target = rewrite.map(|rewrite| (rewrite.arg(0), rewrite.arg(1)));
        let from = if only_stops { flow } else { &inner };
        let server = from.scope.one("proxy_pass").filter(|_| only_stops || !is_file && has("proxy_pass"));
        let mut keys = Keys::default();
        let result = match (target.filter(|_| !is_file), server) {
            _ if has("return") => Err("brisk refuses no requests by files".to_owned()),
            (Some(target), _) => self.fallback(target, flow, &mut keys),
            (None, Some(_)) => self.fallback_upstream(flow, from, &[], &mut keys),
            (None, None) => Err("there is no rewrite and no server for paths without a file".to_owned()),
        };
        if result.is_ok() && rest.iter().any(|step| closes(slice::from_ref(*step))) {
            let action = "write the routes by hand; until then the route refuses requests";
            context.missing(step, "the conditions behind it refuse requests", action);
            routes.push(Self::refusal(flow.location, flow.at, flow.when.clone()));
            return true;
        }
        match result {
            Ok(()) => {
                context.carried_whole(step);
                self.settings(flow, &mut keys);
                routes.push(Self::restricted(flow.location, flow.at, flow.when.clone(), keys));
                true
            }
            Err(reason) => self.unexpressed(flow, step, &reason, routes),
        }
    }
}

/// Whether an `if` at a server of scripts refuses paths without a script.
pub(crate) fn is_missing_script(flow: &Flow<'_, '_>, step: &Directive) -> bool {
    let text = step.args.join(" ");
    let is_test = text.contains("!-f ") || text.contains("!-e ");
    let files = ["$document_root$fastcgi_script_name", "$request_filename", "$document_root$uri"];
    is_test
        && files.iter().any(|file| text.contains(file))
        && step.inner().iter().all(|line| line.name == "return" && line.arg(0) == "404")
        && flow.scope.one("fastcgi_pass").is_some()
}
