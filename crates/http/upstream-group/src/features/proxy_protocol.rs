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
        group: &GroupScope<'_>,
        context: &mut Context<'_, '_>,
    ) -> Option<ProxyVersion> {
        let version = keys.proxy_protocol?;
        if let Some(protocol) = group.cgi_protocol() {
            let scheme = protocol.scheme();
            let message = format!("has no effect with {scheme}: the variable REMOTE_ADDR names the client");
            context.findings.wrong(&group.key("proxy_protocol"), message);
        }
        Some(match version {
            HeaderVersion::V1 => ProxyVersion::V1,
            HeaderVersion::V2 => ProxyVersion::V2,
        })
    }
}
