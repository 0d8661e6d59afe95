//! Pipelines: clients with several requests in one turn, against servers that answer well, late, wrongly or not at all.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brisk_http_connection::Connection;
use brisk_http_connection::body::request::RequestBody;
use brisk_http_connection::interim::InterimReceivers;
use brisk_net::DeadlineWheel;
use brisk_telemetry::{ConnectionRecord, Metrics, Timeline};
use brisk_upstream_group::GroupState;
use brisk_upstream_group::settings::RequestTimeouts;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio::runtime::LocalOptions;
use tokio::task::{AbortHandle, JoinHandle, spawn_local};

use super::harness::{Origin, RawConnection, eventually, settings};
use crate::forward::{ForwardFacts, ForwardOutcome, forward};
use crate::group::Group;

const DEPTH: usize = 8;

/// Number of random schedules that run at the same time on each thread.
const LANES: usize = 16;

/// A response as its client saw it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    status: StatusCode,
    body: Bytes,
    trailers: HeaderMap,
}

/// A worker with one upstream group whose server gets pipelines.
struct Gateway {
    group: Rc<Group>,
    metrics: Arc<Metrics>,
    /// The task of the worker's deadlines.
    deadlines: AbortHandle,
}

/// A client connection with several requests at a time.
#[derive(Clone)]
struct Client {
    connection: Rc<Connection>,
    group: Rc<Group>,
}

impl Gateway {
    fn new(origin: &Origin) -> Self {
        let mut settings = settings(&[origin]);
        settings.pipeline = DEPTH;
        settings.health.passive.max_failures = 0;
        settings.timeouts.head = Duration::from_secs(5);
        let metrics = Metrics::new();
        let state = GroupState::new(settings, &metrics).expect("settings");
        let wheel = DeadlineWheel::new();
        let running = wheel.clone();
        let deadlines = spawn_local(async move { running.run().await }).abort_handle();
        Self { group: Group::new(state, &wheel), metrics, deadlines }
    }

    fn client(&self) -> Client {
        let [local, peer] = [([127, 0, 0, 1], 443), ([10, 1, 2, 3], 4711)].map(SocketAddr::from);
        let connection = Connection::new(ConnectionRecord::new(1, peer, local, Timeline::start()), true);
        connection.multiplex();
        Client { connection, group: Rc::clone(&self.group) }
    }

    /// Opens a connection that the pool keeps.
    async fn warm_up(&self) {
        assert_eq!(self.client().get("/text/0").await.status, StatusCode::OK);
        assert_eq!(self.group.servers()[0].idle_connections(), 1);
    }

    /// Sum of the series whose lines begin with `name`.
    fn metric(&self, name: &str) -> u64 {
        let page = self.metrics.render();
        let lines = page.lines().filter(|line| line.starts_with(&format!("brisk_upstream_{name}")));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    fn repeats(&self, reason: &str) -> u64 {
        let server = Rc::clone(&self.group.servers()[0]);
        let server = server.name();
        let labels = format!("group=\"app\",server=\"{server}\",reason=\"{reason}\"");
        self.metric(&format!("pipeline_repeats_total{{{labels}}}"))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.deadlines.abort();
    }
}

impl Client {
    fn begin(&self, method: Method, path: &str) -> JoinHandle<Seen> {
        let (client, path) = (self.clone(), path.to_owned());
        spawn_local(async move { client.request(method, &path).await })
    }

    /// Requests that begin in one turn.
    async fn get_all(&self, paths: &[impl AsRef<str>]) -> Vec<Seen> {
        let begun: Vec<_> = paths.iter().map(|path| self.begin(Method::GET, path.as_ref())).collect();
        let mut seen = Vec::new();
        for request in begun {
            seen.push(request.await.expect("a response"));
        }
        seen
    }

    async fn get(&self, path: &str) -> Seen {
        self.request(Method::GET, path).await
    }

