//! Global options: `http_port`, `acme_ca`, `trusted_proxies`, `timeouts` and others.

use crate::caddy::context::Context;
use crate::caddy::environment::{self, resolve};
use crate::caddy::grammar::GLOBAL;
use crate::caddy::matcher::PRIVATE;
use crate::caddy::units;
use crate::directive::Directive;
use crate::report::Class;
use crate::toml::{self, Keys};

/// Global options that decide about sites, from the block [`GLOBAL`].
#[derive(Clone, Debug)]
pub(crate) struct Options<'a> {
    pub(crate) http_port: u16,
    pub(crate) https_port: u16,
    /// The word of `auto_https`, such as `off` or `disable_redirects`.
    pub(crate) auto: String,
    pub(crate) bind: Vec<String>,
    pub(crate) local_certs: bool,
    /// Address that approves names of certificates on demand: `ask` or `permission http` of `on_demand_tls`.
    pub(crate) ask: Option<String>,
    pub(crate) acme_dns: Option<&'a Directive>,
    /// The blocks of global options, of which a file and its imports may have several.
    pub(crate) blocks: Vec<&'a Directive>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            http_port: 80,
            https_port: 443,
            auto: String::new(),
            bind: Vec::new(),
            local_certs: false,
            ask: None,
            acme_dns: None,
            blocks: Vec::new(),
        }
    }
}

impl<'a> Options<'a> {
    /// The options of all directives. An `http_port` that is not a number is 80.
    pub(crate) fn of(all: &'a [Directive]) -> Self {
        let blocks: Vec<_> = all.iter().filter(|block| block.name == GLOBAL).collect();
        let mut options = Self { blocks: blocks.clone(), ..Self::default() };
        for line in blocks.iter().flat_map(|block| block.inner()) {
            let value = resolve(line.arg(0));
            match line.name.as_str() {
                "http_port" => options.http_port = value.parse().unwrap_or(80),
                "https_port" => options.https_port = value.parse().unwrap_or(443),
                "auto_https" => options.auto = value,
                "default_bind" => options.bind = line.args.iter().map(|arg| resolve(arg)).collect(),
                "local_certs" => options.local_certs = true,
                "acme_dns" => options.acme_dns = Some(line),
                "on_demand_tls" => {
                    let ask = line.inner().iter().find(|own| own.name == "ask");
                    let permission =
                        line.inner().iter().find(|own| own.name == "permission" && own.arg(0) == "http");
                    let nested =
                        permission.and_then(|own| own.inner().iter().find(|own| own.name == "endpoint"));
                    options.ask = ask
                        .or(nested)
                        .map(|own| resolve(own.arg(0)))
                        .or_else(|| permission.map(|own| resolve(own.arg(1))));
                }
                _ => {}
            }
        }
        options
    }

    /// Whether `auto_https` is `off`: an address without a name has TLS then only if the site states it.
    pub(crate) fn is_off(&self) -> bool {
        self.auto == "off"
    }

    /// Whether plain HTTP is not redirected: `auto_https` is `off` or `disable_redirects`.
    pub(crate) fn has_no_redirects(&self) -> bool {
        matches!(self.auto.as_str(), "off" | "disable_redirects")
    }

    /// Whether certificates are not obtained: `auto_https` is `off` or `disable_certs`.
    pub(crate) fn has_no_certificates(&self) -> bool {
        matches!(self.auto.as_str(), "off" | "disable_certs")
    }

    /// Whether proxies name the address of the client: `trusted_proxies` of `servers`.
    pub(crate) fn has_trusted(&self) -> bool {
        self.servers().any(|line| line.name == "trusted_proxies")
    }

