//! Upstreams that are dead, slow or wrong: 502, 503 or 504 with the request's id, and a retry if it is safe.

use std::io::{self, Write};
use std::net::{Shutdown, TcpListener};
use std::thread;
use std::time::Duration;

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::free_port;
use serde_json::Value;

fn dead() -> String {
    format!("http://127.0.0.1:{}", free_port())
}

/// The answer tells an id, and the access log tells under that id what went wrong.
#[track_caller]
fn assert_explained(site: &Site, answer: &Message, status: u16, error: &str) {
    assert_eq!(answer.status(), status, "{}", answer.text());
    let id = answer.header("x-request-id").expect("a request id").to_owned();
    assert!(answer.text().contains(&id), "{}", answer.text());
    let line: Value = serde_json::from_str(&site.brisk.logged(&id)).expect("a line of JSON");
    assert_eq!(
        (line["error"].as_str(), line["error_side"].as_str()),
        (Some(error), Some("upstream")),
        "{line}"
    );
    assert_eq!(line["status"], status, "{line}");
}

#[test]
fn nobody_listens_502() {
    let site = Site::proxying(&[&dead()]);
    assert_explained(&site, &site.get("/"), 502, "connect");
    let h2 = site.curl(&["--http2", "--include"], "/").success();
    assert!(h2.contains(" 502") && h2.contains("x-request-id: "), "{h2}");
    assert!(site.brisk.metrics().sum("brisk_request_errors_total", &["side=\"upstream\""]) > 1.5);
}

#[test]
fn the_upstream_closes_without_an_answer_502() {
    let origin = Origin::raw(|mut stream| Message::read_request(&mut stream).map(drop));
    let site = Site::proxying(&[&origin.url()]);
    assert_explained(&site, &site.get("/"), 502, "closed");
}

#[test]
fn the_upstream_does_not_speak_http_502() {
    let origin = Origin::raw(|mut stream| {
        Message::read_request(&mut stream)?;
        stream.write_all(b"220 mail.example ESMTP\r\n\r\n")?;
        io::copy(&mut stream, &mut io::sink()).map(drop)
    });
    let site = Site::proxying(&[&origin.url()]);
    assert_explained(&site, &site.get("/"), 502, "malformed-response");
}

#[test]
fn the_upstream_does_not_answer_in_time_504() {
    let origin = Origin::raw(|mut stream| io::copy(&mut stream, &mut io::sink()).map(drop));
    let site = Site::with(&(proxy_to(&[&origin.url()]) + "timeouts = { head = \"300ms\" }\nretry = false\n"));
    assert_explained(&site, &site.get("/"), 504, "response-timeout");
}

#[test]
fn the_upstream_does_not_accept_in_time_504() {
    // A listener whose queue is full: the kernel answers no further SYN.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    rustix::net::listen(&listener, 0).expect("a listening socket");
    let _filled: Vec<_> =
        (0..4).map(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200))).collect();
    let url = format!("http://{address}");
    let site = Site::with(&(proxy_to(&[&url]) + "timeouts = { connect = \"300ms\" }\nretry = false\n"));
    assert_explained(&site, &site.get("/"), 504, "connect-timeout");
}

#[test]
fn a_body_that_breaks_off_is_not_taken_for_a_whole_one() {
    let origin = Origin::raw(|mut stream| {
        Message::read_request(&mut stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")?;
        stream.shutdown(Shutdown::Both)
    });
    let site = Site::proxying(&[&origin.url()]);
    for option in ["--http1.1", "--http2"] {
        let answer = site.curl(&[option], "/");
        assert!(!answer.status.success(), "{option}: {}", answer.text());
    }
    site.connect();
}

#[test]
fn a_dead_server_is_passed_over() {
    let origin = Origin::fixed("alive");
    let site = Site::proxying(&[&dead(), &origin.url()]);
    let mut connection = site.connect();
    for _ in 0..10 {
        assert_eq!(connection.get(NAME, "/").text(), "alive");
    }
    // A POST that was never sent is safe to send elsewhere too.
    let post = format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 4\r\n\r\nbody");
    for _ in 0..4 {
        assert_eq!(connection.request(&post).text(), "alive");
    }
    assert_eq!(origin.last_request().text(), "body");
}

#[test]
fn what_may_have_been_done_is_not_done_twice() {
    let closing = || Origin::answering(|_, _| Err(io::ErrorKind::ConnectionAborted.into()));
    let (one, other) = (closing(), closing());
    let site = Site::proxying(&[&one.url(), &other.url()]);
    let sent = || one.requests().len() + other.requests().len();
    let post = format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(site.connect().request(&post).status(), 502);
    assert_eq!(sent(), 1);
    // GET is safe to repeat: once, at the other server.
    assert_eq!(site.get("/").status(), 502);
    assert_eq!(sent(), 3);
    assert!(!one.requests().is_empty() && !other.requests().is_empty());
}

#[test]
fn a_retry_can_be_switched_off() {
    let closing = Origin::answering(|_, _| Err(io::ErrorKind::ConnectionAborted.into()));
    let alive = Origin::fixed("alive");
    let site = Site::with(&(proxy_to(&[&closing.url(), &alive.url()]) + "retry = false\n"));
    let answers: Vec<_> = (0..4).map(|_| site.get("/").status()).collect();
    assert!(answers.contains(&502) && answers.contains(&200), "{answers:?}");
}

#[test]
fn a_pooled_connection_that_was_closed_meanwhile_costs_no_request() {
    let origin = Origin::raw(|mut stream| {
        Message::read_request(&mut stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        stream.shutdown(Shutdown::Both)
    });
    let site = Site::custom("server.workers = 1\n", &proxy_to(&[&origin.url()]), |setup| setup);
    let mut connection = site.connect();
    for _ in 0..20 {
        assert_eq!(connection.get(NAME, "/").text(), "ok");
    }
}

#[test]
fn repeated_failures_take_a_server_out_for_a_while() {
    let closing = Origin::answering(|_, _| Err(io::ErrorKind::ConnectionAborted.into()));
    let alive = Origin::fixed("alive");
    let health = "health = { max_failures = 2, failure_pause = \"1h\" }\n";
    let tables = proxy_to(&[&closing.url(), &alive.url()]) + health;
    let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
    let mut connection = site.connect();
    for _ in 0..12 {
        assert_eq!(connection.get(NAME, "/").text(), "alive");
    }
    assert_eq!(closing.requests().len(), 2);
    assert!((site.brisk.metrics().sum("brisk_upstream_healthy", &[]) - 1.0).abs() < 0.5);
}

#[test]
fn a_slow_upstream_does_not_hold_up_other_requests() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let origin = Origin::answering(move |request, stream| {
        if request.head.line.starts_with("GET /slow ") {
            // Ends with the test at the latest.
            let _ = held.lock().expect("one slow request").recv();
        }
        brisk_testkit::origin::write_response(stream, b"done")
    });
    let site = Site::custom("server.workers = 1\n", &proxy_to(&[&origin.url()]), |setup| setup);
    let slow = {
        let mut connection = site.connect();
        thread::spawn(move || connection.get(NAME, "/slow").text())
    };
    brisk_testkit::process::wait_until("the slow request at the origin", || {
        (!origin.requests().is_empty()).then_some(())
    });
    assert_eq!(site.get("/fast").text(), "done");
    release.send(()).unwrap();
    assert_eq!(slow.join().unwrap(), "done");
}
