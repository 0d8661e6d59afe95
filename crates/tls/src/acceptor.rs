//! The handshake of a TCP connection: hello, host, certificate, key operation and session.

mod challenge;
mod facts;
mod negotiation;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use brisk_certs::{Catalogue, CatalogueLookup, Challenges, HostMap, Names, OnDemand, Slot, UnknownName};
use brisk_telemetry::{HandshakeOutcome, Milestone, ResumptionFailure, Timeline, TlsFacts};
use brisk_wire::client_hello::{ClientHello, HelloError, Progress as HelloProgress};
use brisk_wire::registry::ProtocolVersion;
use rustls::ServerConfig;
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::TlsError;
use crate::demands::Demands;
use crate::host_config::{ConfigBuilder, HostConfig};
use crate::prepared_slot::PreparedSlot;
use crate::resources::Resources;
use crate::settings::{HostSettings, TlsSettings, Variant};
use crate::stream::Stream;
use negotiation::Negotiation;

/// Alerts sent before rustls has a connection: level fatal (2), then the description of RFC 8446 section 6.
const ALERT_HANDSHAKE_FAILURE: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];
const ALERT_DECODE_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];
const ALERT_PROTOCOL_VERSION: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];
const ALERT_INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];
const ALERT_MISSING_EXTENSION: [u8; 7] = [21, 3, 3, 0, 2, 2, 109];
const ALERT_UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// Response to plain HTTP on the TLS port.
const PLAIN_HTTP_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
Content-Length: 70\r\nConnection: close\r\n\r\nThis port speaks HTTPS, not plain HTTP. Use https:// in the address.\r\n";

/// Accepts TLS connections for a set of hosts. Shared by all workers and replaced as a whole when its settings change.
/// Certificates are not part of the settings: each host presents those in its [`Slot`].
pub struct Acceptor {
    hosts: HostMap<Host>,
    settings: TlsSettings,
    challenge: HostConfig,
    challenges: Arc<Challenges>,
}

#[derive(Debug)]
struct Host {
    /// Index in the list of hosts.
    place: usize,
    demands: Demands,
    config: HostConfig,
    prepared: PreparedSlot,
    catalogue: Option<Arc<Catalogue>>,
    on_demand: Option<OnDemandNames>,
}

/// Names of an [`OnDemand`], except those that the host has otherwise.
#[derive(Debug)]
struct OnDemandNames {
    names: Arc<OnDemand>,
    own: HostMap<()>,
}

impl Host {
    /// The certificate for this client, and the matching configuration. Waits for the catalogue to read a file, or for
    /// a certificate on demand, until the host's timeout.
    async fn certificate<'h>(
        &'h self,
        hello: &ClientHello,
        client: Option<IpAddr>,
        config: &'h HostConfig,
    ) -> (Option<Arc<CertifiedKey>>, &'h Arc<ServerConfig>) {
        if let (Some(catalogue), Some(name)) = (&self.catalogue, hello.server_name.as_deref()) {
            // No fallback to the host's own certificates, because they are for other names.
            let served = match catalogue.find(name) {
                CatalogueLookup::Ready(served) => Some(Some(served)),
                CatalogueLookup::Loading(loading) => Some(loading.await.ok()),
                CatalogueLookup::Failed => Some(None),
                CatalogueLookup::Missing => None,
            };
            if let Some(served) = served {
                let certificate = served.and_then(|served| self.prepared.of(&served, hello));
                return (certificate, config.choose_for_folder(hello));
            }
        }
        if let (Some(on_demand), Some(name)) = (&self.on_demand, hello.server_name.as_deref())
            && on_demand.is_for(name)
        {
            let served = on_demand.names.find(name, client).await;
            let certificate = served.and_then(|served| self.prepared.of(&served, hello));
            return (certificate, config.choose_for_folder(hello));
        }
        (self.prepared.choose(hello), config.choose(hello))
    }
}

impl OnDemandNames {
    fn new(host: &HostSettings) -> Result<Option<Self>, TlsError> {
        let Some(names) = host.on_demand.clone() else { return Ok(None) };
        let mut own = HostMap::new(UnknownName::Refuse);
        own.add(host.names.iter().map(String::as_str), ())?;
        Ok(Some(Self { names, own }))
    }

    /// Configured certificates take precedence.
    fn is_for(&self, name: &str) -> bool {
        self.own.get(Some(name)).host().is_none() && self.names.has(name)
    }
}

/// Facts of a handshake in progress, which remain available if it fails or is dropped at its deadline.
#[derive(Debug)]
pub struct Trace<'a> {
    /// Times of the milestones.
    pub timeline: &'a mut Timeline,
    /// Why the client's session was not found. Recorded early, because a client that replays a flight never finishes
    /// its handshake.
    pub missed: &'a mut Option<ResumptionFailure>,
    /// Bytes received on the connection. Added to the caller's count, which includes the bytes that the caller has
    /// read.
    pub received: &'a mut u64,
    /// Bytes sent on the connection.
    pub sent: &'a mut u64,
}

