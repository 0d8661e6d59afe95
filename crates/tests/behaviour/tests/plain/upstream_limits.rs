//! Limits of connections to upstreams: idle connections are closed for others, requests wait for a slot.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use brisk_behaviour::h2::{
    ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, frame, get, post_head,
};
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::h2_origin::{h2_origin, h2c};
use brisk_behaviour::site::{NAME, Site, connect_from, proxy_to, upstream};
use brisk_testkit::http1::Head;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::{TIMEOUT, wait_until};
use serde_json::Value;

fn limited(origin: &Origin, limit: usize, more: &str) -> Site {
    Site::with(&format!("{}pool = {{ max_connections = {limit} }}\n{more}", proxy_to(&[&origin.url()])))
}

/// An origin that answers requests for `/slow` once a message is sent, or with the end of the test.
fn slow_origin() -> (Origin, Sender<()>) {
    let (release, held) = channel::<()>();
    let held = Mutex::new(held);
    let origin = Origin::answering(move |request, stream| {
        if request.head.line.starts_with("GET /slow ") {
            let _ = held.lock().expect("one slow request").recv();
        }
        write_response(stream, b"done")
    });
    (origin, release)
}

#[test]
fn an_idle_connection_of_another_worker_makes_room() {
    let origin = Origin::fixed("here");
    let site = limited(&origin, 1, "timeouts = { connect = \"5m\" }\n");
    // New connections reach both workers.
    let answers: Vec<_> = (0..20).map(|_| site.get("/").status()).collect();
    assert_eq!(answers, [200; 20]);
}

#[test]
fn a_burst_waits_for_places_and_the_limit_holds() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&now), Arc::clone(&most));
    let origin = Origin::answering(move |_, stream| {
        let (now, most) = &counts;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(10));
        now.fetch_sub(1, Ordering::SeqCst);
        write_response(stream, b"done")
    });
    let site = limited(&origin, 2, "timeouts = { connect = \"5m\" }\n");
    let connections: Vec<_> = (0..24).map(|_| site.connect()).collect();
    let asking = connections.into_iter().map(|mut connection| {
        thread::spawn(move || (0..2).map(|_| connection.get(NAME, "/").status()).collect::<Vec<_>>())
    });
    let asking: Vec<_> = asking.collect();
    for answers in asking {
        assert_eq!(answers.join().expect("a client"), [200, 200]);
    }
    assert!(most.load(Ordering::SeqCst) <= 2, "{most:?} requests at a time");
}

#[test]
fn the_number_of_response_headers_has_a_limit_of_the_upstream() {
    let origin = Origin::answering(move |request, stream| {
        // With `Content-Length`, one more than the path says.
        let count: Option<usize> =
            request.head.line.split(['/', ' ']).nth(2).and_then(|count| count.parse().ok());
        let lines = "X: 1\r\n".repeat(count.expect("a number") - 1);
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{lines}\r\n")
    });
    let h2 = h2_origin(|peer, _| {
        while let Some(stream) = peer.request()? {
            // `:status: 200`, and 101 times `a` without a value.
            let block = [vec![0x88], [0, 1, b'a', 0].repeat(101)].concat();
            peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &block))?;
        }
        Ok(())
    });
    for (key, allowed) in [("", 100), ("headers = 300\n", 300)] {
        let site = Site::with(&format!("{}{key}", proxy_to(&[&origin.url()])));
        assert_eq!(site.get(&format!("/{allowed}")).status(), 200);
        assert_eq!(site.get(&format!("/{}", allowed + 1)).status(), 502);
        site.brisk.log_with("raise `head_size` or `headers` of the upstream");
        let site = Site::with(&format!("{}{key}", proxy_to(&[&h2c(&h2)])));
        assert_eq!(site.get("/").status(), if allowed == 100 { 502 } else { 200 });
    }
}

#[test]
fn a_request_that_gets_no_place_in_time_is_refused() {
    let (origin, release) = slow_origin();
    let site = limited(&origin, 1, "timeouts = { connect = \"300ms\" }\n");
    let mut connection = site.connect();
    let slow = thread::spawn(move || connection.get(NAME, "/slow").text());
    origin.last_request();
    let refused = site.get("/refused");
    assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("2")));
    let line: Value = serde_json::from_str(&site.brisk.logged("/refused")).expect("a line of JSON");
    assert_eq!(line["error"], "connection-limit");
    release.send(()).expect("a waiting origin");
    assert_eq!(slow.join().expect("the slow client"), "done");
    // On a slow machine, a connection may exceed the timeout.
    wait_until("a response", || (site.get("/").text() == "done").then_some(()));
}

