//! Directives that need no translation, and those that brisk has no counterpart for.

use crate::directive::Directive;
use crate::report::Class;

/// Directives without a meaning in brisk, with the reason.
const NOT_NEEDED: &[(&str, &str)] = &[
    ("worker_processes", "brisk has one worker per core; [server] workers sets another number"),
    ("worker_rlimit_nofile", "brisk raises the limit of open files by itself"),
    ("worker_connections", "[server] max_connections limits connections"),
    (
        "worker_cpu_affinity worker_priority worker_shutdown_timeout worker_aio_requests",
        "brisk places its workers itself",
    ),
    ("events use multi_accept accept_mutex accept_mutex_delay", "brisk has one event loop per worker"),
    (
        "user pid daemon master_process lock_file env thread_pool timer_resolution pcre_jit working_directory debug_connection debug_points",
        "the service manager starts brisk",
    ),
    ("load_module", "brisk has no modules"),
    (
        "error_log rewrite_log log_subrequest",
        "brisk writes its log to standard error, for the service manager",
    ),
    ("log_not_found", "brisk writes no second line about missing files"),
    (
        "sendfile sendfile_max_chunk aio aio_write directio directio_alignment output_buffers postpone_output read_ahead",
        "brisk chooses the way to send files itself",
    ),
    (
        "tcp_nopush tcp_nodelay reset_timedout_connection lingering_close lingering_time lingering_timeout send_lowat",
        "brisk sets the options of connections itself",
    ),
    (
        "open_file_cache open_file_cache_valid open_file_cache_min_uses open_file_cache_errors open_log_file_cache",
        "brisk opens files without a cache",
    ),
    (
        "types_hash_max_size types_hash_bucket_size server_names_hash_max_size server_names_hash_bucket_size variables_hash_max_size variables_hash_bucket_size map_hash_max_size map_hash_bucket_size proxy_headers_hash_max_size proxy_headers_hash_bucket_size",
        "the tables of brisk grow by themselves",
    ),
    ("server_tokens", "brisk sends no header Server"),
    (
        "client_body_buffer_size client_body_in_file_only client_body_in_single_buffer client_body_temp_path client_header_buffer_size connection_pool_size request_pool_size ignore_invalid_headers merge_slashes",
        "brisk has budgets for memory and a normalised path",
    ),
    (
        "proxy_buffering proxy_buffer_size proxy_buffers proxy_busy_buffers_size proxy_max_temp_file_size proxy_temp_file_write_size proxy_temp_path proxy_http_version proxy_socket_keepalive proxy_send_timeout proxy_limit_rate proxy_bind proxy_send_lowat proxy_force_ranges proxy_intercept_errors proxy_pass_request_headers proxy_pass_request_body proxy_pass_header proxy_next_upstream_tries proxy_next_upstream_timeout",
        "brisk forwards data as it arrives, with HTTP/1.1 and kept connections",
    ),
    (
        "proxy_ssl_session_reuse proxy_ssl_protocols proxy_ssl_ciphers proxy_ssl_verify_depth grpc_ssl_session_reuse grpc_ssl_protocols grpc_ssl_ciphers grpc_ssl_verify_depth proxy_ssl_conf_command",
        "brisk chooses versions and suites of TLS itself",
    ),
    (
        "fastcgi_buffers fastcgi_buffer_size fastcgi_busy_buffers_size fastcgi_buffering fastcgi_temp_path fastcgi_temp_file_write_size fastcgi_max_temp_file_size fastcgi_keep_conn fastcgi_send_timeout fastcgi_pass_header fastcgi_intercept_errors fastcgi_hide_header uwsgi_send_timeout uwsgi_modifier1 uwsgi_request_buffering scgi_send_timeout uwsgi_buffers uwsgi_buffer_size uwsgi_buffering uwsgi_temp_path scgi_temp_path grpc_buffer_size grpc_socket_keepalive",
        "brisk forwards data as it arrives",
    ),
    (
        "gzip_http_version gzip_buffers gzip_disable gzip_window gzip_hash brotli_window brotli_buffers brotli_min_length zstd_min_length zstd_buffers gunzip gzip_vary gzip_proxied",
        "brisk sends Vary, and compresses for all clients that accept it",
    ),
    (
        "ssl_ciphers ssl_prefer_server_ciphers ssl_ecdh_curve ssl_dhparam ssl_conf_command ssl_buffer_size ssl_session_cache ssl_session_ticket_key ssl_verify_depth",
        "suites, groups and the cache of sessions of brisk are not configurable",
    ),
    (
        "ssl_stapling ssl_stapling_verify ssl_stapling_responder ssl_trusted_certificate resolver resolver_timeout",
        "brisk fetches staples, and resolves names by the system",
    ),
    ("ssl_password_file", "brisk reads keys without a password"),
    ("ssl ssl_reject_handshake", "brisk serves HTTPS at the addresses in https"),
    (
        "http2 http2_max_concurrent_streams http2_push http2_push_preload http2_recv_buffer_size http2_chunk_size http2_body_preread_size http2_idle_timeout http2_max_requests http2_max_field_size http2_max_header_size http2_recv_timeout http3 http3_hq http3_stream_buffer_size quic_retry quic_gso quic_host_key quic_active_connection_id_limit",
        "brisk offers HTTP/2 to all clients, and HTTP/3 with http3 = true",
    ),
    (
        "etag if_modified_since max_ranges chunked_transfer_encoding chunk msie_padding msie_refresh",
        "brisk answers conditional requests, ranges and all framings",
    ),
    ("types", "brisk has the usual media types built in"),
    (
        "default_type charset charset_types source_charset override_charset",
        "brisk knows the types of files, and sends those of upstreams",
    ),
    (
        "absolute_redirect port_in_redirect server_name_in_redirect",
        "redirects of brisk have the written target",
    ),
    ("proxy_redirect proxy_cookie_path proxy_cookie_domain proxy_cookie_flags", "no route uses it"),
    ("stream proxy_timeout proxy_protocol ssl_preread proxy_ssl", "no server uses it"),
    (
        "limit_req_log_level limit_conn_log_level limit_req_status limit_conn_status limit_req_zone limit_conn_zone",
        "used by limits of routes",
    ),
    (
        "auth_basic_user_file auth_basic auth_request_set auth_request auth_delay",
        "used by restrictions of routes",
    ),
    ("set_real_ip_from real_ip_header real_ip_recursive", "used by the whole server"),
    ("upstream map geo split_clients log_format", "nothing uses it"),
    (
        "server_name_in_redirect recursive_error_pages disable_symlinks satisfy satisfy_any index valid_referers referer_hash_max_size referer_hash_bucket_size",
        "no route uses it",
    ),
    (
        "proxy_ignore_headers fastcgi_ignore_headers proxy_no_cache proxy_cache_bypass proxy_cache_key proxy_cache_valid proxy_cache_lock proxy_cache_methods proxy_cache_min_uses proxy_cache_revalidate proxy_cache_use_stale proxy_cache_background_update proxy_cache_path fastcgi_cache_path fastcgi_cache_key fastcgi_cache_valid fastcgi_no_cache fastcgi_cache_bypass",
        "concerns a shared cache, which brisk does not have",
    ),
    (
        "internal tcp_nodelay_timeout autoindex_exact_size autoindex_localtime autoindex_format",
        "it is the behaviour of brisk",
    ),
    (
        "proxy_pass grpc_pass access_log root alias allow deny add_header expires proxy_set_header grpc_set_header error_page try_files proxy_hide_header client_max_body_size gzip gzip_types gzip_min_length gzip_comp_level limit_req limit_conn mirror limit_rate limit_rate_after autoindex gzip_static keepalive_timeout send_timeout client_header_timeout client_body_timeout keepalive_requests",
        "no route uses it",
    ),
    (
        "proxy_read_timeout proxy_connect_timeout proxy_next_upstream proxy_request_buffering proxy_ssl_verify proxy_ssl_server_name proxy_ssl_name proxy_ssl_trusted_certificate grpc_read_timeout grpc_connect_timeout grpc_send_timeout",
        "no upstream uses it",
    ),
    (
        "fastcgi_pass fastcgi_param fastcgi_split_path_info fastcgi_index fastcgi_read_timeout fastcgi_connect_timeout fastcgi_next_upstream uwsgi_pass uwsgi_param uwsgi_read_timeout uwsgi_connect_timeout uwsgi_next_upstream scgi_pass scgi_param scgi_read_timeout scgi_connect_timeout scgi_next_upstream",
        "no upstream uses it",
    ),
    (
        "sub_filter sub_filter_once sub_filter_types sub_filter_last_modified secure_link secure_link_md5 secure_link_secret",
        "no route uses it",
    ),
    ("set if rewrite return break", "the processing ends before it"),
    (
        "ssl_protocols ssl_session_timeout ssl_session_tickets ssl_certificate ssl_certificate_key ssl_client_certificate ssl_crl ssl_verify_client large_client_header_buffers underscores_in_headers listen server_name brotli brotli_types brotli_comp_level brotli_static zstd zstd_types zstd_comp_level zstd_static proxy_ssl_certificate proxy_ssl_certificate_key grpc_ssl_certificate grpc_ssl_certificate_key grpc_ssl_verify grpc_ssl_name grpc_ssl_server_name grpc_ssl_trusted_certificate grpc_next_upstream limit_req_dry_run limit_conn_dry_run",
        "no server uses it",
    ),
    ("mirror_request_body", "brisk copies bodies of up to 64 KiB"),
    ("include", "the file was read"),
    ("http server location", "its content was read"),
];

