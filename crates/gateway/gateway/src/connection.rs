//! Life of one connection, from its acceptance to its record. Read it from top to bottom.

mod accept;
pub(crate) mod client;
mod plain;
pub(crate) mod quic;

use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use brisk_http_connection::Connection;
use brisk_http_server::{End, Http, HttpIo, serve};
use brisk_net::rates::Event;
use brisk_net::{Deadline, TcpInfo};
use brisk_telemetry::metrics::Listening;
use brisk_telemetry::{ConnectionEnd, ConnectionRecord, HandshakeOutcome, Timeline};
use brisk_tls::{Accepted, Demands, Refusal, Trace, Variant, read_hello};
use brisk_variants::AssignedValues;
use tokio::net::TcpStream;

use self::client::{Permits, introduce, timed_out};
use crate::tcp::forward::{Entry, forward};
use crate::worker::Worker;

/// Serves one HTTPS connection to its end. Never fails: errors are recorded.
///
/// State that only the beginning needs is created outside of the future, or boxed, so that an idle connection does not
/// hold memory for it.
pub(crate) fn serve_https(
    worker: Rc<Worker>,
    tcp: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    mut permits: Permits,
) -> impl Future<Output = ()> {
    let record = ConnectionRecord::new(worker.shared.next_connection_id(), peer, local, Timeline::start());
    let mut record = Box::new(record);
    record.report_to(&worker.shared.sink, Listening::Https);
    async move {
        let deadline = worker.wheel.register();

        // Boxed: the state of the handshake is freed at the end of this statement instead of enlarging the task.
        let (io, demands, assigned) =
            match Box::pin(secure(&worker, tcp, &mut record, &mut permits, &deadline)).await {
                Ok(Secured::Http(io, demands, assigned)) => (io, demands, assigned),
                Ok(Secured::Tcp(entry)) => {
                    Box::pin(forward(worker, record, deadline, *entry)).await;
                    return drop(permits);
                }
                Err(refusal) => return refused(&worker, &mut record, &refusal),
            };
        let connection = connected(&worker, *record, demands, &io);
        connection.extras.assign(assigned);
        limit_client(&worker, &connection);
        let http = Http {
            service: Rc::clone(&worker.service),
            connection: Rc::clone(&connection),
            settings: Rc::clone(&worker.http.borrow()),
            deadline,
            drain: worker.drain.clone(),
        };
        let end = serve(io, &http).await;
        drop(permits);

        if matches!(end, End::Malformed | End::Flood) {
            charge(&worker, &connection.client.record.borrow(), Event::Error);
        }
        let mut record = connection.client.record.borrow_mut();
        // A replay of early data never completes its handshake: it counts as a failed one,
        // although it had a response.
        if connection.client.is_confirmed() {
            record.finish(ConnectionEnd::Served(end.name()));
        } else {
            unconfirmed(&mut record, end);
        }
        tracing::debug!(connection = record.id, client = %record.client, ?end, "connection ended");
    }
}

/// A connection whose requests are about to be served. Its handshake is counted now or, with early data, when it is
/// complete.
fn connected(worker: &Worker, mut record: ConnectionRecord, demands: Demands, io: &HttpIo) -> Rc<Connection> {
    let shared = &worker.shared;
    record.early_bytes = io.early_bytes();
    let tls = record.tls.as_ref().expect("a handshake has facts from here on");
    if let Some(outcome) = tls.early_data {
        shared.metrics.early_data(outcome);
    }
    // With early data, the handshake is complete only when the client's `Finished` arrives.
    let Some(confirmation) = io.confirmation() else {
        shared.metrics.handshake(tls);
        return Connection::under(demands, record);
    };
    let until = record.timeline.started() + shared.live.load().handshake_timeout;
    Connection::with_early_data(record, confirmation, until)
}

/// Applies the limits that count all connections of a client: the rate of [`Event::Request`], and shares of memory.
pub(crate) fn limit_client(worker: &Worker, connection: &Connection) {
    let live = worker.shared.live.load();
    if live.is_many_clients(connection.client.record.borrow().client.ip()) {
        // Shares of memory apply to single clients: a proxy would have to serve all of its clients from one.
        connection.client.set_many();
    }
    // Also for a proxy, which names its clients in headers.
    if let Some(rates) = live.rates.as_ref().filter(|rates| rates.limits().requests.is_some()) {
        connection.extras.limit_requests(Arc::clone(rates));
    }
}

/// Counts an [`Event`] of the client. If the rate of such events is limited, a client above it is refused for a while.
pub(crate) fn charge(worker: &Worker, record: &ConnectionRecord, event: Event) {
    let live = worker.shared.live.load();
    if let (Some(rates), Some(client)) = (&live.rates, live.one_client(record.client.ip())) {
        rates.charge(client, event);
    }
}

/// A connection whose bytes belong to HTTP, or to a `[[tcp]]` that shares the listener.
enum Secured {
    Http(HttpIo, Demands, AssignedValues),
    Tcp(Box<Entry>),
}

