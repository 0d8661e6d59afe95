//! `[[tcp]]` with hostile peers.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use brisk_behaviour::site::setup;
use brisk_behaviour::tcp::{ALONE, connect};
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::client::TlsClient;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{TIMEOUT, wait_until};

fn serve(keys: &str, upstream: SocketAddr, more: &str) -> Brisk {
    let table = format!("\n[[tcp]]\nlisten = [\"127.0.0.1:0\"]\nupstream = \"tcp://{upstream}\"\n{more}");
    setup().config(&format!("{}{table}", base(&format!("{ALONE}server.workers = 1\n{keys}")))).start()
}

/// Everything until the end or a reset.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    if let Err(error) = stream.read_to_end(&mut all) {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    all
}

#[test]
fn a_client_hello_in_single_bytes_reaches_its_server_unchanged() {
    let ca = TestCa::new();
    let leaf = ca.server(&["a.test"]).issue();
    let server = setup().config(&format!("{}{}", base(""), host(&["a.test"], &[&leaf]))).start();
    let brisk = serve("", server.https(), "names = [\"a.test\"]\n");
    let client = TlsClient::new(&ca.root_file(), "a.test");
    let mut tls = client.start();
    let mut stream = connect(brisk.tcp(0));
    stream.set_nodelay(true).expect("a socket");
    let mut hello = Vec::new();
    tls.write_tls(&mut hello).expect("a vector takes everything");
    for byte in hello {
        stream.write_all(&[byte]).expect("a listener that reads");
    }
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).expect("a handshake");
    }
}

#[test]
fn what_is_no_client_hello_is_refused_within_its_limits() {
    let origin = Origin::raw(|_| Ok(()));
    let brisk = serve("server.limits.hello_size = \"4KiB\"\n", origin.address(), "names = [\"a.test\"]\n");
    let mut silent = connect(brisk.tcp(0));
    let mut slow = connect(brisk.tcp(0));
    slow.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).expect("a listener");
    let mut plain = connect(brisk.tcp(0));
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("a listener");
    assert!(rest(&mut plain).starts_with(b"HTTP/1.1 400"));
    drop(plain);
    brisk.logged("\"outcome\":\"plain-http\"");
    // A hello that announces more than the limit, and one that never ends.
    let mut endless = connect(brisk.tcp(0));
    let record = [&[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff][..], &[0; 0x3ffc]].concat();
    drop(endless.write_all(&record));
    rest(&mut endless);
    drop(endless);
    brisk.logged("\"outcome\":\"too-large\"");
    assert!(rest(&mut slow).is_empty());
    brisk.logged("\"outcome\":\"timed-out\"");
    assert!(rest(&mut silent).is_empty());
    assert_eq!(origin.connections(), 0);
}

#[test]
fn peers_that_never_read_stop_nobody_else_and_end_in_time() {
    let origin = Origin::raw(|mut stream| {
        Origin::receive_little(&stream);
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        match &byte {
            // Sends without end.
            b"d" => loop {
                stream.write_all(&[0; 16_384])?;
            },
            // Never reads.
            b"u" => {
                std::thread::sleep(TIMEOUT);
                Ok(())
            }
            _ => stream.write_all(&byte),
        }
    });
    let brisk = serve("", origin.address(), "idle_timeout = \"5s\"\n");
    let before = brisk.process().resident_bytes();
    // Each begins at once: a connection without data ends as well.
    let begin = |kind: &[u8]| {
        let mut stream = connect(brisk.tcp(0));
        Origin::receive_little(&stream);
        stream.write_all(kind).expect("a listener");
        stream
    };
    let downloads: Vec<_> = (0..20).map(|_| begin(b"d")).collect();
    let _uploads: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = begin(b"u");
            stream.set_nonblocking(true).expect("a socket");
            while stream.write(&[0; 16_384]).is_ok() {}
            stream
        })
        .collect();
    // A pause of the machine may be longer than the timeout.
    wait_until("a connection that is served meanwhile", || (rest(&mut begin(b"x")) == b"x").then_some(()));
    let grown = brisk.process().resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes");
    wait_until("the end of all silent connections", || {
        let ended = brisk.metrics().sum("brisk_tcp_connections_total", &["outcome=\"idle-timeout\""]);
        (ended >= 40.0).then_some(())
    });
    for mut stream in downloads {
        // Not an end, which would make the transfer look complete.
        let end = stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
        assert_eq!(end.expect_err("a reset"), io::ErrorKind::ConnectionReset);
    }
}

#[test]
fn one_flood_of_bytes_leaves_turns_to_others() {
    let origin = Origin::raw(|mut stream| {
        let mut copy = stream.try_clone()?;
        io::copy(&mut stream, &mut copy).map(drop)
    });
    let brisk = serve("", origin.address(), "");
    let mut flood = connect(brisk.tcp(0));
    let mut reader = flood.try_clone().expect("a copy");
    std::thread::spawn(move || io::copy(&mut reader, &mut io::sink()));
    std::thread::spawn(move || while flood.write_all(&[0; 16_384]).is_ok() {});
    for _ in 0..20 {
        let mut other = connect(brisk.tcp(0));
        other.write_all(b"hello").expect("a listener");
        let mut echo = [0; 5];
        other.read_exact(&mut echo).expect("an echo");
        assert_eq!(&echo, b"hello");
    }
}

#[test]
fn a_server_that_accepts_nothing_is_given_up() {
    // A full accept queue drops further connections silently.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    rustix::net::listen(&listener, 0).expect("a shorter queue");
    let mut held = Vec::new();
    let mut refused = 0;
    // Several refusals: a pause of the machine looks like one.
    while refused < 3 {
        match TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            Ok(stream) => {
                held.push(stream);
                refused = 0;
            }
            Err(_) => refused += 1,
        }
        assert!(held.len() < 64, "the queue never fills");
    }
    let group =
        format!("\n[upstream.db]\nservers = [\"tcp://{address}\"]\ntimeouts = {{ connect = \"300ms\" }}\n");
    let table = "\n[[tcp]]\nlisten = [\"127.0.0.1:0\"]\nupstream = \"db\"\n";
    let brisk = setup().config(&format!("{}{table}{group}", base(ALONE))).start();
    assert!(rest(&mut connect(brisk.tcp(0))).is_empty());
    let line = brisk.logged("\"outcome\":\"connect-timeout\"");
    assert!(line.contains("\"error_side\":\"upstream\""), "{line}");
}
