//! Classes of lines that have no effect on the result, by their names.

use crate::directive::Directive;
use crate::report::Class;

/// Reason for settings of the process, such as `nbthread`.
const PROCESS: &str =
    "brisk chooses workers, buffers and memory itself, and its unit for systemd its user and folder";

/// Reason for settings of TLS, such as `ssl-default-bind-ciphers`.
const SUITES: &str = "brisk has TLS 1.2 and 1.3 with secure suites";

/// Lines of `global` that need no counterpart, except the ones that begin with `tune.`.
const GLOBAL: [&str; 44] = [
    "daemon",
    "user",
    "group",
    "uid",
    "gid",
    "chroot",
    "pidfile",
    "nbproc",
    "nbthread",
    "cpu-map",
    "master-worker",
    "node",
    "description",
    "spread-checks",
    "max-spread-checks",
    "ulimit-n",
    "numa-cpu-mapping",
    "stats",
    "ca-base",
    "crt-base",
    "quiet",
    "zero-warning",
    "unix-bind",
    "maxpipes",
    "maxsslconn",
    "maxsslrate",
    "maxconnrate",
    "maxsessrate",
    "maxzlibmem",
    "maxcomprate",
    "maxcompcpuusage",
    "noepoll",
    "nosplice",
    "profiling.tasks",
    "localpeer",
    "setenv",
    "presetenv",
    "resetenv",
    "unsetenv",
    "log-tag",
    "log-send-hostname",
    "set-dumpable",
    "thread-groups",
    "busy-polling",
];

/// Lines about TLS in `global`.
const TLS: [&str; 14] = [
    "ssl-default-bind-ciphers",
    "ssl-default-bind-ciphersuites",
    "ssl-default-bind-options",
    "ssl-default-server-ciphers",
    "ssl-default-server-ciphersuites",
    "ssl-default-server-options",
    "ssl-dh-param-file",
    "ssl-default-bind-curves",
    "ssl-engine",
    "ssl-mode-async",
    "ssl-load-extra-files",
    "ssl-load-extra-del-ext",
    "ssl-skip-self-issued-ca",
    "ssl-default-bind-sigalgs",
];

/// Options of proxies that need no counterpart: `httplog` for `option httplog`.
const OPTIONS: [&str; 44] = [
    "httplog",
    "tcplog",
    "dontlognull",
    "dontlog-normal",
    "log-health-checks",
    "log-separate-errors",
    "logasap",
    "httpslog",
    "http-server-close",
    "httpclose",
    "http-keep-alive",
    "http-pretend-keepalive",
    "forceclose",
    "http-no-delay",
    "http-tunnel",
    "redispatch",
    "nolinger",
    "clitcpka",
    "srvtcpka",
    "tcpka",
    "contstats",
    "splice-auto",
    "splice-request",
    "splice-response",
    "tcp-smart-accept",
    "tcp-smart-connect",
    "http-use-htx",
    "http-ignore-probes",
    "socket-stats",
    "prefer-last-server",
    "persist",
    "independent-streams",
    "abortonclose",
    "forwardfor",
    "h1-case-adjust-bogus-client",
    "h1-case-adjust-bogus-server",
    "idle-close-on-response",
    "checkcache",
    "http-buffer-request",
    "httpchk",
    "tcp-check",
    "ssl-hello-chk",
    "http-restrict-req-hdr-names",
    "disable-h2-upgrade",
];

/// Settings of proxies that need no counterpart, or that the translation reads where the proxy is used, such as `balance`.
const PROXY: [&str; 45] = [
    "log",
    "log-format-sd",
    "error-log-format",
    "log-tag",
    "id",
    "description",
    "bind-process",
    "backlog",
    "fullconn",
    "http-reuse",
    "load-server-state-from-file",
    "maxconn",
    "enabled",
    "disabled",
    "hash-type",
    "balance",
    "retries",
    "retry-on",
    "timeout",
    "option",
    "cookie",
    "default-server",
    "server",
    "server-template",
    "errorfile",
    "acl",
    "capture",
    "unique-id-format",
    "unique-id-header",
    "declare",
    "rate-limit",
    "http-check",
    "tcp-check",
    "stick-table",
    "default_backend",
    "use_backend",
    "http-send-name-header",
    "max-keep-alive-queue",
    "clitcpka-cnt",
    "clitcpka-idle",
    "clitcpka-intvl",
    "srvtcpka-cnt",
    "srvtcpka-idle",
    "srvtcpka-intvl",
    "compression",
];

#[expect(clippy::unnecessary_wraps, reason = "the arms of a match have no class too")]
fn unneeded(reason: &str) -> Option<Class> {
    Some(Class::NotNeeded(reason.to_owned()))
}

#[expect(clippy::unnecessary_wraps, reason = "the arms of a match have no class too")]
fn missing(reason: &str, action: &str) -> Option<Class> {
    Some(Class::NotCarried { reason: reason.to_owned(), action: action.to_owned() })
}