    async fn request(&self, method: Method, path: &str) -> Seen {
        let request = brisk_http::message::Request::builder().method(method).uri(path);
        let request = request.header(header::HOST, "app.test").body(()).expect("a request");
        let (head, ()) = request.into_parts();
        let outcome = ForwardOutcome::default();
        let facts = ForwardFacts {
            connection: &self.connection,
            client: self.connection.client.record.borrow().client,
            interims: InterimReceivers::default(),
            outcome: &outcome,
            timeouts: RequestTimeouts::default(),
            variables: None,
        };
        match forward(&self.group, head, RequestBody::Empty, &facts).await {
            Ok(response) => {
                let status = response.status();
                let body = response.into_body().collect().await.expect("a whole body");
                let trailers = body.trailers().cloned().unwrap_or_default();
                Seen { status, body: body.to_bytes(), trailers }
            }
            Err(error) => Seen { status: error.status(), body: Bytes::new(), trailers: HeaderMap::new() },
        }
    }
}

fn text(path: &str) -> Seen {
    Seen { status: StatusCode::OK, body: Bytes::from(path.to_owned()), trailers: HeaderMap::new() }
}

fn paths(kind: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("/{kind}/{number}")).collect()
}

/// Answers each request by the first segment of its path.
async fn scripted() -> Origin {
    Origin::raw(async |mut connection, _| while answer(&mut connection).await {}).await
}

/// Answers one request. Returns whether the connection stays open.
async fn answer(connection: &mut RawConnection) -> bool {
    let Some(head) = connection.read_head().await else { return false };
    let mut words = head.split(' ');
    let (method, path) = (words.next().expect("a method"), words.next().expect("a path"));
    let kind = path.split('/').nth(1).expect("a kind");
    let lines = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", path.len());
    let body = if method == "HEAD" { "" } else { path };
    let (response, stays) = match kind {
        "text" => (format!("{lines}\r\n{body}"), true),
        "late" => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            (format!("{lines}\r\n{body}"), true)
        }
        "soon" => {
            tokio::time::sleep(Duration::from_millis(60)).await;
            (format!("{lines}\r\n{body}"), true)
        }
        "early" => (format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{lines}\r\n{body}"), true),
        "chunks" if method == "HEAD" => {
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), true)
        }
        "chunks" => {
            let (first, second) = path.split_at(3);
            let chunks = format!("3\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\nEnd: yes\r\n\r\n", second.len());
            (format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: End\r\n\r\n{chunks}"), true)
        }
        "empty" => ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), true),
        "large" => {
            let body = if method == "HEAD" { String::new() } else { "x".repeat(200_000) };
            (format!("HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n{body}"), true)
        }
        "close" => (format!("{lines}Connection: close\r\n\r\n{body}"), false),
        "until" => (format!("HTTP/1.1 200 OK\r\n\r\n{body}"), false),
        "twice" => (format!("{lines}\r\n{body}{lines}\r\n{body}"), true),
        "wrong" => ("HTTP/2.1 what\r\n\r\n".to_owned(), false),
        "none" => (String::new(), false),
        kind => panic!("{kind} is not a kind"),
    };
    // In pieces, as through a network. A gateway that needs no more closes the connection.
    let mut rest = response.as_bytes();
    while !rest.is_empty() {
        let piece = if kind == "twice" { rest.len() } else { rest.len().min(1 + rest.len() * 2 / 3) };
        if tokio::io::AsyncWriteExt::write_all(&mut connection.stream, &rest[..piece]).await.is_err() {
            return false;
        }
        rest = &rest[piece..];
    }
    stays
}

/// The response of [`scripted`] to a client whose requests are not in pipelines.
fn expected(method: &Method, path: &str) -> Seen {
    let mut seen = text(path);
    match path.split('/').nth(1) {
        Some("chunks") if *method == Method::GET => {
            seen.trailers.insert("end", http::HeaderValue::from_static("yes"));
        }
        Some("empty") => seen.status = StatusCode::NO_CONTENT,
        Some("large") => seen.body = Bytes::from("x".repeat(200_000)),
        Some("wrong" | "none") => seen.status = StatusCode::BAD_GATEWAY,
        _ => {}
    }
    if *method == Method::HEAD || seen.status != StatusCode::OK {
        seen.body = Bytes::new();
    }
    seen
}

