//! Measures the cost of a handshake for each side, in microseconds of processor time: `client_cost MODE SECONDS
//! [ADDRESS PID AUTHORITY]`.
//!
//! Without an address, client and server are threads of one process, each with a runtime of its own, connected by
//! loopback; otherwise the server is the process with this ID, which serves `bench.test` with a certificate of the
//! authority in this PEM file. Modes: `full`, `full-fresh` (new key shares), `full-unit` (a key that costs nothing),
//! `full-unverified`, `full-least` (both), `full-12`, `full-mlkem`, `psk`, `ticket`, `id`.

#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use brisk_certs::load;
use brisk_keys::{Keystore, LocalEngine, PrivateKeyEngine};
use brisk_telemetry::{Resumption, Timeline};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_tls::{Acceptor, HostSettings, Resources, TlsSettings};
use brisk_tls_client::{
    Client, ClientSettings, KeyShares, SavedSession, SessionUse, Tls12Sessions, Verification,
};
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, LocalSet};

const HOST: &str = "bench.test";

/// Concurrent connections.
const CONCURRENT: usize = 16;

/// Handshakes completed by the server.
static SERVED: AtomicU64 = AtomicU64::new(0);

/// The server's processor time in nanoseconds.
static SERVER_CPU: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Address of the server, and its processor time and handshakes so far.
struct Server {
    address: SocketAddr,
    usage: Box<dyn Fn() -> (Duration, Option<u64>)>,
    authority: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mode = arguments.first().map_or("full", String::as_str);
    let seconds = arguments.get(1).map_or(Ok(5.0), |text| text.parse())?;
    let ca = TestCa::new();
    let server = match arguments.get(2..5) {
        Some([address, pid, authority]) => elsewhere(address.parse()?, pid.clone(), authority.into()),
        _ => here(&ca)?,
    };
    let client = Client::new(settings(mode, server.authority.clone()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, run(&client, mode, server.address, Duration::from_millis(500)))?;
    let (server_before, served_before) = (server.usage)();
    let (client_before, started) = (thread_cpu(), Instant::now());
    let time = Duration::from_secs_f64(seconds);
    let done = local.block_on(&runtime, run(&client, mode, server.address, time))?;
    let (client_cpu, took) = (thread_cpu().saturating_sub(client_before), started.elapsed());
    thread::sleep(Duration::from_millis(50));
    let (server_after, served_after) = (server.usage)();
    let served = served_after.zip(served_before).map_or(done, |(after, before)| after - before);
    let each = |cpu: Duration, count: u64| cpu.as_secs_f64() * 1e6 / count.max(1) as f64;
    let (client, server) = (each(client_cpu, done), each(server_after.saturating_sub(server_before), served));
    println!(
        "{mode}: {:.0}/s, client {client:.1} us, server {server:.1} us, ratio {:.2}",
        done as f64 / took.as_secs_f64(),
        client / server
    );
    Ok(())
}

fn here(ca: &TestCa) -> Result<Server, Box<dyn Error>> {
    let leaf = ca.server(&[HOST]).below_root().issue();
    let (listening, address) = mpsc::channel();
    thread::spawn(move || serve(&leaf, &listening));
    let usage = || {
        let cpu = Duration::from_nanos(SERVER_CPU.load(Ordering::Relaxed));
        (cpu, Some(SERVED.load(Ordering::Relaxed)))
    };
    Ok(Server { address: address.recv()?, usage: Box::new(usage), authority: ca.root_file() })
}

fn elsewhere(address: SocketAddr, pid: String, authority: PathBuf) -> Server {
    let usage = move || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a running process");
        let after_name = stat.rsplit_once(')').expect("a name in brackets").1;
        let ticks = after_name.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(|ticks| ticks.parse::<u64>().expect("ticks")).sum();
        (Duration::from_millis(ticks * 10), None)
    };
    Server { address, usage: Box::new(usage), authority }
}