    fn lines(&self) -> impl Iterator<Item = &'a Directive> {
        self.blocks.iter().flat_map(|block| block.inner())
    }

    /// Lines of the blocks `servers`.
    fn servers(&self) -> impl Iterator<Item = &'a Directive> {
        self.lines().filter(|line| line.name == "servers").flat_map(Directive::inner)
    }

    /// The keys of `[server]` besides addresses: `grace_period 5s` becomes `drain_timeout`.
    pub(crate) fn server(&self, context: &Context<'_>, keys: &mut Keys) {
        let (mut timeouts, mut limits) = (Keys::default(), Keys::default());
        for line in self.servers() {
            match line.name.as_str() {
                "trusted_proxies" => trusted(context, line, keys),
                "timeouts" => Self::timeouts(context, line, &mut timeouts),
                "max_header_size" => match units::size(&resolve(line.arg(0))) {
                    Some(size) => {
                        limits.set("head_size", toml::size(size.clamp(8 << 10, 1 << 20)));
                        context.carried(line);
                    }
                    None => context.missing(
                        line,
                        "the size is not a number",
                        "write head_size in [server.limits]",
                    ),
                },
                "listener_wrappers" => wrappers(context, line, keys),
                _ => server_line(context, line),
            }
        }
        if let Some(grace) = self.lines().find(|line| line.name == "grace_period")
            && let Some(time) = units::duration(&resolve(grace.arg(0)), 100, 86_400_000)
        {
            keys.set("drain_timeout", time);
            context.carried(grace);
        }
        for (key, table) in [("timeouts", timeouts), ("limits", limits)] {
            if !table.is_empty() {
                keys.set(key, table.inline());
            }
        }
    }

    fn timeouts(context: &Context<'_>, block: &Directive, timeouts: &mut Keys) {
        context.carried(block);
        for line in block.inner() {
            let key = match line.name.as_str() {
                "read_header" => "head",
                "idle" => "idle",
                "read_body_idle" => "body",
                "write_idle" => "write",
                "read_body" => {
                    context.different(line, "brisk limits pauses of a body: write body in [server.timeouts]");
                    continue;
                }
                "write" => "request",
                _ => continue,
            };
            match units::milliseconds(&resolve(line.arg(0))) {
                Some(0) | None => context.different(line, "brisk has limits of its own"),
                Some(time) => {
                    timeouts.set(key, toml::duration(time.clamp(100, 86_400_000)));
                    context.carried(line);
                }
            }
        }
    }

    /// Whether HTTP/3 is served, which Caddy does unless `protocols` lacks `h3`.
    pub(crate) fn has_http3(&self) -> bool {
        self.servers().find(|line| line.name == "protocols").is_none_or(|line| line.has("h3"))
    }

    /// The table `[acme]`: `email` becomes `contact`, and `acme_ca` becomes `directory`.
    pub(crate) fn acme(
        &self,
        context: &Context<'_>,
        has_wildcard: bool,
        has_port: bool,
        email: Option<&str>,
    ) -> Keys {
        let mut keys = Keys::default();
        if let Some(email) = email {
            keys.set("contact", environment::list([email]));
        }
        for line in self.lines() {
            match line.name.as_str() {
                "email" => {
                    keys.set("contact", environment::list([line.arg(0)]));
                    context.carried(line);
                }
                "acme_ca" => {
                    keys.set("directory", environment::text(line.arg(0)));
                    context.carried(line);
                }
                "acme_ca_root" => {
                    keys.set("ca", context.file(line.arg(0)));
                    context.carried(line);
                }
                "key_type" => {
                    if resolve(line.arg(0)).starts_with("rsa") {
                        keys.set("keys", "[\"rsa\"]");
                    }
                    context.carried(line);
                }
                "acme_eab" => context.note_whole(
                    line,
                    &missing(
                        "the key of the account is in a file in brisk",
                        "write external_account in [acme]",
                    ),
                ),
                "cert_issuer" => context.note_whole(
                    line,
                    &missing(
                        "authorities are written in [acme]",
                        "write directory, and [[acme.fallback]] for further ones",
                    ),
                ),
                "preferred_chains" => context.unneeded(line, "the authority chooses the chain"),
                _ => {}
            }
        }
        // Authorities verify wildcards by DNS only, so the list has a challenge of DNS.
        if has_wildcard {
            let list = if has_port {
                "[\"http-01\", \"tls-alpn-01\", \"dns-persist-01\"]"
            } else {
                "[\"dns-persist-01\"]"
            };
            keys.set("challenges", list);
        }
        keys
    }
}

fn missing(reason: &str, action: &str) -> Class {
    Class::NotCarried { reason: reason.to_owned(), action: action.to_owned() }
}

fn trusted(context: &Context<'_>, line: &Directive, keys: &mut Keys) {
    let mut networks: Vec<String> = Vec::new();
    for arg in line.args.iter().skip(1).map(|arg| resolve(arg)) {
        match arg.as_str() {
            "private_ranges" => networks.extend(PRIVATE.map(str::to_owned)),
            _ => networks.push(arg),
        }
    }
    if line.arg(0) != "static" || !networks.iter().all(|own| crate::nginx::access::contains(own, own)) {
        return context
            .note_whole(line, &missing("brisk has a list of networks", "write trusted_proxies in [server]"));
    }
    keys.set("trusted_proxies", toml::list(&networks));
    context.carried(line);
}

