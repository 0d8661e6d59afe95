//! `[[tcp]]` without TLS: bytes, ends and resets in both directions, upstreams, reloads and drains.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use brisk_behaviour::site::setup;
use brisk_behaviour::tcp::{ALONE, connect, numbered};
use brisk_net::proxy_protocol::{Progress, parse};
use brisk_testkit::brisk::{Brisk, base};
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{TIMEOUT, free_port, wait_until};
use rustix::net::sockopt::set_socket_linger;

/// A `[[tcp]]` on a free port with further keys; tables may follow.
fn table(upstream: &str, more: &str) -> String {
    format!("\n[[tcp]]\nlisten = [\"127.0.0.1:0\"]\nupstream = {upstream:?}\n{more}")
}

fn url(origin: &Origin) -> String {
    origin.url().replace("http://", "tcp://")
}

fn serve(keys: &str, tables: &str) -> Brisk {
    setup().config(&format!("{}{tables}", base(&format!("{ALONE}{keys}")))).start()
}

/// Echoes everything, and its end.
fn echo() -> Origin {
    Origin::raw(|mut stream| {
        let mut copy = stream.try_clone()?;
        io::copy(&mut stream, &mut copy)?;
        copy.shutdown(Shutdown::Write)
    })
}

/// Sends the bytes and returns as many.
fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).expect("a listener that reads");
    let mut received = vec![0; bytes.len()];
    stream.read_exact(&mut received).expect("an echo");
    received
}

/// The read until the end, or the kind of its error.
fn outcome(stream: &mut TcpStream) -> Result<Vec<u8>, io::ErrorKind> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).map(|_| all).map_err(|error| error.kind())
}

/// Asserts that the gateway ends the connection without a byte.
#[track_caller]
fn assert_closed(stream: &mut TcpStream) {
    let end = outcome(stream);
    assert!(
        matches!(&end, Ok(all) if all.is_empty()) || end == Err(io::ErrorKind::ConnectionReset),
        "{end:?}"
    );
}

#[test]
fn bytes_and_their_ends_pass_in_both_directions() {
    let origin = echo();
    let brisk = serve("", &table(&url(&origin), "name = \"echo\"\n"));
    let mut stream = connect(brisk.tcp(0));
    assert_eq!(exchange(&mut stream, b"hello"), b"hello");
    let sent = numbered(3 << 20);
    let mut writer = stream.try_clone().expect("a copy");
    let copy = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&copy).expect("a listener that reads");
        writer.shutdown(Shutdown::Write).expect("a socket");
    });
    // The end of the client's data reaches the server, whose answer still arrives.
    assert!(outcome(&mut stream).expect("an end without a reset") == sent);
    writing.join().expect("no panic");
    drop(stream);
    let line = brisk.logged("\"event\":\"tcp\"");
    let (length, address) = (sent.len() + 5, origin.address());
    for field in [
        "\"tcp\":\"echo\"".to_owned(),
        "\"outcome\":\"client-closed\"".to_owned(),
        format!("\"bytes_received\":{length}"),
        format!("\"bytes_sent\":{length}"),
        format!("\"upstream\":\"{address}\""),
        "\"duration_us\":".to_owned(),
        "\"upstream_us\":".to_owned(),
    ] {
        assert!(line.contains(&field), "{field} is not in {line}");
    }
    // The connection is counted beside its line.
    let labels = ["tcp=\"echo\"", "outcome=\"client-closed\""];
    let metrics = wait_until("a counted connection", || {
        let metrics = brisk.metrics();
        let is_counted = metrics.sum("brisk_tcp_connections_total", &labels) > 0.5;
        (is_counted && metrics.sum("brisk_tcp_open", &[]) < 0.5).then_some(metrics)
    });
    assert!((metrics.sum("brisk_tcp_connections_total", &labels) - 1.0).abs() < 1e-9);
    let forwarded = metrics.sum("brisk_tcp_forwarded_bytes_total", &["direction=\"to-client\""]);
    assert!((forwarded - length as f64).abs() < 1e-9, "{forwarded}");
}

