//! Internal routes: routes that only a response of an upstream leads to, by `X-Accel-Redirect` or `X-Sendfile`.

mod keys;

use super::action::Fallback;
use super::{Context, RouteFeature, RouteScope};
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
        if is_internal && !others().any(|other| other.internal_redirects == Some(true)) {
            let message = "nothing leads to this route: write internal_redirects = true in the route whose upstream sends \
                           X-Accel-Redirect or X-Sendfile";
            context.findings.wrong(&route.key("internal"), message);
        }
        if is_internal && matches!(route.keys.action.fallback, Some(Fallback::Upstream(_))) {
            let message =
                "an internal route has files or an upstream, not both: write a second internal route";
            context.findings.wrong(&route.key("fallback"), message);
        }
        if is_internal {
            for key in ["limits", "access_log", "trace", "keep_alive"].map(|key| route.key(key)) {
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
