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