/// The `Class` of a `line` that the translation has not touched; `None` if its name is not known.
pub(crate) fn class_of(section: &Directive, line: &Directive) -> Option<Class> {
    let name = line.name.as_str();
    if section.name == "global" {
        return match name {
            _ if GLOBAL.contains(&name) || name.starts_with("tune.") || name.starts_with("no") => {
                unneeded(PROCESS)
            }
            _ if TLS.contains(&name) => unneeded(SUITES),
            "ssl-server-verify" => Some(Class::Carried),
            "log" => unneeded("no proxy of the result uses it"),
            "maxconn" | "hard-stop-after" => unneeded("no file of the result has this proxy"),
            "external-check" | "insecure-fork-wanted" | "insecure-setuid-wanted" => {
                missing("brisk starts no programs for checks", "write health = { path = \"/\" } in the group")
            }
            "server-state-base" | "server-state-file" => {
                unneeded("brisk learns the state of servers by its checks")
            }
            "expose-experimental-directives" | "h1-case-adjust" | "h1-case-adjust-file" => unneeded(PROCESS),
            _ if name.starts_with("lua-") => {
                missing("brisk does not run Lua", "rules that call Lua refuse their requests")
            }
            _ => None,
        };
    }
    match section.name.as_str() {
        "defaults" | "frontend" | "backend" | "listen" => of_proxy(line),
        "userlist" | "resolvers" => unneeded("no route of the result uses it"),
        "peers" => {
            missing("brisk shares rates by Redis", "write fleet = true in the limit, and [sessions.redis]")
        }
        "cache" => missing("brisk has no shared cache", "use a cache behind brisk"),
        "mailers" => missing("brisk sends no mail", "use the metrics of [admin] with alerts"),
        "program" => missing("brisk starts no programs", "use units of systemd"),
        _ => missing("brisk has no such section", "look for its purpose in docs/configuration.md"),
    }
}

/// The class of a line in `defaults`, `frontend`, `backend` or `listen`.
fn of_proxy(line: &Directive) -> Option<Class> {
    let name = line.name.as_str();
    let option =
        if matches!(name, "option" | "no") && line.arg(0) == "option" { line.arg(1) } else { line.arg(0) };
    match name {
        "option" | "no" => of_option(option),
        "mode" => Some(Class::Carried),
        "tcp-request" if line.arg(0) == "inspect-delay" => {
            unneeded("server.timeouts.hello is the time for the first message")
        }
        "appsession" => missing("the rule is one of HAProxy before 1.6", "write sticky = {} in the group"),
        "stats" => missing(
            "brisk has no page of statistics in HAProxy's form",
            "write [dashboard], and [admin] for metrics",
        ),
        "errorloc" | "errorloc302" | "errorloc303" | "http-error" | "errorfiles" => {
            missing("the page of brisk for the error stays", "write error_pages in [[host]]")
        }
        "monitor" | "monitor-net" => {
            missing("brisk responds to monitors as to all clients", "write a route with respond")
        }
        "stick" => missing("brisk has no tables of clients and servers", "write sticky = {} in the group"),
        "use-server" => missing(
            "brisk chooses servers by balance and cookies",
            "write a group for the server, and a route with `when`",
        ),
        "source" => {
            missing("brisk connects from the address that the system chooses", "use rules of the system")
        }
        "filter" if line.arg(0) == "compression" => {
            unneeded("brisk compresses responses of routes with compression")
        }
        "filter" => missing("brisk has no such filter", "rules about its results refuse their requests"),
        "external-check" => {
            missing("brisk starts no programs for checks", "write health = { path = \"/\" } in the group")
        }
        "email-alert" => missing("brisk sends no mail", "use the metrics of [admin] with alerts"),
        "http-request"
        | "http-response"
        | "http-after-response"
        | "tcp-request"
        | "redirect"
        | "monitor-uri"
        | "log-format"
        | "bind" => unneeded("no request of the result reaches the rule"),
        "tcp-response" => missing("brisk has no rules for bytes of servers", "remove the rule"),
        "rspadd" | "rspdel" | "rsprep" | "rspirep" | "rspidel" | "rspdeny" | "rspideny" => {
            missing("the rule is one of HAProxy before 2.1", "write it as http-response, and import again")
        }
        _ if name.starts_with("req") => unneeded("no request of the result reaches the rule"),
        "persist" | "force-persist" | "ignore-persist" | "transparent" | "fcgi-app" | "use-fcgi-app" => {
            missing("brisk has no such setting", "look for its purpose in docs/configuration.md")
        }
        _ if PROXY.contains(&name) => {
            unneeded("brisk does this without a setting, or no proxy of the result uses it")
        }
        _ => None,
    }
}

/// The class of an option: of `option NAME` or `no option NAME`.
fn of_option(option: &str) -> Option<Class> {
    match option {
        _ if OPTIONS.contains(&option) => {
            unneeded("brisk does this without a setting, or no proxy of the result uses it")
        }
        _ if option.starts_with("accept-invalid") || option.starts_with("accept-unsafe") => {
            Some(Class::Difference("brisk refuses malformed messages".to_owned()))
        }
        _ if option == "allbackups" => {
            Some(Class::Difference("all backup servers of brisk share the requests".to_owned()))
        }
        _ if option == "external-check" => {
            missing("brisk starts no programs for checks", "write health = { path = \"/\" } in the group")
        }
        _ if option.ends_with("-check") || option == "smtpchk" => unneeded("no proxy of the result uses it"),
        _ if option == "originalto" => {
            missing("brisk sends no X-Original-To", "write request_headers with {server.address}")
        }
        _ => missing("brisk has no such option", "look for its purpose in docs/configuration.md"),
    }
}
