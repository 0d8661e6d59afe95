//! Arbitrary bytes in place of TLS and HTTP: bounded memory and time, and no effect on the worker.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{TIMEOUT, wait_until};

fn connect(site: &Site) -> TcpStream {
    let stream = TcpStream::connect(site.brisk.https()).expect("a listener");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    stream
}

/// Everything until brisk closes, whichever way.
fn rest(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("brisk keeps the connection open")
        }
        _ => bytes,
    }
}

fn failed(site: &Site, outcome: &str) {
    wait_until(&format!("a handshake that failed as {outcome}"), || {
        let label = format!("outcome=\"{outcome}\"");
        (site.brisk.metrics().sum("brisk_handshakes_failed_total", &[&label]) > 0.5).then_some(())
    });
    assert!(site.brisk.logged(&format!("\"outcome\":\"{outcome}\"")).contains("\"event\":\"handshake\""));
}

#[test]
fn garbage_instead_of_a_hello() {
    let site = Site::new();
    for garbage in [&[0_u8; 100][..], b"\xff\xff\xff\xff\xff\xff\xff\xff", b"SSH-2.0-OpenSSH_9.2\r\n", b"\0"]
    {
        let mut stream = connect(&site);
        stream.write_all(garbage).expect("a connection");
        assert!(rest(&mut stream).len() < 100);
    }
    failed(&site, "not-tls");
    site.assert_alive();
}

#[test]
fn a_hello_whose_inside_is_garbage() {
    let site = Site::new();
    let hello = site.client().hello();
    for position in [5, 6, 9, 11, 43, 44, 80, 120] {
        let mut broken = hello.clone();
        broken[position] ^= 0xff;
        let mut stream = connect(&site);
        stream.write_all(&broken).expect("a connection");
        // Where only the random or a share is hit, the server may go on; nothing more comes from this client.
        stream.shutdown(std::net::Shutdown::Write).expect("a connection");
        assert!(rest(&mut stream).len() < 8192, "position {position}");
    }
    site.assert_alive();
}

#[test]
fn a_hello_byte_by_byte() {
    let site = Site::new();
    let mut stream = connect(&site);
    for byte in site.client().hello() {
        stream.write_all(&[byte]).expect("a server that reads");
    }
    let mut first = [0; 5];
    stream.read_exact(&mut first).expect("a ServerHello");
    assert_eq!(first[0], 22, "a handshake record");
}

#[test]
fn a_hello_that_never_ends_is_cut_off_in_time() {
    let site = Site::custom("server.timeouts.hello = \"300ms\"\n", "", |setup| setup);
    let hello = site.client().hello();
    let mut stream = connect(&site);
    stream.write_all(&hello[..hello.len() / 2]).expect("a server that reads");
    rest(&mut stream);
    // And one that says nothing at all.
    rest(&mut connect(&site));
    failed(&site, "timed-out");
    // On a slow machine, a handshake may exceed this timeout.
    wait_until("a good handshake", || site.client().connect(site.brisk.https()).ok());
}

#[test]
fn an_oversized_hello() {
    let site = Site::new();
    // A handshake message of 1 MiB: its records come as fast as they are taken.
    let mut record = vec![22, 3, 1, 0x40, 0x00, 1, 0x10, 0, 0, 3, 3];
    record.resize(5 + 0x4000, 0);
    let mut stream = connect(&site);
    let mut sent = 0;
    for _ in 0..64 {
        let Ok(len) = stream.write(&record) else { break };
        sent += len;
    }
    // What comes back, if the reset leaves it, is an alert.
    let answer = rest(&mut stream);
    assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
    failed(&site, "too-large");
    assert!(sent > 0);
    site.assert_alive();
}

#[test]
fn plain_http_on_the_tls_port_gets_a_hint() {
    let site = Site::new();
    for request in
        ["GET / HTTP/1.1\r\nHost: site.test\r\n\r\n", "POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"]
    {
        let mut stream = connect(&site);
        stream.write_all(request.as_bytes()).expect("a connection");
        let answer = Message::read_response(&mut stream).expect("an answer");
        assert_eq!(answer.status(), 400);
        assert!(answer.text().contains("https://"), "{}", answer.text());
        assert!(rest(&mut stream).is_empty());
    }
    failed(&site, "plain-http");
    site.assert_alive();
}