#[tokio::test(flavor = "local")]
async fn requests_of_one_turn_leave_in_one_write_and_each_gets_its_response() {
    // On a busy machine, a response may be so late that requests behind it leave: then a new gateway is tried.
    eventually(leave_in_one_write).await;
}

/// `false` if requests were repeated.
async fn leave_in_one_write() -> bool {
    let reads = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&reads);
    let origin = Origin::raw(async move |connection, _| {
        let mut stream = connection.stream;
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = tokio::io::AsyncReadExt::read(&mut stream, &mut buffer).await {
            let heads = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let all: Vec<_> = heads.lines().filter_map(|line| line.strip_prefix("GET ")).collect();
            noted.borrow_mut().push(all.len());
            for path in all.iter().filter_map(|line| line.split(' ').next()) {
                let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
                tokio::io::AsyncWriteExt::write_all(&mut stream, response.as_bytes()).await.expect("a write");
            }
        }
    })
    .await;
    let gateway = Gateway::new(&origin);
    gateway.warm_up().await;
    let (client, paths) = (gateway.client(), paths("text", 11));
    let seen = client.get_all(&paths).await;
    assert!(seen.iter().zip(&paths).all(|(seen, path)| *seen == text(path)), "{seen:?}");
    if gateway.metric("pipeline_repeats_total") > 0 {
        return false;
    }
    // A full pipeline on the kept connection, and another with the rest.
    assert_eq!(*reads.borrow(), [1, DEPTH, 3]);
    assert_eq!((gateway.metric("pipelines_total"), gateway.metric("pipelined_requests_total")), (2, 11));
    true
}

#[tokio::test(flavor = "local")]
async fn clients_posts_and_lonely_requests_share_nothing() {
    let origin = scripted().await;
    let gateway = Gateway::new(&origin);
    let (one, other) = (gateway.client(), gateway.client());
    let begun = [
        one.begin(Method::GET, "/text/1"),
        other.begin(Method::GET, "/text/2"),
        one.begin(Method::PUT, "/text/3"),
    ];
    for request in begun {
        assert_eq!(request.await.expect("a response").status, StatusCode::OK);
    }
    assert_eq!(origin.connections(), 3);
    assert_eq!(gateway.metric("pipelines_total"), 0);
}

#[tokio::test(flavor = "local")]
async fn requests_behind_a_late_response_are_answered_elsewhere_before_it() {
    let origin = scripted().await;
    let gateway = Gateway::new(&origin);
    gateway.warm_up().await;
    let client = gateway.client();
    let started = Instant::now();
    let late = client.begin(Method::GET, "/late/0");
    let behind: Vec<_> = paths("text", 5).iter().map(|path| client.begin(Method::GET, path)).collect();
    for (request, path) in behind.into_iter().zip(paths("text", 5)) {
        assert_eq!(request.await.expect("a response"), text(&path));
    }
    assert!(!late.is_finished(), "after {:?}", started.elapsed());
    assert_eq!(late.await.expect("a response"), text("/late/0"));
    assert_eq!((gateway.repeats("slow"), gateway.repeats("closed")), (5, 0));
    // Resources with late responses get no other pipeline.
    client.get_all(&["/late/1", "/late/2"]).await;
    assert_eq!(gateway.metric("pipelines_total"), 1);
}

#[tokio::test(flavor = "local")]
async fn a_connection_with_responses_that_were_given_up_carries_no_other_request() {
    let origin = scripted().await;
    let gateway = Gateway::new(&origin);
    gateway.warm_up().await;
    let client = gateway.client();
    let late: Vec<_> = paths("late", 2).iter().map(|path| client.begin(Method::GET, path)).collect();
    for (request, path) in late.into_iter().zip(paths("late", 2)) {
        assert_eq!(request.await.expect("a response"), text(&path));
        // The response to the second one is still to come on the first connection.
        assert_eq!(client.get("/text/1").await, text("/text/1"));
    }
    assert_eq!(gateway.repeats("slow"), 1);
}

