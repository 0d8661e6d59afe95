//! Limits per client, checked first on every connection.

use std::io;
use std::net::IpAddr;

use brisk_net::proxy_protocol::{self, Progress};
use brisk_net::rates::Event;
use brisk_net::{AddressPermit, Deadline};
use brisk_server::{NoService, Place};
use brisk_telemetry::metrics::Refusal as Refused;
use brisk_telemetry::{ConnectionRecord, HandshakeOutcome};
use brisk_tls::Refusal;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::configuration::Live;
use crate::shared::Shared;
use crate::worker::Worker;

/// Reads the PROXY header where the peer sends one, notes the client that it names, and counts the connection as that
/// client's. Returns the bytes read beyond the header. The caller sets the deadline.
pub(crate) async fn introduce(
    worker: &Worker,
    live: &Live,
    tcp: &mut TcpStream,
    record: &mut ConnectionRecord,
    permits: &mut Permits,
    deadline: &Deadline,
) -> Result<Vec<u8>, Refusal> {
    let mut received = Vec::new();
    if !live.proxy_protocol.expected_from(record.peer.ip()) {
        return Ok(received);
    }
    let header = read_proxy_header(tcp, &mut received, record);
    let named = deadline.within(header).await.unwrap_or_else(|| Err(timed_out(deadline)))?;
    // A connection of the balancer itself (LOCAL), such as a health check, has no client.
    if named {
        let admitted = permits.count_client(&worker.shared, live, record.client.ip());
        admitted.map_err(|reason| {
            worker.shared.metrics.connection_refused(reason);
            Refusal::new(HandshakeOutcome::Limited)
        })?;
    }
    Ok(received)
}

/// The [`Refusal`] of a handshake that took too long, or whose [`Place`] was needed.
pub(crate) fn timed_out(deadline: &Deadline) -> Refusal {
    let evicted = deadline.is_evicted();
    Refusal::new(if evicted { HandshakeOutcome::Evicted } else { HandshakeOutcome::TimedOut })
}

/// The reason of a refusal for the metrics.
pub(crate) fn counted_as(reason: NoService) -> Refused {
    match reason {
        NoService::Full => Refused::Limit,
        NoService::Overloaded => Refused::Overload,
    }
}

/// A connection's share of the limits, given back when it ends.
pub(crate) struct Permits {
    _place: Place,
    /// `None` if the client is not counted, or not known yet.
    counted: Option<AddressPermit>,
}

impl Permits {
    /// Creates the permits of a connection whose client is not known yet.
    pub(crate) fn new(place: Place) -> Self {
        Self { _place: place, counted: None }
    }

    /// Counts the connection as one of `client`, which has not proven its address yet. The rate of connections is charged
    /// later.
    pub(crate) fn count_claimed(
        &mut self,
        shared: &Shared,
        live: &Live,
        client: IpAddr,
    ) -> Result<(), Refused> {
        if let (Some(rates), Some(client)) = (&live.rates, live.one_client(client)) {
            rates.check(client, Event::Error).map_err(|_| Refused::ErrorRate)?;
        }
        self.count(shared, live, client)
    }

    /// Counts the connection as one of `client`.
    pub(crate) fn count_client(
        &mut self,
        shared: &Shared,
        live: &Live,
        client: IpAddr,
    ) -> Result<(), Refused> {
        if let (Some(rates), Some(client)) = (&live.rates, live.one_client(client)) {
            // Errors are only checked here; they are charged when a connection ends with one.
            rates.check(client, Event::Error).map_err(|_| Refused::ErrorRate)?;
            rates.take(client, Event::Connection).map_err(|_| Refused::ConnectionRate)?;
        }
        self.count(shared, live, client)
    }

    fn count(&mut self, shared: &Shared, live: &Live, client: IpAddr) -> Result<(), Refused> {
        let Some(limit) = shared.limits.connections.as_ref() else { return Ok(()) };
        if live.is_many_clients(client)
            || (shared.limits.spares_loopback && client.to_canonical().is_loopback())
        {
            return Ok(());
        }
        self.counted = limit.try_acquire(client);
        if self.counted.is_some() { Ok(()) } else { Err(Refused::ClientLimit) }
    }
}

/// Reads the header; `true` if it named a client, which is in the [`ConnectionRecord`] then.
async fn read_proxy_header(
    tcp: &mut TcpStream,
    received: &mut Vec<u8>,
    record: &mut ConnectionRecord,
) -> Result<bool, Refusal> {
    loop {
        let len = tcp.read_buf(received).await.map_err(|error| closed(&error))?;
        if len == 0 {
            return Err(closed(&io::ErrorKind::UnexpectedEof.into()));
        }
        record.bytes_received += len as u64;
        let (consumed, named) = match proxy_protocol::parse(received) {
            Ok(Progress::Incomplete) => continue,
            Ok(Progress::Header { source, destination, consumed }) => {
                record.client = source;
                record.local = destination;
                (consumed, true)
            }
            Ok(Progress::Local { consumed }) => (consumed, false),
            Err(error) => return Err(Refusal::because(HandshakeOutcome::ProxyProtocol, &error)),
        };
        // The bytes behind the header belong to the first message of the client, which
        // may arrive with the header.
        received.drain(..consumed);
        return Ok(named);
    }
}

fn closed(error: &io::Error) -> Refusal {
    Refusal::because(HandshakeOutcome::ClientClosed, error)
}