#[test]
fn a_client_of_a_denied_network_reaches_no_server() {
    let origin = echo();
    let brisk = serve("", &table(&url(&origin), "name = \"closed\"\nallow = [\"10.0.0.0/8\"]\n"));
    assert_closed(&mut connect(brisk.tcp(0)));
    let line = brisk.logged("\"tcp\":\"closed\"");
    assert!(line.contains("\"outcome\":\"client-address\""), "{line}");
    let open = serve("", &table(&url(&origin), "deny = [\"10.0.0.0/8\"]\n"));
    assert_eq!(exchange(&mut connect(open.tcp(0)), b"hello"), b"hello");
}

#[test]
fn a_client_may_go_on_after_the_end_of_the_server() {
    let (sender, received) = channel();
    let sender = Mutex::new(sender);
    let origin = Origin::raw(move |mut stream| {
        stream.write_all(b"220 ready\r\n")?;
        stream.shutdown(Shutdown::Write)?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all)?;
        let sender: Sender<Vec<u8>> = sender.lock().expect("no panic").clone();
        sender.send(all).map_err(io::Error::other)
    });
    let brisk = serve("", &table(&url(&origin), ""));
    let mut stream = connect(brisk.tcp(0));
    // The server speaks first.
    assert_eq!(outcome(&mut stream).expect("an end"), b"220 ready\r\n");
    let sent = numbered(300_000);
    stream.write_all(&sent).expect("an open direction");
    drop(stream);
    assert!(received.recv_timeout(TIMEOUT).expect("all bytes") == sent);
    brisk.logged("\"outcome\":\"upstream-closed\"");
}

#[test]
fn a_reset_of_one_side_is_one_for_the_other() {
    let (sender, ended) = channel();
    let sender = Mutex::new(sender);
    let origin = Origin::raw(move |mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        if byte == *b"r" {
            set_socket_linger(&stream, Some(std::time::Duration::ZERO))?;
            return Ok(());
        }
        stream.write_all(&byte)?;
        let end = outcome(&mut stream);
        let sender: Sender<_> = sender.lock().expect("no panic").clone();
        sender.send(end).map_err(io::Error::other)
    });
    let brisk = serve("", &table(&url(&origin), ""));
    let mut client = connect(brisk.tcp(0));
    client.write_all(b"r").expect("a listener");
    assert_eq!(outcome(&mut client), Err(io::ErrorKind::ConnectionReset));
    brisk.logged("\"outcome\":\"upstream-reset\"");
    let mut client = connect(brisk.tcp(0));
    assert_eq!(exchange(&mut client, b"a"), b"a");
    set_socket_linger(&client, Some(std::time::Duration::ZERO)).expect("a socket");
    drop(client);
    let end = ended.recv_timeout(TIMEOUT).expect("an end");
    assert_eq!(end, Err(io::ErrorKind::ConnectionReset));
    let line = brisk.logged("\"outcome\":\"client-reset\"");
    assert!(line.contains("\"error_side\":\"client\""), "{line}");
}

#[test]
fn a_silent_connection_ends_after_its_time() {
    let origin = echo();
    let brisk = serve("", &table(&url(&origin), "idle_timeout = \"300ms\"\n"));
    // The time may be over before the first byte, which is then answered by a reset.
    let all = wait_until("an end without a reset", || {
        let mut client = connect(brisk.tcp(0));
        client.write_all(b"a").ok()?;
        outcome(&mut client).ok()
    });
    assert!(all.is_empty() || all == b"a");
    brisk.logged("\"outcome\":\"idle-timeout\"");
}

#[test]
fn another_server_takes_the_connection_if_the_first_refuses_it() {
    let origin = echo();
    let group = |more: &str| {
        let dead = format!("tcp://127.0.0.1:{}", free_port());
        format!("\n[upstream.db]\nservers = [{dead:?}, {:?}]\n{more}", url(&origin))
    };
    let brisk = serve("", &format!("{}{}", table("db", ""), group("")));
    for _ in 0..4 {
        assert_eq!(exchange(&mut connect(brisk.tcp(0)), b"hello"), b"hello");
    }
    assert!(brisk.metrics().sum("brisk_upstream_failures_total", &[]) > 0.0);
    let none = format!("\n[upstream.db]\nservers = [\"tcp://127.0.0.1:{}\"]\n", free_port());
    let brisk = serve("", &format!("{}{none}", table("db", "")));
    let mut client = connect(brisk.tcp(0));
    assert_closed(&mut client);
    let line = brisk.logged("\"outcome\":\"connect\"");
    assert!(line.contains("\"error_side\":\"upstream\""), "{line}");
}

