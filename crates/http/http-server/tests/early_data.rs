//! Connections whose requests come before the end of their handshake: a real client, and a relay that decides whether and
//! when the gateway gets that end.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use brisk_answer::settings::{
    Action, EarlyDataPolicy, HostSettings, HttpsRedirect, RoutePath, RouteSettings, ServiceSettings,
    Underscores, UpstreamAction, UpstreamPath, Variants,
};
use brisk_answer::{Service, Telemetry};
use brisk_budget::Budgets;
use brisk_http_connection::Connection;
use brisk_http_server::{CurrentService, End, Http, HttpIo, HttpSettings, serve};
use brisk_keys::{Keystore, LocalEngine, PrivateKeyEngine};
use brisk_net::{DeadlineWheel, Drain, DrainTrigger, drain};
use brisk_pressure::Pressure;
use brisk_telemetry::{ConnectionRecord, Metrics, Timeline};
use brisk_testkit::ca::TestCa;
use brisk_tls::{Acceptor, Resources, TlsSettings};
use brisk_tls_client::{Client, ClientSettings, ClientStream, EarlyOutcome, SavedSession, Verification};
use brisk_upstream::Group;
use brisk_upstream_group::GroupState;
use brisk_upstream_group::settings::GroupSettings;
use brisk_wire::registry::ProtocolVersion;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{JoinHandle, spawn_local, yield_now};

const HOST: &str = "example.test";
const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: example.test\r\n\r\n";
const POST: &[u8] = b"POST / HTTP/1.1\r\nhost: example.test\r\ncontent-length: 10\r\n\r\nhello";
const CLOSE: &[u8] = b"GET / HTTP/1.1\r\nhost: example.test\r\nconnection: close\r\n\r\n";
/// The preface, empty settings, and GET or POST of `/` as stream 1.
const H2_GET: &[u8] =
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x11\x01\x05\0\0\0\x01\x82\x87\x84\x41\x0cexample.test";
const H2_POST: &[u8] =
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x11\x01\x05\0\0\0\x01\x83\x87\x84\x41\x0cexample.test";
const LONG: Duration = Duration::from_mins(1);
const HANDSHAKES: &str =
    "brisk_handshake_seconds_count{version=\"TLS 1.3\",group=\"X25519MLKEM768\",resumption=\"0-rtt\"} 1";

/// A gateway's worker with an origin behind it, and a client.
struct Stage {
    acceptor: Acceptor,
    client: Client,
    service: Rc<CurrentService>,
    metrics: Arc<Metrics>,
    wheel: DeadlineWheel,
    drain: Drain,
    connections: RefCell<Vec<Rc<Connection>>>,
    origin: Rc<Origin>,
    _trigger: DrainTrigger,
    _ca: TestCa,
}

/// Answers every request with `ok`, each on a connection of its own.
struct Origin {
    address: SocketAddr,
    requests: Cell<u32>,
    last: Cell<String>,
    /// An answer takes one.
    permits: Semaphore,
}

/// What decides about the end of the client's handshake.
#[derive(Default)]
struct Relay {
    decided: Notify,
    broken: Cell<bool>,
}

/// A connection on its way: the client's end, the gateway's, and the relay between them.
struct Visit {
    tcp: TcpStream,
    served: JoinHandle<End>,
    relay: Rc<Relay>,
}

/// A connection whose early data was accepted.
struct EarlyVisit {
    client: ClientStream,
    connection: Rc<Connection>,
    served: JoinHandle<End>,
    relay: Rc<Relay>,
}

impl Origin {
    async fn start() -> Rc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let permits = Semaphore::new(1000);
        let origin = Rc::new(Self { address, requests: Cell::new(0), last: Cell::default(), permits });
        let serving = Rc::clone(&origin);
        spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawn_local(Rc::clone(&serving).answer(stream));
            }
        });
        origin
    }

    async fn answer(self: Rc<Self>, mut stream: TcpStream) {
        let mut asked = String::new();
        let mut bytes = [0; 1024];
        while !asked.ends_with(if asked.contains("content-length: 10") { "world" } else { "\r\n\r\n" }) {
            let length = stream.read(&mut bytes).await.expect("read");
            assert_ne!(length, 0, "{asked:?}");
            asked.push_str(str::from_utf8(&bytes[..length]).expect("text"));
        }
        self.requests.set(self.requests.get() + 1);
        self.last.set(asked);
        self.permits.acquire().await.expect("open").forget();
        let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
        stream.write_all(answer).await.expect("write");
    }
}

