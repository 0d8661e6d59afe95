//! Hedging: a second attempt of a slow request at another server.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::http1::Message;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;

fn site(servers: &[&str], hedge: &str) -> Site {
    Site::custom("server.workers = 1", &format!("{}hedge = {hedge}\n", proxy_to(servers)), |setup| setup)
}

fn hedges(site: &Site, result: &str) -> usize {
    let label = format!("result=\"{result}\"");
    site.brisk.metrics().sum("brisk_upstream_hedges_total", &[&label]).round() as usize
}

/// A server that answers nothing, with the numbers of requests that it received and of those whose connections ended.
fn silent() -> (Origin, Arc<[AtomicUsize; 2]>) {
    let counts = Arc::<[AtomicUsize; 2]>::default();
    let own = Arc::clone(&counts);
    let origin = Origin::raw(move |mut stream| {
        let mut received = 0;
        while let Ok(Some(_)) = Message::read_request(&mut stream) {
            received += 1;
            own[0].fetch_add(1, Ordering::SeqCst);
        }
        own[1].fetch_add(received, Ordering::SeqCst);
        Ok(())
    });
    (origin, counts)
}

/// A server that is slower than the delay before a second attempt.
fn slow(delay: u64) -> Origin {
    Origin::answering(move |_, stream| {
        thread::sleep(Duration::from_millis(delay));
        write_response(stream, b"slow")
    })
}

/// Number of requests that may be answered: request `/N` waits until it is at least N.
struct Permits(Arc<AtomicUsize>);

impl Permits {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn origin(&self) -> Origin {
        let answered = Arc::clone(&self.0);
        Origin::answering(move |request, stream| {
            let number = request.head.line.split(['/', ' ']).nth(2).and_then(|number| number.parse().ok());
            let number: usize = number.expect("a number");
            wait_until("permission", || (answered.load(Ordering::SeqCst) >= number).then_some(()));
            write_response(stream, b"slow")
        })
    }

    fn answer(&self, number: usize) {
        self.0.store(number, Ordering::SeqCst);
    }
}

#[test]
fn a_request_without_a_response_is_sent_to_another_server_and_canceled_at_the_first() {
    for fast in [Nginx::http(), Nginx::h2c()] {
        let (silent, counts) = silent();
        let site = site(&[&silent.url(), &fast.url()], "{ after = \"20ms\", percent = 100 }");
        let mut connection = site.connect();
        for _ in 0..6 {
            assert_eq!(connection.get(NAME, "/name").text(), fast.address().port().to_string());
        }
        // Every other request begins at the silent server. On a busy machine, the fast one may be late too, and the silent one may
        // not have received a request yet when it is canceled.
        wait_until("canceled requests", || {
            let [received, ended] = [0, 1].map(|index| counts[index].load(Ordering::SeqCst));
            let (won, lost) = (hedges(&site, "won"), hedges(&site, "lost"));
            (received == ended && received >= 2 && won >= 2 && (received..=6).contains(&(won + lost)))
                .then_some(())
        });
        assert_eq!(hedges(&site, "budget"), 0);
    }
}

#[test]
fn second_attempts_have_a_budget() {
    let permits = Permits::new();
    let servers = [permits.origin(), permits.origin()];
    let site = site(&[&servers[0].url(), &servers[1].url()], "{ after = \"10ms\", percent = 10 }");
    let received = || servers.iter().map(|server| server.requests().len()).sum::<usize>();
    let mut connection = site.connect();
    for number in 1..=30 {
        let request = format!("GET /{number} HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
        connection.write_all(request.as_bytes()).expect("a server that reads");
        wait_until("a second attempt or its refusal", || {
            (received() + hedges(&site, "budget") == 2 * number).then_some(())
        });
        permits.answer(number);
        assert_eq!(connection.response().text(), "slow");
    }
    let sent = hedges(&site, "won") + hedges(&site, "lost");
    assert!((1..=3).contains(&sent), "{sent}");
    assert_eq!((received(), hedges(&site, "budget")), (30 + sent, 30 - sent));
}

#[test]
fn only_safe_requests_without_bodies_are_hedged() {
    let (one, other) = (slow(40), slow(40));
    let site = site(&[&one.url(), &other.url()], "{ after = \"1ms\", percent = 100 }");
    let mut connection = site.connect();
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let request = format!("{method} / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(connection.request(&request).text(), "slow");
    }
    let get = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(connection.request(&get).text(), "slow");
    assert_eq!(one.requests().len() + other.requests().len(), 5);
    assert_eq!(hedges(&site, ""), 0);
}

#[test]
fn a_server_that_fails_after_the_delay_is_replaced_by_the_second() {
    // Closes each connection after the second server has received the request.
    let seen = Arc::new(AtomicUsize::new(0));
    let (waits, counts) = (Arc::clone(&seen), Arc::clone(&seen));
    let failing = Origin::raw(move |mut stream| {
        let before = waits.load(Ordering::SeqCst);
        if Message::read_request(&mut stream)?.is_some() {
            wait_until("the other server", || (waits.load(Ordering::SeqCst) > before).then_some(()));
        }
        Ok(())
    });
    let second = Origin::answering(move |_, stream| {
        counts.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(30));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond")
    });
    let site = site(&[&failing.url(), &second.url()], "{ after = \"10ms\", percent = 100 }");
    let mut connection = site.connect();
    for _ in 0..4 {
        assert_eq!(connection.get(NAME, "/").text(), "second");
    }
    assert!(hedges(&site, "won") >= 1);
}
