//! `http3` and `alt_svc`: HTTP/3, and its announcement to clients.

use std::time::Duration;

use brisk_answer::settings::{AltSvc, Announcement};
use brisk_config_file::{KeyPath, Period};

use super::context::Context;
use crate::raw;
use crate::values::ProxyProtocol;

/// Time for which clients remember that a host serves HTTP/3, unless another is written; also the default of RFC 7838.
const MAX_AGE: Period = Period(Duration::from_hours(24));

/// Maximum of `max_age`: after that time, every client has noticed that HTTP/3 is gone.
const LONGEST: Period = Period(Duration::from_hours(24 * 365));

/// Whether HTTP/3 is served.
pub(super) fn of_server(server: &raw::Server, path: &KeyPath, context: &mut Context<'_>) -> bool {
    let http3 = server.http3.unwrap_or(false);
    // A list of networks is no error: peers outside of it send no header, and HTTP/3 serves these.
    if http3 && server.proxy_protocol == Some(ProxyProtocol::Everyone) {
        let message = "datagrams have no PROXY protocol header, which server.proxy_protocol = true requires of all peers: \
                       remove http3, or list the networks of your balancers in proxy_protocol";
        context.shared.findings.wrong(&path.key("http3"), message);
    }
    let path = path.key("alt_svc").key("max_age");
    context.shared.findings.within(
        &path,
        server.alt_svc.max_age,
        MAX_AGE,
        &(Period(Duration::ZERO)..=LONGEST),
    );
    http3
}

/// The statement of a host about HTTP/3; `None` if the configuration does not mention HTTP/3.
pub(super) fn of_host(
    host: &raw::Host,
    server: &raw::Server,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<AltSvc> {
    if host.own.http3 == Some(true) && server.http3 != Some(true) {
        let message = "HTTP/3 needs datagram sockets: write http3 = true in [server] too";
        context.shared.findings.wrong(&path.key("http3"), message);
    }
    // `clear` and not silence: a client may have the announcement of an earlier configuration for a day (RFC
    // 7838 section 3).
    if !host.own.http3.or(server.http3)? {
        return Some(AltSvc::Clear);
    }
    let raw::AltSvc { port, max_age } = &server.alt_svc;
    let max_age = max_age.unwrap_or(MAX_AGE).0;
    Some(AltSvc::Announce(Announcement { port: port.map(u16::from), max_age }))
}