impl Relay {
    fn go_on(&self) {
        self.decided.notify_one();
    }

    /// As if the client had left after its first flight.
    fn break_off(&self) {
        self.broken.set(true);
        self.decided.notify_one();
    }

    /// Passes everything to the client, and to the server what comes before its first answer; the rest once it may.
    async fn run(&self, client: TcpStream, server: TcpStream) {
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (client.into_split(), server.into_split());
        let answered = Rc::new(Notify::new());
        let first = Rc::clone(&answered);
        let down = spawn_local(async move {
            let mut bytes = vec![0; 64 << 10];
            while let Ok(length @ 1..) = from_server.read(&mut bytes).await {
                first.notify_one();
                if to_client.write_all(&bytes[..length]).await.is_err() {
                    break;
                }
            }
        });
        let (mut bytes, mut holds) = (vec![0; 64 << 10], true);
        loop {
            let length = tokio::select! {
                biased;
                () = answered.notified(), if holds => {
                    self.decided.notified().await;
                    if self.broken.get() {
                        down.abort();
                        return;
                    }
                    holds = false;
                    continue;
                }
                read = from_client.read(&mut bytes) => read.unwrap_or(0),
            };
            if length == 0 || to_server.write_all(&bytes[..length]).await.is_err() {
                break;
            }
        }
        drop(to_server);
        let _ = down.await;
    }
}

impl Stage {
    async fn new() -> Rc<Self> {
        Self::speaking("http/1.1").await
    }

    async fn speaking(protocol: &str) -> Rc<Self> {
        let ca = TestCa::new();
        let origin = Origin::start().await;
        let wheel = DeadlineWheel::new();
        let ticking = wheel.clone();
        spawn_local(async move { ticking.run().await });
        let metrics = Metrics::new();
        let client = Client::new(ClientSettings {
            versions: vec![ProtocolVersion::TLS1_3],
            protocols: vec![protocol.to_owned()],
            verification: Verification::Authorities(vec![ca.root_file()]),
            ..ClientSettings::new(HOST)
        });
        let (trigger, drain) = drain::channel();
        let budgets = Arc::new(Budgets::new(&HttpSettings::default().limits()));
        Rc::new(Self {
            acceptor: acceptor(&ca),
            client: client.expect("settings that fit"),
            service: CurrentService::new(
                Rc::new(service(&origin, &wheel, &metrics)),
                budgets,
                Pressure::new(),
            ),
            metrics,
            wheel,
            drain,
            connections: RefCell::default(),
            origin,
            _trigger: trigger,
            _ca: ca,
        })
    }

    /// A connection through a relay. Its handshake may take `limit`.
    async fn visit(self: &Rc<Self>, limit: Duration) -> Visit {
        let gateway = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let front = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let (behind, address) =
            (gateway.local_addr().expect("address"), front.local_addr().expect("address"));
        let stage = Rc::clone(self);
        let served = spawn_local(async move {
            let (tcp, peer) = gateway.accept().await.expect("accept");
            stage.serve(tcp, peer, limit).await
        });
        let relay = Rc::new(Relay::default());
        let running = Rc::clone(&relay);
        spawn_local(async move {
            let (client, _) = front.accept().await.expect("accept");
            let server = TcpStream::connect(behind).await.expect("connect");
            running.run(client, server).await;
        });
        Visit { tcp: TcpStream::connect(address).await.expect("connect"), served, relay }
    }

    /// What the gateway does with a connection.
    async fn serve(&self, tcp: TcpStream, peer: SocketAddr, limit: Duration) -> End {
        let mut record = ConnectionRecord::new(1, peer, peer, Timeline::start());
        let accepted = self.acceptor.accept(tcp, Vec::new(), &mut record.timeline).await;
        let accepted = accepted.expect("a handshake");
        record.tls = Some(Box::new(accepted.facts));
        let io = HttpIo::new(accepted.stream);
        let connection = match io.confirmation() {
            Some(confirmation) => Connection::with_early_data(record, confirmation, Instant::now() + limit),
            None => Connection::new(record, true),
        };
        self.connections.borrow_mut().push(Rc::clone(&connection));
        let http = Http {
            service: Rc::clone(&self.service),
            connection,
            settings: Rc::new(HttpSettings::default()),
            deadline: self.wheel.register(),
            drain: self.drain.clone(),
        };
        serve(io, &http).await
    }

