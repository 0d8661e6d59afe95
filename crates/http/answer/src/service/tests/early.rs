//! Requests that come before the end of their handshake.

use brisk_http_connection::handshake::testing::ManualCompletion;
use brisk_http_connection::handshake::{Completion, Handshake};
use tokio::net::TcpStream;
use tokio::task::yield_now;

use super::*;
use crate::settings::EarlyDataPolicy;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const GET: &str = "GET /api HTTP/1.1\r\nhost: a\r\n\r\n";
const POST: &str = "POST /api HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";

/// A connection with early data, and a host "a" with these routes.
struct Stage {
    completion: Rc<ManualCompletion>,
    connection: Rc<Connection>,
    metrics: Arc<Metrics>,
    service: Option<Service>,
    origin: TcpListener,
}

impl Stage {
    async fn new(policy: EarlyDataPolicy) -> Self {
        let origin = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        // Two servers, since nothing is repeated on the one that failed.
        let port = origin.local_addr().expect("address").port();
        let urls =
            ["127.0.0.1", "localhost"].map(|name| format!("http://{name}:{port}").parse().expect("a URL"));
        let state = GroupState::new(GroupSettings::new("app", urls), &Metrics::new()).expect("a group");
        let group = Group::new(state, &DeadlineWheel::new());
        let action = Action::Upstream(UpstreamAction::new("app", UpstreamPath::Whole));
        let routes = [prefix("/api", action), prefix("/fixed", text(200, "fixed"))];
        let routes =
            routes.map(|route| RouteSettings { early_data: policy.clone(), ..route }).into_iter().collect();
        let settings = settings(vec![host(&["a"], routes)]);
        let metrics = Metrics::new();
        let telemetry = Telemetry { metrics: Arc::clone(&metrics), access_log: None };
        let service = Service::new(&settings, telemetry, |_| Some(Rc::clone(&group))).expect("a service");
        let completion = Rc::new(ManualCompletion::default());
        let address = SocketAddr::from(([192, 0, 2, 1], 40000));
        let record = ConnectionRecord::new(1, address, address, Timeline::start());
        let handshake = Handshake::new(Completion::Manual(Rc::clone(&completion)), Instant::now());
        let connection = Connection::with_handshake(record, true, Some(Box::new(handshake)));
        Self { completion, connection, metrics, service: Some(service), origin }
    }

    fn send(&mut self, request: &'static str) -> tokio::task::JoinHandle<String> {
        let (connection, service) = (Rc::clone(&self.connection), self.service.take().expect("one request"));
        tokio::task::spawn_local(async move { exchange_on(&connection, service, request).await })
    }

    async fn accept(&self) -> (TcpStream, String) {
        let (mut stream, _) = self.origin.accept().await.expect("accept");
        let mut asked = vec![0; 4096];
        let length = stream.read(&mut asked).await.expect("read");
        asked.truncate(length);
        (stream, String::from_utf8(asked).expect("text"))
    }

    /// Answers the next request with these bytes, and returns the request that was sent.
    async fn answer(&self, response: &str) -> String {
        let (mut stream, asked) = self.accept().await;
        stream.write_all(response.as_bytes()).await.expect("write");
        asked
    }

    /// Until a request waits for the end of the handshake.
    async fn held(&self) {
        while self.connection.client.handshake().is_some_and(|handshake| handshake.waiting() == 0) {
            yield_now().await;
        }
    }

    fn counted(&self, treatment: &str) -> bool {
        let line = format!("brisk_early_requests_total{{treatment=\"{treatment}\"}} 1");
        self.metrics.render().lines().any(|shown| shown == line)
    }
}

#[tokio::test(flavor = "local")]
async fn what_a_route_lets_pass_is_forwarded_at_once_and_marked() {
    let mut stage = Stage::new(EarlyDataPolicy::Safe).await;
    let answer = stage.send(GET);
    let asked = stage.answer(OK).await;
    assert!(asked.contains("early-data: 1\r\n"), "{asked}");
    assert_eq!(status(&answer.await.expect("answered")), 200);
    assert!(!stage.connection.client.is_confirmed() && stage.counted("forwarded"));
}

#[tokio::test(flavor = "local")]
async fn what_it_does_not_let_pass_waits_and_is_forwarded_whole_without_the_mark() {
    let mut stage = Stage::new(EarlyDataPolicy::Safe).await;
    let answer = stage.send(POST);
    stage.held().await;
    stage.completion.complete();
    let asked = stage.answer(OK).await;
    assert!(!asked.contains("early-data") && asked.ends_with("hello"), "{asked}");
    assert_eq!(status(&answer.await.expect("answered")), 200);
    assert!(stage.counted("held"));
}

#[tokio::test(flavor = "local")]
async fn answers_without_an_upstream_wait_too() {
    let mut stage = Stage::new(EarlyDataPolicy::Hold).await;
    let answer = stage.send("GET /fixed HTTP/1.1\r\nhost: a\r\n\r\n");
    stage.held().await;
    assert!(!answer.is_finished());
    stage.completion.complete();
    assert!(answer.await.expect("answered").ends_with("fixed"));
}

#[tokio::test(flavor = "local")]
async fn too_early_is_passed_on_and_not_tried_again() {
    let mut stage = Stage::new(EarlyDataPolicy::Safe).await;
    let answer = stage.send(GET);
    stage.answer("HTTP/1.1 425 Too Early\r\ncontent-length: 5\r\n\r\nlater").await;
    let answer = answer.await.expect("answered");
    assert!(status(&answer) == 425 && answer.ends_with("later"), "{answer}");
}

#[tokio::test(flavor = "local")]
async fn what_an_upstream_has_seen_is_repeated_only_after_the_handshake() {
    let mut stage = Stage::new(EarlyDataPolicy::Safe).await;
    let answer = stage.send(GET);
    drop(stage.accept().await);
    stage.held().await;
    stage.completion.complete();
    let asked = stage.answer(OK).await;
    assert!(asked.contains("early-data: 1\r\n"), "{asked}");
    assert_eq!(status(&answer.await.expect("answered")), 200);
}

#[tokio::test(flavor = "local")]
async fn after_the_handshake_nothing_is_early() {
    let mut stage = Stage::new(EarlyDataPolicy::Safe).await;
    stage.completion.complete();
    let answer = stage.send(GET);
    let asked = stage.answer(OK).await;
    assert!(!asked.contains("early-data"), "{asked}");
    answer.await.expect("answered");
    assert!(!stage.counted("forwarded") && !stage.counted("held"));
}

#[tokio::test(flavor = "local")]
async fn a_request_that_waits_without_end_ends_with_its_connection_and_is_counted() {
    let mut stage = Stage::new(EarlyDataPolicy::Hold).await;
    let answer = stage.send(GET);
    stage.held().await;
    answer.abort();
    assert!(answer.await.is_err());
    assert_eq!(stage.connection.flow.in_flight(), 0);
    assert!(stage.counted("held"));
}
