//! Limit and buffering of request bodies.

pub(crate) mod stage;

use brisk_config_file::{KeyPath, SizeLimit};
use serde::Deserialize;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};

/// Bodies of the requests of a host or route.
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

/// `body_size` and `buffer_request` of hosts and routes.
#[derive(Debug)]
pub struct BodyFeature;

impl HostFeature for BodyFeature {
    type Keys = BodyKeys;
    type Settings = BodySettings;

    fn resolve(keys: &BodyKeys, host: &HostScope<'_>, context: &mut Context<'_>) -> BodySettings {
        let limit = keys.body_size.or(context.body_size).unwrap_or(SizeLimit(None)).0;
        let settings = BodySettings { limit, buffers: keys.buffer_request.unwrap_or(false) };
        settings.checked(&host.key("buffer_request"), context)
    }
}

impl RouteFeature for BodyFeature {
    type Keys = BodyKeys;
    type Settings = BodySettings;

    fn resolve(keys: &BodyKeys, route: &RouteScope<'_>, context: &mut Context<'_>) -> BodySettings {
        let host = route.host.settings.body;
        let limit = keys.body_size.map_or(host.limit, |limit| limit.0);
        let path = route.key("buffer_request");
        if !route.has_upstream() {
            if keys.buffer_request.is_some() {
                context.findings.wrong(&path, "has no effect without `upstream`");
            }
            return BodySettings { limit, buffers: false };
        }
        let settings = BodySettings { limit, buffers: keys.buffer_request.unwrap_or(host.buffers) };
        // A host without a limit has been reported already.
        if keys.buffer_request.is_none() && host.limit.is_none() {
            return settings;
        }
        settings.checked(&path, context)
    }
}

impl BodySettings {
    /// These settings; buffered bodies occupy disk space, so they need a limit.
    fn checked(self, path: &KeyPath, context: &mut Context<'_>) -> Self {
        if self.buffers && self.limit.is_none() {
            let message = "needs a limit for what is buffered: write body_size = \"10MiB\" beside it";
            context.findings.wrong(path, message);
        }
        self
    }
}