#[test]
fn tls_on_the_plain_port_is_answered_like_any_bad_request() {
    let site = Site::new();
    let mut stream = TcpStream::connect(site.brisk.http()).expect("a listener");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream.write_all(&site.client().hello()).expect("a connection");
    assert!(rest(&mut stream).len() < 1024);
}

#[test]
fn a_client_that_never_reads_costs_bounded_memory_and_time() {
    // An upstream that would send for ever.
    let origin = Origin::answering(|_, stream| {
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n")?;
        loop {
            stream.write_all(&[0; 16384])?;
        }
    });
    let keys = "server.timeouts.write = \"500ms\"\nserver.workers = 1\n";
    let site = Site::custom(keys, &proxy_to(&[&origin.url()]), |setup| setup);
    let before = site.brisk.process().resident_bytes();
    let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = site.connect();
            client.write_all(request.as_bytes()).expect("a server that reads");
            client
        })
        .collect();
    wait_until("all requests at the origin", || (origin.requests().len() >= 20).then_some(()));
    let mut most = 0;
    wait_until("the end of all connections", || {
        most = most.max(site.brisk.process().resident_bytes());
        (site.brisk.metrics().sum("brisk_connections_open", &[]) < 0.5).then_some(())
    });
    // Buffers of the upstream's side, of HTTP and of TLS: about 2 MiB for each client that does not read.
    assert!(most < before + 20 * (3 << 20), "{} KiB for 20 clients", (most - before) / 1024);
    drop(clients);
}

#[test]
fn an_endless_download_that_the_client_reads_slowly_goes_on() {
    let origin = Origin::answering(|_, stream| {
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n")?;
        stream.write_all(&vec![b'x'; 4_000_000])
    });
    // It takes longer than the limit, which only a client that takes nothing for so long meets, as on a machine that stands still.
    let site = Site::custom("server.timeouts.write = \"2s\"\n", &proxy_to(&[&origin.url()]), |setup| setup);
    let answer = wait_until("a whole download", || {
        let finished = site.curl(&["--http2", "--limit-rate", "1M"], "/");
        finished.status.success().then_some(finished.stdout)
    });
    assert_eq!(answer.len(), 4_000_000);
}

