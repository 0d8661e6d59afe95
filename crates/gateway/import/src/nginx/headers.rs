//! Headers of requests for upstreams and of responses.

use crate::directive::Directive;
use crate::nginx::access::is_copyable;
use crate::nginx::context::Context;
use crate::nginx::scope::Scope;
use crate::nginx::variables::{Use, Values, only_variable};
use crate::toml::{self, Keys};

/// Headers that brisk sends to upstreams without a setting, with the values that mean the same in nginx.
const DEFAULTS: &[(&str, &[&str])] = &[
    (
        "host",
        &[
            "$host",
            "$http_host",
            "$host:$server_port",
            "$http_host:$server_port",
            "$server_name",
            "$http_x_forwarded_host",
        ],
    ),
    (
        "x-forwarded-for",
        &["$proxy_add_x_forwarded_for", "$remote_addr", "$http_x_forwarded_for", "$realip_remote_addr"],
    ),
    (
        "x-forwarded-proto",
        &[
            "$scheme",
            "$http_x_forwarded_proto",
            "$x_forwarded_proto",
            "$proxy_x_forwarded_proto",
            "$the_scheme",
        ],
    ),
    (
        "x-forwarded-host",
        &["$host", "$http_host", "$host:$server_port", "$the_host", "$server_name", "$http_x_forwarded_host"],
    ),
    ("x-request-id", &["$request_id"]),
    ("upgrade", &["$http_upgrade", "websocket", ""]),
    (
        "connection",
        &["", "upgrade", "Upgrade", "$connection_upgrade", "$http_connection", "keep-alive", "close"],
    ),
    ("early-data", &["$ssl_early_data"]),
    ("proxy", &[""]),
    ("te", &["trailers"]),
    ("forwarded", &["$proxy_add_forwarded"]),
];

/// Headers that frame a message, which rules of brisk cannot change.
const FRAMING: [&str; 6] =
    ["content-length", "content-encoding", "transfer-encoding", "connection", "upgrade", "keep-alive"];

/// Rules that a route has from its host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inherited {
    pub(crate) request: Vec<String>,
    pub(crate) response: Vec<String>,
    pub(crate) real_ip: bool,
    pub(crate) access_log: String,
}

/// Rules for headers that upstreams get.
#[derive(Debug, Default)]
struct Sent {
    set: Keys,
    remove: Vec<String>,
    real_ip: bool,
}

/// Names of the headers in rules.
fn names(rules: &Keys) -> Vec<String> {
    rules.0.iter().map(|(name, _)| name.to_ascii_lowercase()).collect()
}

