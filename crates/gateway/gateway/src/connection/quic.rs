//! Connections of HTTP/3, from their first packet to their record.

pub(crate) mod endpoints;
pub(crate) mod metrics;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use brisk_http_connection::Connection;
use brisk_http_server::h3::{Closing, Http3, greeting};
use brisk_http_server::{End, Http};
use brisk_net::rates::Event;
use brisk_quic::{AddressProof, Application, Driver, Established, Failed, Failure, Service};
use brisk_server::DatagramSocket;
use brisk_telemetry::metrics::Listening;
use brisk_telemetry::{ConnectionEnd, ConnectionRecord, HandshakeOutcome, Milestone, QuicPath, Timeline};
use brisk_tls::{Confirmation, Refusal};
use bytes::Bytes;
use quinn_proto::{ConnectionError, StreamEvent};

use crate::connection::client::{Permits, counted_as};
use crate::connection::{charge, limit_client, note_refusal, refused, unconfirmed};
use crate::listener::Socket;
use crate::worker::Worker;

/// Serves the connections of a datagram socket until the future is dropped.
pub(crate) async fn serve(worker: Rc<Worker>, socket: DatagramSocket<Socket>) {
    let Some(quic) = worker.shared.quic.get() else { return };
    let (index, local) = (socket.index, socket.local);
    let group = quic.group(local, socket.group, socket.half);
    let settings = Rc::clone(&worker.http.borrow());
    let (greeting, head_size) = (greeting(&settings), settings.head_size);
    let service = Http3Service { worker: Rc::clone(&worker), local, greeting, head_size };
    let driver = Driver::new(socket.socket, (index, &group), quic.endpoints(), service, worker.drain.clone());
    let error = match driver {
        Ok(driver) => driver.run().await,
        Err(error) => error,
    };
    tracing::error!(%error, %local, "HTTP/3 is not served by this worker any longer");
}

/// Accepts connections of HTTP/3.
struct Http3Service {
    worker: Rc<Worker>,
    local: SocketAddr,
    greeting: Bytes,
    /// Limit of heads in the greeting. Clients remember it for early data, so a reload does not change it (RFC 9114 section 7.2.4.2).
    head_size: usize,
}

/// The beginning of a connection, before its handshake is complete.
struct Admitted {
    permits: Permits,
    record: Box<ConnectionRecord>,
    proof: AddressProof,
}

impl Service for Http3Service {
    type Permit = Admitted;
    type Application = Http3Connection;

    fn admit(&self, client: SocketAddr, proof: AddressProof) -> Option<Admitted> {
        let shared = &self.worker.shared;
        let live = shared.live.load();
        if live.proxy_protocol.expected_from(client.ip()) {
            // Datagrams have no PROXY header, so the client of such a peer is unknown.
            return None;
        }
        // Before the client is counted: a refusal for want of slots must not use up the rate of the client.
        let place = self.worker.context.place();
        let place = place.map_err(|reason| shared.metrics.connection_refused(counted_as(reason))).ok()?;
        let mut permits = Permits::new(place);
        let counted = match proof {
            AddressProof::Validated => permits.count_client(shared, &live, client.ip()),
            AddressProof::Claimed => permits.count_claimed(shared, &live, client.ip()),
        };
        if let Err(refusal) = counted {
            shared.metrics.connection_refused(refusal);
            return None;
        }
        let id = shared.next_connection_id();
        let mut record = Box::new(ConnectionRecord::new(id, client, self.local, Timeline::start()));
        record.report_to(&shared.sink, Listening::Https);
        Some(Admitted { permits, record, proof })
    }

    fn established(&self, established: Established<Admitted>) -> Http3Connection {
        let Established { handshake, greeting, permit: Admitted { permits, mut record, proof }, .. } =
            established;
        let worker = Rc::clone(&self.worker);
        if proof == AddressProof::Claimed {
            // Not in `admit`: with forged addresses, an attacker would use up the rate of their owners. The
            // handshake has proven the address.
            charge(&worker, &record, Event::Connection);
        }
        let now = Instant::now();
        // The TLS layer measures the handshake, but not when it began on the clock of the record.
        let hello = now.checked_sub(handshake.facts.handshake_time).unwrap_or(now);
        record.timeline.mark_at(Milestone::ClientHello, hello);
        let metrics = &worker.shared.metrics;
        if let Some(outcome) = handshake.facts.early_data {
            metrics.early_data(outcome);
        }
        let confirmation = handshake.early_data.then(Confirmation::default);
        if confirmation.is_none() {
            record.timeline.mark_at(Milestone::HandshakeFinished, now);
            metrics.handshake(&handshake.facts);
        }
        record.tls = Some(Box::new(handshake.facts));
        let connection = match &confirmation {
            None => Connection::under(handshake.demands, *record),
            Some(confirmation) => {
                let until = record.timeline.started() + worker.shared.live.load().handshake_timeout;
                Connection::with_early_data(*record, confirmation.clone(), until)
            }
        };
        if proof == AddressProof::Claimed {
            connection.client.set_claimed();
        }
        limit_client(&worker, &connection);
        let mut settings = Rc::clone(&worker.http.borrow());
        if settings.head_size != self.head_size {
            Rc::make_mut(&mut settings).head_size = self.head_size;
        }
        let http = Http {
            service: Rc::clone(&worker.service),
            connection: Rc::clone(&connection),
            settings,
            deadline: worker.wheel.register(),
            drain: worker.drain.clone(),
        };
        let mut http3 = Http3::new(http);
        if let Some((stream, rest)) = greeting {
            http3.greeted(stream.into(), rest);
        }
        Http3Connection { http3, connection, confirmation, worker, migrations: 0, _permits: permits }
    }