/// A handshake that is complete or has received early data.
pub struct Accepted {
    /// The connection. While it has a [`confirmation`](Stream::confirmation), the handshake is not complete and the
    /// stream yields early data, which may be a replay, though not of data that this fleet has accepted before.
    pub stream: Stream,
    /// The negotiated parameters. With early data `handshake_time` ends at the first early data.
    pub facts: TlsFacts,
    /// The demands of the host on client certificates.
    pub demands: Demands,
}

/// Reason why a handshake did not complete. The client has been sent the corresponding alert, if TLS has one.
#[derive(Debug)]
pub struct Refusal {
    /// Class of the failure, for metrics and the log.
    pub outcome: HandshakeOutcome,
    /// Details for the log.
    pub detail: Option<String>,
    /// Server name in the hello; `None` if it contains none or was not read.
    pub server_name: Option<String>,
}

impl Refusal {
    /// A refusal without details.
    pub fn new(outcome: HandshakeOutcome) -> Self {
        Self { outcome, detail: None, server_name: None }
    }

    /// A refusal with `reason` as its details.
    pub fn because(outcome: HandshakeOutcome, reason: &impl ToString) -> Self {
        Self { detail: Some(reason.to_string()), ..Self::new(outcome) }
    }
}

impl Acceptor {
    /// Builds the configuration of each host.
    pub fn new<'a>(
        settings: TlsSettings,
        hosts: impl IntoIterator<Item = &'a HostSettings>,
        resources: &Resources,
    ) -> Result<Self, TlsError> {
        let hosts: Vec<_> = hosts.into_iter().collect();
        if hosts.is_empty() {
            return Err(TlsError::NoHost);
        }
        let builder = ConfigBuilder::new(&settings, resources)?;
        let gate = Arc::new(resources.key_gate.clone());
        let mut map = HostMap::new(settings.unknown_host);
        for (place, &host) in hosts.iter().enumerate() {
            let entry = Host {
                place,
                demands: host.demands.clone(),
                config: builder.host(host)?,
                prepared: PreparedSlot::new(&host.slot, &gate),
                catalogue: host.catalogue.clone(),
                on_demand: OnDemandNames::new(host)?,
            };
            let number = map.add(host.names.iter().map(String::as_str), entry)?;
            if let Some(catalogue) = &host.catalogue {
                map.add_further(number, Arc::clone(catalogue) as _);
            }
            if let Some(on_demand) = &host.on_demand {
                map.add_remaining(number, Arc::clone(on_demand) as _);
            }
        }
        map.set_default(HostSettings::default_of(hosts));
        let challenge = builder.challenge()?;
        Ok(Self { hosts: map, settings, challenge, challenges: Arc::clone(&resources.challenges) })
    }

    /// Prepares the certificates in the slots of all hosts, and drops those used before. Without this call, the next
    /// handshake of each host does so.
    pub fn refresh(&self) {
        self.hosts.hosts().iter().for_each(|host| host.prepared.refresh());
    }

    /// Like [`refresh`](Self::refresh), for one slot.
    pub fn refresh_slot(&self, slot: &Arc<Slot>) {
        self.hosts
            .hosts()
            .iter()
            .filter(|host| host.prepared.is_of(slot))
            .for_each(|host| host.prepared.refresh());
    }

    /// Runs the handshake on `io`, of which `received` has been read already. The caller limits the time it takes.
    ///
    /// A handshake that resumes with early data is returned as soon as there is some: the stream completes it while it
    /// is read. The server's flight may still be in the stream then, to be sent together with an early response, so the
    /// driver of the connection drains the stream before it waits for anything. The caller's timeout should apply until
    /// [`Stream::poll_confirm`] is ready, and the caller records [`HandshakeFinished`](Milestone::HandshakeFinished) at
    /// [`confirmed_at`](crate::Confirmation::confirmed_at).
    pub async fn accept(
        &self,
        io: TcpStream,
        received: Vec<u8>,
        timeline: &mut Timeline,
    ) -> Result<Accepted, Refusal> {
        let mut bytes = (received.len() as u64, 0);
        let trace = Trace { timeline, missed: &mut None, received: &mut bytes.0, sent: &mut bytes.1 };
        let vary = |_| Variant::default();
        self.accept_from(None, io, received, &vary, trace).await
    }

    /// Like [`accept`](Self::accept), for a client whose key operations are limited by the [`KeyGate`] of the
    /// resources. `vary` is called once the host is known, with its index, and returns the settings of this connection.
    pub async fn accept_from(
        &self,
        client: Option<IpAddr>,
        mut io: TcpStream,
        received: Vec<u8>,
        vary: &dyn Fn(usize) -> Variant,
        mut trace: Trace<'_>,
    ) -> Result<Accepted, Refusal> {
        let (hello, incoming) = self.read_hello(&mut io, received, &mut trace).await?;
        trace.timeline.mark(Milestone::ClientHello);
        let started = Instant::now();
        let mut variant = Variant::default();
        let result = if let Some((alert, reason)) = self.unanswerable(&hello) {
            send_last(&mut io, alert, &mut trace).await;
            Err(Refusal::because(HandshakeOutcome::NothingInCommon, &reason))
        } else if challenge::is_validation(&hello) {
            let refusal = Box::pin(self.answer_challenge(&hello, io, incoming, &mut trace)).await;
            return Err(Refusal { server_name: hello.server_name, ..refusal });
        } else if let Some(host) = self.hosts.get(hello.server_name.as_deref()).host() {
            variant = vary(host.place);
            let host = (host, host.config.with_tickets(variant.tickets));
            Negotiation::run(host, &hello, client, &mut io, incoming, &mut trace).await
        } else {
            // RFC 6066 section 3: a fatal alert, because the reaction of clients to a warning is unpredictable.
            send_last(&mut io, &ALERT_UNRECOGNIZED_NAME, &mut trace).await;
            Err(Refusal::new(HandshakeOutcome::UnknownName))
        };
        match result {
            Ok(negotiation) => {
                let facts = negotiation.facts(&hello, started.elapsed());
                let records = variant.records.unwrap_or(self.settings.records);
                let (stream, demands) = negotiation.into_stream(io, records, &trace);
                if stream.confirmation().is_none() {
                    trace.timeline.mark(Milestone::HandshakeFinished);
                }
                Ok(Accepted { stream, facts, demands })
            }
            Err(refusal) => {
                let outcome = negotiation::refined(refusal.outcome, &hello);
                Err(Refusal { server_name: hello.server_name, outcome, ..refusal })
            }
        }
    }

    /// The alert for a hello that no host can accept, and the reason. rustls would send `handshake_failure` for most of
    /// them.
    fn unanswerable(&self, hello: &ClientHello) -> Option<(&'static [u8; 7], &'static str)> {
        // RFC 8446 section 6.2: "protocol_version" if the version of the peer is recognised but not supported.
        if hello.versions.iter().all(|version| *version < self.settings.min_version) {
            return Some((&ALERT_PROTOCOL_VERSION, "the client offers only versions that are too old"));
        }
        // RFC 8446 section 9.2.
        let (groups, shares) = (!hello.groups.is_empty(), hello.key_shares.is_some());
        // RFC 8446 section 9.2: the requirements on a ClientHello of TLS 1.3, and the alert "missing_extension".
        let misses = groups != shares || (!hello.has_psk && (!groups || hello.signature_schemes.is_empty()));
        (hello.offers_version(ProtocolVersion::TLS1_3) && misses).then_some((
            &ALERT_MISSING_EXTENSION,
            "TLS 1.3 without supported_groups, key_share or signature_algorithms",
        ))
    }

    async fn read_hello(
        &self,
        io: &mut TcpStream,
        mut incoming: Vec<u8>,
        trace: &mut Trace<'_>,
    ) -> Result<(ClientHello, Vec<u8>), Refusal> {
        loop {
            match ClientHello::read(&incoming, self.settings.hello_size) {
                Ok(HelloProgress::Complete(hello)) => return Ok((*hello, incoming)),
                Ok(HelloProgress::Incomplete) => {}
                Err(error) => return Err(refuse_hello(io, error, trace).await),
            }
            incoming.reserve(2048);
            match io.read_buf(&mut incoming).await {
                Ok(0) => return Err(Refusal::new(HandshakeOutcome::ClientClosed)),
                Ok(len) => *trace.received += len as u64,
                Err(error) => return Err(lost(&error)),
            }
        }
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").field("settings", &self.settings).finish_non_exhaustive()
    }
}