    /// A session from a connection without early data.
    async fn session(self: &Rc<Self>) -> SavedSession {
        let visit = self.visit(LONG).await;
        visit.relay.go_on();
        let mut stream = self.client.connect(visit.tcp, None, None).await.expect("a handshake");
        stream.next_session().await.expect("more").expect("a session")
    }

    /// A connection that begins with `early`.
    async fn early(self: &Rc<Self>, early: &[u8], limit: Duration) -> EarlyVisit {
        let session = self.session().await;
        let Visit { tcp, served, relay } = self.visit(limit).await;
        let client = self.client.connect(tcp, Some(session), Some(early)).await.expect("a handshake");
        assert_eq!(client.facts().early_data, EarlyOutcome::Accepted);
        let connection = Rc::clone(self.connections.borrow().last().expect("two connections"));
        EarlyVisit { client, connection, served, relay }
    }

    fn shows(&self, line: &str) -> bool {
        self.metrics.render().lines().any(|shown| shown == line)
    }
}

fn acceptor(ca: &TestCa) -> Acceptor {
    let leaf = ca.server(&[HOST]).issue();
    let mut keystore = Keystore::new();
    let loaded = brisk_certs::load(&leaf.chain, &leaf.key, &mut keystore, SystemTime::now());
    let engine = LocalEngine::new(Arc::new(keystore));
    let engine: Arc<dyn PrivateKeyEngine> = Arc::new(engine);
    let host = brisk_tls::HostSettings {
        certificates: vec![Arc::new(loaded.expect("a certificate").certificate)],
        early_data: 16 * 1024,
        ..brisk_tls::HostSettings::new([HOST])
    };
    host.publish(&engine);
    let resources = Resources::of_process(SystemTime::now());
    Acceptor::new(TlsSettings::default(), &[host], &resources).expect("settings that fit")
}

fn service(origin: &Origin, wheel: &DeadlineWheel, metrics: &Arc<Metrics>) -> Service {
    let url = format!("http://{}", origin.address).parse().expect("a URL");
    let state = GroupState::new(GroupSettings::new("app", [url]), metrics).expect("a group");
    let group = Group::new(state, wheel);
    let action = Action::Upstream(UpstreamAction::new("app", UpstreamPath::Whole));
    let route = RouteSettings::new(RoutePath::Prefix("/".to_owned()), action);
    let host = HostSettings {
        routes: vec![RouteSettings { early_data: EarlyDataPolicy::Safe, ..route }],
        ..HostSettings::new(brisk_tls::HostSettings::new([HOST]))
    };
    let settings = ServiceSettings {
        hosts: vec![host],
        unknown_host: brisk_certs::UnknownName::Default,
        trusted_proxies: Vec::new(),
        client_header: None,
        underscores: Underscores::Drop,
        variants: Variants::default(),
        beacons: None,
        redirect: HttpsRedirect::new(443),
        challenges: None,
    };
    let telemetry = Telemetry { metrics: Arc::clone(metrics), access_log: None };
    Service::new(&settings, telemetry, |_| Some(Rc::clone(&group))).expect("a service")
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(3), work).await.expect("it hangs")
}

async fn eventually(condition: impl Fn() -> bool) {
    while !condition() {
        yield_now().await;
    }
}

async fn read(stream: &mut ClientStream, until: &str) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(until.as_bytes()) {
        assert_ne!(stream.read_buf(&mut answer).await.expect("read"), 0, "{answer:?}");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "local")]
