//! Keys of `X-Real-IP`.

use serde::Deserialize;

/// Keys of a host or route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RealIpKeys {
    /// Header `X-Real-IP` for upstreams and the server of `forward_auth`, with the [address of the client](#address-of-the-client).
    pub x_real_ip: Option<bool>,
}
