//! Forward authentication: another server decides about the requests of a route.

mod keys;
mod resolve;
pub(crate) mod stage;

use std::sync::Arc;

use http::HeaderName;
use http::uri::PathAndQuery;

use super::{Context, RouteFeature, RouteScope};
pub use keys::ForwardAuthKeys;
pub use resolve::{groups, upstreams};

/// Forward authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardAuth {
    /// Name of the upstream group that decides.
    pub group: String,
    /// Path and query of its requests.
    pub path: PathAndQuery,
    /// Headers of a permission that the upstream gets; those of the client with these names are removed.
    pub copied: Arc<[CopiedHeader]>,
    /// Headers of a permission that are added to the response to the client.
    pub returned: Arc<[HeaderName]>,
}

/// A header of a permission that the upstream gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedHeader {
    /// Name for the upstream.
    pub name: HeaderName,
    /// Name in the permission.
    pub source: HeaderName,
}

/// `forward_auth` of routes.
#[derive(Debug)]
pub struct ForwardAuthFeature;

impl RouteFeature for ForwardAuthFeature {
    type Keys = ForwardAuthKeys;
    type Settings = Option<ForwardAuth>;

    fn resolve(
        keys: &ForwardAuthKeys,
        route: &RouteScope<'_>,
        context: &mut Context<'_>,
    ) -> Option<ForwardAuth> {
        resolve::of_route(keys.forward_auth.as_ref()?, route, context)
    }
}
