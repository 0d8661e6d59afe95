//! One request and its response, counted and logged exactly once on every path.

mod client;
mod line;
mod memory;
mod recorded_body;

use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use brisk_http::error::BodyError;
use brisk_http::message::{HeaderList, RequestParts, Response};
use brisk_http::version;
use brisk_http_connection::chunk::Reserved;
use brisk_http_connection::connection::RequestGuard;
use brisk_http_connection::held::{Account, HeldBytes};
use brisk_http_connection::interim::{ForwardedInterim, Interim};
use brisk_http_connection::streams::{Ended, StreamKey};
use brisk_http_connection::{Connection, streams};
use brisk_limits::ConcurrencyPermit;
use brisk_telemetry::{
    EarlyRequest, LogOutputs, Metrics, Milestone, RequestId, RequestLog, RequestRecord, Side, UpgradedEnd,
};
use brisk_transform::body::Body;
use brisk_upstream::Server;
use brisk_upstream::forward::ForwardOutcome;
use brisk_upstream::upgrade::Joined;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use http_body::Frame;

use self::line::{Failure, Line};
pub use self::recorded_body::RecordedBody;
use crate::client_address::{ClientAddress, Hop};

/// Time after which an aborted response is not counted as abuse.
const LONG: Duration = Duration::from_secs(1);

/// Metrics and access log for requests.
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// Counters and histograms.
    pub metrics: Arc<Metrics>,
    /// The access log; `None` at no cost.
    pub access_log: Option<Arc<dyn RequestLog>>,
}

/// One request from its head to the end of the response. Counted and logged on drop, so that cancelled requests are
/// recorded too.
#[derive(Debug)]
pub(crate) struct Exchange {
    telemetry: Rc<Telemetry>,
    connection: Rc<Connection>,
    client: ClientAddress,
    /// The addresses that a trusted proxy states.
    hops: Box<[Hop]>,
    id: RequestId,
    /// Number of the request on its connection, from 1.
    number: u32,
    started: Instant,
    status: u16,
    bytes_sent: u64,
    failure: Option<Failure>,
    state: State,
    held: bool,
    /// Stream of the request, on a multiplexed connection.
    stream: Option<StreamKey>,
    early: Option<EarlyRequest>,
    line: Option<Box<Line>>,
    user: Option<Arc<str>>,
    pub(crate) outcome: ForwardOutcome,
    /// Headers from the server that permitted the request, for the upstream.
    pub(crate) granted: Option<Box<HeaderList>>,
    /// Headers from the server that permitted the request, for the response.
    pub(crate) returned: Option<Box<HeaderList>>,
    /// Names in `Connection` of the upstream's response, which its trailers lose.
    pub(crate) named: Vec<HeaderName>,
    /// Names in the rules for responses, which trailers lose too.
    pub(crate) ruled: Option<Rc<[HeaderName]>>,
    /// Counts this request at limits of its route until the response ends.
    pub(crate) permits: Vec<ConcurrencyPermit>,
    /// Memory reserved for the first piece of the response.
    reserved: Option<Reserved>,
    /// Bytes and end of the connection or stream after a switch of protocols.
    switched: Option<Box<Joined>>,
    /// Heads of the request and the response, until the latter is sent, then the parts of the former that the access log
    /// holds; `None` over HTTP/1.1.
    heads: Option<HeldBytes>,
    _in_flight: RequestGuard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// No content is sent although the body may have some: the response to `HEAD`.
    Bodyless,
    Complete,
}

impl Exchange {
    /// Starts the exchange with the head of a request.
    pub(crate) fn begin(
        telemetry: &Rc<Telemetry>,
        connection: &Rc<Connection>,
        id: RequestId,
        request: &RequestParts,
    ) -> Box<Self> {
        let started = connection.flow.arrive();
        mark_first(connection, Milestone::FirstRequest, || started);
        let state = if request.method == Method::HEAD { State::Bodyless } else { State::Open };
        let in_flight = connection.begin_request();
        Box::new(Self {
            telemetry: Rc::clone(telemetry),
            connection: Rc::clone(connection),
            client: ClientAddress::of(connection),
            hops: Box::default(),
            id,
            number: connection.flow.requests(),
            started,
            status: 0,
            bytes_sent: 0,
            failure: None,
            state,
            held: false,
            stream: connection.multiplexed().map(|multiplexed| multiplexed.streams.begin(started)),
            early: connection.client.handshake().map(|_| EarlyRequest::Forwarded),
            line: telemetry.access_log.as_ref().map(|log| Box::new(Line::of(request, &**log))),
            user: None,
            outcome: ForwardOutcome::default(),
            granted: None,
            returned: None,
            named: Vec::new(),
            ruled: None,
            permits: Vec::new(),
            reserved: None,
            switched: None,
            heads: HeldBytes::begin(connection, Account::Heads),
            _in_flight: in_flight,
        })
    }

