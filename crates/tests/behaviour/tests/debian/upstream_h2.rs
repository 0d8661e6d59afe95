//! Upstreams over HTTP/2 that end connections, refuse streams, set limits, or attack.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use brisk_behaviour::h2::{CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, SETTINGS, frame};
use brisk_behaviour::h2_origin::{H2Peer, h2_origin, h2c};
use brisk_behaviour::site::{LIMIT, NAME, Site, proxy_to};
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;
use serde_json::Value;

const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;

/// `:status 200` by its index.
const OK: u8 = 0x88;

/// A gateway of one worker, with one connection to its upstream.
fn site(origin: &Origin) -> Site {
    Site::custom("server.workers = 1\n", &proxy_to(&[&h2c(origin)]), |setup| setup)
}

/// A request that is not safe to repeat.
fn post(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 4\r\n\r\nbody")
}

/// The reason in the access log why the request of `path` failed.
fn error(site: &Site, path: &str) -> Value {
    let line: Value = serde_json::from_str(&site.brisk.logged(path)).expect("a line of JSON");
    line["error"].clone()
}

#[test]
fn what_a_server_left_out_when_it_went_is_sent_to_its_successor() {
    let origin = h2_origin(|peer, number| {
        let mut last = 0;
        while let Some(stream) = peer.request()? {
            if number == 0 && last > 0 {
                peer.goaway(last)?;
                return peer.fall_silent();
            }
            peer.wait_for_body(stream)?;
            peer.answer(stream, b"hello", true)?;
            last = stream;
        }
        Ok(())
    });
    let site = site(&origin);
    let mut connection = site.connect();
    for path in ["/one", "/two", "/three"] {
        assert_eq!(connection.request(&post(path)).text(), "hello", "{path}");
    }
    assert_eq!(origin.connections(), 2);
}

#[test]
fn a_stream_that_a_server_refused_is_opened_again() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    let origin = h2_origin(move |peer, _| {
        while let Some(stream) = peer.request()? {
            if counted.fetch_add(1, Ordering::SeqCst) % 2 == 1 {
                peer.reset(stream, REFUSED_STREAM)?;
            } else {
                peer.wait_for_body(stream)?;
                peer.answer(stream, b"hello", true)?;
            }
        }
        Ok(())
    });
    let site = site(&origin);
    let mut connection = site.connect();
    for path in ["/one", "/two", "/three"] {
        assert_eq!(connection.request(&post(path)).text(), "hello", "{path}");
    }
    // Where it was refused it is not tried again.
    assert_eq!((origin.connections(), seen.load(Ordering::SeqCst)), (2, 5));
}

#[test]
fn answers_without_bodies_end_with_their_heads_although_their_streams_end_later() {
    let resets = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&resets);
    let heads: [&[u8]; 4] = [&[OK, 0x0f, 0x0d, 1, b'5'], &[OK], &[0x89], &[0x8b]];
    // Each of them twice. The end of a stream comes with the next request.
    let origin = h2_origin(move |peer, _| {
        for head in heads.into_iter().flat_map(|head| [head; 2]) {
            let Some(stream) = peer.request()? else { break };
            peer.send(&frame(HEADERS, END_HEADERS, stream, head))?;
            if stream > 1 {
                peer.send(&frame(DATA, END_STREAM, stream - 2, &[]))?;
            }
            counted.fetch_max(peer.resets(), Ordering::SeqCst);
        }
        peer.fall_silent()
    });
    let site = site(&origin);
    for (options, length) in [(&["--head"][..], Some("5")), (&["--head"], None), (&[], None), (&[], None)] {
        for version in ["--http1.1", "--http2"] {
            let answer = site
                .curl(&[options, &["--include", version][..]].concat(), "/")
                .success()
                .to_ascii_lowercase();
            let stated = answer.lines().find_map(|line| line.strip_prefix("content-length: "));
            assert_eq!(stated, length, "{version}: {answer}");
        }
    }
    assert_eq!((origin.connections(), resets.load(Ordering::SeqCst)), (1, 0));
}

