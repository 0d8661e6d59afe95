//! TCP connections whose bytes are forwarded: [`connect`] chooses a server and connects to it, [`StreamUpstream::join`] copies
//! in both directions.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use brisk_http_connection::proxy_header;
use brisk_net::{Deadline, end_by_reset};
use brisk_telemetry::{ConnectionRecord, StreamEnd};
use brisk_upstream_group::UpstreamIo;
use brisk_upstream_group::settings::{RequestTimeouts, Retry};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::admission::Admission;
use crate::direction::{CopyEnd, Directions, IdleLimit, Side};
use crate::error::UpstreamError;
use crate::group::{Group, Lease, Server};
use crate::open::{AtLimit, OpenConnection};

/// Time without progress after which a connection counts as idle. A shorter pause may be that of a server at work.
const QUIET: Duration = Duration::from_secs(5);

/// The client of a TCP connection, for [`connect`].
#[derive(Clone, Copy, Debug)]
pub struct StreamClient<'a> {
    /// The record of its connection, for PROXY headers.
    pub record: &'a ConnectionRecord,
    /// The address to which shares of a [`Group`] apply; `None` if it represents many clients.
    pub share: Option<IpAddr>,
}

/// Facts of a TCP connection in progress, which remain available if its future is dropped.
#[derive(Debug, Default)]
pub struct StreamFacts {
    /// The server that was tried last.
    pub server: RefCell<Option<Rc<Server>>>,
    /// Bytes from the client to the server.
    pub from_client: Cell<u64>,
    /// Bytes from the server to the client.
    pub from_upstream: Cell<u64>,
}

/// The transport of a client whose bytes are forwarded.
pub trait ClientTransport: AsyncRead + AsyncWrite + Unpin {
    /// The TCP connection.
    fn tcp(&self) -> &TcpStream;
}

/// A connection to a server for one TCP connection of a client, as [`connect`] returns it.
#[derive(Debug)]
pub struct StreamUpstream {
    io: UpstreamIo,
    _lease: Lease,
    _open: OpenConnection,
}

/// Connects to a server of `group`. With [`Retry::Once`], another server is tried after a failure.
///
/// # Errors
///
/// [`UpstreamError`] of the last server; [`UpstreamError::NoServer`] if the group has none.
pub async fn connect(
    group: &Rc<Group>,
    client: StreamClient<'_>,
    facts: &StreamFacts,
) -> Result<StreamUpstream, UpstreamError> {
    let key = group.client_key(client.record.client.ip());
    let mut server = if let Some(server) = group.choose(key, None) {
        server
    } else {
        Box::pin(group.await_servers()).await;
        group.choose(key, None).ok_or(UpstreamError::NoServer)?
    };
    let mut may_retry = group.state().settings().retry == Retry::Once;
    loop {
        facts.server.replace(Some(Rc::clone(&server)));
        // Another server may have a permit immediately.
        let at_limit = if may_retry && group.servers().len() > 1 { AtLimit::Fail } else { AtLimit::Wait };
        let error = match open(&server, at_limit, client).await {
            Ok(upstream) => return Ok(upstream),
            Err(error) => error,
        };
        if error.blames_server() {
            server.failed(&error);
        }
        let next = may_retry.then(|| group.choose(key, Some(&server))).flatten();
        may_retry = false;
        server = next.ok_or(error)?;
    }
}

async fn open(
    server: &Rc<Server>,
    at_limit: AtLimit,
    client: StreamClient<'_>,
) -> Result<StreamUpstream, UpstreamError> {
    let lease = Lease::new(server, RequestTimeouts::default());
    // Connections for bytes are never released to others, so none is granted.
    let Admission::Open(place) = server.admit(at_limit, client.share).await? else {
        return Err(UpstreamError::ConnectionLimit);
    };
    let record = client.record;
    let version = server.state().proxy_protocol();
    let header = version.map(|version| proxy_header::header_of(record, record.client, version));
    let (io, open) = server.open_with(&header.unwrap_or_default(), place).await?;
    // A success at once, because bytes have no status that could show a failure later.
    server.group_state().record_success(server.state());
    Ok(StreamUpstream { io, _lease: lease, _open: open })
}

impl StreamUpstream {
    /// Copies in both directions until both have ended, a side has failed, or nothing was copied for `idle`. A connection without
    /// progress for five seconds gives way to others in a shortage ([`StreamEnd::Evicted`]), like idle connections of HTTP.
    ///
    /// `read_ahead` contains bytes read from the client before; `client` may have bytes to be flushed. A failure of one side, data that a side has not taken for `idle`, and the drop of this future reset the
    /// connections to both.
    pub async fn join<C: ClientTransport>(
        mut self,
        client: &mut C,
        read_ahead: Bytes,
        (deadline, idle): (&Deadline, Duration),
        facts: &StreamFacts,
    ) -> StreamEnd {
        // Without a reset, a transfer that brisk cuts would look complete.
        self.end_by_reset(client, true);
        let mut directions = Directions::new(read_ahead, Bytes::new());
        let mut first_end = None;
        let limit = IdleLimit::new(deadline, idle).giving_way_after(QUIET);
        let end = directions.copy(client, &mut self.io, limit, |moved, first| {
            first_end = first;
            facts.from_client.set(moved.0);
            facts.from_upstream.set(moved.1);
        });
        let end = match (end.await, first_end) {
            (CopyEnd::Closed, Some(Side::Client)) => StreamEnd::ClientClosed,
            (CopyEnd::Closed, _) => StreamEnd::UpstreamClosed,
            (CopyEnd::Failed(Side::Client), _) => StreamEnd::ClientReset,
            (CopyEnd::Failed(Side::Server), _) => StreamEnd::UpstreamReset,
            (CopyEnd::Idle, _) => StreamEnd::IdleTimeout,
            (CopyEnd::Evicted, _) => StreamEnd::Evicted,
        };
        // Data that a side has not taken must not end like a whole transfer.
        if end.side().is_none() && !directions.is_blocked() {
            self.end_by_reset(client, false);
        }
        end
    }

    /// Determines whether the connections to both sides end with a reset.
    fn end_by_reset<C: ClientTransport>(&self, client: &C, is_reset: bool) {
        end_by_reset(client.tcp(), is_reset);
        match &self.io {
            UpstreamIo::Plain(tcp) => end_by_reset(tcp, is_reset),
            UpstreamIo::Tls(stream) => end_by_reset(stream.tcp(), is_reset),
            UpstreamIo::Unix(_) => {}
        }
    }
}

impl From<&UpstreamError> for StreamEnd {
    fn from(error: &UpstreamError) -> Self {
        match error {
            UpstreamError::ConnectTimeout => Self::ConnectTimeout,
            UpstreamError::ConnectionLimit | UpstreamError::QueueFull => Self::ConnectionLimit,
            UpstreamError::NoServer => Self::NoServer,
            _ => Self::Connect,
        }
    }
}