    /// Selects the outputs of the access log for the line of this request.
    pub(crate) fn log_to(&mut self, outputs: LogOutputs) {
        if outputs == LogOutputs::NONE {
            self.line = None;
        } else if let Some(line) = &mut self.line {
            line.outputs = outputs;
        }
    }

    pub(crate) fn id(&self) -> RequestId {
        self.id
    }

    /// Number of the request on its connection, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Time since the head of the request arrived.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn connection(&self) -> &Rc<Connection> {
        &self.connection
    }

    /// Whether the response is produced before the handshake is complete.
    pub(crate) fn is_early(&self) -> bool {
        self.early == Some(EarlyRequest::Forwarded)
    }

    /// Waits for the end of the handshake. Never returns if the handshake fails; the request is then dropped with its
    /// connection.
    pub(crate) async fn hold_until_confirmed(&mut self) {
        self.early = Some(EarlyRequest::Held);
        if let Some(handshake) = self.connection.client.handshake() {
            handshake.complete().await;
        }
    }

    /// Removes the fields that the head of the response has lost.
    fn clean_trailers(&self, trailers: &mut HeaderMap) {
        for name in self.ruled.iter().flat_map(|names| names.iter()).chain(&self.named) {
            trailers.remove(name);
        }
    }

    /// Records the reason of a failure. The first reason is kept.
    pub(crate) fn fail(&mut self, side: Side, reason: &'static str) {
        self.failure.get_or_insert(Failure { side, reason });
    }

    /// Records that the response switches protocols: the rest of the connection or stream belongs to this request.
    pub(crate) fn switch(&mut self) {
        self.switched = Some(Box::default());
    }

    /// Records the response's head and attaches the exchange to the response's body.
    pub(crate) fn respond(mut self: Box<Self>, response: Response<Body>) -> Response<RecordedBody> {
        self.status = response.status().as_u16();
        if matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            self.state = State::Bodyless;
        }
        self.outcome.answered();
        // First request only: if it was cancelled, the time until the next request is idle time of the client.
        if self.number == 1 {
            mark_first(&self.connection, Milestone::FirstResponse, Instant::now);
        }
        self.hold(true);
        self.hold_formed(response.body().held());
        response.map(|body| RecordedBody { body, exchange: self, broken: None })
    }

    /// Sender of early hints (`103`); `None` if the connection cannot carry them.
    pub(crate) fn interim(&self) -> Option<Interim> {
        self.stream.map(|stream| Interim::new(Rc::clone(&self.connection), stream))
    }

    /// Sender of an upstream's interim responses to a client with `version`; `None` for HTTP/1.0, which has none.
    pub(crate) fn interim_forwarding(&self, version: Version) -> Option<ForwardedInterim<'_>> {
        let has_them = version::has_interim_responses(version);
        has_them.then(|| ForwardedInterim::new(&self.connection, self.stream))
    }

    /// Whether the connection carries several requests at the same time.
    pub(crate) fn shares_connection(&self) -> bool {
        self.stream.is_some()
    }

    /// Sets whether the response is waiting for the client: `true` from the head and from each frame until the body is
    /// polled again, `false` while the body waits for its source.
    fn hold(&mut self, held: bool) {
        if let (Some(stream), Some(multiplexed)) = (self.stream, self.connection.multiplexed()) {
            multiplexed.streams.hold(stream, held);
        } else if self.held != held {
            self.held = held;
            self.connection.flow.answer_held(held);
        }
    }

    /// Releases the stream. Returns the reason if the connection ended the request.
    fn end_stream(&self) -> Option<Ended> {
        let own = self.stream.zip(self.connection.multiplexed()).and_then(|(stream, multiplexed)| {
            let ended = multiplexed.streams.ended(stream);
            multiplexed.streams.end(stream);
            ended
        });
        own.or_else(|| self.connection.flow.ended())
    }

    fn sent(&mut self, polled: &Poll<Option<Result<Frame<Bytes>, BodyError>>>) {
        self.release_heads();
        self.hold(polled.is_ready());
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.bytes_sent += bytes;
                self.connection.flow.answer_taken(bytes);
                // No frame follows trailers, and the connection does not poll again.
                if frame.is_trailers() {
                    self.state = State::Complete;
                }
            }
            // An idle socket is no error of the upstream.
            Poll::Ready(Some(Err(BodyError::UpstreamTimeout))) if self.switched.is_some() => {
                self.state = State::Complete;
                self.switched_ended(UpgradedEnd::IdleTimeout);
            }
            Poll::Ready(Some(Err(error))) => {
                self.fail(error.side(), error.reason());
                self.switched_ended(UpgradedEnd::Error);
            }
            Poll::Ready(None) => {
                self.state = State::Complete;
                self.switched_ended(UpgradedEnd::UpstreamClosed);
            }
            Poll::Pending => {}
        }
    }

    /// Records the end of a stream that has switched protocols.
    fn switched_ended(&self, end: UpgradedEnd) {
        if let Some(joined) = &self.switched {
            // An upstream also closes its direction after the client has ended the other one.
            let by_client = end == UpgradedEnd::UpstreamClosed && self.outcome.request_ended();
            joined.ended(if by_client { UpgradedEnd::ClientClosed } else { end });
        }
    }

    /// Completes the facts of a connection or stream that has switched protocols.
    fn complete_switched(&mut self) {
        let Some(joined) = &self.switched else { return };
        self.bytes_sent += joined.from_upstream.get();
        joined.ended(if self.connection.is_cut() { UpgradedEnd::Drain } else { UpgradedEnd::ClientClosed });
        if joined.end.get() == Some(UpgradedEnd::Error) {
            self.fail(Side::Upstream, "response-body");
        }
    }

    /// Points that the request earns for the flood budget of its connection.
    ///
    /// A client that resets a long response abandons data that it no longer needs, so the price of the reset is
    /// refunded.
    fn earned(&self, duration: Duration) -> u32 {
        match self.state {
            _ if self.status == 0 => 0,
            State::Bodyless | State::Complete => streams::ANSWER,
            State::Open if duration > LONG => streams::RESET,
            State::Open => 0,
        }
    }

    /// Side and reason of an incomplete response.
    fn abandoned(&self) -> (Side, &'static str) {
        if self.connection.is_cut() {
            (Side::Internal, "drain-timeout")
        } else {
            (Side::Client, "client-gone")
        }
    }

    fn log(&self, log: &dyn RequestLog, line: &Line, duration: Duration) {
        let server = self.outcome.server();
        let switched = self.switched.as_deref();
        log.log(&RequestRecord {
            outputs: line.outputs,
            connection: &self.connection.client.record.borrow(),
            client: self.client.address,
            id: self.id,
            method: line.method.as_str(),
            host: line.host(),
            path: line.path(),
            version: version::of(line.version),
            status: self.status,
            bytes_sent: self.bytes_sent,
            bytes_received: self.outcome.request_bytes()
                + switched.map_or(0, |joined| joined.from_client.get()),
            duration,
            upstream: server.as_deref().map(Server::name),
            upstream_time: self.outcome.time(),
            user: self.user.as_deref(),
            upstream_start: line.upstream_start.get(),
            trace: line.trace,
            referer: line.referer.as_ref().map(HeaderValue::as_bytes),
            user_agent: line.user_agent.as_ref().map(HeaderValue::as_bytes),
            headers: &line.headers(),
            early: self.early,
            error: self.failure.map(|failure| failure.reason),
            error_side: self.failure.map(|failure| failure.side),
            upgraded_end: switched.and_then(|joined| joined.end.get()),
            labels: &line.labels.pairs,
            label_field: line.labels.field,
        });
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // Before the record: a dropped response no longer waits for its client.
        self.hold(false);
        if let Some(ended) = self.end_stream() {
            self.fail(Side::Client, ended.reason());
        }
        // Without a status, the request was cancelled before its response.
        if self.state == State::Open || self.status == 0 {
            let (side, reason) = self.abandoned();
            self.fail(side, reason);
        }
        self.complete_switched();
        let duration = self.started.elapsed();
        if let Some(multiplexed) = self.connection.multiplexed() {
            multiplexed.earn(self.earned(duration));
        }
        let side = self.failure.map(|failure| failure.side);
        if let Some(failure) = self.failure {
            self.note(failure);
        }
        self.telemetry.metrics.request(self.status, side, self.outcome.time(), duration);
        if let Some(treatment) = self.early {
            self.telemetry.metrics.early_request(treatment);
        }
        self.connection.client.record.borrow_mut().requests += 1;
        if let (Some(log), Some(line)) = (&self.telemetry.access_log, &self.line) {
            self.log(&**log, line, duration);
        }
    }
}

