//! HTTP/3 on inherited datagram sockets: a process serves new connections while the one before it finishes its own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use brisk_behaviour::h3_client;
use brisk_behaviour::site::{NAME, setup};
use brisk_net::datagram::bind_group;
use brisk_testkit::brisk::Brisk;
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::origin::GatedOrigin;
use brisk_testkit::process::{free_port, wait_until};
use brisk_testkit::quic::{QuicClient, QuicConnection};

use super::http3::{get, request, response};
use super::http3_workers::{LONG, change, config};

const WORKERS: usize = 4;
const CONNECTIONS: usize = 200;
/// Connections to a new process while the one before it serves or drains.
const NEW: usize = 20;

/// A supervisor that keeps the sockets.
struct Supervisor {
    address: SocketAddr,
    tcp: TcpListener,
    udp: Vec<UdpSocket>,
    leaf: Leaf,
    client: QuicClient,
    slow: GatedOrigin,
    _ca: TestCa,
}

impl Supervisor {
    /// With two datagram sockets for each worker.
    fn new() -> Self {
        Self::of(2 * WORKERS)
    }

    fn of(sockets: usize) -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        // The port that the system chooses for UDP may be in use for TCP.
        let (address, udp, tcp) = wait_until("a port that is free for TCP and UDP", || {
            let (address, udp) = bind_group(any, sockets).expect("a group");
            Some((address, udp, TcpListener::bind(address).ok()?))
        });
        let ca = TestCa::new();
        let leaf = ca.server(&[NAME]).issue();
        let client = QuicClient::new(&ca.root_file(), NAME, "h3");
        Self { address, tcp, udp, leaf, client, slow: GatedOrigin::new("slow"), _ca: ca }
    }

    /// Starts a process that answers with `body`.
    fn start(&self, body: &str) -> Brisk {
        let server = format!("server.https = [\"{}\"]\nserver.workers = {WORKERS}\n{LONG}", self.address);
        let setup =
            setup().config(&config(&self.slow, &self.leaf, &server, body)).inherit("https", &self.tcp);
        self.udp.iter().fold(setup, |setup, socket| setup.inherit("https", socket)).start()
    }

    fn connect(&self) -> QuicConnection {
        h3_client::connect(&self.client, self.address)
    }

    /// New connections that were answered with `body`.
    fn connections(&self, count: usize, body: &str) -> Vec<QuicConnection> {
        let connect = |_| {
            let mut connection = self.connect();
            assert_eq!(get(&mut connection, "/").1, body);
            connection
        };
        (0..count).map(connect).collect()
    }
}

#[test]
fn connections_of_a_draining_process_and_of_its_successor_are_served_on_the_same_sockets() {
    let supervisor = Supervisor::new();
    let slow = &supervisor.slow;
    let mut random = fastrand::Rng::with_seed(37);
    let mut process = supervisor.start("0");
    for generation in 1..4 {
        let before = format!("{}", generation - 1);
        let mut connections = supervisor.connections(CONNECTIONS, &before);
        let mut visit = |connections: &mut [QuicConnection]| {
            for connection in connections {
                change(connection, &mut random);
                assert_eq!(get(connection, "/").1, before);
            }
        };
        visit(&mut connections);
        slow.close();
        let earlier = slow.requests().len();
        let streams: Vec<_> = connections.iter_mut().map(|own| request(own, "/slow")).collect();
        wait_until("the requests", || (slow.requests().len() == earlier + CONNECTIONS).then_some(()));

        let next = supervisor.start(&format!("{generation}"));
        // New connections go to the new process at once, while the old one does not even drain.
        supervisor.connections(NEW, &format!("{generation}"));
        visit(&mut connections);
        // Without the programs that distribute packets, most would be passed on, or lost with their connections.
        let passed = process.metrics().sum("brisk_quic_datagrams_passed_total", &[]);
        assert!(passed < 0.5, "{passed} datagrams reached a wrong socket");
        process.terminate();
        supervisor.connections(NEW, &format!("{generation}"));
        for connection in &mut connections {
            change(connection, &mut random);
            connection.ping();
        }
        slow.open();
        for (connection, stream) in connections.iter_mut().zip(streams) {
            let (status, body) = response(connection, stream).expect("a response of the old process");
            assert_eq!((&status[..], &body[..]), ("200", "slow"));
            connection.close();
        }
        assert!(process.wait().success());
        process = next;
    }
}

#[test]
fn an_error_of_a_socket_is_in_the_log_and_on_readyz_until_it_receives_again() {
    let supervisor = Supervisor::of(1);
    // The system gives a free port that no socket holds to others: it takes none of these, and no other test has this address.
    let peer = SocketAddr::from((Ipv4Addr::new(127, 0, 77, 1), free_port()));
    supervisor.udp[0].connect(peer).expect("a peer");
    let process = supervisor.start("here");
    // A packet of an unknown version. Its answer reaches a closed port, which the kernel reports to the sender.
    let packet = [&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8][..], &[1; 8], &[8], &[2; 8], &[0; 1177]].concat();
    let page = wait_until("an error", || {
        let sent = UdpSocket::bind(peer).expect("the port").send_to(&packet, supervisor.address);
        sent.expect("sent");
        let page = process.ask_admin("/readyz");
        (page.status() == 503).then(|| page.text())
    });
    assert!(page.contains("receives no datagrams on worker 0: Connection refused"), "{page}");
    process.log_with("HTTP/3 receives no datagrams");
    wait_until("readiness", || (process.ask_admin("/readyz").status() == 200).then_some(()));
    process.log_with("HTTP/3 receives datagrams again");
}

#[test]
fn a_client_that_connects_between_two_processes_is_served_by_the_second() {
    let supervisor = Supervisor::new();
    let mut first = supervisor.start("first");
    let mut held = supervisor.connect();
    let stream = request(&mut held, "/slow");
    wait_until("the request", || (supervisor.slow.requests().len() == 1).then_some(()));
    first.terminate();
    first.log_with("draining: no new connections");
    let mut early = supervisor.client.connect(supervisor.address);
    let second = supervisor.start("second");
    early.handshake().expect("a handshake");
    early.send_uni(&[0, 4, 0]);
    assert_eq!(get(&mut early, "/").1, "second");
    supervisor.slow.open();
    assert_eq!(response(&mut held, stream).expect("a response").1, "slow");
    held.close();
    assert!(first.wait().success());
    drop(second);
}
