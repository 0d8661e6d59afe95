//! `proxy_protocol`: the PROXY header at the start of connections to servers.

mod keys;

pub use brisk_http_connection::proxy_header::ProxyVersion;

use super::{Context, GroupFeature, GroupScope};
pub use keys::{HeaderVersion, ProxyProtocolKeys};

/// `proxy_protocol` of groups.
#[derive(Debug)]
pub struct ProxyProtocolFeature;

impl GroupFeature for ProxyProtocolFeature {
    type Keys = ProxyProtocolKeys;
    type Settings = Option<ProxyVersion>;

    fn resolve(
        keys: &ProxyProtocolKeys,
        _: &GroupScope<'_>,
        _: &mut Context<'_, '_>,
    ) -> Option<ProxyVersion> {
        Some(match keys.proxy_protocol? {
            HeaderVersion::V1 => ProxyVersion::V1,
            HeaderVersion::V2 => ProxyVersion::V2,
        })
    }
}