/// Marks a milestone of the first request. Later requests cost one comparison.
fn mark_first(connection: &Connection, milestone: Milestone, time: impl FnOnce() -> Instant) {
    let mut record = connection.client.record.borrow_mut();
    if !record.timeline.is_reached(milestone) {
        record.timeline.mark_at(milestone, time());
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::pin::Pin;

    use http_body::Body as _;

    use brisk_http::message::Request;
    use brisk_net::DeadlineWheel;
    use brisk_telemetry::{ConnectionRecord, Timeline};
    use http_body_util::{BodyExt, StreamBody};
    use std::task::{Context, Waker};

    use super::*;
    use brisk_budget::Budgets;
    use brisk_http_connection::buffers::WorkerBuffers;
    use brisk_http_connection::connection::Surroundings;
    use brisk_http_connection::settings::HttpSettings;

    struct Stage {
        telemetry: Rc<Telemetry>,
        connection: Rc<Connection>,
    }

    impl Stage {
        fn new() -> Self {
            let telemetry = Rc::new(Telemetry { metrics: Metrics::new(), access_log: None });
            let address = SocketAddr::from(([127, 0, 0, 1], 1));
            let record = ConnectionRecord::new(1, address, address, Timeline::start());
            Self { telemetry, connection: Connection::new(record, true) }
        }

        fn begin(&self, method: &str) -> Box<Exchange> {
            let (parts, ()) = Request::builder().method(method).body(()).expect("a request").into_parts();
            Exchange::begin(&self.telemetry, &self.connection, RequestId(1), &parts)
        }

        fn requests(&self) -> u32 {
            assert_eq!(self.connection.flow.in_flight(), 0);
            self.connection.client.record.borrow().requests
        }

        fn rendered(&self, part: &str) -> bool {
            self.telemetry.metrics.render().contains(part)
        }
    }

    #[tokio::test]
    async fn a_request_is_recorded_once_when_its_body_has_ended() {
        let stage = Stage::new();
        let response = stage.begin("GET").respond(Response::new(Body::full("hello")));
        assert_eq!(stage.connection.flow.in_flight(), 1);
        assert_eq!(stage.connection.client.record.borrow().requests, 0);
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        assert_eq!(body, "hello");
        assert_eq!(stage.requests(), 1);
        assert!(!stage.rendered("side=\"client\"} 1"));
    }

    #[test]
    fn the_first_response_is_that_of_the_first_request() {
        let is_marked = |stage: &Stage| {
            drop(stage.begin("GET").respond(Response::new(Body::full("hello"))));
            stage.connection.client.record.borrow().timeline.is_reached(Milestone::FirstResponse)
        };
        assert!(is_marked(&Stage::new()));
        let stage = Stage::new();
        // Cancelled before it was answered.
        drop(stage.begin("GET"));
        assert!(!is_marked(&stage));
    }

    #[tokio::test]
    async fn answers_with_room_for_their_first_piece_wait_for_no_other() {
        let stage = Stage::new();
        let limits = HttpSettings::default().limits();
        stage.connection.surround(Surroundings {
            settings: Rc::new(HttpSettings { buffered: 64 << 10, ..HttpSettings::default() }),
            wheel: DeadlineWheel::new(),
            buffers: WorkerBuffers::new(Metrics::new(), Arc::new(Budgets::new(&limits))),
            drain: brisk_net::drain::channel().1,
        });
        let mut answers: Vec<_> = (0..4)
            .map(|_| {
                // As of a file that another thread reads: at first there is nothing.
                let mut asked = false;
                let piece = move |_: &mut Context<'_>| {
                    let piece = Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; 32 << 10])))));
                    if std::mem::replace(&mut asked, true) { piece } else { Poll::Pending }
                };
                let body = Body::boxed(StreamBody::new(futures_util::stream::poll_fn(piece)));
                let mut exchange = stage.begin("GET");
                exchange.reserve(Reserved::new(32 << 10, &stage.connection));
                exchange.respond(Response::new(body)).into_body()
            })
            .collect();
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = |answer: &mut RecordedBody| Pin::new(answer).poll_frame(&mut context);
        assert!(answers.iter_mut().all(|answer| poll(answer).is_pending()));
        let pieces: Vec<_> = answers.iter_mut().map(&mut poll).collect();
        assert!(pieces.iter().all(|piece| matches!(piece, Poll::Ready(Some(Ok(_))))));
        assert!(poll(&mut answers[0]).is_pending(), "there is no room for a second piece");
        drop(pieces);
        assert!(poll(&mut answers[0]).is_ready());
    }

    #[test]
    fn a_body_that_was_formed_in_memory_counts_with_its_real_size_before_it_is_polled() {
        let stage = Stage::new();
        stage.connection.multiplex();
        let respond = |body| stage.begin("GET").respond(Response::new(body)).into_body();
        let held = || stage.connection.answers.held();
        let mut page = respond(Body::full(vec![0; 30_000]));
        let text = Bytes::from(vec![0; 50_000]);
        let _shared = (respond(Body::full(text.clone())), respond(Body::full("static")));
        assert_eq!(held(), 30_000);
        let polled = Pin::new(&mut page).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert_eq!(held(), 30_000, "counted once");
        drop(polled);
        assert_eq!(held(), 0);
    }

    #[tokio::test]
    async fn an_answer_is_complete_with_its_trailers() {
        let stage = Stage::new();
        let trailers = Ok::<_, BodyError>(Frame::trailers(HeaderMap::new()));
        let body =
            StreamBody::new(futures_util::stream::iter([Ok(Frame::data(Bytes::from("hello"))), trailers]));
        let mut body = stage.begin("GET").respond(Response::new(Body::boxed(body))).into_body();
        for _ in 0..2 {
            body.frame().await.expect("a frame").expect("no error");
        }
        drop(body);
        assert_eq!(stage.requests(), 1);
        assert!(!stage.rendered("side=\"client\"} 1"));
    }

    #[tokio::test]
    async fn an_answer_is_held_while_no_more_of_it_is_asked_for() {
        let stage = Stage::new();
        let response = stage.begin("GET").respond(Response::new(Body::full("hello")));
        assert_eq!(stage.connection.flow.held_answer(), Some(0));
        let mut body = response.into_body();
        body.frame().await.expect("a frame").expect("data");
        assert_eq!(stage.connection.flow.held_answer(), Some(5));
        drop(body);
        assert_eq!(stage.connection.flow.held_answer(), None);
    }

    #[test]
    fn an_answer_that_waits_for_its_source_is_not_held() {
        let stage = Stage::new();
        let slow = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, BodyError>>());
        let response = stage.begin("GET").respond(Response::new(Body::boxed(slow)));
        let mut body = response.into_body();
        let polled = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        assert_eq!(stage.connection.flow.held_answer(), None);
    }

    #[test]
    fn an_abandoned_response_is_the_clients_doing() {
        let stage = Stage::new();
        drop(stage.begin("GET").respond(Response::new(Body::full("hello"))));
        assert_eq!(stage.requests(), 1);
        assert!(stage.rendered("side=\"client\"} 1"), "{}", stage.telemetry.metrics.render());
    }

    #[test]
    fn an_answer_without_a_body_is_complete_although_none_was_asked_for() {
        let stage = Stage::new();
        drop(stage.begin("HEAD").respond(Response::new(Body::full("hello"))));
        drop(stage.begin("GET").respond(Response::new(Body::Empty)));
        let mut unchanged = Response::new(Body::full("hello"));
        *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
        drop(stage.begin("GET").respond(unchanged));
        assert_eq!(stage.requests(), 3);
        assert!(!stage.rendered("side=\"client\"} 1"));
    }

    #[test]
    fn a_request_that_never_got_an_answer_is_recorded_too() {
        let stage = Stage::new();
        drop(stage.begin("GET"));
        assert_eq!(stage.requests(), 1);
        assert!(stage.rendered("side=\"client\"} 1"));
    }
}
