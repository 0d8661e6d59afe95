//! Names of headers that only the gateway sets in the requests of a route, from the settings of all its features.

use brisk_http::claims::{self, OwnNames};
use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE};

use crate::features::client_certificates::{ClientCert, NAMES};
use crate::features::real_ip::REAL_IP;
use crate::settings::{HostSettings, RouteSettings};

/// The names for requests of a route to its upstream, for their copies and for their trailers.
pub(crate) fn of_upstream(host: &HostSettings, route: &RouteSettings) -> OwnNames {
    of_identities(host, route).chain(of_permissions(route)).chain(of_rules(route)).collect()
}

/// The names for questions of forward authentication.
///
/// Rules are for the upstream: the server that decides gets neither their values nor the client's values of their names.
/// Exceptions are cookies and `Authorization`, by which it decides and which an operator may hide from the upstream, and
/// headers that [`Forwarding`](crate::forwarding::Forwarding) sets or accepts from trusted proxies.
pub(crate) fn of_question(host: &HostSettings, route: &RouteSettings) -> OwnNames {
    let is_evidence = |name: &HeaderName| [AUTHORIZATION, COOKIE].contains(name);
    let permissions = of_permissions(route).filter(|name| !is_evidence(name));
    let rules = of_rules(route).filter(|name| !(is_evidence(name) || claims::is_fixed(name)));
    of_identities(host, route).chain(permissions).chain(rules).collect()
}

/// The names by which the gateway vouches for a user or the address of a client.
fn of_identities<'a>(host: &HostSettings, route: &'a RouteSettings) -> impl Iterator<Item = &'a HeaderName> {
    let tokens = route.access.tokens.iter().flat_map(|tokens| tokens.check.header_names());
    // RFC 9440 section 4: no header of a client, even of a trusted proxy, stands beside that of the gateway.
    let certificates = (host.client_certificates != ClientCert::None).then_some(&NAMES);
    let real_ip = route.real_ip.then_some(&REAL_IP);
    tokens.chain(certificates.into_iter().flatten()).chain(real_ip)
}

/// The names that a permission of forward authentication sets.
fn of_permissions(route: &RouteSettings) -> impl Iterator<Item = &HeaderName> {
    route.forward_auth.iter().flat_map(|auth| auth.copied.iter().map(|copied| &copied.name))
}

fn of_rules(route: &RouteSettings) -> impl Iterator<Item = &HeaderName> {
    route.headers.requests.iter().flat_map(|rules| rules.own_names())
}
