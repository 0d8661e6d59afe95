//! The text of a configuration of brisk for the sites of one process.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::caddy::address::{Address, Site};
use crate::caddy::context::Context;
use crate::caddy::environment::{self, host_name, resolve};
use crate::caddy::errors;
use crate::caddy::host_name::{HostName, covers};
use crate::caddy::logs::Logs;
use crate::caddy::options::Options;
use crate::caddy::program;
use crate::caddy::site::Program;
use crate::caddy::tls::{self, Shared};
use crate::report::Class;
use crate::table::Table;
use crate::toml::{self, Keys};

/// Sites of one process, with each [`Address`] there.
pub(crate) type Group<'s, 'a> = Vec<(&'s Site<'a>, Vec<Address>)>;

/// Facts about a file that each `[[host]]` of it needs.
struct File<'f> {
    options: &'f Options<'f>,
    shared: Shared,
    logs: Logs,
    has_tls: bool,
    /// Names that hosts have, with the values of their variables.
    names: BTreeSet<String>,
    has_default: bool,
    /// The key `certificates` of the first host that has it.
    first_certificates: Option<String>,
    /// Whether the process has a port at which authorities verify names: `http_port` or `https_port`.
    has_challenges: bool,
    hosts: String,
}

/// The configuration for a [`Group`]. `index` and `count` number the files.
pub(crate) fn file<'a>(
    context: &Context<'a>,
    options: &Options<'_>,
    group: &Group<'_, 'a>,
    index: usize,
    count: usize,
) -> String {
    let mut text =
        String::from("# Made by `brisk import caddy`. Comments name the lines of the Caddyfile.\n");
    if count > 1 {
        let _ = writeln!(
            text,
            "# File {} of {count}: each needs a process, because brisk serves all hosts at all addresses.",
            index + 1
        );
    }
    let has_tls = group.iter().flat_map(|(_, addresses)| addresses).any(|address| address.has_tls);
    let logs = Logs::new(context, group.iter().map(|(site, _)| *site));
    let has_challenges = group
        .iter()
        .flat_map(|(_, own)| own)
        .any(|own| [options.http_port, options.https_port].contains(&own.port));
    let (shared, names, hosts) = (Shared::default(), BTreeSet::new(), String::new());
    let mut file = File {
        options,
        shared,
        logs,
        has_tls,
        names,
        has_default: false,
        first_certificates: None,
        has_challenges,
        hosts,
    };
    // A site at one of several ports of a process is reachable at the others too, which may be open to more clients.
    let all: BTreeSet<u16> = group.iter().flat_map(|(site, _)| site.ports(options)).collect();
    for (site, _) in group.iter().filter(|(site, _)| site.ports(options) != all) {
        let reason = "brisk serves the site at all ports of the sites that it shares a port with".to_owned();
        let action = "write a file with its own [server] for each port".to_owned();
        context.note(site.directive, Class::NotCarried { reason, action });
        context.report.borrow_mut().note_open(site.directive.id);
    }
    // Sites with TLS have their names first: brisk has one host for both, and redirects plain HTTP.
    let is_secure = |addresses: &[Address]| addresses.iter().any(|address| address.has_tls);
    for wanted in [true, false] {
        for (number, (site, addresses)) in group.iter().enumerate() {
            if is_secure(addresses) == wanted {
                file.site(context, site, addresses, number);
            }
        }
    }
    for table in file.tables(context, group) {
        table.write(&mut text);
    }
    text.push_str(&file.hosts);
    for table in context.tables.take().iter() {
        table.write(&mut text);
    }
    text
}

