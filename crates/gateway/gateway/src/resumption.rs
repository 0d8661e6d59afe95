//! State of session resumption, ticket keys and stores. It persists across reloads, so that sessions do too.

mod metrics;
pub(crate) mod ticket_keys;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use brisk_certs::Challenges;
use brisk_session::{
    FleetSecret, KeySource, MemoryStore, PreparedKeySync, RedisError, RedisStore, RotationSettings,
    SessionIds, SessionStore, TicketKeySync, TicketKeyring, TieredStore,
};
use brisk_supervisor::succession::{Predecessor, StatePart};
use brisk_telemetry::Metrics;
use brisk_tls::{KeyGate, Resources};

use self::metrics::SessionMetrics;
use crate::GatewayError;
use crate::settings::{FleetStore, SessionSettings};

/// Name of the part of the state with the ticket keys. Never changed: programs of different versions exchange it.
const TICKET_KEYS: &str = "ticket-keys";

/// Ticket keys, sessions in memory, and the state shared with a fleet.
pub(crate) struct Resumption {
    keyring: Arc<TicketKeyring>,
    ids: SessionIds,
    memory: Arc<MemoryStore>,
    /// The [`MemoryStore`] alone, or in front of the store that the fleet shares ([`TieredStore`]).
    store: Arc<dyn SessionStore>,
    fleet: Option<Fleet>,
}

impl Resumption {
    /// Starts the stores of `settings`. An unreachable Redis is not an error: the connection is retried.
    pub(crate) fn new(settings: &SessionSettings, metrics: &Metrics) -> Result<Self, GatewayError> {
        let keyring = Arc::new(TicketKeyring::new(settings.ticket_keys.clone(), SystemTime::now()));
        let memory = Arc::new(MemoryStore::new(&settings.memory));
        let fleet = settings.fleet.as_ref().map(Fleet::start).transpose()?;
        let redis = fleet.as_ref().map(|fleet| fleet.redis.clone());
        let store: Arc<dyn SessionStore> = match redis.clone() {
            None => Arc::clone(&memory) as _,
            Some(redis) => Arc::new(TieredStore::new(Arc::clone(&memory), redis)),
        };
        if let Some(fleet) = &fleet {
            fleet.commit_exchange(fleet.prepare_exchange(&settings.ticket_keys, &keyring)?);
        }
        metrics.register(SessionMetrics {
            keyring: Arc::clone(&keyring),
            memory: Arc::clone(&memory),
            fleet: redis,
        });
        Ok(Self { keyring, ids: ids(settings), memory, store, fleet })
    }

    /// The [`Resources`] of handshakes. All except `key_gate` are fixed at the start.
    pub(crate) fn resources(&self, key_gate: KeyGate, challenges: Arc<Challenges>) -> Resources {
        Resources {
            challenges,
            sessions: Arc::clone(&self.store),
            keyring: Arc::clone(&self.keyring),
            session_ids: self.ids.clone(),
            key_gate,
        }
    }

    /// The [`RedisStore`] of the fleet; `None` without a fleet.
    pub(crate) fn redis(&self) -> Option<&RedisStore> {
        self.fleet.as_ref().map(|fleet| &fleet.redis)
    }

    pub(crate) fn keyring(&self) -> &Arc<TicketKeyring> {
        &self.keyring
    }

    /// The source of ticket keys in `settings`, to be [committed](Self::commit).
    /// `None` if it stays as it is.
    pub(crate) fn prepare(&self, settings: &SessionSettings) -> Result<Option<PreparedKeys>, GatewayError> {
        let source = &settings.ticket_keys;
        let exchange = match &self.fleet {
            Some(fleet) => fleet.prepare_exchange(source, &self.keyring)?,
            // No store would deliver the keys. The reload logs that Redis settings take a restart.
            None if matches!(source, KeySource::Shared { .. }) => return Ok(None),
            None => PreparedExchange::Same,
        };
        Ok(Some(PreparedKeys { source: source.clone(), exchange }))
    }

    /// Seals new tickets with keys of another source. Existing tickets remain valid, and nothing else changes.
    pub(crate) fn commit(&self, prepared: Option<PreparedKeys>) {
        let Some(PreparedKeys { source, exchange }) = prepared else { return };
        if let Some(fleet) = &self.fleet {
            fleet.commit_exchange(exchange);
        }
        self.keyring.configure(source, SystemTime::now());
    }

