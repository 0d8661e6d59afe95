//! [`forward`], which connects a client with its upstream and records the outcome.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use brisk_net::Deadline;
use brisk_telemetry::{ConnectionEnd, ConnectionRecord, StreamEnd, StreamRecord};
use brisk_upstream::stream::{StreamClient, StreamFacts, connect};
use tokio::io::AsyncWrite as _;
use tokio::time::Instant;

use super::io::ClientIo;
use super::routes::TcpService;
use crate::worker::Worker;

/// A connection that belongs to a [`TcpService`].
pub(crate) struct Entry {
    pub(crate) service: Arc<TcpService>,
    pub(crate) io: ClientIo,
    /// Bytes read from the client that its upstream has to get first.
    pub(crate) read_ahead: Vec<u8>,
    /// Server name in the `ClientHello` that is passed on.
    pub(crate) server_name: Option<Box<str>>,
}

/// Forwards the bytes of a connection to its end. Never fails: errors are recorded.
pub(crate) async fn forward(
    worker: Rc<Worker>,
    record: Box<ConnectionRecord>,
    deadline: Deadline,
    entry: Entry,
) {
    let Entry { service, mut io, read_ahead, server_name } = entry;
    service.metrics.begun();
    // Connecting has a timeout of its own, and a connection gives way to others only when nothing is forwarded.
    deadline.clear();
    let group = worker.groups.of(&service.group);
    let idle = service.settings.idle_timeout;
    let mut forwarding = Forwarding {
        record,
        service,
        server_name,
        read_ahead: read_ahead.len() as u64,
        facts: StreamFacts::default(),
        upstream_time: Cell::default(),
        wire: None,
        end: None,
        worker: Rc::clone(&worker),
    };
    if !forwarding.service.settings.networks.permits(forwarding.record.client.ip()) {
        forwarding.end = Some(StreamEnd::ClientAddress);
        return;
    }
    // The end of the handshake may still be in the stream; a client that does not take it gets it later.
    poll_fn(|context| {
        drop(Pin::new(&mut io).poll_flush(context));
        Poll::Ready(())
    })
    .await;
    let share = worker.shared.live.load().one_client(forwarding.record.client.ip());
    let started = Instant::now();
    let client = StreamClient { record: &forwarding.record, share };
    let connected = Box::pin(connect(&group, client, &forwarding.facts)).await;
    let upstream = match connected {
        Ok(upstream) => upstream,
        Err(error) => {
            forwarding.end = Some(StreamEnd::from(&error));
            tracing::debug!(connection = forwarding.record.id, tcp = forwarding.service.settings.name, %error, "no connection to the upstream");
            return;
        }
    };
    forwarding.upstream_time.set(Some(started.elapsed()));
    let end = upstream.join(&mut io, read_ahead.into(), (&deadline, idle), &forwarding.facts).await;
    forwarding.wire = io.bytes();
    forwarding.end = Some(end);
}

/// A connection in progress. Dropping it records the outcome, also if the drain has cut the connection.
struct Forwarding {
    worker: Rc<Worker>,
    record: Box<ConnectionRecord>,
    service: Arc<TcpService>,
    server_name: Option<Box<str>>,
    /// Bytes from the client that the record has counted already and [`StreamFacts`] counts too.
    read_ahead: u64,
    facts: StreamFacts,
    upstream_time: Cell<Option<Duration>>,
    /// Bytes received and sent over TLS.
    wire: Option<(u64, u64)>,
    end: Option<StreamEnd>,
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        // The task of a connection is dropped at the end of the drain only.
        let end = self.end.unwrap_or(StreamEnd::Drain);
        let (received, sent) = (self.facts.from_client.get(), self.facts.from_upstream.get());
        // Without TLS the bytes of the socket are those that were forwarded, and those of
        // the PROXY header before.
        let wire = self.wire.unwrap_or((
            self.record.bytes_received + received.saturating_sub(self.read_ahead),
            self.record.bytes_sent + sent,
        ));
        (self.record.bytes_received, self.record.bytes_sent) = wire;
        self.service.metrics.ended(end, received, sent);
        let server = self.facts.server.borrow();
        let sink = &self.worker.shared.sink;
        if let Some(log) = sink.access_log() {
            log.log_stream(&StreamRecord {
                connection: &self.record,
                service: &self.service.settings.name,
                server_name: self.server_name.as_deref(),
                upstream: server.as_ref().map(|server| server.name()),
                upstream_time: self.upstream_time.get(),
                duration: self.record.timeline.started().elapsed(),
                bytes_received: received,
                bytes_sent: sent,
                end,
            });
        }
        self.record.finish(ConnectionEnd::Served(end.name()));
    }
}
