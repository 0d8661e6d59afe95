//! TLS records of responses, as a client sees them before decryption.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use brisk_behaviour::h2::{Frames, frame, get, preface};
use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::brisk::Setup;
use brisk_testkit::client::TlsStream;
use brisk_testkit::process::wait_until;
use brisk_testkit::relay::pass_on;

/// What a server may send before the client has acknowledged anything: ten segments (RFC 6928).
const INITIAL_WINDOW: usize = 10 * 1448;
const SEGMENT: usize = 1448;
const FULL: usize = 5 + 16384 + 1 + 16;
const FILES: [(&str, usize); 2] = [("medium", 27_000), ("large", 3_000_000)];

/// A connection through which everything that the server sends is noted.
struct Tapped {
    stream: TlsStream,
    noted: Arc<Mutex<Vec<u8>>>,
    h2: bool,
    requests: u32,
}

impl Tapped {
    fn connect(site: &Site, protocol: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let near = TcpStream::connect(listener.local_addr().expect("a bound socket")).expect("a listener");
        let (mut far, _) = listener.accept().expect("a connection");
        far.set_nodelay(true).expect("a socket");
        let mut server = TcpStream::connect(site.brisk.https()).expect("a server");
        server.set_nodelay(true).expect("a socket");
        pass_on(far.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
        let noted = Arc::new(Mutex::new(Vec::new()));
        let own = Arc::clone(&noted);
        thread::spawn(move || {
            let mut buffer = vec![0; 65536];
            while let Ok(length @ 1..) = server.read(&mut buffer) {
                own.lock().expect("no panic").extend_from_slice(&buffer[..length]);
                if far.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
        });
        let stream = site.client().alpn(&[protocol]).over(near).expect("a handshake");
        let mut tapped = Self { stream, noted, h2: protocol == "h2", requests: 0 };
        if tapped.h2 {
            // Windows for everything that comes.
            let windows = [
                preface(),
                frame(4, 0, 0, &[0, 4, 0x10, 0, 0, 0]),
                frame(8, 0, 0, &0x1000_0000_u32.to_be_bytes()),
            ];
            tapped.stream.write_all(&windows.concat()).expect("a server that reads");
        }
        // What belongs to the handshake has come then.
        tapped.lengths("/short");
        tapped
    }

    /// Bytes of the records of the answer to GET `path`, heads included.
    fn lengths(&mut self, path: &str) -> Vec<usize> {
        self.noted.lock().expect("no panic").clear();
        self.requests += 1;
        if self.h2 {
            let stream = 2 * self.requests - 1;
            Frames::exchange(&mut self.stream, &get(stream, path), stream);
        } else {
            self.stream.get(NAME, path);
        }
        let noted = self.noted.lock().expect("no panic");
        let mut lengths = Vec::new();
        let mut rest = &noted[..];
        while let [_, _, _, high, low, ..] = *rest {
            lengths.push(5 + usize::from(u16::from_be_bytes([high, low])));
            rest = &rest[lengths[lengths.len() - 1]..];
        }
        lengths
    }
}

fn site() -> Site {
    site_with("")
}

fn site_with(keys: &str) -> Site {
    let tables = format!(
        "\n[[host.route]]\npath = \"/\"\nstatic = \".\"\n\
         \n[[host.route]]\npath = \"/short\"\nrespond = {{ body = \"short\" }}\n\
         \n[[host.route]]\npath = \"/page\"\nrespond = {{ body = {:?} }}\n",
        "x".repeat(1200)
    );
    let file = |setup: Setup, (name, length): (&str, usize)| setup.file(name, vec![b'x'; length]);
    Site::custom(keys, &tables, |setup| FILES.into_iter().fold(setup, file))
}

#[test]
fn the_first_round_trip_brings_records_that_can_be_opened() {
    let site = site();
    for protocol in ["h2", "http/1.1"] {
        let lengths = Tapped::connect(&site, protocol).lengths("/medium");
        assert!(lengths[0] <= SEGMENT, "{protocol}: {lengths:?}");
        let mut sent = 0;
        let complete = lengths.iter().filter(|length| {
            sent += **length;
            sent <= INITIAL_WINDOW
        });
        let complete: usize = complete.sum();
        assert!(complete > INITIAL_WINDOW * 2 / 3, "{protocol}: {complete} bytes of {lengths:?}");
    }
}

#[test]
fn without_growing_records_the_first_one_is_full() {
    let site = site_with("tls.growing_records = false");
    for protocol in ["h2", "http/1.1"] {
        let lengths = Tapped::connect(&site, protocol).lengths("/medium");
        assert!(lengths.iter().take(2).any(|length| *length == FULL), "{protocol}: {lengths:?}");
    }
}

#[test]
fn an_experiment_has_some_connections_begin_with_full_records() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = format!("visits.enabled = true\nvisits.folder = \"{}\"", folder.path().display());
    let tables = "visits = true\n\n[[host.route]]\npath = \"/\"\nstatic = \".\"\n\n[[host.route]]\npath = \"/short\"\n\
                  respond = { body = \"short\" }\n\n[experiment.records]\nsetting = \"tls.growing_records\"\n\
                  values = [false]\n";
    let site = Site::custom(&store, tables, |setup| setup.file("medium", vec![b'x'; 27_000]));
    wait_until("the experiment", || {
        (site.brisk.metrics().sum("brisk_experiment_decision", &[]) > 0.0).then_some(())
    });
    let is_full =
        || Tapped::connect(&site, "http/1.1").lengths("/medium").iter().take(2).any(|one| *one == FULL);
    let full = (0..30).filter(|_| is_full()).count();
    // All alike with a probability of 2^-29.
    assert!((1..30).contains(&full), "{full}");
}

#[test]
fn records_of_a_download_are_full_after_the_first_few() {
    let site = site();
    for protocol in ["h2", "http/1.1"] {
        let mut tapped = Tapped::connect(&site, protocol);
        let lengths = tapped.lengths("/large");
        let later = &lengths[6..];
        let full = later.iter().filter(|length| **length == FULL).sum::<usize>();
        assert!(full > later.iter().sum::<usize>() * 9 / 10, "{protocol}: {lengths:?}");
        // The next one begins with full records, unless this machine took longer than the pause.
        let begins_full =
            (0..20).any(|_| tapped.lengths("/large").iter().take(3).any(|length| *length == FULL));
        assert!(begins_full, "{protocol}");
    }
}

#[test]
fn after_a_pause_records_are_small_again() {
    let site = site();
    for protocol in ["h2", "http/1.1"] {
        let mut tapped = Tapped::connect(&site, protocol);
        tapped.lengths("/large");
        thread::sleep(Duration::from_millis(1100));
        let lengths = tapped.lengths("/medium");
        assert!(lengths[0] <= SEGMENT, "{protocol}: {lengths:?}");
    }
}

#[test]
fn a_local_answer_is_one_record() {
    let site = site();
    for protocol in ["h2", "http/1.1"] {
        let mut tapped = Tapped::connect(&site, protocol);
        for path in ["/short", "/page", "/unknown"] {
            assert_eq!(tapped.lengths(path).len(), 1, "{protocol} {path}");
        }
    }
}
