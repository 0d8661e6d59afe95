//! Hosts: names, certificates and settings of a `server`.

use crate::directive::Directive;
use crate::nginx::condition::is_host_condition;
use crate::nginx::context::Context;
use crate::nginx::listen::{Server, is_challenge, scope};
use crate::nginx::location::{Route, without_repetitions};
use crate::nginx::scheme::is_scheme_condition;
use crate::nginx::scope::Scope;
use crate::nginx::site::Site;
use crate::report::Class;
use crate::table::Table;
use crate::toml::{self, Keys};

/// Number of the levels that a host stands for: `http` and `server`.
pub(crate) const HOST: usize = 2;

/// A host of brisk with its routes.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) table: Table,
    pub(crate) routes: Vec<Route>,
}

/// Facts about all servers of a file that each host needs.
#[derive(Debug)]
pub(crate) struct Neighbours<'s, 'a> {
    pub(crate) servers: &'s [Server<'a>],
    /// Certificates of the first `server` with TLS.
    pub(crate) certificates: Option<String>,
    /// Whether the file has addresses for HTTPS.
    pub(crate) has_tls: bool,
}

impl<'a> Context<'a> {
    /// The hosts for a server: mostly one; more if an `if` gives some of its names a redirect.
    pub(crate) fn hosts(&self, server: &Server<'a>, all: &Neighbours<'_, 'a>) -> Vec<Host> {
        self.carried(server.directive);
        let scope = scope(&self.http, server);
        for line in server.directive.inner().iter().filter(|line| line.name == "listen") {
            self.carried(line);
        }
        for line in &server.unread {
            self.missing(
                line,
                "brisk listens on IP addresses",
                "write an address in https or http of [server]",
            );
        }
        if scope.is_on("ssl_reject_handshake") || is_refusal(server) {
            self.carried_whole(server.directive);
            return Vec::new();
        }
        let names = self.names(server);
        let covered =
            |name: &String| all.servers.iter().any(|other| other.has_tls() && other.names.contains(name));
        if server.redirects_to_https() && all.has_tls && (names.iter().all(covered) || names.is_empty()) {
            self.redirect_server(server);
            return Vec::new();
        }
        let names = self.first_names(server, names, all);
        let (moved, rest) = self.moved_names(server, names);
        let mut hosts = Vec::new();
        if !rest.is_empty() || moved.is_empty() {
            hosts.push(self.host(server, &scope, rest, all));
        }
        for (names, step) in moved {
            hosts.push(self.moved_host(server, &scope, &names, step, all));
        }
        hosts
    }

    /// Notes about a server that only redirects to HTTPS, which brisk does by itself.
    fn redirect_server(&self, server: &Server<'a>) {
        let reason = "brisk redirects plain HTTP to HTTPS (308)";
        self.carried_whole(server.directive);
        for line in server.directive.inner() {
            match line.name.as_str() {
                "return" | "rewrite" | "if" => self.note_whole(line, &Class::Difference(reason.to_owned())),
                "location" if is_challenge(line) => {
                    let advice = "brisk answers challenges of its own certificates: write acme = true in [[host]] in place of certificates";
                    self.note_whole(line, &Class::Difference(advice.to_owned()));
                }
                _ => {}
            }
        }
    }

