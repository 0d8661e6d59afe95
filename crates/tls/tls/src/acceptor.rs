//! [`Acceptor`], which performs the handshake of a TCP connection: [`ClientHello`], host, certificate, key operation and
//! session.

mod challenge;
pub(crate) mod facts;
pub(crate) mod hello;
mod negotiation;
pub(crate) mod selection;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use brisk_certs::{Challenges, HostMap, Precedence, Slot};
use brisk_telemetry::{HandshakeOutcome, Milestone, ResumptionFailure, Timeline, TlsFacts};
use brisk_wire::client_hello::ClientHello;
use brisk_wire::registry::ProtocolVersion;
use rustls::AlertDescription;
use tokio::net::TcpStream;

use crate::TlsError;
use crate::demands::Demands;
use crate::host_config::{ConfigBuilder, HostConfig, Transport};
use crate::prepared_slot::PreparedSlot;
use crate::refusal::Refusal;
use crate::resources::Resources;
use crate::settings::{HostSettings, TlsSettings, Variant};
use crate::stream::Stream;
use hello::{ReadHello, alert, lost, read_hello, refuse_name, send_last};
use negotiation::Negotiation;
use selection::{Host, Hosts, OnDemandNames, Selection};

/// Accepts TLS connections for a set of hosts. Shared by all workers and replaced as a whole when its settings change.
/// Certificates are not part of [`TlsSettings`]: each host presents those in its [`Slot`].
pub struct Acceptor {
    hosts: Hosts,
    settings: TlsSettings,
    challenge: HostConfig,
    challenges: Arc<Challenges>,
}

/// Facts of a handshake in progress, which remain available if it fails or is dropped at its deadline.
#[derive(Debug)]
pub struct Trace<'a> {
    /// Times of each [`Milestone`].
    pub timeline: &'a mut Timeline,
    /// The [`ResumptionFailure`] of the client's session. Recorded early, because a client that replays a flight never finishes
    /// its handshake.
    pub missed: &'a mut Option<ResumptionFailure>,
    /// Bytes received on the connection. Added to the caller's count, which includes the bytes that the caller has
    /// read.
    pub received: &'a mut u64,
    /// Bytes sent on the connection, added likewise.
    pub sent: &'a mut u64,
}

/// A handshake that is complete or has received early data.
pub struct Accepted {
    /// The connection. While it has a [`confirmation`](Stream::confirmation), the handshake is not complete and the
    /// stream yields early data, which may be a replay, though not of data that this fleet has accepted before.
    pub stream: Stream,
    /// The negotiated parameters. With early data, [`TlsFacts::handshake_time`] ends at the first early data.
    pub facts: TlsFacts,
    /// The demands of the host on client certificates.
    pub demands: Demands,
    /// Index of the host in the list that [`Acceptor::new`] got.
    pub place: usize,
}

