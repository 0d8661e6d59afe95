//! Requests that clients cancel on upstream connections that other clients share.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brisk_behaviour::h2::{DATA, END_STREAM, HEADERS, RST_STREAM, frame, get};
use brisk_behaviour::h2_client::{Client, cancel_many};
use brisk_behaviour::h2_origin::{h2_origin, h2c};
use brisk_behaviour::site::{Site, proxy_to};
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;

/// Number of resets after which the origin closes a connection, as many servers do.
const LIMIT: usize = 100;

/// Observations of an origin.
#[derive(Default)]
struct Seen {
    requests: AtomicUsize,
    /// Resets per connection.
    resets: Mutex<BTreeMap<usize, usize>>,
    /// Whether the first response is to be completed.
    completes: AtomicBool,
}

/// An origin that sends half of its first response, and no others.
fn origin(seen: &Arc<Seen>) -> Origin {
    let seen = Arc::clone(seen);
    h2_origin(move |peer, number| {
        let mut first = None;
        loop {
            let (kind, stream) = peer.read_frame()?;
            if kind == HEADERS {
                seen.requests.fetch_add(1, Ordering::SeqCst);
                if number == 0 && stream == 1 {
                    peer.answer(stream, b"half", false)?;
                    first = Some(stream);
                }
            }
            seen.resets.lock().expect("no panic").insert(number, peer.resets());
            if peer.resets() > LIMIT {
                peer.goaway(stream)?;
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if seen.completes.load(Ordering::SeqCst)
                && let Some(stream) = first.take()
            {
                peer.send(&frame(DATA, END_STREAM, stream, b"whole"))?;
            }
        }
    })
}

#[test]
fn requests_that_clients_cancel_do_not_end_the_upstream_connection_of_others() {
    let seen = Arc::default();
    let origin = origin(&seen);
    // One worker, so that all requests share connections. PING makes the origin look at `completes`.
    let timeouts = "timeouts = { ping = \"200ms\", connect = \"5m\", head = \"10m\", body = \"10m\" }\n";
    let tables = proxy_to(&[&h2c(&origin)]) + timeouts;
    let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
    let mut bystander = Client::connect(&site);
    bystander.send(&get(1, "/download"));
    bystander.wait_for("half of the download", |frame| frame.payload == b"half");
    for _ in 0..3 {
        cancel_many(&site, 90, || seen.requests.load(Ordering::SeqCst));
    }
    seen.completes.store(true, Ordering::SeqCst);
    let end = bystander.wait_for("end of the download", |frame| {
        assert_ne!(frame.kind, RST_STREAM, "the download is cut: {:?}", seen.resets);
        frame.kind == DATA && frame.flags & END_STREAM != 0
    });
    assert_eq!(end.payload, b"whole");
    let resets = seen.resets.lock().expect("no panic").clone();
    assert!(resets.values().all(|resets| *resets <= LIMIT), "{resets:?}");
    // The abandoned requests take few connections.
    assert!(resets.len() <= 12, "{resets:?}");
    assert!(
        resets.values().sum::<usize>() > LIMIT,
        "requests below the rate are canceled at once: {resets:?}"
    );
    // Later requests are sent.
    let mut later = Client::connect(&site);
    let before = seen.requests.load(Ordering::SeqCst);
    later.send(&get(1, "/"));
    wait_until("another request", || (seen.requests.load(Ordering::SeqCst) > before).then_some(()));
    assert!(bystander.frames(Duration::ZERO).iter().all(|frame| frame.kind != RST_STREAM));
}

#[test]
fn a_connection_with_many_resets_is_used_where_no_other_can_be_opened() {
    let seen = Arc::default();
    let origin = origin(&seen);
    let tables = proxy_to(&[&h2c(&origin)])
        + "pool = { max_connections = 1 }\ntimeouts = { connect = \"5m\", head = \"10m\", body = \"10m\" }\n";
    let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
    // The download keeps the connection open.
    let mut bystander = Client::connect(&site);
    bystander.send(&get(1, "/download"));
    bystander.wait_for("half of the download", |frame| frame.payload == b"half");
    cancel_many(&site, 90, || seen.requests.load(Ordering::SeqCst));
    assert_eq!(origin.connections(), 1);
    let resets = seen.resets.lock().expect("no panic")[&0];
    assert!(resets <= LIMIT, "{resets} resets");
}

#[test]
fn a_client_that_cancels_many_requests_shares_no_connection_with_others() {
    // Requests by connection to the origin, which responds while `answers` is set.
    let (requests, answers) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(true)));
    let origin = {
        let (requests, answers) = (Arc::clone(&requests), Arc::clone(&answers));
        h2_origin(move |peer, number| {
            while let Some(stream) = peer.request()? {
                requests.lock().expect("no panic").push(number);
                if answers.load(Ordering::SeqCst) {
                    peer.answer(stream, b"answer", true)?;
                }
            }
            Ok(())
        })
    };
    let site = Site::custom("server.workers = 1\n", &proxy_to(&[&h2c(&origin)]), |setup| setup);
    let seen = || requests.lock().expect("no panic").clone();
    let mut other = Client::connect_from(&site, Ipv4Addr::new(127, 0, 0, 2));
    let mut streams = (1..).step_by(2);
    // The connection that serves the next request of the other client.
    let mut ask = || {
        let stream = streams.next().expect("a number");
        other.send(&get(stream, "/"));
        other.wait_for("a response", |frame| frame.stream == stream && frame.payload == b"answer");
        *seen().last().expect("a request")
    };
    let shared = ask();
    answers.store(false, Ordering::SeqCst);
    cancel_many(&site, 40, || seen().len());
    let of_attacker = seen()[1..].to_vec();
    let apart = *of_attacker.last().expect("a request");
    assert_ne!(apart, shared, "{of_attacker:?}");
    answers.store(true, Ordering::SeqCst);
    assert!((0..5).all(|_| ask() == shared), "{:?}", seen());
    // Later requests of the attacker are served, apart from the others.
    let mut later = Client::connect(&site);
    later.send(&get(1, "/"));
    later.wait_for("a response", |frame| frame.payload == b"answer");
    assert_eq!(seen().last(), Some(&apart));
    assert_eq!(origin.connections(), 2);
}