    /// Names of the host in brisk. Expressions and names with a wildcard at the end have no counterpart.
    fn names(&self, server: &Server<'a>) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let mut add = |name: String| {
            if !names.contains(&name) {
                names.push(name);
            }
        };
        for line in server.directive.inner().iter().filter(|line| line.name == "server_name") {
            self.carried(line);
            for name in &line.args {
                let lower = name.to_ascii_lowercase();
                match lower.strip_prefix('.') {
                    Some(domain) => {
                        add(domain.to_owned());
                        add(format!("*.{domain}"));
                    }
                    None if matches!(&*lower, "_" | "" | "$hostname" | "localhost.localdomain")
                        || lower.starts_with("_.") => {}
                    None if lower.starts_with('~') || lower.ends_with(".*") => {
                        self.missing(
                            line,
                            format!("{name}: names of brisk are exact or begin with *."),
                            "list the names",
                        );
                    }
                    None => {
                        if lower.starts_with("*.") {
                            self.different(line, "a wildcard of brisk stands for one label");
                        }
                        add(lower);
                    }
                }
            }
        }
        names
    }

    /// The names that no server before this one has. nginx ignores the others with a warning.
    fn first_names(&self, server: &Server<'a>, names: Vec<String>, all: &Neighbours<'_, 'a>) -> Vec<String> {
        let before = all.servers.iter().filter(|other| {
            other.directive.id < server.directive.id && !(other.redirects_to_https() && all.has_tls)
        });
        let taken: Vec<_> = before.flat_map(|other| &other.names).collect();
        let (free, other): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| !taken.contains(&name));
        if !other.is_empty() {
            let detail = format!("another server has the names {}: it gets their requests", other.join(", "));
            self.different(server.directive, detail);
        }
        free
    }

    /// Names that an `if ($host = ...)` of the server redirects, with that `if`, and the other names.
    fn moved_names(
        &self,
        server: &Server<'a>,
        names: Vec<String>,
    ) -> (Vec<(Vec<String>, &'a Directive)>, Vec<String>) {
        let (mut moved, mut rest) = (Vec::new(), names);
        for step in server.directive.inner().iter().filter(|line| is_host_condition(line)) {
            let operator = step.arg(1);
            let value = step.args.get(2..).unwrap_or_default().join(" ");
            let value = value.trim_end_matches(')');
            let matches = |name: &String| match operator.trim_start_matches('!') {
                "=" => name == value,
                "~" | "~*" => crate::nginx::pattern::matches(value, operator.ends_with('*'), name),
                _ => false,
            };
            let (own, others): (Vec<_>, Vec<_>) =
                rest.into_iter().partition(|name| matches(name) != operator.starts_with('!'));
            rest = others;
            self.carried(step);
            if is_undecided(server) {
                // The host has a route that refuses all requests.
                let action = "list the names in server_name; until then the host refuses requests";
                self.missing(step, "the names of the server do not decide the condition", action);
                rest.extend(own);
            } else if own.is_empty() && operator.starts_with('!') {
                self.different(
                    step,
                    "hosts of brisk have their own names only, but the default host has all others",
                );
                self.carried_whole(step);
            } else if own.is_empty() {
                self.note_whole(
                    step,
                    &Class::NotNeeded("no name of the server fits the condition".to_owned()),
                );
            } else {
                moved.push((own, step));
            }
        }
        (moved, rest)
    }

    /// A host for names that are redirected.
    fn moved_host(
        &self,
        server: &Server<'a>,
        scope: &Scope<'a>,
        names: &[String],
        step: &'a Directive,
        all: &Neighbours<'_, 'a>,
    ) -> Host {
        let mut keys = self.identity(server, scope, names, all);
        self.client_certificates(scope, &mut keys);
        let mut site = Site::new(self, server);
        site.host_settings(&mut keys);
        let mut routes = Vec::new();
        site.run_whole(step, &mut routes);
        site.add_pages(&keys, &mut routes);
        without_repetitions(&mut routes);
        if server.has_plain() && !server.has_tls() {
            keys.set("plain", "\"serve\"");
        }
        let comment = step.comment();
        Host { table: Table { header: "[[host]]".to_owned(), keys, comment }, routes }
    }

    fn host(
        &self,
        server: &Server<'a>,
        scope: &Scope<'a>,
        names: Vec<String>,
        all: &Neighbours<'_, 'a>,
    ) -> Host {
        let names = if names.is_empty() { vec![unnamed(server, all)] } else { names };
        let mut keys = self.identity(server, scope, &names, all);
        let is_default = server.listens.iter().any(|listen| listen.default);
        let is_first =
            all.servers.first().is_some_and(|first| std::ptr::eq(first.directive, server.directive));
        if is_default && !is_first {
            keys.set("default", "true");
        }
        if server.has_plain() && !redirects_scheme(server) {
            keys.set("plain", "\"serve\"");
        }
        self.client_certificates(scope, &mut keys);
        if keys.get("client_certificates").is_some() {
            // Over plain HTTP, brisk redirects to HTTPS, where clients have certificates.
            keys.0.retain(|(key, _)| key != "plain");
        }
        let mut site = Site::new(self, server);
        site.host_settings(&mut keys);
        let mut routes = if is_undecided(server) { vec![site.refused()] } else { site.routes() };
        if let Some(file) = site.maintenance.take() {
            keys.set("maintenance", format!("{{ file = {} }}", self.file(&file)));
        }
        if routes.is_empty() {
            let mut missing = Keys::default();
            missing.set("respond", "{ status = 404 }");
            let path = "/".to_owned();
            let comment = "nginx has no files without `root`".to_owned();
            routes.push(Route {
                path,
                exact: false,
                when: crate::nginx::condition::When::default(),
                keys: missing,
                comment,
            });
        }
        site.add_pages(&keys, &mut routes);
        without_repetitions(&mut routes);
        let comment = server.directive.comment();
        Host { table: Table { header: "[[host]]".to_owned(), keys, comment }, routes }
    }

    /// `names` and `certificates`.
    fn identity(
        &self,
        server: &Server<'a>,
        scope: &Scope<'a>,
        names: &[String],
        all: &Neighbours<'_, 'a>,
    ) -> Keys {
        let mut keys = Keys::default();
        keys.set("names", toml::list(names));
        let own = self.certificates(scope).filter(|_| server.has_tls());
        if own.is_none() && all.has_tls && all.certificates.is_some() {
            self.different(
                server.directive,
                "the host has the certificate of the first host, because brisk serves it over HTTPS too",
            );
        }
        if let Some(certificates) = own.or_else(|| all.certificates.clone()).filter(|_| all.has_tls) {
            keys.set("certificates", certificates);
        }
        keys
    }

    /// The `certificates` of a server.
    pub(crate) fn certificates(&self, scope: &Scope<'a>) -> Option<String> {
        let (chains, keys) = (scope.all("ssl_certificate"), scope.all("ssl_certificate_key"));
        let mut pairs = Vec::new();
        for (chain, key) in chains.iter().zip(keys) {
            if chain.arg(0).contains(['$'])
                || chain.arg(0).starts_with("data:")
                || key.arg(0).starts_with("engine:")
            {
                self.missing(
                    chain,
                    "the certificate is no file with a fixed name",
                    "write certificates, certificate_folder or acme = true in [[host]]",
                );
                continue;
            }
            self.carried(chain);
            self.carried(key);
            pairs.push(format!("{{ chain = {}, key = {} }}", self.file(chain.arg(0)), self.file(key.arg(0))));
        }
        (!pairs.is_empty()).then(|| format!("[{}]", pairs.join(", ")))
    }

    fn client_certificates(&self, scope: &Scope<'a>, keys: &mut Keys) {
        let Some(verify) = scope.one("ssl_verify_client") else { return };
        let mode = match verify.arg(0) {
            "on" => "required",
            "optional" => "optional",
            "off" => return self.carried(verify),
            _ => {
                return self.missing(
                    verify,
                    "brisk accepts certificates of listed authorities only",
                    "write client_certificates in [[host]]",
                );
            }
        };
        // The authorities of both directives are trusted, but nginx names only the first ones to clients.
        let ca = scope.one("ssl_client_certificate").or(scope.one("ssl_trusted_certificate"));
        let Some(ca) = ca.filter(|ca| !ca.arg(0).contains('$')) else {
            self.open(verify);
            let reason = "there is no file in ssl_client_certificate";
            return self.missing(verify, reason, "write client_certificates in [[host]]");
        };
        if let Some(status) = scope.one("ssl_ocsp").filter(|status| status.arg(0) != "off") {
            self.open(status);
            let reason = "brisk requests no status of the certificates of clients";
            self.missing(status, reason, "write crl in client_certificates");
        }
        let mut table = Keys::default();
        table.set("mode", toml::text(mode));
        table.set("ca", self.file(ca.arg(0)));
        if let Some(list) = scope.one("ssl_crl") {
            table.set("crl", format!("[{}]", self.file(list.arg(0))));
            self.carried(list);
        }
        self.carried(verify);
        self.carried(ca);
        keys.set("client_certificates", table.inline());
    }
}

