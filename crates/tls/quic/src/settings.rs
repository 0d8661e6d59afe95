//! [`QuicSettings`], and the configurations of [`quinn_proto`] made from them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use aws_lc_rs::rand;
use brisk_net::{AddressLimit, AddressPermit, FairShare, SharePermit};
use brisk_tls::quic::{self, EndpointKeys, QuicSessions};
use quinn_proto::{
    EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig, ValidationTokenConfig,
    VarInt,
};

use crate::counters::QuicCounters;
use crate::ids::Ids;
use crate::tokens::UsedTokens;

/// Limits of streams and windows. Clients remember them for early data, and they must not shrink then (RFC 9000 section
/// 7.4.1). So they are constants, which no reload can change.
///
/// quinn-proto enters all of these streams in two tables of a new connection: 100 take half the memory and time of 128, because
/// the tables grow in powers of two.
const BIDIRECTIONAL_STREAMS: u32 = 100;
const UNIDIRECTIONAL_STREAMS: u32 = 8;
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Bytes sent and not acknowledged, per connection.
const SEND_WINDOW: u64 = 1 << 20;
/// Bytes of `CRYPTO` frames that arrived before those in front of them, per connection. A post-quantum hello has about
/// 1,800 bytes.
const CRYPTO_BUFFER: usize = 16 << 10;

/// Tokens of `NEW_TOKEN` frames for each connection (RFC 9000 section 8.1.3).
const TOKENS: u32 = 2;
/// Each gateway of a fleet, and each process after a restart, accepts a token once within this time.
const TOKEN_LIFETIME: Duration = Duration::from_hours(24);

/// Minimum difference of datagram sizes that are tried. With this one, 1,452 bytes, the usual maximum, are tried first, and
/// 1,325 if they do not arrive. Smaller differences cost a datagram in each of the first four round trips, which connections
/// with few requests send for nothing.
const SIZE_STEP: u16 = 127;

/// Settings of a QUIC server, for [`Endpoints::new`].
#[derive(Clone, Debug)]
pub struct QuicSettings {
    /// Maximum time from the first packet to the end of the handshake. Default: 10 s.
    pub handshake_timeout: Duration,
    /// Time without packets after which a connection ends. The protocol above should have a shorter one. Default: 3 min.
    pub idle_timeout: Duration,
    /// Handshakes that may begin without address validation, per second and driver, without those that are complete. Above
    /// this rate, clients have to prove their address with a Retry (RFC 9000 section 8.1.2), which costs them a round trip.
    /// Default: 200.
    pub unvalidated_rate: u32,
    /// Handshakes that may be in progress, in all drivers together. One client, or IPv6 /64, gets at most half of them.
    /// Default: 4096.
    pub pending_handshakes: usize,
    /// Handshakes whose addresses are not validated, in all drivers together, divided in the same way. Clients above it
    /// get a Retry. Default: 1024.
    pub unproven_handshakes: usize,
    /// [`unproven_handshakes`](Self::unproven_handshakes) of one client, or IPv6 /64. Default: 8.
    pub unproven_of_client: usize,
    /// Datagrams of 1,500 bytes or less that may wait for suspended handshakes, in all drivers together, divided as the
    /// handshakes are. Default: 8192.
    pub waiting_datagrams: usize,
}

impl Default for QuicSettings {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(3),
            unvalidated_rate: 200,
            pending_handshakes: 4096,
            unproven_handshakes: 1024,
            unproven_of_client: 8,
            waiting_datagrams: 8192,
        }
    }
}

/// Permit of [`QuicSettings::unproven_handshakes`] and of [`QuicSettings::unproven_of_client`].
#[derive(Debug)]
pub(crate) struct Unproven {
    /// Time of the first packet.
    pub(crate) begun: Instant,
    _of_all: SharePermit,
    _of_client: AddressPermit,
}

/// Timeouts for [`Endpoints::set_timeouts`], in force for connections that begin afterwards.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// [`QuicSettings::handshake_timeout`].
    pub handshake: Duration,
    /// [`QuicSettings::idle_timeout`].
    pub idle: Duration,
}

/// Settings of connections that begin from now on; [`Endpoints::set_timeouts`] replaces them as a whole.
pub(crate) struct Current {
    /// Number of replacements before this one; a driver compares it with `Slot::settings`.
    pub(crate) number: u64,
    pub(crate) handshake_timeout: Duration,
    pub(crate) server: Arc<ServerConfig>,
}