#[test]
fn a_server_that_resets_what_it_is_sent_is_left_out() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    let failing = h2_origin(move |peer, _| {
        while let Some(stream) = peer.request()? {
            match counted.fetch_add(1, Ordering::SeqCst) {
                0 => peer.answer(stream, b"hello", true)?,
                _ => peer.reset(stream, INTERNAL_ERROR)?,
            }
        }
        Ok(())
    });
    let alive = Origin::fixed("hello");
    let health = "health = { max_failures = 2, failure_pause = \"1h\" }\n";
    let tables = proxy_to(&[&h2c(&failing), &alive.url()]) + health;
    let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
    let mut connection = site.connect();
    for _ in 0..12 {
        assert_eq!(connection.get(NAME, "/").text(), "hello");
    }
    assert_eq!(seen.load(Ordering::SeqCst), 3, "one answer and two failures");
}

/// What an origin waits for, and what it says before.
struct Steps {
    begins: mpsc::Sender<()>,
    goes_on: Mutex<mpsc::Receiver<()>>,
}

impl Steps {
    fn new() -> (Self, mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (begins, begun) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        (Self { begins, goes_on: Mutex::new(goes_on) }, begun, go_on)
    }

    /// Says that it is here, and waits to go on.
    fn wait(&self) -> io::Result<()> {
        self.begins.send(()).map_err(io::Error::other)?;
        self.goes_on.lock().expect("no panic").recv().map_err(io::Error::other)
    }
}

#[test]
fn a_download_goes_on_behind_goaway_and_new_requests_go_elsewhere() {
    let (steps, begun, go_on) = Steps::new();
    let origin = h2_origin(move |peer, number| {
        while let Some(stream) = peer.request()? {
            if number > 0 {
                peer.answer(stream, b"elsewhere", true)?;
                continue;
            }
            peer.answer(stream, b"first ", false)?;
            peer.goaway(stream)?;
            steps.wait()?;
            peer.send(&frame(DATA, END_STREAM, stream, b"second"))?;
        }
        Ok(())
    });
    let site = site(&origin);
    std::thread::scope(|scope| {
        let download = scope.spawn(|| site.get("/download").text());
        begun.recv_timeout(LIMIT).expect("a request at the origin");
        assert_eq!(site.get("/other").text(), "elsewhere");
        go_on.send(()).expect("an origin that waits");
        assert_eq!(download.join().expect("no panic"), "first second");
    });
}

/// Takes one request at a time. On the first connection all requests but the first wait for a step.
fn serve_one_at_a_time(peer: &mut H2Peer, number: usize, steps: &Steps) -> io::Result<()> {
    // MAX_CONCURRENT_STREAMS
    peer.send(&frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1]))?;
    while let Some(stream) = peer.request()? {
        if stream > 1 && number == 0 {
            steps.wait()?;
        }
        peer.answer(stream, b"hello", true)?;
    }
    Ok(())
}

/// Sends two requests at a time to a server of [`serve_one_at_a_time`].
fn need_two_connections(site: &Site, origin: &Origin, begun: &mpsc::Receiver<()>, go_on: &mpsc::Sender<()>) {
    assert_eq!(site.get("/first").text(), "hello");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| site.get("/waiting").text());
        begun.recv_timeout(LIMIT).expect("a request at the origin");
        // While the first connection is taken, others have one of their own.
        assert_eq!(site.get("/other").text(), "hello");
        assert_eq!(origin.connections(), 2);
        go_on.send(()).expect("an origin that waits");
        assert_eq!(waiting.join().expect("no panic"), "hello");
    });
}

#[test]
fn a_server_gets_no_more_requests_at_a_time_than_it_takes() {
    let (steps, begun, go_on) = Steps::new();
    let origin = h2_origin(move |peer, number| serve_one_at_a_time(peer, number, &steps));
    let site = site(&origin);
    need_two_connections(&site, &origin, &begun, &go_on);
}