/// Whether an `if` about `$host` is for names that `server_name` does not list.
fn is_undecided(server: &Server<'_>) -> bool {
    let is_exact = |name: &String| !matches!(&**name, "_" | "") && !name.starts_with(['*', '.', '~', '$']);
    let is_listed =
        !server.names.is_empty() && server.names.iter().all(|name| is_exact(name) && !name.ends_with('*'));
    !is_listed && server.directive.inner().iter().any(is_host_condition)
}

fn redirects_scheme(server: &Server<'_>) -> bool {
    server.directive.inner().iter().any(|line| is_scheme_condition(server, line))
}

/// Whether a server closes all connections, as the default server of many configurations does.
fn is_refusal(server: &Server<'_>) -> bool {
    let mut steps = server.directive.inner().iter().filter(|line| line.name == "return");
    let has_names = server.names.iter().any(|name| name != "_" && !name.is_empty());
    steps.next().is_some_and(|step| step.arg(0) == "444") && !has_names
}

/// A name for a host that nginx chooses by its address alone.
fn unnamed(server: &Server<'_>, all: &Neighbours<'_, '_>) -> String {
    let is_free = |name: &str| !all.servers.iter().any(|other| other.names.iter().any(|own| own == name));
    let number = all.servers.iter().take_while(|other| other.directive.id != server.directive.id).count();
    match number {
        0 if is_free("localhost") => "localhost".to_owned(),
        number => format!("unnamed-{number}.invalid"),
    }
}
