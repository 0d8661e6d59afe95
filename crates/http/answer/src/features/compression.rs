//! Compression of responses.

mod keys;
mod resolve;
pub(crate) mod stage;

use std::sync::Arc;

use brisk_transform::compress::CompressionSettings;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};
pub use keys::CompressionKeys;
pub use resolve::{HIGHEST_BROTLI, HIGHEST_GZIP, HIGHEST_ZSTD};

/// Compression of the responses of a route.
#[derive(Clone, Debug, Default)]
pub struct RouteCompression {
    /// Settings of compression. Default: no compression.
    pub settings: Option<Arc<CompressionSettings>>,
    /// Whether compression is disabled, including compression of pages after the insertion of a script. Default: `false`, no
    /// explicit setting.
    pub is_off: bool,
}

/// `compression` of hosts and routes.
#[derive(Debug)]
pub struct CompressionFeature;

impl HostFeature for CompressionFeature {
    type Keys = CompressionKeys;
    type Settings = RouteCompression;

    fn resolve(keys: &CompressionKeys, host: &HostScope<'_>, context: &mut Context<'_>) -> RouteCompression {
        keys.compression.as_ref().map_or_else(RouteCompression::default, |written| {
            resolve::compression(written, &host.key("compression"), context)
        })
    }
}

impl RouteFeature for CompressionFeature {
    type Keys = CompressionKeys;
    type Settings = RouteCompression;

    fn resolve(
        keys: &CompressionKeys,
        route: &RouteScope<'_>,
        context: &mut Context<'_>,
    ) -> RouteCompression {
        resolve::of_route(keys, route, context)
    }
}
