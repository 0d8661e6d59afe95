//! The journey of one connection, from its acceptance to its record. Read it from top to bottom.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use brisk_net::rates::Event;
use brisk_net::{Deadline, TcpInfo};
use brisk_proxy::Connection;
use brisk_proxy::client::{End, Http, HttpIo, serve};
use brisk_telemetry::metrics::Listening;
use brisk_telemetry::{ConnectionRecord, HandshakeOutcome};
use brisk_tls::{Accepted, Refusal};
use tokio::net::TcpStream;

use crate::client::{introduce, timed_out};
use crate::worker::{Permits, Worker};

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
    let record = ConnectionRecord::new(worker.shared.next_connection_id(), peer, local, Instant::now());
    let mut record = Box::new(record);
    record.count_in(&worker.shared.metrics, Listening::Https);
    async move {
        let deadline = worker.wheel.register();

        let (io, host) = match Box::pin(secure(&worker, tcp, &mut record, &mut permits, &deadline)).await {
            Ok(secured) => secured,
            Err(refusal) => return refused(&worker, &record, &refusal),
        };
        let connection = connected(&worker, *record, &io);
        limit_requests(&worker, &connection);
        let http = Http {
            service: Rc::clone(&worker.service),
            connection: Rc::clone(&connection),
            settings: Rc::clone(&worker.http.borrow()),
            deadline,
            drain: worker.drain.clone(),
        };
        let end = serve(io, &http).await;
        drop(permits);

        if !connection.is_confirmed() {
            unconfirmed(&worker, &connection.record.borrow(), end);
        }
        if matches!(end, End::Malformed | End::Flood) {
            charge_error(&worker, &connection.record.borrow());
        }
        let mut record = connection.record.borrow_mut();
        record.end();
        tracing::debug!(connection = record.id, client = %record.client, host, ?end, "connection ended");
    }
}

/// A connection whose requests are about to be served. Its handshake is counted now or, with early data, when it is
/// complete.
fn connected(worker: &Worker, mut record: ConnectionRecord, io: &HttpIo) -> Rc<Connection> {
    let shared = &worker.shared;
    record.early_bytes = io.early_bytes();
    let tls = record.tls.as_ref().expect("a handshake has facts from here on");
    if let Some(outcome) = tls.early_data {
        shared.metrics.early_data(outcome);
    }
    let Some(confirmation) = io.confirmation() else {
        shared.metrics.handshake(tls);
        return Connection::new(record, true);
    };
    let until = record.timeline.started() + shared.live.load().handshake_timeout;
    Connection::with_early_data(record, confirmation, until)
}

/// Applies the rate limit of requests, which counts all connections of a client.
pub(crate) fn limit_requests(worker: &Worker, connection: &Connection) {
    let live = worker.shared.live.load();
    let Some(rates) = live.rates.as_ref().filter(|rates| rates.limits().requests.is_some()) else { return };
    if let Some(client) = live.one_client(connection.record.borrow().client.ip()) {
        connection.limit_requests(Arc::clone(rates), client);
    }
}

/// Counts a protocol error of the client. If their rate is limited, a client above it is refused for a while.
fn charge_error(worker: &Worker, record: &ConnectionRecord) {
    let live = worker.shared.live.load();
    if let (Some(rates), Some(client)) = (&live.rates, live.one_client(record.client.ip())) {
        rates.charge(client, Event::Error);
    }
}

/// Reads the PROXY header and performs the handshake: everything up to a stream of plaintext.
async fn secure(
    worker: &Worker,
    mut tcp: TcpStream,
    record: &mut ConnectionRecord,
    permits: &mut Permits,
    deadline: &Deadline,
) -> Result<(HttpIo, usize), Refusal> {
    let live = worker.shared.live.load_full();
    // Until its handshake is complete a connection has no work either: in a shortage the oldest goes first.
    deadline.set_idle(live.handshake_timeout);
    let received = introduce(worker, &live, &mut tcp, record, permits, deadline).await?;
    let client = live.one_client(record.client.ip());
    let ConnectionRecord { timeline, resumption_failure, .. } = &mut *record;
    let accepted = live.tls.acceptor.accept_from(client, tcp, received, timeline, resumption_failure);
    let accepted = within(deadline, accepted).await.unwrap_or_else(|| Err(timed_out(deadline)))?;
    if live.measures_rtt {
        record.rtt = TcpInfo::of(accepted.stream.tcp()).ok().map(|info| info.rtt);
    }
    let Accepted { stream, facts, host } = accepted;
    record.tls = Some(Box::new(facts));
    Ok((HttpIo::new(stream), host))
}

/// The output of `work`, or `None` if the deadline passes first.
pub(crate) async fn within<F: Future>(deadline: &Deadline, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => deadline.poll_expired(cx).map(|()| None),
    })
    .await
}

/// Counts and logs a client that sent early data and never finished its handshake.
fn unconfirmed(worker: &Worker, record: &ConnectionRecord, end: End) {
    let outcome = match end {
        End::HandshakeTimeout => HandshakeOutcome::TimedOut,
        End::Malformed => HandshakeOutcome::ProtocolError,
        _ => HandshakeOutcome::ClientClosed,
    };
    failed(worker, record, outcome);
    tracing::debug!(connection = record.id, client = %record.client, %outcome, "handshake failed after early data");
}

/// Counts and logs a connection that ended before it could be served.
pub(crate) fn failed(worker: &Worker, record: &ConnectionRecord, outcome: HandshakeOutcome) {
    // A record with TLS facts is of a connection with accepted early data, which resumed.
    let resumption = record.resumption_failure.filter(|_| record.tls.is_none());
    worker.shared.metrics.handshake_failed(outcome, resumption);
    if let Some(log) = worker.shared.access_log.load().as_ref() {
        log.log_handshake(record, outcome);
    }
}

fn refused(worker: &Worker, record: &ConnectionRecord, refusal: &Refusal) {
    failed(worker, record, refusal.outcome);
    if is_protocol_error(refusal.outcome) {
        charge_error(worker, record);
    }
    let (name, detail) = (refusal.server_name.as_deref(), refusal.detail.as_deref());
    match refusal.outcome {
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
