//! Hosts of a `frontend` at its listeners, and the files that brisk can serve with one process each: a [`Unit`] is a file.

use std::collections::BTreeMap;

use crate::haproxy::bind::{Certificate, Listeners};
use crate::haproxy::context::Context;
use crate::haproxy::flow::{Route, fixed};
use crate::haproxy::host_name::{HostName, is_name};
use crate::haproxy::site::{Front, Site};
use crate::report::Class;
use crate::table::Table;
use crate::toml::{self, Keys};

/// Names with the same routes: one `[[host]]`.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) names: Vec<HostName>,
    pub(crate) routes: Vec<Route>,
    /// `redirect` or `serve` over plain HTTP; only `serve` becomes the key `plain`.
    plain: Option<&'static str>,
}

/// Configuration of one process.
#[derive(Debug)]
pub(crate) struct Unit<'a> {
    /// Number of the `frontend`.
    pub(crate) front: usize,
    pub(crate) listeners: Listeners<'a>,
    pub(crate) http: Vec<String>,
    pub(crate) hosts: Vec<Host>,
    /// Headers of the tables that it uses, as `Context::take_used` lists them.
    pub(crate) used: Vec<String>,
    /// `error_pages`, with their routes.
    pub(crate) pages: (Keys, Vec<Table>),
    /// The tables `[[tcp]]`.
    pub(crate) tcp: Vec<Table>,
}