fn settings(mode: &str, authority: PathBuf) -> ClientSettings {
    let mut settings = ClientSettings::new(HOST);
    settings.verification = Verification::Authorities(vec![authority]);
    settings.protocols = vec!["http/1.1".to_owned()];
    settings.versions = vec![ProtocolVersion::TLS1_3];
    settings.suites = vec![CipherSuite::TLS_AES_128_GCM_SHA256];
    settings.groups = vec![NamedGroup::X25519];
    settings.schemes = vec![SignatureScheme::ECDSA_SECP256R1_SHA256];
    settings.key_shares = KeyShares::Reused;
    settings.session_use = SessionUse::Many;
    match mode {
        "full-fresh" => settings.key_shares = KeyShares::Fresh,
        "full-unit" => settings.key_shares = KeyShares::Unit,
        "full-least" => {
            settings.key_shares = KeyShares::Unit;
            settings.verification = Verification::Off;
        }
        "full-unverified" => settings.verification = Verification::Off,
        "full-mlkem" => settings.groups = vec![NamedGroup::X25519MLKEM768],
        "full-12" | "ticket" | "id" => {
            settings.versions = vec![ProtocolVersion::TLS1_2];
            settings.suites = vec![CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256];
            // In TLS 1.2, groups also determine the curves of certificates.
            settings.groups.push(NamedGroup::SECP256R1);
        }
        _ => {}
    }
    if mode == "id" {
        settings.tls12_sessions = Tls12Sessions::Ids;
    }
    // Runs with full handshakes only need no record layer for repeated resumption.
    if mode.starts_with("full") {
        settings.session_use = SessionUse::Once;
    }
    settings
}

/// Performs handshakes for `time` and returns their number.
async fn run(
    client: &Client,
    mode: &str,
    address: SocketAddr,
    time: Duration,
) -> Result<u64, Box<dyn Error>> {
    let session = if mode.starts_with("full") { None } else { Some(session(client, address).await?) };
    let session = Arc::new(session);
    let expected = match mode {
        "psk" => Resumption::Psk,
        "ticket" => Resumption::Ticket,
        "id" => Resumption::SessionId,
        _ => Resumption::Full,
    };
    let until = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for _ in 0..CONCURRENT {
        let (client, session) = (client.clone(), Arc::clone(&session));
        tasks.spawn_local(async move {
            let mut done = 0;
            while Instant::now() < until {
                let tcp = TcpStream::connect(address).await.expect("a listener");
                let session = session.as_ref().as_ref().and_then(SavedSession::try_clone);
                let stream = client.connect(tcp, session, None).await.expect("a handshake");
                assert_eq!(stream.facts().resumption, expected);
                done += 1;
            }
            done
        });
    }
    Ok(tasks.join_all().await.into_iter().sum())
}

async fn session(client: &Client, address: SocketAddr) -> Result<SavedSession, Box<dyn Error>> {
    let tcp = TcpStream::connect(address).await?;
    let mut stream = client.connect(tcp, None, None).await?;
    stream.next_session().await?.ok_or_else(|| "the server gives no sessions".into())
}

/// Accepts connections until the process ends.
fn serve(leaf: &Leaf, listening: &mpsc::Sender<SocketAddr>) {
    let mut keystore = Keystore::new();
    let loaded = load(&leaf.chain, &leaf.key, &mut keystore, SystemTime::now()).expect("a certificate");
    let engine = LocalEngine::new(Arc::new(keystore));
    let engine: Arc<dyn PrivateKeyEngine> = Arc::new(engine);
    let certificates = vec![Arc::new(loaded.certificate)];
    let host = HostSettings { certificates, ..HostSettings::new([HOST]) };
    host.publish(&engine);
    let resources = Resources::of_process(SystemTime::now());
    let acceptor = Acceptor::new(TlsSettings::default(), &[host], &resources).expect("settings");
    let acceptor = Arc::new(acceptor);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        listening.send(listener.local_addr().expect("an address")).expect("someone who waits");
        loop {
            let (tcp, _) = listener.accept().await.expect("a client");
            let acceptor = Arc::clone(&acceptor);
            tokio::task::spawn_local(async move {
                let Ok(mut accepted) = acceptor.accept(tcp, Vec::new(), &mut Timeline::start()).await else {
                    return;
                };
                SERVED.fetch_add(1, Ordering::Relaxed);
                let stream = &mut accepted.stream;
                let _ = std::future::poll_fn(|cx| stream.poll_drain(cx)).await;
                let _ = std::future::poll_fn(|cx| stream.poll_read(cx, <[u8]>::len)).await;
            });
            SERVER_CPU.store(thread_cpu().as_nanos() as u64, Ordering::Relaxed);
        }
    });
}

/// Processor time of this thread, user and system.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