impl File<'_> {
    /// The hosts of a site: each is a table `[[host]]`.
    fn site<'a>(&mut self, context: &Context<'a>, site: &Site<'a>, addresses: &[Address], number: usize) {
        context.carried(site.directive);
        for line in site.directive.inner().iter().filter(|line| line.name == "bind") {
            context.carried_whole(line);
        }
        let is_all = addresses.iter().any(|address| address.host.is_empty());
        let names = self.free_names(context, site, addresses);
        if names.is_empty() && !is_all {
            return;
        }
        let program = Program::new(context, site.directive);
        let mut parts = if names.is_empty() { Vec::new() } else { program.hosts(&names) };
        if is_all {
            let others = program.hosts(&[]).into_iter();
            let names: BTreeSet<String> = names.iter().map(|name| host_name(name)).collect();
            parts.extend(others.filter(|(own, _)| own.iter().all(|name| !names.contains(&host_name(name)))));
        }
        for part in parts {
            self.host(context, site, &program, part, addresses, number);
        }
        program::unreached(context, &program.steps);
    }

    /// The names of a site that no host has.
    fn free_names(&self, context: &Context<'_>, site: &Site<'_>, addresses: &[Address]) -> Vec<String> {
        let hosts: BTreeSet<&String> =
            addresses.iter().map(|address| &address.host).filter(|host| !host.is_empty()).collect();
        let mut own = BTreeSet::new();
        let mut names = Vec::new();
        for address in addresses.iter().filter(|address| hosts.contains(&address.host)) {
            if !self.names.contains(&host_name(&address.host)) && own.insert(&address.host) {
                names.push(address.host.clone());
            }
        }
        if names.len() == hosts.len() {
            return names;
        }
        let action = "write plain = \"serve\" in the other host if both are to be the same".to_owned();
        let is_redirect = site.directive.inner().iter().all(|line| line.name == "redir");
        let reason =
            "another site has the names over HTTPS, to which brisk redirects plain HTTP (308)".to_owned();
        if names.is_empty() && is_redirect {
            context.note_whole(site.directive, &Class::Difference(reason));
        } else if names.is_empty() && !addresses.iter().any(|address| address.host.is_empty()) {
            context.note_whole(site.directive, &Class::NotCarried { reason, action });
        } else {
            let reason = "another site has some of the names: it gets their requests".to_owned();
            context.note(site.directive, Class::NotCarried { reason, action });
        }
        names
    }

    /// A `[[host]]` of a site with its routes. `own` are its names, empty for the host of all names.
    fn host<'a>(
        &mut self,
        context: &Context<'a>,
        site: &Site<'a>,
        program: &Program<'a>,
        (own, host): (Vec<String>, HostName),
        addresses: &[Address],
        number: usize,
    ) {
        let is_default = own.is_empty();
        let whole: Vec<String> = own.iter().map(|name| host_name(name)).collect();
        let of_host = |address: &&Address| {
            let host = host_name(&address.host);
            let is_own = |name: &String| *name == host || covers(&host, name);
            address.host.is_empty() == is_default && (is_default || whole.iter().any(is_own))
        };
        let is_listed =
            !context.is_spent(addresses.len() / 8) && addresses.iter().any(|address| of_host(&address));
        let mut all = addresses.iter().filter(|address| !is_listed || of_host(address));
        let has_plain = all.clone().any(|address| !address.has_tls);
        let has_tls = all.any(|address| address.has_tls);
        let own = if is_default { vec![self.unnamed()] } else { own };
        if own.iter().any(|name| self.names.contains(&host_name(name))) {
            return;
        }
        self.names.extend(own.iter().map(|name| host_name(name)));
        let mut keys = Keys::of("names", environment::list(&own));
        if is_default && !self.has_default {
            keys.set("default", "true");
            self.has_default = true;
        }
        if has_plain {
            keys.set("plain", "\"serve\"");
        }
        if self.has_tls {
            self.certificates(context, site, &own, has_tls, &mut keys);
        }
        if keys.get("client_certificates").is_some() {
            // Over plain HTTP, brisk redirects to HTTPS, where clients have certificates.
            keys.0.retain(|(key, _)| key != "plain");
        }
        self.logs.host(number, &mut keys);
        let is_tls = if has_plain && has_tls { None } else { Some(has_tls) };
        let mut routes = program.routes(context, &host, is_tls, &mut keys);
        errors::pages(context, program, &mut keys, &mut routes);
        let table = Table { header: "[[host]]".to_owned(), keys, comment: site.directive.comment() };
        table.write(&mut self.hosts);
        for route in routes {
            route.table().write(&mut self.hosts);
        }
    }

    /// The `certificates` of a host, or `acme`. One without `has_tls` needs some too, because brisk serves it over HTTPS as well.
    fn certificates(
        &mut self,
        context: &Context<'_>,
        site: &Site<'_>,
        names: &[String],
        has_tls: bool,
        keys: &mut Keys,
    ) {
        let is_public = names.iter().all(|name| !tls::is_private(&resolve(name)));
        if !has_tls {
            context.different(site.directive, "brisk serves the host over HTTPS as well");
        }
        match &self.first_certificates {
            Some(first) if !has_tls && !is_public => keys.set("certificates", first.clone()),
            _ => tls::certificates(context, site, names, self.options, &mut self.shared, keys),
        }
        if keys.get("acme").is_some() && !self.has_challenges {
            let detail = "the authority verifies names at port 80 or 443, which another process has: write certificates, or use dns-persist-01";
            context.different(site.directive, detail);
        }
        let own = keys.get("certificates").map(str::to_owned);
        self.first_certificates = self.first_certificates.take().or(own);
    }

    /// A name for the host of all names that no other has: `localhost`, `127.0.0.1`, `::1` or `unnamed-N.invalid`.
    fn unnamed(&self) -> String {
        let is_free = |name: &&str| !self.names.contains(*name);
        ["localhost", "127.0.0.1", "::1"]
            .into_iter()
            .find(is_free)
            .map_or_else(|| format!("unnamed-{}.invalid", self.names.len()), str::to_owned)
    }

    /// The tables before the hosts: `[server]`, `[tls]`, `[acme]` and those of `Logs`.
    fn tables(&self, context: &Context<'_>, group: &Group<'_, '_>) -> Vec<Table> {
        let table =
            |header: &str, keys: Keys| Table { header: header.to_owned(), keys, comment: String::new() };
        let options = self.options;
        let bind = group.first().map(|(site, _)| site.bind.clone()).unwrap_or_default();
        let mut ports: Vec<(u16, bool)> = Vec::new();
        for address in group.iter().flat_map(|(_, addresses)| addresses) {
            let own = (address.port, address.has_tls);
            if !ports.contains(&own) {
                ports.push(own);
            }
        }
        let has_main = ports.contains(&(options.https_port, true));
        if has_main && !options.has_no_redirects() && !ports.contains(&(options.http_port, false)) {
            ports.push((options.http_port, false));
        }
        let mut server = Keys::default();
        let all = |wanted: bool| ports.iter().filter(move |(_, tls)| *tls == wanted).map(|(port, _)| *port);
        for (key, tls) in [("https", true), ("http", false)] {
            let addresses: Vec<_> = all(tls)
                .filter(|port| tls || !all(true).any(|own| own == *port))
                .flat_map(|port| listen(&bind, port))
                .collect();
            if !addresses.is_empty() {
                server.set(key, toml::list(addresses));
            }
        }
        if self.has_tls && options.has_http3() {
            server.set("http3", "true");
        }
        server.set("unknown_host", if self.has_default { "\"default\"" } else { "\"refuse\"" });
        options.server(context, &mut server);
        let mut tables = vec![table("[server]", server)];
        if let Some(version) = &self.shared.min_version {
            tables.push(table("[tls]", Keys::of("min_version", toml::text(version))));
        }
        if self.shared.has_acme {
            let has_port = has_main || ports.iter().any(|(port, _)| *port == 80);
            let mut acme =
                options.acme(context, self.shared.has_wildcard, has_port, self.shared.email.as_deref());
            if let Some((directory, root)) = &self.shared.directory {
                acme.set("directory", environment::text(directory));
                if let Some(root) = root {
                    acme.set("ca", context.file(root));
                }
            }
            if !acme.is_empty() {
                tables.push(table("[acme]", acme));
            }
        }
        tables.extend(self.logs.tables());
        tables
    }
}

/// The addresses of a port: `0.0.0.0:80` and `[::]:80` without `bind`.
fn listen(bind: &[String], port: u16) -> Vec<String> {
    let all = ["0.0.0.0".to_owned(), "::".to_owned()];
    let hosts = if bind.is_empty() { &all[..] } else { bind };
    let written = |host: &String| {
        let host = resolve(host);
        let host = host
            .strip_prefix("tcp4/")
            .or_else(|| host.strip_prefix("tcp6/"))
            .or_else(|| host.strip_prefix("tcp/"))
            .unwrap_or(&host)
            .to_owned();
        if host.contains(':') && !host.starts_with('[') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    };
    hosts.iter().map(written).collect()
}