impl<'a> Context<'a> {
    /// The configurations for all of `frontend` and `listen` that are neither `disabled` nor a page of `stats` only.
    pub(crate) fn units(&self) -> Vec<Unit<'a>> {
        let (mut units, mut plain, mut tcp): (Vec<Unit<'a>>, Vec<Unit<'a>>, Vec<Unit<'a>>) =
            Default::default();
        for (index, proxy) in self.proxies.all.iter().enumerate().filter(|(_, proxy)| proxy.is_frontend()) {
            self.carried(proxy.directive);
            if proxy.is_disabled() || self.is_page_of_stats(proxy) {
                continue;
            }
            let front = Front::new(self, index);
            for listeners in self.listeners(proxy) {
                if proxy.is_tcp() {
                    tcp.extend(self.tcp(&front, listeners));
                    continue;
                }
                let unit = self.http(&front, listeners);
                if unit.listeners.tls { units.push(unit) } else { plain.push(unit) }
            }
            front.rules.0.note_unused();
        }
        let mut alone = Vec::new();
        for unit in plain {
            alone.extend(self.join(&mut units, unit));
        }
        units.append(&mut alone);
        for unit in tcp {
            let is_fit = |other: &&mut Unit<'a>| {
                other.listeners.proxy == unit.listeners.proxy && self.has_same_limits(other.front, unit.front)
            };
            match units.iter_mut().find(is_fit) {
                Some(other) => {
                    other.tcp.extend(unit.tcp);
                    other.used.extend(unit.used);
                }
                None => units.push(unit),
            }
        }
        units
    }

    /// A `frontend` of `mode http` at some of its listeners.
    fn http(&self, front: &Front<'_, 'a>, listeners: Listeners<'a>) -> Unit<'a> {
        let mut hosts: Vec<Host> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let names = front.hosts();
        if names.is_none() {
            let reason = "the rules name more than 20,000 hosts";
            self.missing(
                front.proxy.directive,
                reason,
                "divide the configuration; until then all requests are refused",
            );
        }
        for name in names.clone().unwrap_or_else(|| vec![HostName::Other]) {
            let mut site = Site {
                context: self,
                front,
                host: &name,
                secure: listeners.tls,
                ports: listeners.ports.clone(),
            };
            let routes = if names.is_some() {
                site.routes()
            } else {
                vec![fixed(501, front.proxy.directive, "NOT CARRIED".to_owned())]
            };
            // Hosts with the same text of their routes become one.
            let mut text = String::new();
            for route in &routes {
                route.table().write(&mut text);
            }
            if let Some(place) = places.get(&text) {
                hosts[*place].names.push(name);
            } else {
                places.insert(text, hosts.len());
                hosts.push(Host { names: vec![name], routes, plain: None });
            }
        }
        if !listeners.tls {
            for host in &mut hosts {
                host.plain = Some("serve");
            }
        }
        // The first host of brisk is the one for unknown names.
        hosts.sort_by_key(|host| !host.names.contains(&HostName::Other));
        let pages = self.pages(front);
        let http = if listeners.tls { Vec::new() } else { listeners.addresses.clone() };
        Unit { front: front.index, listeners, http, hosts, used: self.take_used(), pages, tcp: Vec::new() }
    }

    /// Adds the [`Unit`] of plain HTTP to one with TLS, if brisk serves both together: its addresses become `http`. Otherwise
    /// it remains, and is the result.
    fn join(&self, units: &mut [Unit<'a>], mut unit: Unit<'a>) -> Option<Unit<'a>> {
        // Comparisons of all with all others need a bound.
        let units = if self.step(units.len()) { units } else { &mut [] };
        let is_redirect = unit.hosts.iter().all(redirects);
        let is_fit = |other: &&mut Unit<'a>| {
            other.listeners.proxy == unit.listeners.proxy
                && self.has_same_limits(other.front, unit.front)
                && hosts_of(&other.listeners.addresses) == hosts_of(&unit.listeners.addresses)
                // `serve` would concern the addresses of the redirect too.
                && other.hosts.iter().all(|host| host.plain != Some("serve"))
        };
        if is_redirect && let Some(other) = units.iter_mut().find(is_fit) {
            self.note_plain(&unit);
            other.http.append(&mut unit.http);
            other.hosts.iter_mut().for_each(|host| host.plain = Some("redirect"));
            return None;
        }
        let is_own = |other: &&mut Unit<'a>| {
            other.front == unit.front
                && other.listeners.proxy == unit.listeners.proxy
                && other.listeners.clients.is_empty()
        };
        let Some(other) = units.iter_mut().find(is_own) else {
            return Some(unit);
        };
        let mut kinds = Vec::new();
        for host in &other.hosts {
            let own = |name: &HostName| unit.hosts.iter().find(|own| own.names.contains(name));
            let all: Option<Vec<&Host>> = host.names.iter().map(own).collect();
            let Some(all) = all else { return Some(unit) };
            // Another frontend redirects requests at its addresses.
            let may_serve = host.plain != Some("redirect");
            kinds.push(if may_serve && all.iter().all(|own| own.routes == host.routes) {
                "serve"
            } else if all.iter().all(|own| redirects(own)) && host.plain != Some("serve") {
                "redirect"
            } else {
                return Some(unit);
            });
        }
        for (host, kind) in other.hosts.iter_mut().zip(kinds) {
            host.plain = Some(kind);
        }
        if unit.hosts.iter().any(redirects) {
            self.note_plain(&unit);
        }
        other.http.append(&mut unit.http);
        other.used.append(&mut unit.used);
        None
    }

    /// Whether two frontends limit the connections of clients alike, because a file has one limit.
    fn has_same_limits(&self, one: usize, other: usize) -> bool {
        let connections = self.connections.borrow();
        let of = |index: usize| connections.get(self.proxies.all[index].name());
        of(one) == of(other)
    }

    /// Notes the redirects to HTTPS, and the routes for validations of certificates, which brisk has itself.
    fn note_plain(&self, unit: &Unit<'a>) {
        for route in unit.hosts.iter().filter(|host| redirects(host)).flat_map(|host| &host.routes) {
            let detail = if route.is_to_https {
                "brisk redirects plain HTTP to HTTPS itself, with status 308"
            } else {
                "brisk answers challenges of its own certificates: write acme = true in [[host]] in place of certificates"
            };
            self.report.borrow_mut().note(route.line, Class::Difference(detail.to_owned()));
        }
    }
}

/// Whether a host leads all requests to HTTPS, except validations of certificates.
fn redirects(host: &Host) -> bool {
    host.routes.iter().any(|route| route.is_to_https)
        && host.routes.iter().all(|route| route.is_to_https || is_challenge(route))
}

/// Whether a route is for validations of certificates over HTTP: `/.well-known/acme-challenge`.
fn is_challenge(route: &Route) -> bool {
    route.when.path().is_some_and(|patterns| {
        patterns.iter().all(|pattern| pattern.text.replace('\\', "").contains("/.well-known/acme-challenge"))
    })
}