#[test]
fn servers_are_checked_by_connecting() {
    let origin = echo();
    let port = free_port();
    let group = format!(
        "\n[upstream.db]\nservers = [\"tcp://127.0.0.1:{port}\", {:?}]\n\
         health = {{ interval = \"1s\", timeout = \"1s\", unhealthy_after = 1, max_failures = 0 }}\n",
        url(&origin)
    );
    let brisk = serve("", &format!("{}{group}", table("db", "")));
    let dead = format!("server=\"127.0.0.1:{port}\"");
    wait_until("the exclusion of the server", || {
        (brisk.metrics().sum("brisk_upstream_healthy", &[&dead]) < 0.5).then_some(())
    });
    let failures = || brisk.metrics().sum("brisk_upstream_failures_total", &[]);
    // A check during a pause of the machine excludes the other server too, and then both are used.
    wait_until("connections without a failure", || {
        let before = failures();
        for _ in 0..4 {
            assert_eq!(exchange(&mut connect(brisk.tcp(0)), b"hello"), b"hello");
        }
        (failures() - before < 0.5).then_some(())
    });
}

#[test]
fn proxy_headers_name_the_client_on_both_sides() {
    let (sender, headers) = channel();
    let sender = Mutex::new(sender);
    let origin = Origin::raw(move |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all)?;
        let sender: Sender<_> = sender.lock().expect("no panic").clone();
        sender.send(all).map_err(io::Error::other)
    });
    for version in ["v1", "v2"] {
        let group =
            format!("\n[upstream.db]\nservers = [{:?}]\nproxy_protocol = {version:?}\n", url(&origin));
        let brisk = serve("server.proxy_protocol = true\n", &format!("{}{group}", table("db", "")));
        let mut client = connect(brisk.tcp(0));
        client.write_all(b"PROXY TCP4 203.0.113.7 198.51.100.1 4711 5432\r\nhello").expect("a listener");
        drop(client);
        let all = headers.recv_timeout(TIMEOUT).expect("a connection");
        let Ok(Progress::Header { source, destination, consumed }) = parse(&all) else {
            panic!("no header: {all:?}")
        };
        assert_eq!(
            (source.to_string(), destination.to_string()),
            ("203.0.113.7:4711".into(), "198.51.100.1:5432".into())
        );
        assert_eq!(&all[consumed..], b"hello");
        let line = brisk.logged("\"event\":\"tcp\"");
        assert!(
            line.contains("\"client\":\"203.0.113.7\"") && line.contains("\"bytes_received\":5"),
            "{line}"
        );
    }
}

#[test]
fn a_reload_leaves_connections_alone_and_moves_new_ones() {
    let (first, second) = (echo(), Origin::raw(|mut stream| stream.write_all(b"second")));
    let config = |origin: &Origin| format!("{}{}", base(ALONE), table(&url(origin), ""));
    let brisk = setup().config(&config(&first)).start();
    let mut stream = connect(brisk.tcp(0));
    let sent = numbered(4 << 20);
    let (half, rest) = sent.split_at(2 << 20);
    let mut writer = stream.try_clone().expect("a copy");
    let copy = half.to_vec();
    let writing = std::thread::spawn(move || writer.write_all(&copy));
    let mut received = vec![0; half.len() / 2];
    stream.read_exact(&mut received).expect("an echo");
    brisk.write("brisk.toml", config(&second));
    let line = brisk.reload();
    assert!(line.contains("reloaded:"), "{line}");
    assert_eq!(outcome(&mut connect(brisk.tcp(0))).expect("an end"), b"second");
    let mut remaining = vec![0; half.len() - received.len()];
    stream.read_exact(&mut remaining).expect("an echo");
    writing.join().expect("no panic").expect("a listener that reads");
    assert!([received, remaining].concat() == half);
    assert!(exchange(&mut stream, &rest[..60_000]) == rest[..60_000]);
}

