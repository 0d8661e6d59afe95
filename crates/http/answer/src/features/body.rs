//! Limit and buffering of request bodies.

pub(crate) mod stage;

use brisk_config_file::SizeLimit;
use serde::Deserialize;

use super::{Context, RouteFeature, RouteScope};

/// Bodies of the requests of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BodyKeys {
    /// Maximum size of a request body.
    pub body_size: Option<SizeLimit>,
    /// Buffering of a request until its body is complete, so that slow clients do not occupy the upstream. Up to 64 KiB of a
    /// body are in memory, more in an unnamed file in `$TMPDIR` (`/tmp`); all of them together up to
    /// `server.limits.buffered_requests`. Requires `upstream` and a `body_size`. Not for requests that get a response before
    /// they end, such as gRPC streams.
    pub buffer_request: Option<bool>,
}

/// Treatment of the bodies of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodySettings {
    /// Maximum length of a request body in bytes; longer bodies get 413. Default: no limit.
    pub limit: Option<u64>,
    /// Whether a request is sent upstream only after its body has arrived completely, up to 64 KiB in memory, above
    /// that in a temporary file. Default: `false`.
    pub buffers: bool,
}

/// `body_size` and `buffer_request` of routes.
#[derive(Debug)]
pub struct BodyFeature;

impl RouteFeature for BodyFeature {
    type Keys = BodyKeys;
    type Settings = BodySettings;

    fn resolve(keys: &BodyKeys, route: &RouteScope<'_>, context: &mut Context<'_>) -> BodySettings {
        let limit = keys.body_size.or(context.body_size).unwrap_or(SizeLimit(None)).0;
        let path = route.key("buffer_request");
        // Buffered bodies occupy disk space.
        if keys.buffer_request.is_some() && !route.has_upstream() {
            context.findings.wrong(&path, "has no effect without `upstream`");
        } else if keys.buffer_request == Some(true) && limit.is_none() {
            let message = "needs a limit for what is buffered: write body_size = \"10MiB\" for this route";
            context.findings.wrong(&path, message);
        }
        BodySettings { limit, buffers: keys.buffer_request.unwrap_or(false) }
    }
}
