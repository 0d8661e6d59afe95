//! Summaries of settings: session resumption, printed at the start, and the size of handshakes with each certificate.

use std::collections::HashSet;

use brisk_certs::Certificate;
use brisk_gateway::settings::{FleetStore, GatewaySettings};
use brisk_session::KeySource;
use brisk_tls::FirstFlight;
use brisk_tls::flight::{QUIC_FLIGHT, TCP_FLIGHT};

/// Summary of session resumption: source of ticket keys, session store, and number of hosts that accept early data.
pub(crate) fn sessions(settings: &GatewaySettings) -> String {
    let sessions = &settings.sessions;
    let keys = match &sessions.ticket_keys {
        _ if !settings.tls.tickets => "no tickets".to_owned(),
        KeySource::Derived { secret, .. } => format!("ticket keys from the fleet's secret {}", secret.id()),
        KeySource::Files { keys, .. } => format!("ticket keys from files ({})", keys.len()),
        KeySource::Shared { .. } => "ticket keys through Redis".to_owned(),
        _ => "ticket keys of this process".to_owned(),
    };
    let store = match (&sessions.fleet, sessions.memory.max_sessions) {
        (None, 0) => "no sessions kept".to_owned(),
        (None, _) => "sessions in memory".to_owned(),
        (Some(fleet), _) => format!("sessions in memory and in Redis ({})", servers(fleet)),
    };
    let mut parts = vec![keys, store];
    parts.extend(settings.tls.stateful.then(|| "TLS 1.3 stateful".to_owned()));
    let hosts = &settings.service.hosts;
    let early = hosts.iter().filter(|host| host.tls.early_data > 0).count();
    parts.extend((early > 0).then(|| format!("0-RTT on {early} of {} hosts", hosts.len())));
    parts.join(", ")
}

/// One line per certificate, with the size of the server's first flight. Counts a staple only if it is in a file.
pub(crate) fn certificates(settings: &GatewaySettings) -> Vec<String> {
    // A certificate of several hosts has one line.
    let mut seen = HashSet::new();
    settings
        .file_certificates()
        .filter(|certificate| seen.insert(certificate.fingerprint))
        .map(|one| certificate(one))
        .collect()
}

fn certificate(certificate: &Certificate) -> String {
    let staple = certificate.staple.as_deref();
    let flight = FirstFlight::of(certificate, staple);
    let stapled = match staple {
        Some(_) => ", with its staple",
        // Without a responder there will be no staple that lengthens the flight.
        None if certificate.services.responders.is_empty() => "",
        None => ", and its staple",
    };
    let tcp = if flight.fits_tcp() { "fits" } else { "does not fit" };
    let quic = if flight.fits_quic() { "fits" } else { "does not fit" };
    format!(
        "{}: {} for {}: first flight of {} to {} bytes{stapled}; {tcp} the {TCP_FLIGHT} that TCP sends at once, {quic} the \
         {QUIC_FLIGHT} of QUIC",
        certificate.source.display(),
        certificate.algorithm,
        certificate.title(),
        flight.least(),
        flight.most()
    )
}

fn servers(fleet: &FleetStore) -> String {
    let servers: Vec<_> = fleet.redis.servers.iter().map(ToString::to_string).collect();
    servers.join(", ")
}
