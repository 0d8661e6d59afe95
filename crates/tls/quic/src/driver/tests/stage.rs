//! A server with three hosts: a fast one, one whose keys answer late, and one with a slow session store.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use brisk_certs::load;
use brisk_keys::{
    Completion, KeyOperation, Keystore, LocalEngine, PendingOperation, Performer, PrivateKeyEngine,
};
use brisk_net::datagram::bind_group;
use brisk_net::drain;
use brisk_session::{Claim, Lookup, MemorySettings, MemoryStore, SessionOrMiss, SessionStore};
use brisk_telemetry::HandshakeOutcome;
use brisk_testkit::ca::TestCa;
use brisk_testkit::quic::QuicClient;
use brisk_tls::quic::{Handshaken, QuicSessions};
use brisk_tls::{Acceptor, HostSettings, Resources, TlsSettings};
use bytes::Bytes;
use quinn_proto::{Connection, ConnectionError, Dir, StreamEvent, StreamId};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::application::{AddressProof, Application, Established, Failed, Failure, Service};
use crate::counters::QuicCounters;
use crate::driver::Driver;
use crate::group::Group;
use crate::settings::{Endpoints, QuicSettings, Timeouts};

/// A host with an engine that signs at once.
pub(super) const FAST: &str = "fast.test";
/// A host whose engine waits for the test.
pub(super) const SLOW: &str = "slow.test";
/// A host that accepts early data; its session store takes [`STORE_DELAY`].
pub(super) const STORED: &str = "stored.test";

/// The first bytes of the server.
pub(super) const GREETING: &[u8] = b"a greeting";

/// Delay of the session store.
pub(super) const STORE_DELAY: Duration = Duration::from_millis(300);

const ANY: &str = "127.0.0.1:0";

/// A server that is started by [`serve`](Self::serve).
pub(super) struct Stage {
    ca: TestCa,
    pub(super) engine: Arc<LateEngine>,
    pub(super) log: Arc<Log>,
    endpoints: Endpoints,
    sockets: Vec<UdpSocket>,
    acceptor: Arc<Acceptor>,
}

impl Stage {
    /// A server with default settings and one driver.
    pub(super) fn new() -> Self {
        Self::with(QuicSettings::default(), 1)
    }

    /// A server with a group of drivers.
    pub(super) fn with(settings: QuicSettings, drivers: usize) -> Self {
        let (_, sockets) = bind_group(ANY.parse().expect("an address"), drivers).expect("sockets");
        Self::on(settings, sockets)
    }

    /// A server whose drivers have different addresses, so that clients can send to the wrong one.
    pub(super) fn apart(drivers: usize) -> Self {
        let bind = |_| UdpSocket::bind(ANY).expect("a socket");
        Self::on(QuicSettings::default(), (0..drivers).map(bind).collect())
    }

    /// A server with one driver, whose socket exchanges datagrams with `peer` only.
    pub(super) fn connected_to(peer: SocketAddr) -> Self {
        let socket = UdpSocket::bind(ANY).expect("a socket");
        socket.connect(peer).expect("a peer");
        Self::on(QuicSettings::default(), vec![socket])
    }

    fn on(settings: QuicSettings, sockets: Vec<UdpSocket>) -> Self {
        let ca = TestCa::new();
        let (fast, engine) = host(&ca, FAST);
        let (slow, signer) = host(&ca, SLOW);
        let slow_engine = LateEngine::new(signer);
        let (mut stored, stored_engine) = host(&ca, STORED);
        stored.early_data = 16 << 10;
        fast.publish(&engine);
        slow.publish(&(Arc::clone(&slow_engine) as _));
        stored.publish(&stored_engine);
        let tls = TlsSettings {
            quic: true,
            unknown_host: brisk_certs::UnknownName::Refuse,
            ..TlsSettings::default()
        };
        let mut resources = Resources::of_process(SystemTime::now());
        resources.sessions = Arc::new(SlowStore(MemoryStore::new(&MemorySettings::default())));
        let acceptor = Acceptor::new(tls, [&fast, &slow, &stored], &resources).expect("settings that fit");
        let acceptor = Arc::new(acceptor);
        let of_sessions = Arc::clone(&acceptor);
        let sessions = QuicSessions::new(move || Arc::clone(&of_sessions)).expect("sessions");
        let endpoints = Endpoints::new(settings, sessions, Some(b"a secret"));
        Self { ca, engine: slow_engine, log: Arc::default(), endpoints, sockets, acceptor }
    }

    /// Number of connections in memory: the session of each refers to the acceptor.
    pub(super) fn sessions(&self) -> usize {
        Arc::strong_count(&self.acceptor) - 2
    }

    /// Counts of the drivers.
    pub(super) fn counters(&self) -> &QuicCounters {
        self.endpoints.counters()
    }