/// IP addresses of texts such as `10.0.0.1:80`, in which `0.0.0.0` and `[::]` are one.
fn hosts_of(addresses: &[String]) -> std::collections::BTreeSet<&str> {
    let hosts = addresses.iter().filter_map(|address| address.rsplit_once(':'));
    hosts.map(|(host, _)| if host == "[::]" { "0.0.0.0" } else { host }).collect()
}

impl<'a> Unit<'a> {
    /// Writes the tables `[[host]]` and `[[host.route]]` of the hosts.
    pub(crate) fn hosts(&self, context: &Context<'a>, text: &mut String) {
        let mut taken: std::collections::BTreeSet<String> =
            self.hosts.iter().flat_map(|host| &host.names).filter_map(HostName::text).collect();
        for host in &self.hosts {
            let mut names: Vec<String> = host.names.iter().filter_map(HostName::text).collect();
            if names.is_empty() {
                names = unnamed(&self.listeners.certificates, &taken);
                taken.extend(names.iter().cloned());
            }
            let mut keys = Keys::of("names", toml::list(&names));
            if self.listeners.tls {
                context.certificates(
                    &self.listeners,
                    &names,
                    host.names.contains(&HostName::Other),
                    &mut keys,
                );
            }
            if let Some(plain) = host.plain.filter(|plain| *plain == "serve") {
                keys.set("plain", toml::text(plain));
            }
            if !self.listeners.clients.is_empty() {
                keys.set("client_certificates", self.listeners.clients.inline());
            }
            if !self.pages.0.is_empty() {
                keys.set("error_pages", self.pages.0.inline());
            }
            let mut routes = host.routes.clone();
            raise(&mut routes, &mut keys);
            let comment = context.proxies.all[self.front].directive.comment();
            Table { header: "[[host]]".to_owned(), keys, comment }.write(text);
            for route in &routes {
                route.table().write(text);
            }
            self.pages.1.iter().for_each(|page| page.write(text));
        }
    }
}

/// Gives the host the rules for headers and limits that all of its routes have, or all with `upstream` for `request_headers` and
/// `x_real_ip`.
fn raise(routes: &mut [Route], keys: &mut Keys) {
    let has_upstream = |route: &Route| route.keys.get("upstream").is_some();
    let count = routes.iter().filter(|route| has_upstream(route)).count();
    for key in ["request_headers", "x_real_ip", "response_headers", "compression", "limits"] {
        let is_of_requests = matches!(key, "request_headers" | "x_real_ip");
        let is_own = |route: &Route| !is_of_requests || has_upstream(route);
        if count < 2 || (!is_of_requests && key != "limits" && count < routes.len()) {
            continue;
        }
        let value = routes
            .iter()
            .find(|route| is_own(route))
            .and_then(|route| route.keys.get(key))
            .map(str::to_owned);
        let Some(value) = value else { continue };
        if routes.iter().filter(|route| is_own(route)).all(|route| route.keys.get(key) == Some(&value)) {
            keys.set(key, value);
            for route in routes.iter_mut() {
                route.keys.0.retain(|(own, _)| own != key);
            }
        }
    }
}

/// Names of a host that HAProxy does not name: the names of its certificate files (`a.example.pem` is `a.example`), or else
/// `localhost` if it is free.
fn unnamed(certificates: &[Certificate], taken: &std::collections::BTreeSet<String>) -> Vec<String> {
    let files = certificates.iter().filter(|own| !own.is_folder);
    let names = files.filter_map(|own| {
        let file = own.path.rsplit('/').next()?;
        let name = [".pem", ".crt", ".cert"].iter().find_map(|end| file.strip_suffix(end))?;
        (is_name(name) && name.contains('.') && !taken.contains(name)).then(|| name.to_ascii_lowercase())
    });
    let mut names: Vec<_> = names.collect();
    names.dedup();
    if names.is_empty() {
        names.push(if taken.contains("localhost") { "unnamed.invalid" } else { "localhost" }.to_owned());
    }
    names
}
