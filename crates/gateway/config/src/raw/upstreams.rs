//! `[upstream.NAME]`: groups of servers.

use std::path::PathBuf;

use brisk_config_file::table_of_parts;
use brisk_upstream_group::features::GroupKeys;
use brisk_upstream_group::features::servers::UpstreamServer;
use serde::Deserialize;

use super::certificate::Certificate;
use super::values::TlsProtocol;

table_of_parts! {
    /// `[upstream.NAME]`: servers that are as good as one another.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Upstream {
        /// TLS.
        pub own: UpstreamOwn,
        /// Servers and features.
        pub features: GroupKeys,
    }
}

impl Upstream {
    /// A group with one server.
    pub(crate) fn of(server: UpstreamServer) -> Self {
        let mut group = Self::default();
        group.features.servers.servers.push(server);
        group
    }
}

/// Keys of `[upstream.NAME]` about certificates.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UpstreamOwn {
    pub tls: UpstreamTlsKeys,
}

/// `[upstream.NAME.tls]`: how an `https` upstream is verified.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UpstreamTlsKeys {
    /// PEM file with trusted authorities, in place of the system's.
    pub ca: Option<PathBuf>,
    /// Whether servers are verified. With `false`, any certificate is accepted, see below.
    pub verify: Option<bool>,
    /// Client certificate for servers that request one, in files as for a host; read again when they change. New connections then use
    /// the new certificate, and older connections close after their requests. The workers perform the operations of this key.
    pub certificate: Option<Certificate>,
    /// Server name that is sent and verified.
    pub server_name: Option<String>,
    /// Protocol over TLS.
    pub protocol: Option<TlsProtocol>,
    /// Whether a server may close a connection without `close_notify`, see below.
    #[serde(default)]
    pub allow_missing_close_notify: bool,
}
