//! An origin that counts, and a client in front of `forward`.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_http::error::BodyError;
use brisk_http_connection::Connection;
use brisk_http_connection::body::client::testing::of_hyper;
use brisk_http_connection::body::request::RequestBody;
use brisk_http_connection::interim::InterimReceivers;
use brisk_net::DeadlineWheel;
use brisk_telemetry::{ConnectionRecord, Metrics, Timeline};
use brisk_upstream_group::GroupState;
use brisk_upstream_group::settings::{GroupSettings, RequestTimeouts};
use http::{Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, spawn_local};

use crate::body::UpstreamBody;
use crate::forward::{ForwardFacts, ForwardOutcome, forward};
use crate::group::Group;
use crate::upgrade::{Joined, PendingUpgrade};

/// A body that a test sends.
pub(super) type TestBody = UnsyncBoxBody<Bytes, BodyError>;

pub(super) fn text(text: &'static str) -> Response<TestBody> {
    Response::new(boxed(Full::from(text)))
}

pub(super) fn boxed(body: Full<Bytes>) -> TestBody {
    body.map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn get(path: &str) -> Request<TestBody> {
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    Request::get(path).header(header::HOST, "app.test").body(body).expect("request")
}

pub(super) fn post(path: &str, body: impl Into<Bytes>) -> Request<TestBody> {
    Request::post(path).header(header::HOST, "app.test").body(boxed(Full::new(body.into()))).expect("request")
}

pub(super) async fn body_of(response: Response<Incoming>) -> Bytes {
    response.into_body().collect().await.expect("a whole body").to_bytes()
}

/// Waits until `condition` holds, and fails after a long time.
pub(super) async fn eventually(mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < Duration::from_mins(3), "the condition never held");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(super) fn settings(origins: &[&Origin]) -> GroupSettings {
    settings_for("http", origins)
}

pub(super) fn settings_for(scheme: &str, origins: &[&Origin]) -> GroupSettings {
    let url = |origin: &&Origin| format!("{scheme}://{}", origin.address).parse().expect("a URL");
    GroupSettings::new("app", origins.iter().map(url))
}

/// A server on loopback that counts what reaches it.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    counts: Rc<Counts>,
}

#[derive(Default)]
struct Counts {
    talks: RefCell<Vec<AbortHandle>>,
    connections: Cell<usize>,
    requests: Cell<usize>,
}

impl Origin {
    /// HTTP/1.1 by hyper.
    pub(super) async fn serve(
        answer: impl AsyncFn(Request<Incoming>) -> Response<TestBody> + 'static,
    ) -> Self {
        let answer = Rc::new(answer);
        Self::raw(async move |connection, _| {
            let answer = service(Rc::clone(&answer), Rc::clone(&connection.counts));
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(connection.stream), service_fn(answer))
                .await;
        })
        .await
    }

    /// HTTP/2 by hyper, without TLS.
    pub(super) async fn serve_http2(
        answer: impl AsyncFn(Request<Incoming>) -> Response<TestBody> + 'static,
    ) -> Self {
        let answer = Rc::new(answer);
        Self::raw(async move |connection, _| {
            let answer = service(Rc::clone(&answer), Rc::clone(&connection.counts));
            let io = TokioIo::new(connection.stream);
            let _ = http2::Builder::new(LocalTasks).serve_connection(io, service_fn(answer)).await;
        })
        .await
    }

    /// Whatever `talk` does with each connection, which is numbered from 0.
    pub(super) async fn raw(talk: impl AsyncFn(RawConnection, usize) + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let counts = Rc::new(Counts::default());
        let origin = Self { address, counts: Rc::clone(&counts) };
        spawn_local(async move {
            let talk = Rc::new(talk);
            while let Ok((stream, _)) = listener.accept().await {
                let number = counts.connections.replace(counts.connections.get() + 1);
                let connection = RawConnection { stream, counts: Rc::clone(&counts) };
                let talk = Rc::clone(&talk);
                let talk = spawn_local(async move { talk(connection, number).await });
                let mut talks = counts.talks.borrow_mut();
                talks.retain(|talk| !talk.is_finished());
                talks.push(talk.abort_handle());
            }
        });
        origin
    }

    /// An address where no server listens.
    pub(super) async fn absent() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        Self { address: listener.local_addr().expect("address"), counts: Rc::default() }
    }

    /// Responds to one request with `ok`, and ends with its listener when the next one comes.
    pub(super) async fn mortal() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let counts = Rc::<Counts>::default();
        let origin = Self { address: listener.local_addr().expect("address"), counts: Rc::clone(&counts) };
        spawn_local(async move {
            let (stream, _) = listener.accept().await.expect("a connection");
            let mut connection = RawConnection { stream, counts };
            connection.read_head().await;
            connection.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
            connection.read_head().await;
            // Before the connection, so that a further one is refused.
            drop(listener);
        });
        origin
    }

    /// Closes every connection.
    pub(super) fn close_all(&self) {
        self.counts.talks.borrow_mut().drain(..).for_each(|talk| talk.abort());
    }

    pub(super) fn connections(&self) -> usize {
        self.counts.connections.get()
    }

    pub(super) fn requests(&self) -> usize {
        self.counts.requests.get()
    }
}

type Answered = Result<Response<TestBody>, Infallible>;

fn service<A>(
    answer: Rc<A>,
    counts: Rc<Counts>,
) -> impl Fn(Request<Incoming>) -> std::pin::Pin<Box<dyn Future<Output = Answered>>>
where
    A: AsyncFn(Request<Incoming>) -> Response<TestBody> + 'static,
{
    move |request| {
        counts.requests.set(counts.requests.get() + 1);
        let answer = Rc::clone(&answer);
        Box::pin(async move { Ok(answer(request).await) })
    }
}