async fn refuse_hello(io: &mut TcpStream, error: HelloError, trace: &mut Trace<'_>) -> Refusal {
    let (outcome, answer): (_, &[u8]) = match error {
        HelloError::PlainHttp => (HandshakeOutcome::PlainHttp, PLAIN_HTTP_ANSWER),
        HelloError::NotTls => (HandshakeOutcome::NotTls, &[]),
        HelloError::TooLarge { .. } => (HandshakeOutcome::TooLarge, &ALERT_DECODE_ERROR),
        _ => (HandshakeOutcome::Malformed, &ALERT_DECODE_ERROR),
    };
    send_last(io, answer, trace).await;
    Refusal::because(outcome, &error)
}

/// Sends the last bytes of a connection and lingers until the client has read them: closing with unread data would
/// reset the connection.
async fn send_last(io: &mut TcpStream, bytes: &[u8], trace: &mut Trace<'_>) {
    // The connection is refused in any case; a failure to send the reason changes nothing.
    if bytes.is_empty() || io.write_all(bytes).await.is_err() {
        return;
    }
    *trace.sent += bytes.len() as u64;
    // Closed at once, the socket would send RST for unread input, and the client could lose the alert.
    if io.shutdown().await.is_ok() {
        // Boxed: its buffer would otherwise be half of the size of the handshake's future.
        Box::pin(brisk_net::linger(io, brisk_net::Lingering::BRIEF)).await;
    }
}

fn lost(error: &std::io::Error) -> Refusal {
    Refusal::because(HandshakeOutcome::ClientClosed, error)
}

#[cfg(test)]
mod tests;
