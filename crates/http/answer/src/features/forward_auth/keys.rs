//! Keys of forward authentication.

use serde::Deserialize;

/// Forward authentication of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardAuthKeys {
    /// [server that decides about requests](#access-control).
    pub forward_auth: Option<ForwardAuth>,
}

/// `forward_auth`: another server that decides about requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardAuth {
    /// URL of the server that decides. Either this or `upstream`.
    pub url: Option<String>,
    /// Name of the upstream that decides.
    pub upstream: Option<String>,
    /// Path and query of the requests to `upstream`. Default: `/`.
    pub path: Option<String>,
    /// With `upstream` of the route: headers of a permission that the upstream gets. The client's own headers with these names
    /// are removed, in every spelling that CGI does not distinguish.
    #[serde(default)]
    pub copy_headers: Vec<String>,
    /// Headers of a permission that are added to the response to the client, for example `"Set-Cookie"` for a server that
    /// renews sessions.
    #[serde(default)]
    pub copy_to_response: Vec<String>,
}