fn wrappers(context: &Context<'_>, block: &Directive, keys: &mut Keys) {
    context.carried(block);
    let is_policy = |line: &Directive| matches!(&*line.name, "deny" | "fallback_policy");
    for line in block.inner() {
        match line.name.as_str() {
            "proxy_protocol" if line.inner().iter().any(is_policy) => {
                let reason = "brisk has a list of proxies, without exceptions and policies";
                context.note_whole(line, &missing(reason, "write the proxies in proxy_protocol of [server]"));
                context.report.borrow_mut().note_open(line.id);
            }
            "proxy_protocol" => {
                let allow: Vec<String> = line
                    .inner()
                    .iter()
                    .filter(|own| own.name == "allow")
                    .flat_map(|own| own.args.iter().map(|arg| resolve(arg)))
                    .collect();
                keys.set(
                    "proxy_protocol",
                    if allow.is_empty() { "true".to_owned() } else { toml::list(&allow) },
                );
                context.carried_whole(line);
            }
            "tls" => context.carried(line),
            "http_redirect" => context.missing(
                line,
                "brisk speaks TLS on its addresses for HTTPS",
                "use the address for plain HTTP",
            ),
            _ => {}
        }
    }
}

fn server_line(context: &Context<'_>, line: &Directive) {
    match line.name.as_str() {
        "protocols" | "strict_sni_host" => context.carried(line),
        "client_ip_headers" => {
            let is_same = line.args.first().is_some_and(|name| name.eq_ignore_ascii_case("x-forwarded-for"));
            if is_same {
                context.carried(line);
            } else {
                context.different(
                    line,
                    "brisk reads the address from X-Forwarded-For, or from Forwarded without it",
                );
            }
        }
        "trusted_proxies_strict" => context.unneeded(line, "brisk reads the list of addresses from its end"),
        "name" | "metrics" | "log_credentials" | "keepalive_interval" | "keepalive_idle"
        | "keepalive_count" | "trace" => {
            context.unneeded(
                line,
                "brisk has values of its own: [admin] serves metrics, and credentials are not logged",
            );
        }
        "enable_full_duplex" | "0rtt" => context.unneeded(line, "brisk decides for each request or route"),
        "trusted_proxies_unix" | "packet_conn_wrappers" => {
            context.missing(line, "brisk listens on IP addresses", "write an address in [server]");
        }
        _ => {}
    }
}

/// Notes for options without a key of their own.
pub(crate) fn note(context: &Context<'_>, options: &Options<'_>) {
    for block in &options.blocks {
        context.carried(block);
    }
    for line in options.lines() {
        match line.name.as_str() {
            "http_port" | "https_port" | "order" | "servers" | "default_bind" | "import" => {
                context.carried(line);
            }
            "auto_https" if line.arg(0) == "ignore_loaded_certs" => {
                context.unneeded(line, "hosts with certificates obtain none");
            }
            "auto_https" => context.carried(line),
            "admin" => context.unneeded(
                line,
                "brisk has no interface that changes its configuration; [admin] serves metrics and states",
            ),
            "debug" => context.different(line, "write --log debug on the command line"),
            name => unset(context, line, name),
        }
    }
}

/// Notes for options that are a setting of no host, such as `storage` and `metrics`.
fn unset(context: &Context<'_>, line: &Directive, name: &str) {
    match name {
        "storage" => context.note_whole(
            line,
            &missing("certificates are stored in server.state_dir or Redis", "write store in [acme]"),
        ),
        "local_certs" => context.missing(
            line,
            "brisk has no authority of its own for names",
            "write certificates in each host",
        ),
        "acme_dns" | "dns" => context.note_whole(line, &dns()),
        "email" | "acme_ca" | "acme_ca_root" | "key_type" => {
            context.unneeded(line, "no host obtains certificates");
        }
        "default_sni" | "fallback_sni" => context
            .different(line, "write default = true in the host whose certificate clients without a name get"),
        "on_demand_tls" => {
            context.carried_whole(line);
            for own in line.inner().iter().filter(|own| matches!(&*own.name, "interval" | "burst")) {
                context.different(own, "write orders in on_demand of the host");
            }
        }
        "metrics" => context.note_whole(
            line,
            &missing("metrics are served at an address of their own", "write listen in [admin]"),
        ),
        "ech" => {
            context.note_whole(line, &missing("brisk has no Encrypted Client Hello", "remove the option"));
        }
        "skip_install_trust"
        | "persist_config"
        | "storage_check"
        | "storage_clean_interval"
        | "renew_interval"
        | "ocsp_interval"
        | "ocsp_stapling"
        | "pki"
        | "cert_lifetime"
        | "shutdown_delay"
        | "tls_resolvers"
        | "renewal_window_ratio" => {
            context.unneeded(line, "brisk has no such state, or does this without a setting");
        }
        "filesystem" | "events" | "tls_automate_names" | "layer4" => {
            context.note_whole(
                line,
                &missing("brisk has no counterpart", "look for its purpose in docs/configuration.md"),
            );
        }
        _ => {}
    }
}

/// The [`Class`] of a DNS provider, as `acme_dns` and `dns` name one.
pub(crate) fn dns() -> Class {
    let action = "write [acme.dns] with server, hook or acme_dns, or set the records of dns-persist-01 once (docs/certificates.md)";
    missing("brisk has no interfaces of DNS providers", action)
}
