//! Settings of upstream groups: those of all features under one path.

pub use brisk_dns::ResolverSettings;
pub use brisk_http::cgi::CgiProtocol;
pub use brisk_http::server_url::{ServerAddress, ServerScheme, ServerUrl, ServerUrlError};
pub use brisk_rules::StickySettings;
pub use brisk_tls::connector::Identity;

pub use crate::features::GroupSettings;
pub use crate::features::balance::{Balance, HashKey};
pub use crate::features::cgi::CgiSettings;
pub use crate::features::dns::DnsSettings;
pub use crate::features::head::HeadSettings;
pub use crate::features::health::{ActiveChecks, HealthSettings, PassiveChecks};
pub use crate::features::hedge::HedgeSettings;
pub use crate::features::pool::{PoolSettings, QueueSettings};
pub use crate::features::proxy_protocol::ProxyVersion;
pub use crate::features::retry::{Retry, RetryReasons};
pub use crate::features::servers::ServerSettings;
pub use crate::features::timeouts::{RequestTimeouts, UpstreamTimeouts, check_attempt};
pub use crate::tls::{TlsProtocol, UpstreamTlsSettings};
