//! Features of upstream groups. A feature is one folder: its keys in the configuration, their resolution into settings, and the part
//! of its code that needs no connections with requests.
//!
//! The list `group_features!` forms the table `[upstream.NAME]` and its settings. The order of the list has no effect.

pub mod balance;
pub mod cgi;
mod context;
pub mod dns;
pub mod head;
pub mod health;
pub mod hedge;
pub mod pipeline;
pub mod pool;
pub mod proxy_protocol;
pub mod retry;
pub mod servers;
pub mod sticky;
pub mod timeouts;

use std::fmt;

use brisk_config_file::{KeyPath, table_of_parts};
use brisk_http::cgi::CgiProtocol;
use brisk_http::server_url::ServerUrl;
use serde::de::DeserializeOwned;

pub use self::context::{Context, TIMEOUTS};
use self::servers::{ServerSettings, ServersKeys};
use crate::tls::UpstreamTlsSettings;

/// A feature of upstream groups.
pub trait GroupFeature {
    /// The keys of the feature in `[upstream.NAME]`, as written: a struct that refuses unknown keys. The comment of a field is the
    /// meaning of the key in `docs/configuration.md`.
    type Keys: Clone + fmt::Debug + Default + DeserializeOwned;
    /// The settings of one group.
    type Settings: Clone + fmt::Debug + Default + PartialEq;

    /// The settings of a group without the keys.
    fn unset() -> Self::Settings {
        // Overridden where the default of the type is not that of the setting: a `pipeline` of
        // 0 requests, for example.
        Self::Settings::default()
    }

    /// Resolves the keys of one group. All mistakes are added to the findings of `context`; the settings of a mistaken group are
    /// not used.
    fn resolve(keys: &Self::Keys, group: &GroupScope<'_>, context: &mut Context<'_, '_>) -> Self::Settings;
}

/// The group whose keys are resolved.
#[derive(Clone, Copy, Debug)]
pub struct GroupScope<'a> {
    /// All keys of the group that belong to features.
    pub keys: &'a GroupKeys,
    /// TLS to the servers of the group.
    pub tls: &'a UpstreamTlsSettings,
    /// Position of the group in the file.
    pub path: &'a KeyPath,
}

impl GroupScope<'_> {
    /// The protocol of application servers; `None` for HTTP.
    pub(crate) fn cgi_protocol(&self) -> Option<CgiProtocol> {
        // The first server decides: `servers::resolve` refuses groups with several protocols.
        self.keys.servers.servers.first().and_then(|server| server.url.scheme().cgi())
    }

    /// Position of a key of the group.
    pub fn key(&self, key: &str) -> KeyPath {
        self.path.key(key)
    }
}

/// Defines [`GroupKeys`] and [`GroupSettings`] with one field for each feature.
macro_rules! group_features {
    ($($(#[$about:meta])* $name:ident: $feature:ty,)*) => {
        table_of_parts! {
            /// `[upstream.NAME]` as written, without TLS.
            #[derive(Clone, Debug, Default)]
            pub struct GroupKeys {
                /// The servers.
                pub servers: ServersKeys,
                $($(#[$about])* pub $name: <$feature as GroupFeature>::Keys,)*
            }
        }

        /// Servers with the same content, and the settings for requests to them.
        #[derive(Clone, Debug, PartialEq)]
        pub struct GroupSettings {
            /// Name for the log and the metrics.
            pub name: String,
            /// The servers. At least one.
            pub servers: Vec<ServerSettings>,
            /// TLS to `https` servers. Ignored for others.
            pub tls: UpstreamTlsSettings,
            $($(#[$about])* pub $name: <$feature as GroupFeature>::Settings,)*
        }

        impl GroupSettings {
            /// A group of `servers` with weight 1 and default settings.
            pub fn new(name: impl Into<String>, servers: impl IntoIterator<Item = ServerUrl>) -> Self {
                Self {
                    name: name.into(),
                    servers: servers.into_iter().map(ServerSettings::new).collect(),
                    tls: UpstreamTlsSettings::default(),
                    $($name: <$feature as GroupFeature>::unset(),)*
                }
            }

            /// Resolves the keys of the group called `name`.
            pub fn resolve(name: &str, group: &GroupScope<'_>, context: &mut Context<'_, '_>) -> Self {
                Self {
                    name: name.to_owned(),
                    servers: servers::resolve(&group.keys.servers, group, context),
                    tls: group.tls.clone(),
                    $($name: <$feature as GroupFeature>::resolve(&group.keys.$name, group, context),)*
                }
            }
        }
    };
}

group_features! {
    /// DNS servers and limits for the servers that DNS names. Ignored without any.
    dns: dns::DnsFeature,
    /// Choice of a server. Default: round robin.
    balance: balance::BalanceFeature,
    /// Cookie by which a client returns to its server, if it is available. Precedes `balance`. Default: none.
    sticky: sticky::StickyFeature,
    /// Timeouts of servers.
    timeouts: timeouts::TimeoutsFeature,
    /// Limits for the head of a response.
    head: head::HeadFeature,
    /// Scripts and variables of requests to application servers. Ignored for HTTP.
    cgi: cgi::CgiFeature,
    /// Number and lifetime of connections.
    pool: pool::PoolFeature,
    /// Detection of unavailable servers.
    health: health::HealthFeature,
    /// Repetition of requests that are safe to repeat. Default: once.
    retry: retry::RetryFeature,
    /// Second attempts of slow requests at another server. Default: none.
    hedge: hedge::HedgeFeature,
    /// PROXY header at the start of every connection, which names the client. Such a connection carries requests of one
    /// client connection only. Default: none. Excludes pipelines.
    proxy_protocol: proxy_protocol::ProxyProtocolFeature,
    /// Maximum number of GET and HEAD requests of one multiplexed client connection that share an HTTP/1.1 connection before
    /// their responses. Default: 1. Requires that requests are repeated.
    pipeline: pipeline::PipelineFeature,
}

impl GroupSettings {
    /// Whether the servers get the bytes of TCP connections instead of requests. All servers are alike in this.
    pub fn is_stream(&self) -> bool {
        self.servers.iter().any(|server| server.url.scheme().is_stream())
    }

    /// The protocol of application servers, the same for all servers; `None` for HTTP.
    pub fn cgi_protocol(&self) -> Option<CgiProtocol> {
        self.servers.first().and_then(|server| server.url.scheme().cgi())
    }

    /// Path that precedes the path of every request to the group, the same for all servers; see [`ServerUrl::path`].
    pub fn base_path(&self) -> &str {
        self.servers.first().map_or("", |server| server.url.path())
    }
}