    /// State for a successor of this process: the ticket keys. Sessions of the store stay, so that each is used once.
    pub(crate) fn export(&self) -> Vec<StatePart> {
        vec![StatePart { name: TICKET_KEYS.to_owned(), bytes: self.keyring.export(SystemTime::now()) }]
    }

    /// Continues the state of a predecessor. Without its answer, its clients make full handshakes, which is logged. Blocks for at
    /// most two seconds.
    pub(crate) fn continue_from(&self, predecessor: &Predecessor) {
        let parts = match predecessor.ask() {
            Ok(parts) => parts,
            Err(error) => {
                tracing::warn!(%error, "the predecessor passes no ticket keys: its clients make full handshakes");
                return;
            }
        };
        let keys = parts.iter().find(|part| part.name == TICKET_KEYS);
        match keys.map(|keys| self.keyring.import(&keys.bytes, SystemTime::now())) {
            Some(Some(keys)) => tracing::info!(keys, "the ticket keys of the predecessor stay in use"),
            Some(None) => tracing::warn!(
                "ticket keys of another version: clients of the predecessor make full handshakes"
            ),
            None => {}
        }
    }

    /// Wipes expired ticket keys and sessions, and generates the keys that are due. The main thread calls it, since
    /// without connections no handshake does.
    pub(crate) fn age(&self) {
        self.keyring.rotate(SystemTime::now());
        self.memory.remove_expired(Instant::now());
    }
}

/// The source of ticket keys for another configuration.
pub(crate) struct PreparedKeys {
    source: KeySource,
    exchange: PreparedExchange,
}

/// The exchange of ticket keys with a fleet, for another configuration.
enum PreparedExchange {
    /// Keep the current exchange, if any.
    Same,
    None,
    Other(RotationSettings, PreparedKeySync),
}

/// Session IDs tagged with the fleet's secret, where there is one, so that operators can count the IDs of other
/// members that are not resumed here.
fn ids(settings: &SessionSettings) -> SessionIds {
    match (&settings.fleet, &settings.ticket_keys) {
        (Some(FleetStore { secret, .. }), _) | (None, KeySource::Derived { secret, .. }) => {
            SessionIds::of_fleet(secret)
        }
        (None, _) => SessionIds::of_process(),
    }
}

/// State shared with a fleet.
struct Fleet {
    redis: RedisStore,
    secret: FleetSecret,
    /// The rotation and the task while ticket keys are exchanged.
    exchange: Mutex<Option<(RotationSettings, TicketKeySync)>>,
}

impl Fleet {
    fn start(FleetStore { redis, secret }: &FleetStore) -> Result<Self, RedisError> {
        let redis = RedisStore::start(redis.clone(), secret)?;
        Ok(Self { redis, secret: secret.clone(), exchange: Mutex::new(None) })
    }

    /// The exchange of the keys of `keyring` if `source` is shared, and none otherwise.
    fn prepare_exchange(
        &self,
        source: &KeySource,
        keyring: &Arc<TicketKeyring>,
    ) -> Result<PreparedExchange, RedisError> {
        let KeySource::Shared { rotation } = *source else { return Ok(PreparedExchange::None) };
        if self.exchange().as_ref().is_some_and(|(present, _)| *present == rotation) {
            return Ok(PreparedExchange::Same);
        }
        let exchange = TicketKeySync::prepare(&self.redis, &self.secret, rotation, Arc::clone(keyring))?;
        Ok(PreparedExchange::Other(rotation, exchange))
    }

    fn commit_exchange(&self, prepared: PreparedExchange) {
        let mut exchange = self.exchange();
        match prepared {
            PreparedExchange::Same => {}
            PreparedExchange::None => *exchange = None,
            PreparedExchange::Other(rotation, other) => *exchange = Some((rotation, other.begin())),
        }
    }

    fn exchange(&self) -> MutexGuard<'_, Option<(RotationSettings, TicketKeySync)>> {
        // Recovers from poisoning: the value is replaced as a whole, so a panic cannot leave it inconsistent.
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
