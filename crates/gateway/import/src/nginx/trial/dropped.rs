//! Directives that a trial goes without, such as `access_log`, `limit_req` and `stream`.

use crate::directive::Directive;

/// Directives that change files (`dav_methods`), need rights (`user`), limit requests (`limit_req`), or concern certificates
/// (`ssl_certificate`), which the trial has itself.
const DROPPED: [&str; 29] = [
    "access_log",
    "daemon",
    "dav_methods",
    "error_log",
    "events",
    "limit_conn",
    "limit_req",
    "lock_file",
    "log_format",
    "mail",
    "master_process",
    "open_log_file_cache",
    "pid",
    "proxy_bind",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_client_certificate",
    "ssl_crl",
    "ssl_dhparam",
    "ssl_engine",
    "ssl_password_file",
    "ssl_session_ticket_key",
    "ssl_stapling",
    "ssl_stapling_file",
    "ssl_stapling_verify",
    "ssl_trusted_certificate",
    "ssl_verify_client",
    "stream",
    "user",
];

/// Whether a trial goes without a directive. The content of other files follows their `include`. QUIC (`listen ... quic`)
/// has a listener for TCP beside it, and recorders have no TLS (`proxy_ssl_verify`).
pub(super) fn is_dropped(line: &Directive) -> bool {
    let name = line.name.as_str();
    let ends = ["_temp_path", "_by_lua_block", "_cache_path", "_cache", "_store"];
    DROPPED.contains(&name)
        || ends.iter().any(|end| name.ends_with(end))
        || ["proxy_ssl_", "grpc_ssl_", "uwsgi_ssl_"].iter().any(|start| name.starts_with(start))
        || (name == "include" && !line.arg(0).ends_with("mime.types"))
        || (name == "listen" && line.has("quic"))
}