#[test]
fn idle_connections_beyond_those_that_are_kept_are_closed() {
    let (steps, begun, go_on) = Steps::new();
    let (ends, ended) = mpsc::channel();
    let origin = h2_origin(move |peer, number| {
        serve_one_at_a_time(peer, number, &steps)?;
        ends.send(number).map_err(io::Error::other)
    });
    let tables = proxy_to(&[&h2c(&origin)]) + "pool = { idle_connections = 1, idle_timeout = \"1h\" }\n";
    let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
    need_two_connections(&site, &origin, &begun, &go_on);
    assert!(ended.recv_timeout(LIMIT).is_ok());
    go_on.send(()).expect("an origin that waits");
    assert_eq!((site.get("/again").text().as_str(), origin.connections()), ("hello", 2));
}

#[test]
fn requests_wait_for_a_server_that_takes_none_for_now() {
    // On a slow machine, the first response may exceed the timeout: then a new site is tried.
    let (site, origin, begun, go_on) = wait_until("a first response in time", || {
        let (steps, begun, go_on) = Steps::new();
        let origin = h2_origin(move |peer, number| {
            while let Some(stream) = peer.request()? {
                if stream > 1 || number > 0 {
                    peer.answer(stream, b"hello", true)?;
                    continue;
                }
                // MAX_CONCURRENT_STREAMS
                peer.send(&frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 0]))?;
                peer.answer(stream, b"hello", true)?;
                steps.wait()?;
                peer.send(&frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9]))?;
            }
            Ok(())
        });
        let tables = proxy_to(&[&h2c(&origin)]) + "timeouts = { head = \"500ms\" }\n";
        let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
        (site.get("/first").text() == "hello").then_some((site, origin, begun, go_on))
    });
    begun.recv_timeout(LIMIT).expect("a request at the origin");
    for path in ["/one", "/two", "/three"] {
        assert_eq!(site.get(path).status(), 503);
        assert_eq!(error(&site, path), "stream-limit");
    }
    go_on.send(()).expect("an origin that waits");
    wait_until("an answer", || (site.get("/again").status() == 200).then_some(()));
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_response_that_breaks_the_connection_does_not_take_the_others_along() {
    let (begins, begun) = mpsc::channel();
    let origin = h2_origin(move |peer, number| {
        let mut streams = 0;
        while let Some(stream) = peer.request()? {
            streams += 1;
            match (number, streams) {
                (0, 1) => begins.send(()).map_err(io::Error::other)?,
                // A block that does not end, on the second.
                (0, _) => {
                    let endless = frame(CONTINUATION, 0, stream, b"\x00\x01a\x01b").repeat(100);
                    return peer.send(&[frame(HEADERS, 0, stream, &[OK]), endless].concat());
                }
                _ => peer.answer(stream, b"hello", true)?,
            }
        }
        Ok(())
    });
    let site = site(&origin);
    std::thread::scope(|scope| {
        let bystander = scope.spawn(|| site.get("/bystander").text());
        begun.recv_timeout(LIMIT).expect("a request at the origin");
        assert_eq!(site.connect().request(&post("/endless")).status(), 502);
        assert_eq!(error(&site, "/endless"), "response-head-too-large");
        assert_eq!(bystander.join().expect("no panic"), "hello");
    });
}

/// An origin that does this on every stream of its first connection, and answers on others.
fn attacking(
    attack: impl Fn(&mut H2Peer, u32) -> io::Result<()> + Send + Sync + 'static,
) -> (Origin, mpsc::Receiver<()>) {
    let (ends, ended) = mpsc::channel();
    let origin = h2_origin(move |peer, number| {
        while let Some(stream) = peer.request()? {
            if number > 0 {
                peer.answer(stream, b"hello", true)?;
                continue;
            }
            // That the client has gone is what is expected.
            let _ = attack(peer, stream).and_then(|()| peer.fall_silent());
            return ends.send(()).map_err(io::Error::other);
        }
        Ok(())
    });
    (origin, ended)
}

