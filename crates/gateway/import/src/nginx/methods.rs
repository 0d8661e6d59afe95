//! `limit_except`: the listed methods, and the networks with all methods.
//!
//! nginx looks at the method before it executes the directives of the location, such as `return`. So these concern the listed
//! methods only.

use crate::directive::Directive;
use crate::nginx::condition::When;
use crate::nginx::flow::Flow;
use crate::nginx::location::{At, Location, Route};
use crate::nginx::site::Site;
use crate::toml::{self, Keys};

impl<'a> Site<'_, 'a> {
    /// A `limit_except` with an effect on other methods.
    pub(crate) fn except(&self, location: &Location<'a>) -> Option<&'a Directive> {
        let except = location.scope.own().iter().find(|directive| directive.name == "limit_except")?;
        if except.inner().is_empty() {
            self.context.unneeded(except, "without directives in its block, all methods are permitted");
            return None;
        }
        Some(except)
    }

    /// The routes of a location with `limit_except`: by the directives `steps` for the listed methods, and a refusal for the others.
    pub(crate) fn excepted(
        &self,
        location: &Location<'a>,
        at: &At,
        except: &'a Directive,
        steps: &[&'a Directive],
        routes: &mut Vec<Route>,
    ) {
        let flow = Flow::new(location, at);
        let Some(limited) = flow.with(&When::plain("methods", toml::list(&except.args))) else {
            let action = "write routes with when.methods; until then the route refuses requests";
            self.context.missing(except, "the route has a condition for methods already", action);
            return routes.push(Self::refusal(location, at, at.when.clone()));
        };
        self.run(limited, steps, routes);
        if let Some(open) = self.open_methods(&flow, except) {
            self.run(open, &self.program, routes);
        }
        let keys = Keys::of("respond", "{ status = 403 }");
        routes.push(Self::route(location, at, at.when.clone(), keys));
    }

    /// The requests from networks with all methods.
    fn open_methods<'s>(&self, flow: &Flow<'s, 'a>, except: &'a Directive) -> Option<Flow<'s, 'a>> {
        self.context.carried(except);
        let inner = flow.inside(except);
        if inner.scope.level("auth_basic") == inner.scope.depth() {
            let action = "write a route with when.methods and one with basic_auth";
            self.context.missing(except, "passwords for some methods", action);
            return None;
        }
        let (level, rules) = inner.scope.all_of(&["allow", "deny"]);
        if level < inner.scope.depth() {
            return None;
        }
        let mut keys = Keys::default();
        self.context.networks(&inner.scope, &mut keys);
        let open = keys.get("allow").filter(|_| keys.get("deny").is_none());
        let open = open.and_then(|networks| inner.with(&When::plain("networks", networks.to_owned())));
        if open.is_none() && !rules.iter().all(|rule| rule.has("all") && rule.name == "deny") {
            let action = "write a route with when.methods and when.networks; until then it has the listed methods only";
            self.context.missing(except, "a condition has one list of networks", action);
        }
        open
    }
}