    /// Changes the timeouts of new connections.
    pub(super) fn set_timeouts(&self, timeouts: Timeouts) {
        self.endpoints.set_timeouts(timeouts);
    }

    /// The addresses of the sockets.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(|socket| socket.local_addr().expect("an address")).collect()
    }

    /// A client of this host.
    pub(super) fn client(&self, name: &str) -> QuicClient {
        self.client_with(name, "h3")
    }

    /// A client with another protocol.
    pub(super) fn client_with(&self, name: &str, alpn: &str) -> QuicClient {
        QuicClient::new(&self.ca.root_file(), name, alpn)
    }

    /// Serves on one thread while `clients` runs on this one, then drops the drivers.
    pub(super) fn serve<T>(&self, clients: impl FnOnce(SocketAddr) -> T) -> T {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| self.run_drivers(stopped));
            // Also after a panic, because the scope waits for the thread.
            let _stop = Stop(Some(stop));
            clients(self.addresses()[0])
        })
    }

    fn run_drivers(&self, stopped: tokio::sync::oneshot::Receiver<()>) {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let local = LocalSet::new();
        let group = Group::new(self.sockets.len(), None);
        let (_trigger, drain) = drain::channel();
        local.spawn_local(brisk_tls::gather::turns(Duration::ZERO));
        let _inside = runtime.enter();
        for (index, socket) in self.sockets.iter().enumerate() {
            let socket = socket.try_clone().expect("a copy");
            let service = EchoService(Arc::clone(&self.log));
            let driver = Driver::new(socket, (index, &group), &self.endpoints, service, drain.clone());
            local.spawn_local(driver.expect("a driver").run());
        }
        runtime.block_on(local.run_until(async { drop(stopped.await) }));
    }
}

/// Stops the drivers when it is dropped.
struct Stop(Option<tokio::sync::oneshot::Sender<()>>);

