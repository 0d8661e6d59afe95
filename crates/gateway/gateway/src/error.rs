//! [`GatewayError`], the reason for which a gateway cannot start or apply new settings.

use brisk_certs::CertError;
use brisk_dashboard::DashboardError;
use brisk_logs::AccessLogError;
use brisk_server::ServerError;
use brisk_session::RedisError;
use brisk_tls::TlsError;
use thiserror::Error;

/// Reason for which a gateway cannot start or apply new settings.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The server cannot start or go on.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Hosts or certificates are not valid.
    #[error(transparent)]
    Certificates(#[from] CertError),
    /// The Redis that a fleet shares cannot be set up; an unreachable one is no error.
    #[error("sessions.redis: {0}")]
    Redis(#[from] RedisError),
    /// The access log cannot be opened.
    #[error(transparent)]
    AccessLog(#[from] AccessLogError),
    /// The dashboard cannot start.
    #[error(transparent)]
    Dashboard(#[from] DashboardError),
    /// Routes or upstreams are not valid.
    #[error(transparent)]
    Service(#[from] brisk_answer::ServiceError),
}
