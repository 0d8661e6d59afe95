//! A summary of settings in one line, printed at the start.

use brisk_gateway::settings::{FleetStore, GatewaySettings};
use brisk_session::KeySource;

/// How sessions resume: the source of ticket keys, the store of sessions, and which hosts accept early data.
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

fn servers(fleet: &FleetStore) -> String {
    let servers: Vec<_> = fleet.redis.servers.iter().map(ToString::to_string).collect();
    servers.join(", ")
}