impl Acceptor {
    /// Builds the [`rustls::ServerConfig`]s of each host; [`TlsError::NoHost`] without hosts.
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
                hashes_client_certificates: settings.client_fingerprints,
                config: builder.host(host, Transport::Tcp)?,
                quic: (settings.quic && host.quic)
                    .then(|| builder.host(host, Transport::Quic))
                    .transpose()?,
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
        let hosts = Hosts { map };
        Ok(Self { hosts, settings, challenge, challenges: Arc::clone(&resources.challenges) })
    }

    /// Prepares the certificates in the [`Slot`] of each host, and drops those used before. Without this call, the next
    /// handshake of each host does so.
    pub fn refresh(&self) {
        self.hosts.map.hosts().iter().for_each(|host| host.prepared.refresh());
    }

    /// Like [`refresh`](Self::refresh), for one slot.
    pub fn refresh_slot(&self, slot: &Arc<Slot>) {
        self.hosts
            .map
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

    /// Like [`accept`](Self::accept), for a client whose key operations are limited by the [`KeyGate`](crate::KeyGate) of the
    /// resources. `vary` is called once the host is known, with its index, and returns the settings of this connection.
    pub async fn accept_from(
        &self,
        client: Option<IpAddr>,
        mut io: TcpStream,
        received: Vec<u8>,
        vary: &dyn Fn(usize) -> Variant,
        mut trace: Trace<'_>,
    ) -> Result<Accepted, Refusal> {
        let read = read_hello(&mut io, received, self.settings.hello_size, &mut trace).await?;
        self.accept_read(client, io, read, vary, trace).await
    }

    /// Like [`accept_from`](Self::accept_from), after [`read_hello`].
    pub async fn accept_read(
        &self,
        client: Option<IpAddr>,
        mut io: TcpStream,
        ReadHello { mut hello, incoming, started }: ReadHello,
        vary: &dyn Fn(usize) -> Variant,
        mut trace: Trace<'_>,
    ) -> Result<Accepted, Refusal> {
        if self.settings.ja4 {
            // Now, because the handshake consumes `incoming`.
            hello.fingerprint(&incoming);
        }
        let (mut variant, mut place) = (Variant::default(), 0);
        let result = match self.hosts.select(&hello, self.settings.min_version) {
            Selection::Unanswerable(description, reason) => {
                send_last(&mut io, &alert(description), &mut trace).await;
                Err(Refusal::because(HandshakeOutcome::NothingInCommon, &reason))
            }
            Selection::Validation => {
                // Boxed: validations are rare, and would enlarge the future of every handshake.
                let refusal = Box::pin(self.answer_challenge(&hello, io, incoming, &mut trace)).await;
                return Err(Refusal { server_name: hello.server_name, ..refusal });
            }
            Selection::UnknownName => Err(refuse_name(&mut io, &mut trace).await),
            Selection::Host(host) => {
                place = host.place;
                variant = vary(host.place);
                let prepared = host.prepare(host.config.with_tickets(variant.tickets), &hello, client).await;
                Negotiation::run(prepared, &mut io, incoming, &mut trace).await
            }
        };
        match result {
            Ok(negotiation) => {
                let facts = negotiation.facts(&hello, started.elapsed());
                let records = variant.records.unwrap_or(self.settings.records);
                let (stream, demands) = negotiation.into_stream(io, records, &trace);
                if stream.confirmation().is_none() {
                    trace.timeline.mark(Milestone::HandshakeFinished);
                }
                Ok(Accepted { stream, facts, demands, place })
            }
            Err(refusal) => Err(refusal.refined(*hello)),
        }
    }

    /// The [`Precedence`] of the host for a server name; `None` is a client without one.
    pub fn precedence_of(&self, name: Option<&str>) -> Precedence {
        self.hosts.map.get(name).precedence()
    }

    /// [`TlsSettings::hello_size`], the maximum size of a `ClientHello` in bytes.
    pub(crate) fn hello_size(&self) -> usize {
        self.settings.hello_size
    }

    /// Whether JA4 is computed: [`TlsSettings::ja4`].
    pub(crate) fn computes_ja4(&self) -> bool {
        self.settings.ja4
    }

    /// Selects the [`Host`] for a [`ClientHello`] over QUIC, with its [`HostConfig`], or the alert and the reason for a
    /// refusal.
    pub(crate) fn select_for_quic(
        &self,
        hello: &ClientHello,
    ) -> Result<(&Host, &HostConfig), (AlertDescription, Refusal)> {
        let refuse = |alert, outcome, reason: &str| Err((alert, Refusal::because(outcome, &reason)));
        match self.hosts.select(hello, ProtocolVersion::TLS1_3) {
            Selection::Unanswerable(alert, reason) => {
                refuse(alert, HandshakeOutcome::NothingInCommon, reason)
            }
            Selection::UnknownName => {
                let refusal = Refusal::new(HandshakeOutcome::UnknownName);
                Err((AlertDescription::UnrecognisedName, refusal))
            }
            // RFC 8737 section 3: validation is over TCP, so no other server of QUIC has this protocol either.
            Selection::Validation => {
                let reason = "validation by tls-alpn-01 is over TCP only";
                refuse(AlertDescription::NoApplicationProtocol, HandshakeOutcome::NothingInCommon, reason)
            }
            Selection::Host(host) => host.quic.as_ref().map(|config| (host, config)).ok_or_else(|| {
                let refusal = Refusal::because(HandshakeOutcome::NothingInCommon, &"QUIC is not enabled");
                (AlertDescription::NoApplicationProtocol, refusal)
            }),
        }
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
