//! Upstreams that break the protocol, fall silent, or bind a login to a connection: effects on clients.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use brisk_behaviour::h2::{self, RST_STREAM};
use brisk_behaviour::h2_origin::{h2_origin, h2c};
use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::http1::Message;
use brisk_testkit::origin::{Origin, send_with_end};
use brisk_testkit::process::{TIMEOUT, wait_until};
use serde_json::Value;

/// One worker: all requests meet the same upstream connections.
const ONE_WORKER: &str = "server.workers = 1\n";

const NO_ERROR: [u8; 4] = [0; 4];

fn single(tables: &str) -> Site {
    Site::custom(ONE_WORKER, tables, |setup| setup)
}

/// An origin that writes these bytes in answer to each request.
fn writing(bytes: &'static str) -> Origin {
    Origin::answering(move |_, stream| stream.write_all(bytes.as_bytes()))
}

/// An origin whose first connection answers one request and then falls silent; others answer everything.
fn silent_after_one() -> Origin {
    h2_origin(|peer, number| {
        while let Some(stream) = peer.request()? {
            peer.answer(stream, b"hello", true)?;
            if number == 0 {
                return peer.fall_silent();
            }
        }
        Ok(())
    })
}

#[test]
fn a_silent_http2_connection_is_left_after_one_request_that_timed_out() {
    // On a slow machine, another response may exceed the timeout: then a new site is tried.
    wait_until("one timeout and a new connection", || {
        let origin = silent_after_one();
        let site = single(&(proxy_to(&[&h2c(&origin)]) + "timeouts = { head = \"300ms\" }\nretry = false\n"));
        let mut connection = site.connect();
        let answers: Vec<_> = (0..4).map(|_| connection.get(NAME, "/").status()).collect();
        (answers == [200, 504, 200, 200] && origin.connections() == 2).then_some(())
    });
}

#[test]
fn an_http2_connection_that_answers_no_ping_is_replaced() {
    // The client does not wait for the timeout of the head. On a slow machine, another connection may answer a ping too late: then a
    // new site is tried.
    wait_until("a silent connection that is replaced by one other", || {
        let origin = silent_after_one();
        let timeouts = "timeouts = { connect = \"5s\", head = \"10m\", ping = \"1s\" }\n";
        let site = single(&(proxy_to(&[&h2c(&origin)]) + timeouts));
        let mut connection = site.connect();
        for _ in 0..3 {
            assert_eq!(connection.get(NAME, "/").text(), "hello");
        }
        (origin.connections() == 2).then_some(())
    });
}

#[test]
fn transfer_encoding_overrides_the_length_of_an_answer() {
    let origin = writing(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nABCDEFGH\r\n0\r\n\r\n",
    );
    let site = Site::proxying(&[&origin.url()]);
    let answer = site.get("/");
    assert_eq!((answer.text().as_str(), answer.header("content-length")), ("ABCDEFGH", None));
    let h2 = site.curl(&["--http2", "--include"], "/").success();
    assert!(h2.ends_with("\r\n\r\nABCDEFGH") && !h2.contains("content-length"), "{h2}");
}

/// The line of the access log for the request of `path`.
fn logged(site: &Site, path: &str) -> Value {
    serde_json::from_str(&site.brisk.logged(path)).expect("a line of JSON")
}

#[test]
fn what_came_of_a_broken_answer_is_passed_on() {
    for head in ["Content-Length: 1000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3e8\r\n"] {
        let origin = Origin::raw(move |mut stream| {
            Message::read_request(&mut stream)?;
            send_with_end(&mut stream, format!("HTTP/1.1 200 OK\r\nX-Own: 1\r\n{head}half").as_bytes())
        });
        let site = Site::proxying(&[&origin.url()]);
        let mut connection = site.connect();
        write!(connection, "GET /one HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server that reads");
        let mut received = Vec::new();
        // The connection breaks without close_notify, so that the end cannot be taken for one that was meant.
        let end = connection.read_to_end(&mut received).expect_err("no close_notify");
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof, "{end}");
        let text = String::from_utf8(received).expect("text");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("half"), "{text:?}");
        assert!(!text.ends_with("0\r\n\r\n"), "{text:?}");
        let h2 = site.curl(&["--http2", "--include"], "/two");
        assert!(!h2.status.success() && h2.stdout.contains("x-own: 1"), "{}", h2.text());
        assert!(h2.stdout.ends_with("half"), "{}", h2.text());
        for path in ["/one", "/two"] {
            let line = logged(&site, path);
            assert_eq!((&line["status"], &line["bytes_sent"]), (&200.into(), &4.into()), "{line}");
            assert_eq!((&line["error"], &line["error_side"]), (&"response-body".into(), &"upstream".into()));
        }
        site.connect();
    }
}

