//! Blocks with `deny`, `return` and others that refuse requests. A block that brisk cannot express must not let its requests through.

use crate::directive::Directive;
use crate::nginx::access::FOREIGN;
use crate::nginx::flow::Flow;
use crate::nginx::location::{Kind, Location, Route, has_parameters};
use crate::nginx::pattern;
use crate::nginx::site::Site;

/// Whether the block, or one inside of it, refuses requests.
pub(crate) fn closes(block: &[Directive]) -> bool {
    block.iter().any(|line| {
        let is_refusal = match line.name.as_str() {
            "deny" | "internal" | "limit_except" => true,
            "auth_basic" | "auth_request" => line.arg(0) != "off",
            "return" => line.arg(0).parse().is_ok_and(|status: u16| status >= 400),
            name => FOREIGN.contains(&name),
        };
        is_refusal || closes(line.inner())
    })
}

impl<'a> Site<'_, 'a> {
    /// A location that brisk cannot find and that refuses requests: one for more paths, which refuses all of them. Without it, the
    /// report warns.
    pub(crate) fn closed(&mut self, directive: &'a Directive, parent: Option<usize>) {
        if !closes(directive.inner()) {
            return;
        }
        let (modifier, text) = (directive.arg(0), directive.arg(1));
        let ignore_case = modifier == "~*";
        let wider = pattern::wider(text)
            .filter(|wider| modifier.starts_with('~') && !has_parameters(wider))
            .filter(|wider| pattern::translate(wider, ignore_case).is_ok());
        let Some(pattern) = wider else { return self.context.open(directive) };
        let kind = Kind::Expression { pattern, ignore_case };
        // An empty block: the route refuses, so no directive of the location may have an effect.
        let scope = self.scope.child(&[]);
        self.add(Location { refused: true, ..Location::new(kind, scope, Some(directive), parent) });
    }

    /// An `if` of `$ssl_client_verify` that refuses clients without a verified certificate. Whether the step is one.
    pub(crate) fn certified(&self, flow: &mut Flow<'_, 'a>, step: &Directive) -> bool {
        let [refusal] = step.inner() else { return false };
        let status: u16 = refusal.arg(0).parse().unwrap_or_default();
        let is_refusal = refusal.name == "return" && (400..500).contains(&status) && refusal.args.len() == 1;
        let is_test = step.args.concat().replace(' ', "") == "($ssl_client_verify!=SUCCESS)";
        // As in the host: without a file of authorities, it has no `client_certificates`.
        let has_mode =
            flow.scope.one("ssl_verify_client").is_some_and(|mode| matches!(mode.arg(0), "on" | "optional"));
        let (_, files) = flow.scope.all_of(&["ssl_client_certificate", "ssl_trusted_certificate"]);
        if !is_refusal || !is_test || !has_mode || !files.iter().any(|file| !file.arg(0).contains('$')) {
            return false;
        }
        flow.certified = true;
        self.context.carried_whole(step);
        if status != 403 {
            self.context.different(step, "clients without a certificate get status 403");
        }
        true
    }

    /// An `if` that brisk cannot express. If it refuses requests, the location refuses all of them; an `if` of the server only gets
    /// a warning, because it concerns the whole host. Whether there is a route for all requests.
    pub(crate) fn unexpressed(
        &self,
        flow: &Flow<'_, 'a>,
        step: &Directive,
        reason: &str,
        routes: &mut Vec<Route>,
    ) -> bool {
        let action = "write it as a route with `when`, before the other route of this path";
        self.context.missing(step, reason, action);
        if !closes(step.inner()) {
            return false;
        }
        // A route for all paths would close the whole host, so an `if` of the server is reported instead.
        if self.program.iter().any(|own| own.id == step.id) {
            self.context.open(step);
            return false;
        }
        routes.push(Self::refusal(flow.location, flow.at, flow.when.clone()));
        true
    }
}
