//! HTTP/2 client with several concurrent requests on one connection.

mod io;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use brisk_tls_client::{ClientFacts, SavedSession};
use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;

use crate::connection::{Kind, Opener};
use crate::error::Failure;
use crate::measure::Exchange;
use crate::result::Cause;
use crate::shared::Multiplexed;
use crate::workload::{PerConnection, Request};
use io::Io;

/// Flow-control windows of a response and a connection, large enough not to slow down responses.
const STREAM_WINDOW: u32 = 16 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Timeout for the server to close the connection.
const FAREWELL: Duration = Duration::from_secs(1);

/// An HTTP/2 connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    sender: SendRequest<Bytes>,
    /// Requests that may still be sent.
    left: Cell<u64>,
    /// The first request, if it was sent as early data.
    early: RefCell<Option<(ResponseFuture, Instant)>>,
    driver: Driver,
}

/// The task that reads and writes for all requests of a connection. Dropping it cuts the connection.
#[derive(Debug)]
struct Driver {
    task: JoinHandle<Result<(), h2::Error>>,
    io: Io,
}

impl Multiplexed for Http2 {
    async fn open(
        opener: &Opener,
        kind: &Kind,
        session: Option<SavedSession>,
        requests: PerConnection,
        request: &Request,
    ) -> Result<Self, Failure> {
        // Without a session there is no early data, and the request is sent after the handshake.
        let is_early = kind.is_early() && session.is_some();
        let io = Io::new();
        if !is_early {
            io.open(opener.open(kind, session, None).await?);
            let (sender, connection) = start(io.clone()).await?;
            return Ok(Self::new(sender, io, requests, None, connection));
        }
        // HTTP/2 begins without a connection: preface, `SETTINGS` and request become the early data.
        let (mut sender, mut connection) = start(io.clone()).await?;
        let response = send(&mut sender, request)?;
        // One poll writes everything that can be sent before the server's first data.
        poll_fn(|cx| Poll::Ready(Pin::new(&mut connection).poll(cx).is_pending())).await;
        let first_flight = io.gathered();
        let mut link = opener.open(kind, session, Some(&first_flight)).await?;
        let mut sent = link.timeline.started();
        // Rejected early data is sent again as ordinary data.
        if !link.early_was_accepted() {
            sent = Instant::now();
            let written = tokio::io::AsyncWriteExt::write_all(&mut link.stream, &first_flight).await;
            written.map_err(|error| Failure::io(&error, "sending the request"))?;
        }
        io.open(link);
        Ok(Self::new(sender, io, requests, Some((response, sent)), connection))
    }

    fn facts(&self) -> Option<ClientFacts> {
        self.driver.io.facts()
    }

    fn is_open(&self) -> bool {
        !self.driver.task.is_finished()
    }

    fn left(&self) -> &Cell<u64> {
        &self.left
    }

    async fn exchange(&self, request: &Request) -> Result<Exchange, Failure> {
        let early = self.early.take();
        let (response, sent) = if let Some(early) = early {
            early
        } else {
            // Waits while the server permits no further stream: `send_request` alone would return an error.
            let mut sender = self.sender.clone().ready().await.map_err(|error| failure(&error))?;
            let sent = Instant::now();
            (send(&mut sender, request)?, sent)
        };
        let response = response.await.map_err(|error| failure(&error))?;
        let first_byte = Instant::now();
        let status = response.status().as_u16();
        let mut stream = response.into_body();
        let mut body = 0;
        while let Some(data) = stream.data().await {
            let len = data.map_err(|error| failure(&error))?.len();
            body += len as u64;
            // Released at once, so that the flow-control window does not limit the server.
            stream.flow_control().release_capacity(len).map_err(|error| failure(&error))?;
        }
        let ended = Instant::now();
        self.driver.io.exchanged(sent, first_byte);
        self.driver.io.account(ended);
        Ok(Exchange { status, body, sent, first_byte, ended })
    }

    async fn close(self) {
        let Self { sender, early, mut driver, .. } = self;
        // `h2` ends the connection after the last handle is dropped.
        drop((sender, early));
        // Errors are ignored, since the server has closed the connection in any case.
        let _ = timeout(FAREWELL, &mut driver.task).await;
        if let Some(link) = driver.io.cut() {
            link.close().await;
        }
    }
}

impl Http2 {
    fn new(
        sender: SendRequest<Bytes>,
        io: Io,
        requests: PerConnection,
        early: Option<(ResponseFuture, Instant)>,
        connection: Connection<Io, Bytes>,
    ) -> Self {
        let driver = Driver { task: spawn_local(connection), io };
        Self { sender, left: Cell::new(requests.most()), early: RefCell::new(early), driver }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The runtime drops an aborted task later; `cut` closes the link and counts its traffic now.
        self.task.abort();
        self.io.cut();
    }
}

async fn start(io: Io) -> Result<(SendRequest<Bytes>, Connection<Io, Bytes>), Failure> {
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // A pushed response belongs to no operation.
        .enable_push(false);
    builder.handshake(io).await.map_err(|error| failure(&error))
}

fn send(sender: &mut SendRequest<Bytes>, request: &Request) -> Result<ResponseFuture, Failure> {
    let body = request.body().clone();
    let (response, mut stream) =
        sender.send_request(request.http2(), body.is_empty()).map_err(|error| failure(&error))?;
    if !body.is_empty() {
        stream.send_data(body, true).map_err(|error| failure(&error))?;
    }
    Ok(response)
}

fn failure(error: &h2::Error) -> Failure {
    if let Some(io) = error.get_io() {
        return Failure::io(io, "waiting for the response");
    }
    if error.is_go_away() {
        return Failure::new(Cause::Closed, format!("the server closed the connection: {error}"));
    }
    if error.is_reset() {
        return Failure::new(Cause::Response, format!("the server gave up the request: {error}"));
    }
    Failure::new(Cause::Response, format!("the response is not HTTP/2: {error}"))
}
