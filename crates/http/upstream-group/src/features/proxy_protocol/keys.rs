//! Keys of the PROXY header.

use serde::Deserialize;

/// Keys of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyProtocolKeys {
    /// [PROXY header](#proxy-protocol-to-servers) at the start of every connection to the servers.
    pub proxy_protocol: Option<HeaderVersion>,
}

/// Version of the PROXY protocol towards servers.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum HeaderVersion {
    /// A line of text.
    V1,
    /// The binary form.
    V2,
}