impl Current {
    fn new(
        number: u64,
        timeouts: Timeouts,
        sessions: &Arc<QuicSessions>,
        keys: &EndpointKeys,
        used: &Arc<UsedTokens>,
    ) -> Self {
        let mut sizes = MtuDiscoveryConfig::default();
        sizes.minimum_change(SIZE_STEP);
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(BIDIRECTIONAL_STREAMS.into())
            .max_concurrent_uni_streams(UNIDIRECTIONAL_STREAMS.into())
            .stream_receive_window(STREAM_WINDOW.into())
            .receive_window(CONNECTION_WINDOW.into())
            .send_window(SEND_WINDOW)
            .crypto_buffer_size(CRYPTO_BUFFER)
            .max_idle_timeout(Some(idle_timeout(timeouts.idle)))
            .mtu_discovery_config(Some(sizes))
            // Without datagrams (RFC 9221): no application uses them, and the driver ignores their events.
            .datagram_receive_buffer_size(None);
        let mut server = ServerConfig::new(Arc::clone(sessions) as _, Arc::clone(&keys.tokens));
        let mut tokens = ValidationTokenConfig::default();
        tokens.lifetime(TOKEN_LIFETIME).sent(TOKENS).log(Arc::clone(used) as _);
        server
            .transport_config(Arc::new(transport))
            .validation_token_config(tokens)
            // Every endpoint judges one packet at a time. Datagrams that arrive meanwhile wait in the driver.
            .max_incoming(1)
            .incoming_buffer_size(0)
            .incoming_buffer_size_total(0);
        Self { number, handshake_timeout: timeouts.handshake, server: Arc::new(server) }
    }
}

/// State that the [`Driver`](crate::Driver)s of all workers share.
#[derive(Clone)]
pub struct Endpoints {
    pub(crate) settings: QuicSettings,
    sessions: Arc<QuicSessions>,
    used_tokens: Arc<UsedTokens>,
    /// The part that [`Self::set_timeouts`] replaces.
    pub(crate) current: Arc<ArcSwap<Current>>,
    pub(crate) pending: FairShare,
    pub(crate) waiting: FairShare,
    /// Handshakes whose addresses are not validated: in all, and of each client. A stranger can claim any address, so a
    /// client must not lose more than these few places by claims of its address.
    unproven: (FairShare, AddressLimit),
    pub(crate) counters: Arc<QuicCounters>,
    keys: EndpointKeys,
}

impl Endpoints {
    /// Prepares drivers that accept connections with `sessions`. Tokens are protected by keys derived from `secret`, which
    /// all gateways of a fleet share: each then accepts the tokens of the others. Without a secret, the keys are random.
    /// The key of stateless resets is always random: with a common key, one gateway would reveal the reset tokens of
    /// another one's connections (RFC 9000 section 21.11).
    pub fn new(settings: QuicSettings, sessions: Arc<QuicSessions>, secret: Option<&[u8]>) -> Self {
        let mut keys = random_keys();
        if let Some(secret) = secret {
            keys.tokens = quic::endpoint_keys(secret).tokens;
        }
        let pending = FairShare::new(settings.pending_handshakes);
        let waiting = FairShare::new(settings.waiting_datagrams);
        let unproven =
            (FairShare::new(settings.unproven_handshakes), AddressLimit::new(settings.unproven_of_client));
        let used_tokens = Arc::default();
        let timeouts = Timeouts { handshake: settings.handshake_timeout, idle: settings.idle_timeout };
        let current = Current::new(0, timeouts, &sessions, &keys, &used_tokens);
        Self {
            settings,
            sessions,
            used_tokens,
            current: Arc::new(ArcSwap::from_pointee(current)),
            pending,
            waiting,
            unproven,
            counters: Arc::default(),
            keys,
        }
    }

    /// Replaces the timeouts of connections that begin from now on. The idle timeout of others was agreed upon in their
    /// handshakes.
    pub fn set_timeouts(&self, timeouts: Timeouts) {
        let number = self.current.load().number + 1;
        let current = Current::new(number, timeouts, &self.sessions, &self.keys, &self.used_tokens);
        self.current.store(Arc::new(current));
    }

    /// A permit for a handshake of `client`, whose address is not validated. `None` above a limit: the client gets a Retry.
    pub(crate) fn unproven(&self, client: IpAddr, begun: Instant) -> Option<Unproven> {
        let (all, clients) = &self.unproven;
        Some(Unproven { begun, _of_all: all.try_acquire(client)?, _of_client: clients.try_acquire(client)? })
    }

    /// The [`QuicCounters`] of all drivers.
    pub fn counters(&self) -> &Arc<QuicCounters> {
        &self.counters
    }

    /// The [`EndpointConfig`] of a driver, whose connection IDs come from [`Ids::generator`].
    pub(crate) fn endpoint(&self, ids: &Ids) -> Arc<EndpointConfig> {
        let mut config = EndpointConfig::new(Arc::clone(&self.keys.reset));
        let ids = ids.clone();
        // Only the version whose keys and tags `QuicSessions` derives; others get a version negotiation
        // packet.
        config.supported_versions(vec![quic::VERSION]).cid_generator(move || ids.generator());
        Arc::new(config)
    }
}

fn random_keys() -> EndpointKeys {
    let mut secret = [0; 32];
    rand::fill(&mut secret).expect("the system has randomness");
    quic::endpoint_keys(&secret)
}

fn idle_timeout(duration: Duration) -> IdleTimeout {
    let milliseconds = u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
    IdleTimeout::from(VarInt::from_u32(milliseconds))
}
