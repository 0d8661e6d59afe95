//! Directives that a trial goes without, such as `access_log`, `limit_req` and `stream`.

use crate::directive::Directive;

/// Directives that change files (`dav_methods`), need rights (`user`), limit or delay requests (`limit_req`, `auth_delay`), or
/// concern certificates (`ssl_certificate`), which the trial has itself.
const DROPPED: [&str; 33] = [
    "access_log",
    "auth_delay",
    "daemon",
    "dav_methods",
    "error_log",
    "events",
    "google_perftools_profiles",
    "limit_conn",
    "limit_rate",
    "limit_rate_after",
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

/// Beginnings of the names of directives that start programs (`js_content`), contact other machines (`otel_exporter`), or concern
/// TLS of upstreams: recorders have no TLS.
const STARTS: [&str; 7] =
    ["grpc_ssl_", "js_", "modsecurity_rules", "otel_", "perl", "proxy_ssl_", "uwsgi_ssl_"];

/// Ends of the names of directives that start programs, or write files.
const ENDS: [&str; 7] =
    ["_temp_path", "_by_lua", "_by_lua_block", "_by_lua_file", "_cache_path", "_cache", "_store"];

/// Whether a trial goes without a directive. The content of other files follows their `include`. QUIC (`listen ... quic`)
/// has a listener for TCP beside it.
pub(super) fn is_dropped(line: &Directive) -> bool {
    let name = line.name.as_str();
    DROPPED.contains(&name)
        || ENDS.iter().any(|end| name.ends_with(end))
        || STARTS.iter().any(|start| name.starts_with(start))
        || (name == "include" && !line.arg(0).ends_with("mime.types"))
        || (name == "listen" && line.has("quic"))
}