#[tokio::test(flavor = "local")]
async fn no_request_is_lost_when_a_connection_ends_within_a_pipeline() {
    for kind in ["close", "until", "large"] {
        let origin = scripted().await;
        let gateway = Gateway::new(&origin);
        gateway.warm_up().await;
        let mut paths = paths("text", 7);
        paths.insert(2, format!("/{kind}/x"));
        let seen = gateway.client().get_all(&paths).await;
        for (seen, path) in seen.iter().zip(&paths) {
            assert_eq!(*seen, expected(&Method::GET, path), "{kind}");
        }
        assert_eq!(gateway.metric("pipelined_requests_total"), 8);
        assert!(gateway.group.servers()[0].pipelines().are_enabled());
    }
}

#[tokio::test(flavor = "local")]
async fn a_server_that_answers_a_pipeline_incorrectly_gets_no_other() {
    for kind in ["wrong", "none", "twice"] {
        let origin = scripted().await;
        let gateway = Gateway::new(&origin);
        gateway.warm_up().await;
        let client = gateway.client();
        let mut first = paths("text", 2);
        first.push(format!("/{kind}/x"));
        client.get_all(&first).await;
        assert_eq!(gateway.metric("pipelines_total"), 1, "{kind}");
        let paths = paths("text", 5);
        let seen = client.get_all(&paths).await;
        assert!(seen.iter().zip(&paths).all(|(seen, path)| *seen == text(path)), "{seen:?}");
        assert_eq!(gateway.metric("pipelines_total"), 1, "{kind}");
    }
}

#[tokio::test(flavor = "local")]
async fn a_server_that_drops_the_requests_behind_the_first_gets_no_pipelines_after_three() {
    let origin = Origin::raw(async |connection, _| {
        let mut stream = connection.stream;
        let mut buffer = vec![0; 1 << 16];
        // Ignores all bytes behind the first head.
        while let Ok(1..) = tokio::io::AsyncReadExt::read(&mut stream, &mut buffer).await {
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            tokio::io::AsyncWriteExt::write_all(&mut stream, response).await.expect("a write");
        }
    })
    .await;
    let gateway = Gateway::new(&origin);
    let client = gateway.client();
    for _ in 0..5 {
        // Other first segments, so that the late responses do not exclude them.
        let number = origin.connections();
        let seen = client.get_all(&[format!("/{number}/a"), format!("/{number}/b")]).await;
        assert!(seen.iter().all(|seen| seen.body == "ok"), "{seen:?}");
    }
    assert_eq!(gateway.metric("pipelines_total"), 3);
}

#[tokio::test(flavor = "local")]
async fn responses_of_abandoned_requests_are_skipped() {
    let origin = scripted().await;
    for abandoned in [vec![0], vec![1, 2], vec![0, 1, 3], vec![4], vec![0, 1, 2, 3, 4]] {
        // On a busy machine, a response may be so late that requests behind it are sent again: then a new gateway is tried.
        eventually(async || {
            let sent = skipping(&origin, &abandoned).await;
            abandoned.len() == 5 || sent == 5
        })
        .await;
    }
}

/// Abandons requests of a pipeline by their numbers. Returns the number of requests that the server received.
async fn skipping(origin: &Origin, abandoned: &[usize]) -> usize {
    let gateway = Gateway::new(origin);
    gateway.warm_up().await;
    let before = origin.requests();
    let paths = paths("text", 5);
    let client = gateway.client();
    let begun: Vec<_> = paths.iter().map(|path| client.begin(Method::GET, path)).collect();
    eventually(async || gateway.metric("pipelines_total") == 1).await;
    for number in abandoned {
        begun[*number].abort();
    }
    for (number, (request, path)) in begun.into_iter().zip(&paths).enumerate() {
        if !abandoned.contains(&number) {
            assert_eq!(request.await.expect("a response"), text(path));
        }
    }
    let sent = origin.requests() - before;
    drop(client);
    assert_eq!(gateway.client().get("/text/9").await, text("/text/9"));
    sent
}

