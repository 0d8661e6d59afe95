//! Settings that take effect only after a restart.

use brisk_net::ListenerSettings;
use brisk_session::MemorySettings;

use crate::settings::{ClientLimit, FleetStore, GatewaySettings};
use crate::tcp::listeners;

/// The settings of one configuration, besides the server's, that take effect only after a restart.
#[derive(Debug)]
pub(crate) struct Fixed {
    listeners: [Vec<ListenerSettings>; 2],
    tcp: Vec<ListenerSettings>,
    per_client: Option<ClientLimit>,
    memory: MemorySettings,
    fleet: Option<FleetStore>,
    /// Location through which the gateways of a fleet share staples.
    staples: Option<String>,
}

impl Fixed {
    pub(crate) fn of(settings: &GatewaySettings) -> Self {
        Self {
            listeners: [settings.https.clone(), settings.http.clone()],
            tcp: listeners::of(&settings.tcp).into_iter().map(|listener| listener.settings).collect(),
            per_client: settings.per_client,
            memory: settings.sessions.memory.clone(),
            fleet: settings.sessions.fleet.clone(),
            // By its location, since a `Store` cannot be compared.
            staples: settings.certificates.fleet.as_ref().map(|store| store.place()),
        }
    }

    /// Warns of each setting that differs in `new`, the configuration in force now.
    pub(crate) fn warn_of_changes(&self, new: &Self) {
        let changed = [
            ("server.https, http, backlog or fast_open", self.listeners != new.listeners),
            ("tcp.listen", self.tcp != new.tcp),
            ("server.max_connections_per_client", self.per_client != new.per_client),
            ("tls.session_cache", self.memory != new.memory),
            ("sessions.redis, or the secret that seals what is in it", self.fleet != new.fleet),
            ("acme.store: staples", self.staples != new.staples),
        ];
        for (key, _) in changed.into_iter().filter(|(_, changed)| *changed) {
            tracing::warn!(key, "changed, but takes full effect only after a restart");
        }
    }
}