    fn failed(&self, failed: Failed<Admitted>) {
        let Failed { refusal, failure, permit: Admitted { permits, mut record, proof }, .. } = failed;
        let refusal = refusal.map_or_else(|| refusal_of(&failure), |refusal| *refusal);
        match proof {
            AddressProof::Validated => refused(&self.worker, &mut record, &refusal),
            // An attacker that claims an address must not use up the errors that its owner may make.
            AddressProof::Claimed => note_refusal(&self.worker, &mut record, &refusal),
        }
        drop(permits);
    }

    fn greeting(&self) -> Bytes {
        self.greeting.clone()
    }

    fn reception(&self, error: Option<&io::Error>) {
        let (local, worker) = (self.local, self.worker.context.number);
        let Some(quic) = self.worker.shared.quic.get() else { return };
        let is_change = quic.note_reception((local, worker), error);
        match error {
            Some(error) if is_change => {
                tracing::error!(%error, %local, worker, "HTTP/3 receives no datagrams; further attempts follow");
            }
            None => tracing::info!(%local, worker, "HTTP/3 receives datagrams again"),
            Some(_) => {}
        }
    }
}

/// The [`Refusal`] for a handshake whose session gave no reason.
fn refusal_of(failure: &Failure) -> Refusal {
    match failure {
        Failure::Late => Refusal::new(HandshakeOutcome::TimedOut),
        Failure::LateSession => Refusal::because(
            HandshakeOutcome::TimedOut,
            &"a certificate, a key operation or the session store took too long",
        ),
        Failure::NoStack => {
            Refusal::because(HandshakeOutcome::Internal, &"no memory for the stack of a handshake")
        }
        Failure::Lost(error @ ConnectionError::TransportError(_)) => {
            Refusal::because(HandshakeOutcome::ProtocolError, error)
        }
        Failure::Lost(error) => Refusal::because(HandshakeOutcome::ClientClosed, error),
    }
}

/// A connection of HTTP/3.
struct Http3Connection {
    http3: Http3,
    connection: Rc<Connection>,
    /// The end of the handshake, if the connection began with early data.
    confirmation: Option<Confirmation>,
    worker: Rc<Worker>,
    migrations: u32,
    _permits: Permits,
}

impl Application for Http3Connection {
    fn confirmed(&mut self) {
        let Some(confirmation) = self.confirmation.take() else { return };
        let mut record = self.connection.client.record.borrow_mut();
        record.timeline.mark(Milestone::HandshakeFinished);
        let time = record.timeline.between(Milestone::ClientHello, Milestone::HandshakeFinished);
        if let Some(tls) = &mut record.tls {
            tls.handshake_time = time.unwrap_or(tls.handshake_time);
            self.worker.shared.metrics.handshake(tls);
        }
        drop(record);
        confirmation.confirm();
    }

    fn moved(&mut self) {
        self.migrations += 1;
    }

    fn event(&mut self, event: StreamEvent) {
        self.http3.event(&event);
    }

    fn poll(&mut self, transport: &mut quinn_proto::Connection, cx: &mut Context<'_>) -> Poll<u64> {
        if !transport.is_handshaking() {
            self.note_path(transport);
        }
        let Closing { end, code } = std::task::ready!(self.http3.poll(transport, cx));
        self.finish(end, Some(transport));
        Poll::Ready(code.0)
    }

    fn lost(&mut self, transport: Option<&quinn_proto::Connection>, error: &ConnectionError) {
        let end = match error {
            ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed => End::Closed,
            ConnectionError::TimedOut if self.confirmation.is_some() => End::HandshakeTimeout,
            ConnectionError::TimedOut => End::Idle,
            ConnectionError::TransportError(_) => End::Malformed,
            _ => End::ClientGone,
        };
        self.finish(end, transport);
    }
}

impl Http3Connection {
    /// Records the round-trip time and the congestion window after the handshake, as over TCP.
    fn note_path(&self, transport: &quinn_proto::Connection) {
        let mut record = self.connection.client.record.borrow_mut();
        // Once: later values are not those of the handshake. `finish` replaces the time by the last one.
        if record.rtt.is_none() {
            let path = transport.stats().path;
            record.rtt = Some(path.rtt);
            let segments = path.cwnd / u64::from(path.current_mtu.max(1));
            record.window = u16::try_from(segments).unwrap_or(u16::MAX);
        }
    }

    /// Completes the [`ConnectionRecord`].
    fn finish(&self, end: End, transport: Option<&quinn_proto::Connection>) {
        let mut record = self.connection.client.record.borrow_mut();
        if matches!(end, End::Malformed | End::Flood) {
            charge(&self.worker, &record, Event::Error);
        }
        if let Some(transport) = transport {
            self.note_stats(&mut record, transport);
        }
        if self.connection.client.is_confirmed() {
            record.finish(ConnectionEnd::Served(end.name()));
        } else {
            unconfirmed(&mut record, end);
        }
        tracing::debug!(connection = record.id, client = %record.client, ?end, "connection ended");
    }

    /// Records the bytes and packets of the connection.
    fn note_stats(&self, record: &mut ConnectionRecord, transport: &quinn_proto::Connection) {
        let stats = transport.stats();
        record.bytes_received = stats.udp_rx.bytes;
        record.bytes_sent = stats.udp_tx.bytes;
        record.rtt = Some(stats.path.rtt);
        let path = QuicPath {
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            migrations: self.migrations,
        };
        record.path = Some(Box::new(path));
        if let Some(quic) = self.worker.shared.quic.get() {
            let counters = quic.endpoints().counters();
            counters.packets_sent.add_all(path.packets_sent);
            counters.packets_lost.add_all(path.packets_lost);
        }
    }
}