/// Runs what hyper needs beside a connection on the test's own thread.
#[derive(Clone, Copy)]
struct LocalTasks;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalTasks {
    fn execute(&self, future: F) {
        drop(spawn_local(async move {
            future.await;
        }));
    }
}

/// One connection of a raw origin.
pub(super) struct RawConnection {
    pub(super) stream: TcpStream,
    counts: Rc<Counts>,
}

impl RawConnection {
    /// Reads a head to its empty line; `None` when the client has closed.
    pub(super) async fn read_head(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.ok()?);
        }
        self.counts.requests.set(self.counts.requests.get() + 1);
        Some(String::from_utf8(head).expect("an ASCII head"))
    }

    pub(super) async fn write(&mut self, bytes: &str) {
        self.stream.write_all(bytes.as_bytes()).await.expect("write");
    }
}

/// A client whose requests hyper reads and `forward` answers, over a pipe in memory.
pub(super) struct Front {
    shared: Rc<Shared>,
    sender: Option<SendRequest<TestBody>>,
}

struct Shared {
    group: Rc<Group>,
    body_limit: u64,
    outcome: Cell<Rc<ForwardOutcome>>,
    wheel: DeadlineWheel,
}

impl Front {
    pub(super) fn new(settings: GroupSettings) -> Self {
        Self::with_limit(settings, u64::MAX)
    }

    pub(super) fn with_limit(settings: GroupSettings, body_limit: u64) -> Self {
        let state = GroupState::new(settings, &Metrics::new()).expect("settings");
        Self::of_state(state, body_limit)
    }

    pub(super) fn of_state(state: Arc<GroupState>, body_limit: u64) -> Self {
        let wheel = DeadlineWheel::new();
        let running = wheel.clone();
        spawn_local(async move { running.run().await });
        let group = Group::new(state, &wheel);
        Self { shared: Rc::new(Shared { group, body_limit, outcome: Cell::default(), wheel }), sender: None }
    }

    /// Another client of the same worker.
    pub(super) fn another(&self) -> Self {
        Self { shared: Rc::clone(&self.shared), sender: None }
    }

    pub(super) fn group(&self) -> &Rc<Group> {
        &self.shared.group
    }

    pub(super) fn idle_connections(&self) -> usize {
        self.group().servers().iter().map(|server| server.idle_connections()).sum()
    }

    /// The outcome of the last request.
    pub(super) fn outcome(&self) -> Rc<ForwardOutcome> {
        let outcome = self.shared.outcome.take();
        self.shared.outcome.set(Rc::clone(&outcome));
        outcome
    }

    pub(super) async fn send(&mut self, request: Request<TestBody>) -> Response<Incoming> {
        self.try_send(request).await.expect("a response")
    }

    /// Sends over a connection that is kept; a new one if that was closed.
    pub(super) async fn try_send(&mut self, request: Request<TestBody>) -> hyper::Result<Response<Incoming>> {
        let kept = match &mut self.sender {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !kept {
            self.sender = Some(self.connect().await);
        }
        self.sender.as_mut().expect("just connected").send_request(request).await
    }

    /// A pipe that speaks HTTP/1.1, upgrades included.
    pub(super) fn pipe(&self) -> DuplexStream {
        let (near, far) = duplex(64 << 10);
        spawn_local(serve(far, Rc::clone(&self.shared)));
        near
    }

    async fn connect(&self) -> SendRequest<TestBody> {
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(self.pipe())).await.expect("handshake");
        spawn_local(connection);
        sender
    }
}

async fn serve(pipe: DuplexStream, shared: Rc<Shared>) {
    let local = SocketAddr::from(([127, 0, 0, 1], 443));
    let client = SocketAddr::from(([10, 1, 2, 3], 4711));
    let connection = Connection::new(ConnectionRecord::new(1, client, local, Timeline::start()), true);
    let respond = |request| respond(request, Rc::clone(&connection), Rc::clone(&shared));
    let mut hyper = http1::Builder::new().serve_connection(TokioIo::new(pipe), service_fn(respond));
    // An upgrade ends this without shutting the pipe down.
    let _ = (&mut hyper).await;
    let parts = hyper.into_parts();
    if let Some(pending) = PendingUpgrade::take(&connection) {
        let deadline = shared.wheel.register();
        pending.join(parts.io.into_inner(), parts.read_buf, &deadline, &Joined::default()).await;
    }
}

async fn respond(
    request: Request<Incoming>,
    connection: Rc<Connection>,
    shared: Rc<Shared>,
) -> Result<Response<UpstreamBody>, Infallible> {
    let outcome = Rc::new(ForwardOutcome::default());
    shared.outcome.set(Rc::clone(&outcome));
    let facts = ForwardFacts {
        connection: &connection,
        client: connection.client.record.borrow().client,
        interims: InterimReceivers::default(),
        outcome: &outcome,
        timeouts: RequestTimeouts::default(),
        variables: None,
    };
    let (head, body) = of_hyper(request).into_parts();
    let body = RequestBody::new(body, &connection, shared.body_limit, Rc::default());
    Ok(match forward(&shared.group, head, body, &facts).await {
        Ok(response) => response.into(),
        Err(error) => {
            let mut response = Response::new(UpstreamBody::full(error.to_string()));
            *response.status_mut() = error.status();
            response.headers_mut().insert("x-reason", error.reason().parse().expect("a header value"));
            response
        }
    })
}