/// The facts of a handshake that go to `record`.
pub(crate) fn trace_of(record: &mut ConnectionRecord) -> Trace<'_> {
    Trace {
        timeline: &mut record.timeline,
        missed: &mut record.resumption_failure,
        received: &mut record.bytes_received,
        sent: &mut record.bytes_sent,
    }
}

/// Reads the PROXY header and performs the handshake: everything up to a stream of plaintext. A `[[tcp]]` that passes TLS on takes
/// the connection after the `ClientHello`.
async fn secure(
    worker: &Worker,
    mut tcp: TcpStream,
    record: &mut ConnectionRecord,
    permits: &mut Permits,
    deadline: &Deadline,
) -> Result<Secured, Refusal> {
    let live = worker.shared.live.load_full();
    // Until the handshake is complete a connection counts as idle: under shortage the oldest is closed first.
    deadline.set_idle(live.handshake_timeout);
    let received = introduce(worker, &live, &mut tcp, record, permits, deadline).await?;
    let client = live.one_client(record.client.ip());
    // A connection from a proxy of many clients is no visitor's.
    let assignment = live.variation.assignment(record.id, client.is_some());
    let (acceptor, routes) = (&live.tls.acceptor, &live.tcp.https);
    let accepted = async {
        let mut trace = trace_of(record);
        let read = read_hello(&mut tcp, received, live.hello_size, &mut trace).await?;
        // Before brisk writes a byte: the upstream must see the handshake of the client unchanged.
        if let Some(service) = routes.passes(&read.hello, Some(acceptor)) {
            return Ok(Err(Entry::passed(service, tcp, read)));
        }
        let vary = |host| if live.is_tcp(host) { Variant::default() } else { assignment.draw(host) };
        acceptor.accept_read(client, tcp, read, &vary, trace).await.map(Ok)
    };
    let accepted = match deadline.within(accepted).await.unwrap_or_else(|| Err(timed_out(deadline)))? {
        Ok(accepted) => accepted,
        Err(entry) => return Ok(Secured::Tcp(Box::new(entry))),
    };
    if let Some(service) = routes.terminated(accepted.place) {
        worker.shared.metrics.handshake(&accepted.facts);
        record.tls = Some(Box::new(accepted.facts));
        return Ok(Secured::Tcp(Box::new(Entry::terminated(service, accepted.stream))));
    }
    let assigned = assignment.apply(accepted.stream.tcp(), &worker.shared.variation_warnings);
    // One system call per connection, saved if no output uses the value.
    if live.measures_rtt
        && let Ok(info) = TcpInfo::of(accepted.stream.tcp())
    {
        record.rtt = Some(info.rtt);
        record.window = u16::try_from(info.window).unwrap_or(u16::MAX);
    }
    let Accepted { stream, facts, demands, .. } = accepted;
    record.tls = Some(Box::new(facts));
    Ok(Secured::Http(HttpIo::new(stream), demands, assigned))
}

/// Records a client that sent early data and never finished its handshake.
pub(crate) fn unconfirmed(record: &mut ConnectionRecord, end: End) {
    let outcome = match end {
        End::HandshakeTimeout => HandshakeOutcome::TimedOut,
        End::Malformed => HandshakeOutcome::ProtocolError,
        _ => HandshakeOutcome::ClientClosed,
    };
    record.finish(ConnectionEnd::HandshakeFailed(outcome));
    tracing::debug!(connection = record.id, client = %record.client, %outcome, "handshake failed after early data");
}

/// Records a handshake that was refused, and charges a [protocol error](is_protocol_error) to its client.
pub(crate) fn refused(worker: &Worker, record: &mut ConnectionRecord, refusal: &Refusal) {
    if is_protocol_error(refusal.outcome) {
        charge(worker, record, Event::Error);
    }
    note_refusal(worker, record, refusal);
}

/// Completes the record of a handshake that failed, and logs the reason.
pub(crate) fn note_refusal(worker: &Worker, record: &mut ConnectionRecord, refusal: &Refusal) {
    record.finish(ConnectionEnd::HandshakeFailed(refusal.outcome));
    let (name, detail) = (refusal.server_name.as_deref(), refusal.detail.as_deref());
    match refusal.outcome {
        // Only faults of the gateway are warnings: clients could fill the log with theirs, which
        // the access log contains.
        HandshakeOutcome::KeyOperation | HandshakeOutcome::Internal => {
            if let Some(more) = worker.shared.handshake_warnings.pass() {
                tracing::warn!(connection = record.id, client = %record.client, name, detail, outcome = %refusal.outcome, more, "handshake failed");
            }
        }
        outcome => {
            tracing::debug!(connection = record.id, client = %record.client, name, detail, %outcome, "handshake failed");
        }
    }
}

/// Whether the outcome is an error that no client makes by accident.
fn is_protocol_error(outcome: HandshakeOutcome) -> bool {
    matches!(
        outcome,
        HandshakeOutcome::NotTls
            | HandshakeOutcome::TooLarge
            | HandshakeOutcome::Malformed
            | HandshakeOutcome::ProtocolError
    )
}
