//! Trace context of requests (W3C Trace Context).

mod keys;
pub(crate) mod stage;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};
pub use keys::TraceKeys;

/// Treatment of the trace context of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// The trace of the client is continued; without a valid one, a trace begins.
    Continue,
    /// A trace begins with each request.
    Begin,
}

/// `trace` of hosts and routes.
#[derive(Debug)]
pub struct TraceFeature;

impl HostFeature for TraceFeature {
    type Keys = TraceKeys;
    type Settings = Option<Trace>;

    fn resolve(keys: &TraceKeys, _: &HostScope<'_>, _: &mut Context<'_>) -> Option<Trace> {
        keys.trace.and_then(settings)
    }
}

impl RouteFeature for TraceFeature {
    type Keys = TraceKeys;
    type Settings = Option<Trace>;

    fn resolve(keys: &TraceKeys, route: &RouteScope<'_>, _: &mut Context<'_>) -> Option<Trace> {
        keys.trace.map_or(route.host.settings.trace, settings)
    }
}

fn settings(written: keys::Trace) -> Option<Trace> {
    match written {
        keys::Trace::Off => None,
        keys::Trace::Continue => Some(Trace::Continue),
        keys::Trace::New => Some(Trace::Begin),
    }
}