impl Drop for Stop {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

fn host(ca: &TestCa, name: &str) -> (HostSettings, Arc<dyn PrivateKeyEngine>) {
    let leaf = ca.server(&[name]).issue();
    let mut keystore = Keystore::new();
    let loaded = load(&leaf.chain, &leaf.key, &mut keystore, SystemTime::now()).expect("a certificate");
    let certificates = vec![Arc::new(loaded.certificate)];
    let settings = HostSettings { certificates, ..HostSettings::new([name]) };
    (settings, Arc::new(LocalEngine::new(Arc::new(keystore))))
}

/// Observations of the server.
#[derive(Default)]
pub(super) struct Log {
    counts: Mutex<Counts>,
    handshakes: Mutex<Vec<Handshaken>>,
    failures: Mutex<Vec<(Failure, Option<HandshakeOutcome>)>>,
    receptions: Mutex<Vec<Option<ErrorKind>>>,
    permits: AtomicUsize,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) failed: usize,
    pub(super) confirmed: usize,
    pub(super) ended: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a condition.
pub(super) fn wait_until(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !what() {
        assert!(Instant::now() < end, "it did not happen in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Log {
    /// Waits until the counts are as expected.
    pub(super) fn wait(&self, done: impl Fn(&Counts) -> bool) {
        wait_until(|| done(&lock(&self.counts)));
    }

    /// Takes the outcomes of the established handshakes, in their order.
    pub(super) fn handshakes(&self) -> Vec<Handshaken> {
        std::mem::take(&mut *lock(&self.handshakes))
    }

    /// The reasons of the failed handshakes.
    pub(super) fn failures(&self) -> Vec<(Failure, Option<HandshakeOutcome>)> {
        lock(&self.failures).clone()
    }

    /// The reported errors of receiving, and `None` for each end of one.
    pub(super) fn receptions(&self) -> Vec<Option<ErrorKind>> {
        lock(&self.receptions).clone()
    }

    /// Permits that are held.
    pub(super) fn permits(&self) -> usize {
        self.permits.load(Ordering::SeqCst)
    }
}

struct EchoService(Arc<Log>);

struct Permit(Arc<Log>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.permits.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Service for EchoService {
    type Permit = Permit;
    type Application = Echo;

    fn admit(&self, _client: SocketAddr, _proof: AddressProof) -> Option<Permit> {
        self.0.permits.fetch_add(1, Ordering::SeqCst);
        Some(Permit(Arc::clone(&self.0)))
    }

    fn established(&self, established: Established<Permit>) -> Echo {
        let rest = established.greeting.map(|(_, rest)| rest);
        assert!(rest.unwrap_or_default().is_empty(), "a greeting that was written in part");
        lock(&self.0.handshakes).push(established.handshake);
        Echo {
            log: Arc::clone(&self.0),
            streams: Vec::new(),
            closes: false,
            _permit: established.permit,
            _local: Rc::new(()),
        }
    }

    fn failed(&self, failed: Failed<Permit>) {
        lock(&self.0.failures).push((failed.failure, failed.refusal.map(|refusal| refusal.outcome)));
        lock(&self.0.counts).failed += 1;
    }

    fn greeting(&self) -> Bytes {
        Bytes::from_static(GREETING)
    }

    fn reception(&self, error: Option<&std::io::Error>) {
        lock(&self.0.receptions).push(error.map(std::io::Error::kind));
    }
}

/// Sends back the data of each stream at its end.
struct Echo {
    log: Arc<Log>,
    streams: Vec<Stream>,
    /// Whether a client has requested the end of the connection.
    closes: bool,
    _permit: Permit,
    /// Applications need not be `Send`.
    _local: Rc<()>,
}

struct Stream {
    id: StreamId,
    data: Vec<u8>,
    sent: usize,
    is_whole: bool,
}

impl Stream {
    /// Returns whether the stream is needed any longer.
    fn go_on(&mut self, connection: &mut Connection) -> bool {
        if !self.is_whole {
            let mut receiving = connection.recv_stream(self.id);
            let Ok(mut chunks) = receiving.read(true) else { return false };
            self.is_whole = loop {
                match chunks.next(usize::MAX) {
                    Ok(Some(chunk)) => self.data.extend_from_slice(&chunk.bytes),
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            let _ = chunks.finalize();
        }
        if !self.is_whole {
            return true;
        }
        let mut sending = connection.send_stream(self.id);
        while self.sent < self.data.len() {
            let Ok(written) = sending.write(&self.data[self.sent..]) else { return true };
            self.sent += written;
        }
        let _ = sending.finish();
        false
    }
}

impl Application for Echo {
    fn confirmed(&mut self) {
        lock(&self.log.counts).confirmed += 1;
    }

    fn event(&mut self, _event: StreamEvent) {}

    fn poll(&mut self, connection: &mut Connection, _cx: &mut Context<'_>) -> Poll<u64> {
        while let Some(id) = connection.streams().accept(Dir::Bi) {
            self.streams.push(Stream { id, data: Vec::new(), sent: 0, is_whole: false });
        }
        let closes = &mut self.closes;
        self.streams.retain_mut(|stream| {
            let is_open = stream.go_on(connection);
            *closes |= stream.data == b"close";
            is_open
        });
        if std::mem::take(&mut self.closes) { Poll::Ready(7) } else { Poll::Pending }
    }

    fn lost(&mut self, _connection: Option<&Connection>, _error: &ConnectionError) {
        lock(&self.log.counts).ended += 1;
    }
}

/// An engine that completes operations when the test says so.
#[derive(Debug)]
pub(super) struct LateEngine {
    inner: Arc<dyn PrivateKeyEngine>,
    waiting: Mutex<Vec<(KeyOperation, Completion)>>,
}

impl LateEngine {
    fn new(inner: Arc<dyn PrivateKeyEngine>) -> Arc<Self> {
        Arc::new(Self { inner, waiting: Mutex::default() })
    }

    /// Number of waiting operations.
    pub(super) fn waiting(&self) -> usize {
        lock(&self.waiting).len()
    }

    /// Waits until as many operations wait.
    pub(super) fn wait_for(&self, operations: usize) {
        wait_until(|| self.waiting() >= operations);
    }

    /// Completes all waiting operations.
    pub(super) fn answer(&self) {
        for (operation, completion) in std::mem::take(&mut *lock(&self.waiting)) {
            let result = self.inner.submit(operation).try_take();
            completion.complete(result.expect("an engine that works in line"), Performer::AWS_LC);
        }
    }
}

impl PrivateKeyEngine for LateEngine {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        let (pending, completion) = PendingOperation::with_completion(operation.deadline);
        lock(&self.waiting).push((operation, completion));
        pending
    }
}

/// A store in memory that is slow to find sessions.
#[derive(Debug)]
struct SlowStore(MemoryStore);

impl SessionStore for SlowStore {
    fn put(&self, id: &[u8], session: Vec<u8>, lifetime: Duration) -> Lookup<bool> {
        self.0.put(id, session, lifetime)
    }

    fn get(&self, id: &[u8]) -> Lookup<SessionOrMiss> {
        late(self.0.get(id))
    }

    fn take(&self, id: &[u8], claim: Claim) -> Lookup<SessionOrMiss> {
        late(self.0.take(id, claim))
    }
}

fn late(lookup: Lookup<SessionOrMiss>) -> Lookup<SessionOrMiss> {
    Lookup::Pending(Box::pin(async move {
        tokio::time::sleep(STORE_DELAY).await;
        lookup.answer().await
    }))
}