#[test]
fn a_queue_has_a_length_a_time_and_a_share_for_each_client() {
    let (release, held) = channel::<()>();
    let held = Mutex::new(held);
    let origin = Origin::answering(move |request, stream| {
        if !request.head.line.starts_with("GET /refused ") {
            // Ends with the test at the latest.
            let _ = held.lock().expect("one request at a time").recv();
        }
        write_response(stream, b"done")
    });
    let tables = |pool: &str| {
        let route = "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n[[host.route]]\npath = \"/short\"\nupstream = \"short\"\n";
        let app = upstream(&[&origin.url()]);
        let short = app.replace("upstream.app", "upstream.short");
        let head = "timeouts = { head = \"10m\" }\n";
        format!(
            "{route}{app}{head}pool = {{ max_connections = 1, {pool} }}\n\
             {short}{head}pool = {{ max_connections = 1, queue = {{ size = 4, timeout = \"200ms\" }} }}\n"
        )
    };
    let keys = "server.max_connections_per_client = 1000\n";
    let site = Site::custom(keys, &tables("queue = { size = 4, timeout = \"10m\" }"), |setup| setup);
    let begin = |last: u8, path: &str| {
        let tcp = connect_from(Ipv4Addr::new(127, 0, 0, last), site.brisk.https());
        let mut connection = site.client().over(tcp).expect("a handshake");
        write!(connection, "GET {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server");
        connection
    };
    let refused = |last: u8| begin(last, "/refused").response().status();
    let waiting = |count: u64| {
        wait_until("requests in the queue", || {
            let label = ["group=\"app\""];
            let waiting = site.brisk.metrics().sum("brisk_upstream_requests_waiting", &label);
            (waiting.round() as u64 == count).then_some(())
        });
    };
    let mut served = vec![begin(1, "/a")];
    origin.last_request();
    for (number, client) in [(1, 1), (2, 1)] {
        served.push(begin(client, "/b"));
        waiting(number);
    }
    assert_eq!(refused(1), 503, "half of the queue");
    assert!(site.brisk.logged("/refused").contains("\"queue-full\""));
    for (number, client) in [(3, 2), (4, 3)] {
        served.push(begin(client, "/c"));
        waiting(number);
    }
    assert_eq!(refused(4), 503, "no place");
    // A client that goes leaves the queue.
    drop(served.pop());
    waiting(3);
    let late = begin(5, "/short/a");
    wait_until("a request at the other upstream", || (origin.requests().len() == 2).then_some(()));
    let in_vain = begin(5, "/short/b").response().status();
    assert_eq!(in_vain, 503, "the time of the queue");
    assert!(site.brisk.logged("/short/b").contains("\"connection-limit\""));
    drop((late, release));
    for mut connection in served {
        assert_eq!(connection.response().text(), "done");
    }
    waiting(0);
}

#[test]
fn a_body_that_ends_empty_while_its_request_waits_for_a_connection_is_ended_for_the_server() {
    let (origin, release) = slow_origin();
    let site = limited(&origin, 1, "timeouts = { connect = \"5m\", head = \"10m\" }\n");
    let mut connection = site.connect();
    let slow = thread::spawn(move || connection.get(NAME, "/slow").status());
    origin.last_request();
    let mut client = Client::connect(&site);
    // The length is unknown, so the body will be sent in chunks.
    client.send(&post_head(1, "/"));
    wait_until("a request in the queue", || {
        let waiting = site.brisk.metrics().sum("brisk_upstream_requests_waiting", &[]);
        (waiting > 0.5).then_some(())
    });
    client.send(&[frame(DATA, END_STREAM, 1, b""), frame(PING, 0, 0, b"12345678")].concat());
    client.wait_for("acknowledgement", |frame| frame.kind == PING && frame.flags == ACK);
    release.send(()).expect("a waiting origin");
    assert_eq!((slow.join().expect("the slow client"), client.status(1)), (200, 200));
}

/// An origin over HTTP/1.1 or HTTP/2 that answers each request, and reports the end of each connection.
fn reporting(over_http2: bool) -> (Origin, String, Receiver<()>) {
    let (ends, ended) = channel();
    if over_http2 {
        let origin = h2_origin(move |peer, _| {
            while let Some(stream) = peer.request()? {
                peer.answer(stream, b"done", true)?;
            }
            ends.send(()).map_err(std::io::Error::other)
        });
        let url = h2c(&origin);
        return (origin, url, ended);
    }
    let origin = Origin::raw(move |mut stream| {
        while Head::read(&mut stream)?.is_some() {
            write_response(&mut stream, b"done")?;
        }
        ends.send(()).map_err(std::io::Error::other)
    });
    let url = origin.url();
    (origin, url, ended)
}

#[test]
fn idle_connections_to_upstreams_are_closed_after_their_time() {
    for over_http2 in [false, true] {
        let (_origin, url, ended) = reporting(over_http2);
        let site = Site::with(&(proxy_to(&[&url]) + "pool = { idle_timeout = \"1s\" }\n"));
        assert_eq!(site.get("/").text(), "done");
        assert!(ended.recv_timeout(TIMEOUT).is_ok(), "HTTP/2: {over_http2}");
    }
}

#[test]
fn an_http2_upstream_that_pauses_within_a_body_loses_its_stream() {
    let (resets, reset) = channel();
    let origin = h2_origin(move |peer, _| {
        while let Some(stream) = peer.request()? {
            peer.answer(stream, b"half", false)?;
            peer.wait_for_reset(stream)?;
            resets.send(()).map_err(std::io::Error::other)?;
        }
        Ok(())
    });
    let site = Site::with(&(proxy_to(&[&h2c(&origin)]) + "timeouts = { body = \"300ms\" }\n"));
    let mut client = Client::connect(&site);
    client.send(&get(1, "/"));
    client.wait_for("reset of the response", |frame| frame.kind == RST_STREAM);
    assert!(reset.recv_timeout(TIMEOUT).is_ok());
    let line: Value = serde_json::from_str(&site.brisk.logged("/")).expect("a line of JSON");
    assert_eq!(line["error"], "response-body-timeout");
}