#[tokio::test(flavor = "local")]
async fn a_response_that_is_being_skipped_is_of_no_other_request() {
    let origin = scripted().await;
    for _ in 0..3 {
        let gateway = Gateway::new(&origin);
        gateway.warm_up().await;
        let client = gateway.client();
        let paths = ["/text/0", "/soon/1", "/text/2", "/text/3"];
        let [first, second, third, fourth] = paths.map(|path| client.begin(Method::GET, path));
        eventually(async || gateway.metric("pipelines_total") == 1).await;
        second.abort();
        assert_eq!(first.await.expect("a response"), text("/text/0"));
        // The third request now skips the response to the second one, which is still to come.
        tokio::time::sleep(Duration::from_millis(20)).await;
        third.abort();
        assert_eq!(fourth.await.expect("a response"), text("/text/3"));
    }
}

/// Compares the responses with those without pipelines, for random kinds of responses, methods and clients
/// that go away. A server that sends two responses to one request is left out: only its client is affected.
///
/// `BRISK_SCHEDULES` sets the number. Then several run at the same time, because most of a schedule's time is waiting.
/// Each depends on its number only.
#[test]
fn pipelined_responses_equal_those_without_pipelines() {
    let wanted = std::env::var("BRISK_SCHEDULES").ok().and_then(|count| count.parse().ok());
    let count = wanted.unwrap_or(300);
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (threads, lanes) = wanted.map_or((1, 1), |_| (threads, LANES));
    let (next, pipelined) = (AtomicU64::new(0), AtomicU64::new(0));
    let lane = async || {
        let origin = scripted().await;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            pipelined.fetch_add(run_schedule(&origin, number).await, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_all().build_local(LocalOptions::default()).expect("a runtime");
                runtime.block_on(join_all(std::iter::repeat_with(lane).take(lanes)));
            });
        }
    });
    let pipelined = pipelined.into_inner();
    assert!(pipelined > 2 * count, "{pipelined}");
}

/// Runs the schedule with this number. Returns the number of pipelined requests.
async fn run_schedule(origin: &Origin, schedule: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(schedule);
    let mut below = |limit: usize| random.usize(..limit);
    let kinds =
        ["text", "text", "text", "early", "chunks", "empty", "close", "until", "large", "wrong", "none"];
    let gateway = Gateway::new(origin);
    if below(4) > 0 {
        gateway.warm_up().await;
    }
    let client = gateway.client();
    // A late response takes a second.
    let has_late = schedule % 100 == 99;
    let requests: Vec<_> = (0..2 + below(DEPTH))
        .map(|number| {
            // The late response must not be cut by those behind it.
            let kinds = if has_late { &kinds[..6] } else { &kinds[..] };
            let kind = if has_late && number == 1 { "late" } else { kinds[below(kinds.len())] };
            let method = if below(5) == 0 { Method::HEAD } else { Method::GET };
            (method, format!("/{kind}/{schedule}.{number}"), below(12) == 0)
        })
        .collect();
    let begun = requests.iter().map(|(method, path, _)| client.begin(method.clone(), path));
    let begun: Vec<_> = begun.collect();
    for _ in 0..below(6) {
        tokio::task::yield_now().await;
    }
    for (request, _) in begun.iter().zip(&requests).filter(|(_, (.., goes_away))| *goes_away) {
        request.abort();
    }
    for (request, (method, path, goes_away)) in begun.into_iter().zip(&requests) {
        match request.await {
            Ok(seen) => assert_eq!(seen, expected(method, path), "{schedule}: {requests:?}"),
            Err(error) => assert!(*goes_away && error.is_cancelled(), "{schedule}: {error}"),
        }
    }
    gateway.metric("pipelined_requests_total")
}
