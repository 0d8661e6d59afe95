//! Sockets inherited from a supervisor (`LISTEN_FDS`): connections wait in them while no process serves, and one process
//! replaces another without a gap.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;

use brisk_behaviour::site::{NAME, setup};
use brisk_testkit::brisk::{Brisk, Setup, base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::http1::Message;
use brisk_testkit::process::wait_until;

/// A host that answers everything with its own name, and what starts and asks gateways for it.
struct Site {
    ca: TestCa,
    hosts: String,
}

impl Site {
    fn new() -> Self {
        let ca = TestCa::new();
        let leaf = ca.server(&[NAME]).issue();
        let route = format!("[[host.route]]\npath = \"/\"\nrespond = {{ body = \"{NAME}\" }}\n");
        Self { hosts: host(&[NAME], &[&leaf]) + &route, ca }
    }

    /// A gateway that listens as `keys` say, and everywhere else on free ports.
    fn gateway(&self, keys: &str) -> Setup {
        setup().config(&(base(keys) + &self.hosts))
    }

    /// One that listens for HTTPS on the address of `socket`, and inherits it.
    fn inheriting(&self, socket: &TcpListener) -> Setup {
        self.gateway(&https(address(socket))).inherit("", socket)
    }

    fn client(&self) -> TlsClient {
        TlsClient::new(&self.ca.root_file(), NAME)
    }

    /// A request over a new connection to `address`.
    fn ask(&self, address: SocketAddr) {
        self.ask_over(TcpStream::connect(address).expect("a listening socket"));
    }

    fn ask_over(&self, tcp: TcpStream) -> TlsStream {
        let mut stream = self.client().over(tcp).expect("a handshake");
        assert_eq!(stream.get(NAME, "/").text(), NAME);
        stream
    }
}

fn https(address: SocketAddr) -> String {
    format!("server.https = [\"{address}\"]\n")
}

fn bound() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")
}

fn address(socket: &TcpListener) -> SocketAddr {
    socket.local_addr().expect("an address")
}

#[test]
fn a_connection_from_before_the_start_is_answered() {
    let (site, socket) = (Site::new(), bound());
    let early = TcpStream::connect(address(&socket)).expect("a listening socket");
    let brisk = site.inheriting(&socket).start();
    assert_eq!(brisk.https(), address(&socket));
    site.ask_over(early);
    site.ask(brisk.https());
}

#[test]
fn one_process_after_another_loses_no_connection() {
    let (site, socket) = (Site::new(), bound());
    let address = address(&socket);
    let mut first = site.inheriting(&socket).start();
    site.ask(address);
    first.terminate();
    wait_until("a process that accepts nothing more", || {
        (polled(&first, &listening(address)) == 0).then_some(())
    });
    thread::scope(|scope| {
        let asks: Vec<_> = (0..8).map(|_| scope.spawn(|| site.ask(address))).collect();
        assert!(first.wait().success());
        let last = scope.spawn(|| site.ask(address));
        let second = site.inheriting(&socket).start();
        for ask in asks.into_iter().chain([last]) {
            ask.join().expect("an answer");
        }
        assert!((second.metrics().sum("brisk_connections_accepted_total", &[]) - 9.0).abs() < 0.5);
    });
}

#[test]
fn workers_share_an_inherited_socket() {
    let (site, socket) = (Site::new(), bound());
    let brisk = site.inheriting(&socket).start();
    assert_eq!(listening(brisk.https()).len(), 1, "another socket has the address");
    let mut held = Vec::new();
    wait_until("connections of both workers", || {
        held.push(site.ask_over(TcpStream::connect(brisk.https()).expect("a listening socket")));
        (polled(&brisk, &connections(brisk.https())) == 2).then_some(())
    });
}

#[test]
fn workers_have_sockets_of_their_own_without_inherited_ones() {
    let site = Site::new();
    let brisk = site.gateway("").start();
    assert_eq!(listening(brisk.https()).len(), 2);
    site.ask(brisk.https());
}

/// Lines of the kernel's table of IPv4 sockets with this local address and this state, as their inode numbers.
fn sockets(local: SocketAddr, state: &str) -> HashSet<String> {
    let SocketAddr::V4(local) = local else { panic!("an IPv4 address") };
    let local = format!("{:08X}:{:04X}", u32::from(*local.ip()).swap_bytes(), local.port());
    let table = fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let own = lines.filter(|words| words.get(1) == Some(&local.as_str()) && words.get(3) == Some(&state));
    own.map(|words| words[9].to_owned()).collect()
}

fn listening(local: SocketAddr) -> HashSet<String> {
    sockets(local, "0A")
}

fn connections(local: SocketAddr) -> HashSet<String> {
    sockets(local, "01")
}

/// How many event loops of a gateway wait for one of the sockets with these inode numbers; none if it has ended.
fn polled(brisk: &Brisk, inodes: &HashSet<String>) -> usize {
    let folder = PathBuf::from(format!("/proc/{}/fdinfo", brisk.process().id()));
    let files = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let polls = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let waits = |poll: &String| {
        let watched = poll.lines().filter(|line| line.starts_with("tfd:"));
        // `ino:` is hexadecimal there.
        let mut inodes_of = watched.filter_map(|line| {
            let number = line.split_once("ino:")?.1.split_whitespace().next()?;
            u64::from_str_radix(number, 16).ok()
        });
        inodes_of.any(|inode| inodes.contains(&inode.to_string()))
    };
    polls.filter(waits).count()
}

#[test]
fn sockets_are_found_by_name_whatever_their_addresses() {
    let site = Site::new();
    let [https, http, admin] = [bound(), bound(), bound()];
    // The configuration has port 0 everywhere.
    let setup = site.gateway("").inherit("admin", &admin).inherit("https", &https).inherit("http", &http);
    let brisk = setup.start();
    assert_eq!(
        (brisk.https(), brisk.http(), brisk.admin()),
        (address(&https), address(&http), address(&admin))
    );
    site.ask(brisk.https());
    assert_eq!(brisk.ask_admin("/readyz").status(), 200);
    let mut plain = TcpStream::connect(brisk.http()).expect("a listening socket");
    plain.write_all(b"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n").expect("a listener that reads");
    assert_eq!(Message::read_response(&mut plain).expect("a response").status(), 308);
}

#[test]
fn a_socket_of_another_address_is_named_and_closed() {
    let (site, socket) = (Site::new(), bound());
    let other = address(&socket);
    let brisk = site.gateway("").inherit("web", &socket).start();
    drop(socket);
    let log = brisk.log_with("is closed");
    let line = log.lines().find(|line| line.contains("is closed")).expect("the line");
    assert!(line.contains(&format!("inherited socket {other} ")), "{line}");
    assert!(line.contains("descriptor=3") && line.contains("name=\"web\""), "{line}");
    TcpStream::connect(other).expect_err("no process holds it any more");
    assert_ne!(brisk.https(), other);
    site.ask(brisk.https());
}

#[test]
fn sockets_of_another_process_are_left_alone() {
    let (site, socket) = (Site::new(), bound());
    let failed = site.inheriting(&socket).environment("LISTEN_PID", "1").fail();
    assert!(!failed.status.success());
    let message = format!("cannot listen on {}", address(&socket));
    assert!(
        failed.stderr.contains(&message) && failed.stderr.contains("another program"),
        "{}",
        failed.stderr
    );
}