#[test]
fn half_closed_connections() {
    let site = Site::new();
    // Before the handshake.
    let mut stream = connect(&site);
    stream.shutdown(std::net::Shutdown::Write).expect("a socket");
    assert!(rest(&mut stream).is_empty());
    failed(&site, "client-closed");
    // After a whole request: the answer still comes.
    let mut client = site.connect();
    client
        .write_all(format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").as_bytes())
        .expect("a server that reads");
    client.close_write();
    assert_eq!(client.response().status(), 200);
    assert_eq!(client.read(&mut [0; 16]).expect("close_notify"), 0);
    // In the middle of a request: nothing comes, and soon.
    let mut client = site.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost:").expect("a server that reads");
    client.tcp().shutdown(std::net::Shutdown::Write).expect("a socket");
    assert!(!String::from_utf8_lossy(&rest(&mut client)).contains("200 OK"));
    site.assert_alive();
}

#[test]
fn a_connection_that_vanishes_within_a_handshake() {
    let site = Site::new();
    for _ in 0..20 {
        let mut stream = connect(&site);
        stream.write_all(&site.client().hello()).expect("a server that reads");
        let mut first = [0; 5];
        stream.read_exact(&mut first).expect("a ServerHello");
    }
    failed(&site, "client-closed");
    site.assert_alive();
}

#[test]
fn a_head_that_is_too_long_is_431_and_one_that_is_too_slow_is_cut_off() {
    let site = Site::custom("server.limits.head_size = \"8KiB\"\n", "", |setup| setup);
    let long = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nX-Long: {}\r\n\r\n", "x".repeat(20_000));
    assert_eq!(site.connect().request(&long).status(), 431);
    let many = (0..200).map(|number| format!("X-{number}: 1\r\n")).collect::<Vec<_>>().concat();
    let many = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n{many}\r\n");
    assert_eq!(site.connect().request(&many).status(), 431);
    site.assert_alive();
    let hasty = Site::custom("server.timeouts.head = \"300ms\"\n", "", |setup| setup);
    let mut slow = hasty.connect();
    // Where this comes too late already, the connection is closed.
    let _ = slow.write_all(b"GET / HTTP/1.1\r\n");
    let answer = String::from_utf8_lossy(&rest(&mut slow)).into_owned();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[test]
fn idle_connections_and_stalled_bodies_end_in_time() {
    let origin = Origin::fixed("taken");
    let keys = "server.timeouts.idle = \"2s\"\nserver.timeouts.body = \"300ms\"\n";
    let site = Site::custom(keys, &proxy_to(&[&origin.url()]), |setup| setup);
    let mut idle = served(&site);
    assert!(rest(&mut idle).is_empty());
    let mut stalled = site.connect();
    let head = format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 10\r\n\r\nhalf");
    stalled.write_all(head.as_bytes()).expect("a server that reads");
    let answer = String::from_utf8_lossy(&rest(&mut stalled)).into_owned();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    served(&site);
}

/// A connection that has received a response. On a slow machine, a connection may end by a short timeout before.
fn served(site: &Site) -> TlsStream {
    wait_until("a response within the timeouts", || {
        let mut connection = site.client().connect(site.brisk.https()).ok()?;
        write!(connection, "GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").ok()?;
        let response = Message::read_response(&mut connection).ok()?;
        (response.status() == 200).then_some(connection)
    })
}

#[test]
fn connections_beyond_the_limit_are_closed_at_once() {
    let keys = "server.max_connections_per_client = 3\n";
    let site = Site::custom(keys, "", |setup| setup);
    let held: Vec<_> = (0..3).map(|_| site.connect()).collect();
    let mut refused = connect(&site);
    assert!(rest(&mut refused).is_empty());
    wait_until("a refusal in the metrics", || {
        (site.brisk.metrics().sum("brisk_connections_refused_total", &[]) > 0.5).then_some(())
    });
    drop(held);
    wait_until("room for another connection", || site.client().connect(site.brisk.https()).ok());
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[test]
fn a_flood_of_resets_closes_the_connection() {
    // CVE-2023-44487: requests that are cancelled as soon as they are made.
    let origin = Origin::raw(|mut stream| io::copy(&mut stream, &mut io::sink()).map(drop));
    let site = Site::proxying(&[&origin.url()]);
    let client = TlsClient::new(&site.ca.root_file(), NAME).alpn(&["h2"]);
    let mut connection = client.connect(site.brisk.https()).expect("a handshake");
    let head = [&[0x82, 0x84, 0x87, 0x41, NAME.len() as u8], NAME.as_bytes()].concat();
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    flood.extend(frame(4, 0, 0, &[]));
    for number in 0..5000 {
        let stream = 2 * number + 1;
        flood.extend(frame(1, 5, stream, &head));
        flood.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
    }
    // The server may close before all is written.
    let _ = connection.write_all(&flood);
    let answer = rest(&mut connection);
    assert!(goes_away(&answer), "no GOAWAY in {} bytes", answer.len());
    site.client().connect(site.brisk.https()).expect("a worker that lives");
}

fn goes_away(mut frames: &[u8]) -> bool {
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = frames {
        if *kind == 7 {
            return true;
        }
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        frames = rest.get(length..).unwrap_or_default();
    }
    false
}

#[test]
fn many_bad_connections_leave_no_memory_behind() {
    let site = Site::custom("server.workers = 1\nserver.timeouts.hello = \"500ms\"\n", "", |setup| setup);
    let hello = site.client().hello();
    let round = || {
        let streams: Vec<_> = (0..100)
            .map(|number| {
                let mut stream = connect(&site);
                let bytes = [&hello[..hello.len() / 2], b"GET / HTTP/1.1\r\n\r\n", &[0; 64]][number % 3];
                stream.write_all(bytes).expect("a connection");
                stream
            })
            .collect();
        wait_until("the end of all connections", || {
            (site.brisk.metrics().sum("brisk_connections_open", &[]) < 0.5).then_some(())
        });
        drop(streams);
        site.brisk.process().resident_bytes()
    };
    let first = round();
    let later = (0..3).map(|_| round()).max().expect("rounds");
    assert!(later < first + (4 << 20), "{first} bytes after the first round, {later} after the last");
    // And nothing spins.
    let ticks = site.brisk.process().cpu_ticks();
    std::thread::sleep(Duration::from_millis(300));
    assert!(site.brisk.process().cpu_ticks() - ticks < 10);
}
