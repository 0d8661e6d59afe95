//! Hostile servers for `brisk probe`: each yields one clear line, within time and memory limits.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use brisk_behaviour::site::LIMIT;
use brisk_testkit::ca::TestCa;
use brisk_testkit::process::{Process, run, wait_until};

use crate::probe::{probe, s_server};

/// Bytes of memory that a probe may take. The debug build takes 40 MB for itself.
const MEMORY: u64 = 150 << 20;

/// A server that does `work` with each connection, after it has read something.
fn server(work: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // The client closes the connection when it has had enough.
            let _ = stream.read(&mut [0; 4096]).and_then(|_| work(&mut stream));
        }
    });
    port
}

/// A way to this server that puts a warning before its first bytes: `unrecognized_name`, behind which the handshake goes on.
fn warned(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for near in listener.incoming() {
            let (Ok(mut near), Ok(mut far)) = (near, TcpStream::connect(("127.0.0.1", to))) else { return };
            let (Ok(mut up), Ok(mut up_to)) = (near.try_clone(), far.try_clone()) else { return };
            thread::spawn(move || {
                std::io::copy(&mut up, &mut up_to)?;
                up_to.shutdown(std::net::Shutdown::Write)
            });
            thread::spawn(move || {
                // The server speaks second, so this is before its hello.
                near.write_all(&[21, 3, 3, 0, 2, 1, 112])?;
                std::io::copy(&mut far, &mut near)?;
                near.shutdown(std::net::Shutdown::Both)
            });
        }
    });
    port
}

#[test]
fn a_warning_before_the_hello_hides_nothing() {
    let (ca, other) = (TestCa::new(), TestCa::new());
    let (_process, port) = s_server(&ca, &["-tls1_2"]);
    let finished = run(&mut probe(&other, warned(port), "/", ""), b"", LIMIT);
    let text = finished.text();
    assert_eq!(finished.status.code(), Some(9), "{text}");
    for part in ["alert unrecognized_name", "TLS 1.2", "NOT TRUSTED"] {
        assert!(text.contains(part), "no {part}: {text}");
    }
}

/// Exit code, the only line on standard error, and the most memory that was seen.
fn end(port: u16, options: &str) -> (Option<i32>, String, u64) {
    let ca = TestCa::new();
    let mut process = Process::start(&mut probe(&ca, port, "/", options));
    let mut most = 0;
    let status = wait_until("the end of the probe", || {
        // Once it has ended there is nothing to be read.
        let file = format!("/proc/{}/statm", process.id());
        let pages = std::fs::read_to_string(file).ok();
        let pages: Option<u64> = pages.and_then(|text| text.split(' ').nth(1)?.parse().ok());
        most = most.max(pages.unwrap_or_default() * 4096);
        process.ended()
    });
    wait_until("its line", || process.stderr().ends_with('\n').then_some(()));
    let line = process.stderr();
    assert_eq!(line.lines().count(), 1, "{line}");
    (status.code(), line, most)
}

/// A record of a handshake.
fn record(payload: &[u8]) -> Vec<u8> {
    let mut record = vec![22, 3, 3];
    record.extend((payload.len() as u16).to_be_bytes());
    record.extend(payload);
    record
}

/// A `ServerHello` of TLS 1.2 with ECDHE and RSA.
fn hello() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0xc0, 0x2f, 0, 0, 9, 0xff, 1, 0, 1, 0, 0, 0x17, 0, 0]);
    let mut message = vec![2, 0, 0, body.len() as u8];
    message.extend(body);
    record(&message)
}

#[test]
fn a_certificate_of_16_megabytes_is_refused_in_little_memory() {
    let port = server(|stream| {
        stream.write_all(&hello())?;
        stream.write_all(&record(&[11, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfc]))?;
        let part = record(&[0x30; 16_000]);
        for _ in 0..1100 {
            stream.write_all(&part)?;
        }
        Ok(())
    });
    let (code, line, memory) = end(port, "");
    assert_eq!(code, Some(5), "{line}");
    assert!(line.contains("handshake"), "{line}");
    assert!(memory < MEMORY, "{memory}");
}

#[test]
fn a_handshake_without_an_end_is_refused_or_ends_in_time() {
    let port = server(|stream| {
        stream.write_all(&hello())?;
        loop {
            // HelloRequest, which clients ignore.
            stream.write_all(&record(&[0; 4]))?;
        }
    });
    let (code, line, memory) = end(port, "--timeout 2");
    assert!(matches!(code, Some(5 | 7)), "{line}");
    assert!(memory < MEMORY, "{memory}");
}

#[test]
fn half_a_record_and_a_slow_drip_end_at_the_timeout() {
    let half = server(|stream| {
        stream.write_all(&hello()[..30])?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    });
    let drip = server(|stream| {
        for byte in hello().iter().chain(&[22, 3, 3, 0x3f, 0xff]).chain(std::iter::repeat(&0)) {
            stream.write_all(&[*byte])?;
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    });
    for port in [half, drip] {
        // On a slow machine, the first bytes may arrive after the timeout.
        wait_until("a timeout within the handshake", || {
            let (code, line, _) = end(port, "--timeout 1");
            assert_eq!(code, Some(7), "{line}");
            line.contains("timed out after 1s in the TLS handshake, with").then_some(())
        });
    }
}