/// Directives without a counterpart, with the reason and the advice.
const MISSING: &[(&str, &str, &str)] = &[
    ("mail", "brisk does not speak IMAP, POP3 and SMTP", "keep nginx or another mail proxy"),
    (
        "proxy_cache fastcgi_cache uwsgi_cache",
        "brisk has no shared cache",
        "put a cache between brisk and the application",
    ),
    (
        "ssi ssi_types ssi_silent_errors",
        "brisk has no server-side includes",
        "let the application form the page",
    ),
    (
        "dav_methods create_full_put_path dav_access min_delete_depth",
        "brisk does not write files",
        "use a WebDAV server as upstream",
    ),
    (
        "mp4 flv mp4_buffer_size mp4_max_buffer_size slice",
        "brisk sends files and ranges as they are",
        "let players use ranges",
    ),
    ("memcached_pass", "brisk does not speak this protocol", "let the application speak HTTP"),
    (
        "perl perl_set js_import js_set js_content lua_shared_dict lua_package_path access_by_lua_block content_by_lua_block rewrite_by_lua_block header_filter_by_lua_block access_by_lua_file content_by_lua_file set_by_lua_block init_by_lua_block",
        "brisk runs no programs",
        "let the application do it",
    ),
    (
        "geoip_country geoip_city geoip2 geoip_org",
        "brisk has no table of countries for routes",
        "let the application look it up",
    ),
    (
        "auth_jwt_require auth_oidc auth_digest auth_digest_user_file auth_ldap auth_ldap_servers auth_pam auth_pam_service_name auth_gss js_access perl_access access_by_lua rewrite_by_lua rewrite_by_lua_file modsecurity modsecurity_rules modsecurity_rules_file",
        "brisk does not have the module",
        "let the application check it, or write another restriction",
    ),
    ("auth_jwt auth_jwt_key_file", "tokens are configured in another form", "write jwt in the route"),
    (
        "userid userid_name userid_domain userid_expires userid_path",
        "brisk sets no cookies for statistics",
        "use [visits] for measurements",
    ),
    (
        "addition_types add_before_body add_after_body image_filter xslt_stylesheet xml_entities random_index concat",
        "brisk does not change documents",
        "let the application form the page",
    ),
    (
        "more_set_headers more_clear_headers more_set_input_headers more_clear_input_headers",
        "the module has another form of rules",
        "write response_headers or request_headers",
    ),
    ("add_trailer", "brisk adds no trailers", "let the application send them"),
    ("proxy_method proxy_set_body", "brisk forwards method and body unchanged", "change the application"),
    (
        "stub_status",
        "the metrics of brisk are at another address",
        "write [admin] listen = \"127.0.0.1:9090\"",
    ),
    (
        "ssl_early_data",
        "early data is a setting of routes",
        "write early_data = \"safe\" in [[host]] if repeated requests do no harm",
    ),
    ("limit_except", "it has no block that brisk has", "write when.methods"),
    ("log_format", "a variable has no counterpart", "write a template in [access_log]"),
    ("empty_gif", "brisk has no built-in picture", "serve a file"),
    (
        "ssl_ocsp ssl_ocsp_cache ssl_ocsp_responder",
        "brisk requests no status of the certificates of clients",
        "write crl in client_certificates",
    ),
];