#[test]
fn a_stop_waits_for_connections_until_its_time() {
    let origin = echo();
    let mut brisk = serve("server.drain_timeout = \"60s\"\n", &table(&url(&origin), ""));
    let mut stream = connect(brisk.tcp(0));
    assert_eq!(exchange(&mut stream, b"before"), b"before");
    brisk.terminate();
    let address = brisk.tcp(0);
    wait_until("a closed listener", || TcpStream::connect(address).err());
    let sent = numbered(60_000);
    assert!(exchange(&mut stream, &sent) == sent);
    drop(stream);
    assert!(brisk.wait().success());

    let mut brisk = serve("server.drain_timeout = \"200ms\"\n", &table(&url(&origin), ""));
    let mut stream = connect(brisk.tcp(0));
    assert_eq!(exchange(&mut stream, b"before"), b"before");
    brisk.terminate();
    // Not an end, which would make the transfer look complete.
    assert_eq!(outcome(&mut stream), Err(io::ErrorKind::ConnectionReset));
    assert!(brisk.wait().success());
    let line = brisk.logged("\"event\":\"tcp\"");
    assert!(line.contains("\"outcome\":\"drain\""), "{line}");
}

#[test]
fn connections_of_a_client_and_of_an_upstream_are_limited() {
    let origin = echo();
    let brisk = serve("server.max_connections_per_client = 2\n", &table(&url(&origin), ""));
    let mut streams = [(); 2].map(|()| connect(brisk.tcp(0)));
    for stream in &mut streams {
        assert_eq!(exchange(stream, b"a"), b"a");
    }
    let mut third = connect(brisk.tcp(0));
    assert_closed(&mut third);
    let group =
        format!("\n[upstream.db]\nservers = [{:?}]\npool = {{ max_connections = 1 }}\n", url(&origin));
    let brisk = serve("", &format!("{}{group}", table("db", "")));
    let mut stream = connect(brisk.tcp(0));
    assert_eq!(exchange(&mut stream, b"a"), b"a");
    assert_closed(&mut connect(brisk.tcp(0)));
    brisk.logged("\"outcome\":\"connection-limit\"");
    drop(stream);
    wait_until("a free permit", || {
        let mut next = connect(brisk.tcp(0));
        next.write_all(b"b").ok()?;
        let mut byte = [0];
        next.read_exact(&mut byte).ok()
    });
}

/// Silent connections kept all slots until their `idle_timeout`.
#[test]
fn silent_connections_give_way_at_the_limit_longest_first() {
    let origin = echo();
    let brisk = serve("server.max_connections = 2\nserver.workers = 1\n", &table(&url(&origin), ""));
    let [mut oldest, mut active] = [(); 2].map(|()| connect(brisk.tcp(0)));
    for stream in [&mut oldest, &mut active] {
        assert_eq!(exchange(stream, b"a"), b"a");
    }
    wait_until("a slot for a third connection", || {
        assert_eq!(exchange(&mut active, b"b"), b"b");
        let mut third = connect(brisk.tcp(0));
        third.write_all(b"c").ok()?;
        let mut byte = [0];
        third.read_exact(&mut byte).ok()
    });
    assert_closed(&mut oldest);
    assert_eq!(exchange(&mut active, b"d"), b"d");
    brisk.logged("\"outcome\":\"evicted\"");
}

#[test]
fn many_idle_connections_need_little_memory() {
    let accepted = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&accepted);
    let origin = Origin::raw(move |mut stream| {
        stream.read_exact(&mut [0; 1])?;
        stream.write_all(b"a")?;
        kept.lock().expect("no panic").push(stream);
        Ok(())
    });
    let brisk = serve("", &table(&url(&origin), ""));
    let open = |count: usize| -> Vec<_> {
        let one = |_| {
            let mut stream = connect(brisk.tcp(0));
            assert_eq!(exchange(&mut stream, b"a"), b"a");
            stream
        };
        (0..count).map(one).collect()
    };
    let _warm = open(50);
    let before = brisk.process().resident_bytes();
    let _streams = open(300);
    let each = brisk.process().resident_bytes().saturating_sub(before) / 300;
    assert!(each < 16 << 10, "{each} bytes for each idle connection");
}