#[test]
fn a_transfer_coding_that_is_not_known_is_refused() {
    for coding in ["rot13", "gzip, chunked", "chunked\r\nTransfer-Encoding: chunked"] {
        let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n");
        let origin = Origin::answering(move |_, stream| stream.write_all(head.as_bytes()));
        let site = Site::proxying(&[&origin.url()]);
        assert_eq!(site.get("/coded").status(), 502, "{coding}");
        let line = logged(&site, "/coded");
        assert_eq!((&line["error"], &line["error_side"]), (&"transfer-coding".into(), &"upstream".into()));
    }
}

#[test]
fn an_answer_with_trailers_is_logged_as_whole() {
    let origin =
        writing("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 532\r\n\r\n");
    let site = Site::proxying(&[&origin.url()]);
    for (version, path) in [("--http1.1", "/one"), ("--http2", "/two")] {
        assert_eq!(site.curl(&[version], path).success(), "hello");
        let line = logged(&site, path);
        assert_eq!((&line["error"], &line["bytes_sent"]), (&Value::Null, &5.into()), "{line}");
    }
}

#[test]
fn an_answer_without_a_body_has_no_length_that_would_break_it() {
    for status in ["204 No Content", "304 Not Modified"] {
        let origin = Origin::answering(move |_, stream| {
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 5\r\nETag: \"x\"\r\n\r\n")
        });
        let site = Site::proxying(&[&origin.url()]);
        let code = &status[..3];
        for option in ["--http1.1", "--http2"] {
            let answer = site.curl(&[option, "--include"], "/").success().to_ascii_lowercase();
            assert!(answer.contains(code) && answer.contains("etag: \"x\""), "{answer}");
            assert!(code != "204" || !answer.contains("content-length"), "{answer}");
        }
    }
}

#[test]
fn a_reset_without_an_error_in_mid_answer_is_an_error() {
    let origin = h2_origin(|peer, _| {
        while let Some(stream) = peer.request()? {
            peer.answer(stream, b"half", false)?;
            peer.reset(stream, 0)?;
        }
        Ok(())
    });
    let site = Site::proxying(&[&h2c(&origin)]);
    for option in ["--http1.1", "--http2"] {
        let answer = site.curl(&[option], "/cut");
        assert!(!answer.status.success(), "{option}: {}", answer.text());
    }
    let line: Value = serde_json::from_str(&site.brisk.logged("/cut")).expect("a line of JSON");
    assert_eq!((&line["error"], &line["error_side"]), (&"response-body".into(), &"upstream".into()));
}