impl Context<'_> {
    /// Rules for the headers that upstreams get, of the levels above `from`.
    pub(crate) fn request_headers(
        &self,
        scope: &Scope<'_>,
        from: usize,
        values: &Values,
        inherited: &mut Inherited,
        keys: &mut Keys,
    ) {
        // Both names are joined, because a location has one of the two protocols.
        let (level, headers) = scope.all_of(&["proxy_set_header", "grpc_set_header"]);
        if level <= from {
            return;
        }
        let mut sent = Sent::default();
        for header in headers {
            self.sent(scope, header, values, &mut sent);
        }
        let Sent { set, remove, real_ip } = sent;
        let mut rules = Keys::default();
        let own = names(&set);
        // nginx replaces the whole list of the outer level, brisk adds to it by name: rules that only the
        // host has would stay.
        if inherited.request.iter().any(|name| !own.contains(name)) {
            rules.set("inherit", "false");
        }
        inherited.request = own;
        inherited.request.extend(remove.iter().map(|name| name.to_ascii_lowercase()));
        if !set.is_empty() {
            rules.set("set", set.inline());
        }
        if !remove.is_empty() {
            rules.set("remove", toml::list(remove));
        }
        if !rules.is_empty() {
            keys.set("request_headers", rules.inline());
        }
        if real_ip != inherited.real_ip {
            keys.set("x_real_ip", real_ip.to_string());
            inherited.real_ip = real_ip;
        }
    }

    /// The rule for one header that upstreams get.
    fn sent(&self, scope: &Scope<'_>, header: &Directive, values: &Values, sent: &mut Sent) {
        let (name, value) = (header.arg(0), header.arg(1));
        let lower = name.to_ascii_lowercase();
        let known = DEFAULTS.iter().find(|(own, _)| *own == lower);
        if known.is_some_and(|(_, all)| all.contains(&value)) {
            self.carried(header);
        } else if lower == "x-real-ip" && matches!(value, "$remote_addr" | "$realip_remote_addr") {
            sent.real_ip = true;
            self.carried(header);
        } else if FRAMING.contains(&&*lower) {
            self.unneeded(header, "brisk frames each message itself");
        } else if value.is_empty() {
            sent.remove.push(name.to_owned());
            self.carried(header);
        } else if is_copied(scope, value) {
            // forward_auth replaces the header of the client by that of the permission.
            if !is_replaced(scope, name, value) {
                sent.remove.push(name.to_owned());
            }
        } else {
            match self.template(value, values, Use::Value) {
                Ok(text) => {
                    sent.set.set(name, toml::text(&text));
                    self.carried(header);
                    self.note_user(scope, header, &text);
                }
                Err(reason) => {
                    // nginx replaces the header of the client. No client may choose its value here either.
                    if known.is_none() {
                        sent.remove.push(name.to_owned());
                    }
                    let action = "let the application do without the header, which clients cannot send";
                    self.missing(header, reason, action);
                }
            }
        }
    }

    /// Rules for the headers of responses, of the levels above `from`.
    pub(crate) fn response_headers(
        &self,
        scope: &Scope<'_>,
        from: usize,
        values: &Values,
        inherited: &mut Inherited,
        keys: &mut Keys,
    ) {
        let (level, added) = scope.all_of(&["add_header"]);
        let own_level = |name: &str| scope.level(name) > from;
        if level <= from && !own_level("expires") && !own_level("proxy_hide_header") {
            return;
        }
        let added_names: Vec<_> = added.iter().map(|header| header.arg(0).to_ascii_lowercase()).collect();
        let is_replaced = level > from && inherited.response.iter().any(|name| !added_names.contains(name));
        // With `inherit = false`, the route loses all rules of the host, so `expires` and hidden headers of
        // all levels are written again.
        let from = if is_replaced { 0 } else { from };
        let is_always = self.is_always(&added);
        let (mut add, mut remove) = (Keys::default(), Vec::new());
        let mut cache = scope
            .one("expires")
            .filter(|expires| scope.level(&expires.name) > from)
            .and_then(|expires| self.expires(expires));
        for header in added.iter().filter(|_| level > from) {
            self.added(scope, header, values, is_always, &mut cache, &mut add);
        }
        let mut rules = Keys::default();
        if is_replaced {
            rules.set("inherit", "false");
        }
        for hidden in
            scope.all("proxy_hide_header").into_iter().filter(|hidden| scope.level(&hidden.name) > from)
        {
            remove.push(hidden.arg(0).to_owned());
            self.carried(hidden);
        }
        if let Some(cache) = cache {
            rules.set("set", format!("{{ Cache-Control = {} }}", toml::text(&cache)));
        }
        inherited.response = names(&add);
        if !add.is_empty() {
            rules.set("add", add.inline());
        }
        if !remove.is_empty() {
            rules.set("remove", toml::list(remove));
        }
        if is_always {
            rules.set("always", "true");
        }
        if !rules.is_empty() {
            keys.set("response_headers", rules.inline());
        }
    }

    /// Whether the rules apply to errors too. With both kinds, they do unless a rule is about caches.
    fn is_always(&self, added: &[&Directive]) -> bool {
        // brisk has one `always` for all rules of a table. With a rule about caches, errors would be
        // cacheable for weeks.
        let has = |wanted: bool| added.iter().any(|header| header.has("always") == wanted);
        let about_caches = |header: &&Directive| {
            !header.has("always")
                && matches!(&*header.arg(0).to_ascii_lowercase(), "cache-control" | "expires" | "pragma")
        };
        let always = has(true) && !added.iter().any(about_caches);
        for header in added.iter().filter(|header| has(!always) && header.has("always") != always) {
            let detail =
                if always { "also for responses with errors" } else { "for responses of 2xx and 3xx only" };
            self.different(header, format!("{detail}: `always` of brisk concerns all headers of the table"));
        }
        always
    }

    fn added(
        &self,
        scope: &Scope<'_>,
        header: &Directive,
        values: &Values,
        is_always: bool,
        cache: &mut Option<String>,
        add: &mut Keys,
    ) {
        let (name, value) = (header.arg(0), header.arg(1));
        // nginx sends no header with an empty value.
        if value.is_empty() || is_copied(scope, value) {
            return self.carried(header);
        }
        if FRAMING.contains(&&*name.to_ascii_lowercase()) {
            return self.missing(header, "brisk frames each message itself", "remove the header");
        }
        match self.template(value, values, Use::Value) {
            Ok(text) if name.eq_ignore_ascii_case("cache-control") && !is_always => {
                // RFC 9110 section 5.3: two lines of one list are the same as one line.
                let joined = cache.take().map_or_else(|| text.clone(), |first| format!("{first}, {text}"));
                *cache = Some(joined);
                self.carried(header);
            }
            Ok(text) => {
                add.set(name, toml::text(&text));
                self.carried(header);
                self.note_user(scope, header, &text);
            }
            Err(reason) => self.missing(header, reason, "let the application send the header"),
        }
    }

    /// The value of `Cache-Control` for `expires`.
    fn expires(&self, expires: &Directive) -> Option<String> {
        let detail = "brisk sends Cache-Control, which takes precedence over Expires (RFC 9111 section 5.3), and no Expires";
        let value = match expires.arg(0) {
            "off" => {
                self.carried(expires);
                return None;
            }
            "epoch" => "no-cache".to_owned(),
            // The value of nginx: ten years.
            "max" => "max-age=315360000".to_owned(),
            time if time.starts_with('-') => "no-cache".to_owned(),
            time => {
                if let Some(time) = toml::milliseconds(time) {
                    format!("max-age={}", time / 1000)
                } else {
                    self.missing(
                        expires,
                        "the time depends on a variable or a clock",
                        "write routes with Cache-Control in response_headers",
                    );
                    return None;
                }
            }
        };
        self.different(expires, detail);
        Some(value)
    }
}

/// Whether a value is a variable of `auth_request_set`.
fn is_copied(scope: &Scope<'_>, value: &str) -> bool {
    scope.all("auth_request_set").iter().any(|set| set.arg(0) == value)
}

/// Whether `auth_request_set` has a header of a permission for this header.
fn is_replaced(scope: &Scope<'_>, name: &str, value: &str) -> bool {
    let is_header = |set: &&Directive| {
        let source = only_variable(set.arg(1));
        set.arg(0) == value && source.is_some_and(|source| source.starts_with("upstream_http_"))
    };
    let is_asked = scope.one("auth_request").is_some_and(|question| question.arg(0) != "off");
    is_asked && is_copyable(name) && scope.all("auth_request_set").iter().any(is_header)
}