#[test]
fn a_server_that_floods_loses_its_connection() {
    type Flood = fn(u32) -> Vec<u8>;
    let empty = |stream| frame(DATA, 0, stream, &[]);
    let floods: [(Flood, &str); 4] = [
        (|_| frame(PING, 0, 0, &[7; 8]), "closed"),
        (|_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 4, 0]), "closed"),
        // `:status 103`, spelled out. The request ends first, then the connection.
        (|stream| frame(HEADERS, END_HEADERS, stream, b"\x08\x03103"), "interim-responses"),
        (|_| frame(0x77, 0, 0, b"unknown"), "closed"),
    ];
    for (flood, reason) in floods {
        let (origin, ended) =
            attacking(move |peer, stream| (0..100).try_for_each(|_| peer.send(&flood(stream).repeat(1000))));
        let site = site(&origin);
        // It may be safe to repeat, and a new connection is better.
        assert_eq!(site.connect().request(&post("/flood")).status(), 502);
        assert_eq!(error(&site, "/flood"), reason);
        assert_eq!(ended.recv_timeout(LIMIT), Ok(()));
        assert_eq!(site.get("/after").text(), "hello");
    }
    let (origin, ended) = attacking(move |peer, stream| {
        peer.send(&frame(HEADERS, END_HEADERS, stream, &[OK]))?;
        (0..100).try_for_each(|_| peer.send(&empty(stream).repeat(1000)))
    });
    let site = site(&origin);
    assert!(!site.curl(&[], "/empty").status.success());
    assert_eq!(error(&site, "/empty"), "response-body");
    assert_eq!(ended.recv_timeout(LIMIT), Ok(()));
}

#[test]
fn heads_that_are_bombs_or_have_no_end_are_refused() {
    // A field of 4,000 bytes in the table, then references to it.
    let value = vec![b'x'; 4000];
    let field = [&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e], &value[..]].concat();
    let bomb = [&[OK], &field[..], &[0xbe; 8000]].concat();
    let (origin, _) =
        attacking(move |peer, stream| peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &bomb)));
    let site = site(&origin);
    assert_eq!(site.connect().request(&post("/bomb")).status(), 502);
    assert_eq!(error(&site, "/bomb"), "response-head-too-large");
    let (origin, ended) = attacking(move |peer, stream| {
        peer.send(&frame(HEADERS, 0, stream, &[OK]))?;
        (0..100).try_for_each(|_| peer.send(&frame(CONTINUATION, 0, stream, b"\x00\x01a\x01b").repeat(1000)))
    });
    let site = self::site(&origin);
    assert_eq!(site.connect().request(&post("/endless")).status(), 502);
    assert_eq!(error(&site, "/endless"), "response-head-too-large");
    assert_eq!(ended.recv_timeout(LIMIT), Ok(()));
}

#[test]
fn data_beyond_the_windows_is_not_kept() {
    let (resets, reset) = mpsc::channel();
    let (origin, _) = attacking(move |peer, stream| {
        peer.send(&frame(HEADERS, END_HEADERS, stream, &[OK]))?;
        // Never waits for a window.
        (0..1024).try_for_each(|_| peer.send(&frame(DATA, 0, stream, &[b'x'; 16_384])))?;
        peer.wait_for_reset(stream)?;
        resets.send(()).map_err(io::Error::other)
    });
    let site = site(&origin);
    // The client takes nothing of the answer until the server has lost its stream.
    let mut connection = site.connect();
    io::Write::write_all(&mut connection, format!("GET /beyond HTTP/1.1\r\nHost: {NAME}\r\n\r\n").as_bytes())
        .expect("a server that reads");
    assert_eq!(reset.recv_timeout(LIMIT), Ok(()));
    let mut answer = Vec::new();
    let end = io::Read::read_to_end(&mut connection, &mut answer);
    assert!(end.is_err() && answer.len() < 16 << 20, "{} bytes of an answer that is cut", answer.len());
    assert_eq!(error(&site, "/beyond"), "response-body");
}