// RFC 9113 section 8.1: a server that has answered may ask the client so to stop its upload.
#[test]
fn a_reset_without_an_error_after_the_whole_answer_ends_the_upload_alone() {
    let origin = h2_origin(|peer, _| {
        while let Some(stream) = peer.request()? {
            assert!(!peer.is_whole(stream));
            peer.answer(stream, b"enough", true)?;
            peer.reset(stream, 0)?;
        }
        Ok(())
    });
    let site = Site::proxying(&[&h2c(&origin)]);
    let mut connection = site.connect();
    let answer = connection.request(&format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 9\r\n\r\n"));
    assert_eq!((answer.status(), answer.text().as_str()), (200, "enough"));
}

#[test]
fn an_upload_that_is_reset_without_an_error_has_no_end_for_the_upstream() {
    let (seen, sees) = mpsc::channel();
    let seen = Mutex::new(seen);
    let origin = Origin::raw(move |mut stream| {
        let mut received = vec![0; 64 << 10];
        let mut length = 0;
        let mut told = false;
        // However the connection ends, the request must not.
        while let Ok(read @ 1..) = stream.read(&mut received[length..]) {
            length += read;
            if !told && received[..length].windows(4).any(|bytes| bytes == b"half") {
                told = true;
                seen.lock().expect("no panic").send(Vec::new()).map_err(io::Error::other)?;
            }
        }
        received.truncate(length);
        seen.lock().expect("no panic").send(received).map_err(io::Error::other)
    });
    let site = single(&proxy_to(&[&origin.url()]));
    let mut client = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
    let begun = [h2::preface(), h2::post_head(1, "/cut"), h2::frame(h2::DATA, 0, 1, b"half")].concat();
    client.write_all(&begun).expect("a server that reads");
    assert_eq!(sees.recv_timeout(TIMEOUT), Ok(Vec::new()), "the upload at the origin");
    client.write_all(&h2::frame(RST_STREAM, 0, 1, &NO_ERROR)).expect("a server that reads");
    let received = sees.recv_timeout(TIMEOUT).expect("the end of the upload");
    let text = String::from_utf8_lossy(&received);
    assert!(
        text.starts_with("POST /cut ") && text.contains("half") && !text.ends_with("0\r\n\r\n"),
        "{text}"
    );
}

#[test]
fn the_head_of_an_answer_has_a_limit() {
    let origin = Origin::answering(|request, stream| {
        let size: usize =
            request.head.line.split(['/', ' ']).nth(2).and_then(|size| size.parse().ok()).unwrap_or(0);
        let filler = "x".repeat(size);
        write!(stream, "HTTP/1.1 200 OK\r\nX-Filler: {filler}\r\nContent-Length: 2\r\n\r\nok")
    });
    let site = Site::proxying(&[&origin.url()]);
    assert_eq!(site.get("/60000").text(), "ok");
    for size in [66_000, 200_000, 2_000_000] {
        let answer = site.get(&format!("/{size}"));
        assert_eq!(answer.status(), 502, "{size}");
        let line: Value =
            serde_json::from_str(&site.brisk.logged(&format!("/{size}"))).expect("a line of JSON");
        assert_eq!(
            (&line["error"], &line["error_side"]),
            (&"response-head-too-large".into(), &"upstream".into())
        );
    }
    let large = single(&(proxy_to(&[&origin.url()]) + "head_size = \"1MiB\"\n"));
    assert_eq!(large.get("/1000000").text(), "ok");
}

#[test]
fn interim_responses_without_end_are_a_502_of_their_request_alone() {
    let lines = |head: &str| head.repeat(1000);
    let long = format!("HTTP/1.1 103 Early Hints\r\nLink: <{}>\r\n\r\n", "x".repeat(3000));
    for endless in [lines("HTTP/1.1 100 Continue\r\n\r\n"), lines(&long)] {
        let origin = Origin::answering(move |request, stream| {
            if !request.head.line.contains("/endless") {
                return write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
            loop {
                stream.write_all(endless.as_bytes())?;
            }
        });
        let site = single(&proxy_to(&[&origin.url()]));
        assert_eq!(site.get("/endless").status(), 502);
        let line = logged(&site, "/endless");
        assert_eq!((&line["error"], &line["error_side"]), (&"interim-responses".into(), &"upstream".into()));
        assert_eq!(site.get("/").text(), "ok");
    }
}

#[test]
fn interim_responses_without_end_over_http2_are_a_502_of_their_request_alone() {
    let origin = h2_origin(|peer, _| {
        while let Some(stream) = peer.request()? {
            if stream == 1 {
                // RFC 7541 section 6.2.2: `:status: 102` without indexing.
                peer.send(&h2::frame(h2::HEADERS, h2::END_HEADERS, stream, b"\x08\x03102").repeat(150))?;
            } else {
                peer.answer(stream, b"ok", true)?;
            }
        }
        Ok(())
    });
    let site = single(&proxy_to(&[&h2c(&origin)]));
    // The client gets the first interim responses, and then the error.
    let status = ["--output", "/dev/null", "--write-out", "%{http_code}"];
    assert_eq!(site.curl(&status, "/endless").success(), "502");
    let line = logged(&site, "/endless");
    assert_eq!((&line["error"], &line["error_side"]), (&"interim-responses".into(), &"upstream".into()));
    assert_eq!(site.get("/").text(), "ok");
    assert_eq!(origin.connections(), 1);
}

/// An origin that logs connections in, by NTLM's three messages or Negotiate's one, and then answers all that comes over
/// them. The counter says how many connections that are logged in are open.
fn logging_in() -> (Origin, Arc<AtomicUsize>) {
    let open = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&open);
    let origin = Origin::raw(move |mut stream| {
        let (mut challenged, mut known) = (false, false);
        while let Ok(Some(request)) = Message::read_request(&mut stream) {
            let credentials = request.header("authorization").unwrap_or_default();
            let passes = credentials == "Negotiate alice" || (challenged && credentials == "NTLM alice");
            if passes && !known {
                known = true;
                counter.fetch_add(1, Ordering::SeqCst);
            }
            challenged = credentials == "NTLM hello";
            let answer = match (known, challenged) {
                (true, _) => "200 OK\r\nContent-Length: 11\r\n\r\nhello alice",
                (false, true) => "401 No\r\nWWW-Authenticate: NTLM prove\r\nContent-Length: 0\r\n\r\n",
                (false, false) => {
                    "401 No\r\nWWW-Authenticate: Negotiate\r\nWWW-Authenticate: NTLM\r\nContent-Length: 0\r\n\r\n"
                }
            };
            write!(stream, "HTTP/1.1 {answer}")?;
        }
        counter.fetch_sub(usize::from(known), Ordering::SeqCst);
        Ok(())
    });
    (origin, open)
}

fn with_credentials(credentials: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nAuthorization: {credentials}\r\n\r\n")
}

#[test]
fn a_login_that_holds_for_a_connection_stays_with_its_client() {
    let (origin, open) = logging_in();
    let site = single(&proxy_to(&[&origin.url()]));
    let mut alice = site.connect();
    assert_eq!(alice.get(NAME, "/").status(), 401);
    let challenge = alice.request(&with_credentials("NTLM hello"));
    assert_eq!(challenge.header("www-authenticate"), Some("NTLM prove"));
    // The three messages keep to one connection although others ask in between.
    assert_eq!(site.get("/").status(), 401);
    assert_eq!(alice.request(&with_credentials("NTLM alice")).text(), "hello alice");
    for _ in 0..4 {
        assert_eq!(site.get("/").status(), 401, "a stranger is taken for alice");
        assert_eq!(alice.get(NAME, "/").text(), "hello alice");
    }
    drop(alice);
    wait_until("the end of alice's connection", || (open.load(Ordering::SeqCst) == 0).then_some(()));
}

#[test]
fn a_login_gives_way_to_a_request_for_which_no_connection_is_left() {
    let (origin, open) = logging_in();
    let pool = "pool = { max_connections = 1, queue = { timeout = \"3m\" } }\n";
    let site = single(&(proxy_to(&[&origin.url()]) + pool));
    let mut alice = site.connect();
    for _ in 0..2 {
        assert_eq!(alice.request(&with_credentials("Negotiate alice")).text(), "hello alice");
        assert_eq!(alice.get(NAME, "/").text(), "hello alice");
        // The challenge of this response binds a connection to another client, for a short time.
        assert_eq!(site.get("/").status(), 401, "the idle login keeps its place");
        wait_until("the end of the login", || (open.load(Ordering::SeqCst) == 0).then_some(()));
        assert_eq!(alice.get(NAME, "/").status(), 401);
    }
}

#[test]
fn a_login_over_http2_holds_for_its_request_alone() {
    let (origin, open) = logging_in();
    let site = single(&proxy_to(&[&origin.url()]));
    for _ in 0..2 {
        let answer = site.curl(&["--http2", "--header", "Authorization: Negotiate alice"], "/").success();
        assert_eq!(answer, "hello alice");
        assert_eq!(site.get("/").status(), 401, "a stranger is taken for alice");
    }
    wait_until("the end of alice's connections", || (open.load(Ordering::SeqCst) == 0).then_some(()));
}

#[test]
fn a_login_gets_an_http2_connection_to_the_upstream_for_itself() {
    let (ended, ends) = mpsc::channel();
    let ended = Mutex::new(ended);
    let origin = h2_origin(move |peer, number| {
        while let Some(stream) = peer.request()? {
            peer.answer(stream, number.to_string().as_bytes(), true)?;
        }
        ended.lock().expect("no panic").send(number).map_err(io::Error::other)
    });
    let site = single(&proxy_to(&[&h2c(&origin)]));
    let mut connection = site.connect();
    assert_eq!(connection.get(NAME, "/").text(), "0");
    assert_eq!(connection.request(&with_credentials("Negotiate alice")).text(), "1");
    assert_eq!(connection.get(NAME, "/").text(), "0");
    assert_eq!(connection.request(&with_credentials("Basic YWxpY2U6eA==")).text(), "0");
    assert_eq!(ends.recv_timeout(TIMEOUT), Ok(1));
}