/// The class of a directive whose arguments decide it. `is_beside` for `try_files` beside `proxy_pass`.
pub(crate) fn exception(directive: &Directive, is_beside: bool) -> Option<Class> {
    let (reason, action) = match (directive.name.as_str(), directive.arg(0)) {
        ("proxy_pass_request_headers", "off") => {
            ("brisk forwards the headers of requests", "remove them with request_headers")
        }
        ("proxy_pass_request_body", "off") => {
            ("brisk forwards bodies of requests", "let the application ignore them")
        }
        ("gunzip", "on") => (
            "brisk does not decode responses for clients",
            "let the server send codings that the client accepts: it gets Accept-Encoding",
        ),
        ("disable_symlinks", value) if value != "off" => {
            ("brisk follows links inside of the folder", "remove the links from the folder")
        }
        ("proxy_bind", value) if value != "off" => {
            ("brisk lets the system choose its own address", "set the address in the routes of the system")
        }
        ("try_files", _) if is_beside => (
            "a route of brisk has files with a fallback, or a server",
            "write static with fallback in a route",
        ),
        _ => return None,
    };
    Some(Class::NotCarried { reason: reason.to_owned(), action: action.to_owned() })
}

/// The class of a directive that the translation has not touched.
pub(crate) fn class_of(name: &str) -> Option<Class> {
    let is_in = |names: &str| names.split(' ').any(|own| own == name);
    // An untouched `log_format` is one that no log uses, which is no loss.
    if let Some((_, reason, action)) =
        MISSING.iter().find(|(names, _, _)| is_in(names)).filter(|_| name != "log_format")
    {
        return Some(Class::NotCarried { reason: (*reason).to_owned(), action: (*action).to_owned() });
    }
    let (_, reason) = NOT_NEEDED.iter().find(|(names, _)| is_in(names))?;
    Some(Class::NotNeeded((*reason).to_owned()))
}
