//! Internal routes: routes that only a response of an upstream leads to, by `X-Accel-Redirect` or `X-Sendfile`, or an error page.

mod keys;

use super::action::Fallback;
use super::{Context, RouteFeature, RouteScope, error_pages};
pub use keys::InternalKeys;

/// The part of a route in internal redirects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InternalSettings {
    /// Whether clients get 404 for the paths of the route.
    pub is_internal: bool,
    /// Whether responses of the upstream may lead to an internal route.
    pub redirects: bool,
}

/// `internal` and `internal_redirects` of routes.
#[derive(Debug)]
pub struct InternalFeature;

impl RouteFeature for InternalFeature {
    type Keys = InternalKeys;
    type Settings = InternalSettings;

    fn resolve(keys: &InternalKeys, route: &RouteScope<'_>, context: &mut Context<'_>) -> InternalSettings {
        let is_internal = keys.internal.unwrap_or(false);
        let redirects = keys.internal_redirects.unwrap_or(false);
        if redirects && !route.has_upstream() {
            context.findings.wrong(&route.key("internal_redirects"), "has no effect without `upstream`");
        }
        let others = || route.host.keys.site.route.iter().map(|route| &route.internal);
        if redirects && !others().any(|other| other.internal == Some(true)) {
            let message = "has no effect: no route of the host has internal = true";
            context.findings.wrong(&route.key("internal_redirects"), message);
        }
        if is_internal
            && !others().any(|other| other.internal_redirects == Some(true))
            && !is_error_page(route)
        {
            let message = "nothing leads to this route: write internal_redirects = true in the route whose upstream sends \
                           X-Accel-Redirect or X-Sendfile, or its path in error_pages";
            context.findings.wrong(&route.key("internal"), message);
        }
        if is_internal && matches!(route.keys.action.fallback, Some(Fallback::Upstream(_))) {
            let message =
                "an internal route has files or an upstream, not both: write a second internal route";
            context.findings.wrong(&route.key("fallback"), message);
        }
        if is_internal {
            // The stages of these keys are not compiled for internal routes, and neither is the redirect to the final slash: the
            // first route has decided.
            for key in ["limits", "access_log", "trace", "keep_alive", "priority", "final_slash"]
                .map(|key| route.key(key))
            {
                if context.findings.written(&key) {
                    let message =
                        "has no effect on an internal route: write it in the route that clients use";
                    context.findings.wrong(&key, message);
                }
            }
        }
        InternalSettings { is_internal, redirects }
    }
}

/// Whether an error page of the host or of one of its routes is the response of `route`.
fn is_error_page(route: &RouteScope<'_>) -> bool {
    let host = route.host.keys;
    let of_routes = host.site.route.iter().map(|route| &route.error_pages);
    let mut tables = of_routes.chain([&host.error_pages]).filter_map(|keys| keys.error_pages.as_ref());
    tables.any(|pages| pages.routes().any(|page| error_pages::leads_to(page, &route.keys.paths)))
}