async fn a_request_is_answered_before_the_handshake_is_complete() {
    soon(async {
        let stage = Stage::new().await;
        let mut visit = stage.early(GET, LONG).await;
        assert!(read(&mut visit.client, "ok").await.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(stage.origin.last.take().contains("early-data: 1\r\n"));
        assert!(!visit.connection.client.is_confirmed() && !stage.shows(HANDSHAKES));
        visit.relay.go_on();
        eventually(|| stage.shows(HANDSHAKES)).await;
        // What comes after it is a request like any other.
        visit.client.write_all(GET).await.expect("write");
        read(&mut visit.client, "ok").await;
        assert!(!stage.origin.last.take().contains("early-data"));
        visit.client.shutdown().await.expect("shutdown");
        assert_eq!(visit.served.await.expect("served"), End::Closed);
        assert_eq!(visit.connection.client.record.borrow().early_bytes, GET.len() as u64);
        assert!(stage.shows(HANDSHAKES));
    })
    .await;
}

#[tokio::test(flavor = "local")]
async fn a_request_that_changes_something_waits_and_its_body_goes_on_afterwards() {
    soon(async {
        let stage = Stage::new().await;
        let mut visit = stage.early(POST, LONG).await;
        visit.client.write_all(b"world").await.expect("write");
        eventually(|| visit.connection.flow.in_flight() == 1).await;
        assert_eq!(stage.origin.requests.get(), 0);
        visit.relay.go_on();
        read(&mut visit.client, "ok").await;
        let asked = stage.origin.last.take();
        assert!(asked.ends_with("helloworld") && !asked.contains("early-data"), "{asked}");
        eventually(|| stage.shows("brisk_early_requests_total{treatment=\"held\"} 1")).await;
    })
    .await;
}

#[tokio::test(flavor = "local")]
async fn a_client_that_wants_to_close_still_gets_a_session_for_its_next_early_data() {
    soon(async {
        let stage = Stage::new().await;
        let mut visit = stage.early(CLOSE, LONG).await;
        read(&mut visit.client, "ok").await;
        visit.relay.go_on();
        assert!(visit.client.next_session().await.expect("more").is_some());
        assert_eq!(visit.served.await.expect("served"), End::Closed);
        assert!(visit.connection.client.is_confirmed());
    })
    .await;
}

#[tokio::test(flavor = "local")]
async fn http_2_is_answered_before_the_handshake_is_complete_too() {
    soon(async {
        let stage = Stage::speaking("h2").await;
        let mut visit = stage.early(H2_GET, LONG).await;
        read(&mut visit.client, "ok").await;
        assert!(stage.origin.last.take().contains("early-data: 1\r\n"));
        assert!(!visit.connection.client.is_confirmed());
        visit.relay.go_on();
        assert!(visit.client.next_session().await.expect("more").is_some());
        assert!(visit.connection.client.is_confirmed());
    })
    .await;
}

#[tokio::test(flavor = "local")]
async fn a_request_of_http_2_that_changes_something_waits() {
    soon(async {
        let stage = Stage::speaking("h2").await;
        let mut visit = stage.early(H2_POST, LONG).await;
        eventually(|| visit.connection.flow.in_flight() == 1).await;
        assert_eq!(stage.origin.requests.get(), 0);
        visit.relay.go_on();
        read(&mut visit.client, "ok").await;
        assert!(!stage.origin.last.take().contains("early-data"));
    })
    .await;
}

#[tokio::test(flavor = "local")]
async fn the_request_of_a_client_that_left_is_answered_all_the_same_and_counted() {
    soon(async {
        for (protocol, request) in [("http/1.1", GET), ("h2", H2_GET)] {
            let stage = Stage::speaking(protocol).await;
            stage.origin.permits.forget_permits(1000);
            let visit = stage.early(request, LONG).await;
            eventually(|| stage.origin.requests.get() == 1).await;
            visit.relay.break_off();
            for _ in 0..100 {
                yield_now().await;
            }
            assert!(!visit.served.is_finished());
            stage.origin.permits.add_permits(1);
            assert_eq!(visit.served.await.expect("served"), End::ClientGone);
            assert!(!visit.connection.client.is_confirmed());
            assert!(stage.shows("brisk_requests_total{status=\"200\"} 1"), "{}", stage.metrics.render());
            assert_eq!(stage.origin.requests.get(), 1);
        }
    })
    .await;
}

#[tokio::test(flavor = "local")]
async fn a_request_that_waits_ends_with_a_client_that_left() {
    soon(async {
        let stage = Stage::new().await;
        let visit = stage.early(POST, LONG).await;
        visit.relay.break_off();
        assert_eq!(visit.served.await.expect("served"), End::ClientGone);
        assert_eq!((stage.origin.requests.get(), visit.connection.flow.in_flight()), (0, 0));
    })
    .await;
}

#[tokio::test(flavor = "local")]
async fn a_client_has_no_more_time_for_its_handshake_than_without_early_data() {
    soon(async {
        for request in [GET, POST, CLOSE] {
            let stage = Stage::new().await;
            let visit = stage.early(request, Duration::from_millis(200)).await;
            assert_eq!(visit.served.await.expect("served"), End::HandshakeTimeout);
            assert!(!visit.connection.client.is_confirmed() && visit.connection.flow.in_flight() == 0);
        }
    })
    .await;
}
