//! Mirrored requests of routes.

use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;

use brisk_behaviour::site::{NAME, Site, connect_from};
use brisk_testkit::http1::Message;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::{GatedOrigin, Origin};
use brisk_testkit::process::wait_until;

/// A site whose requests go to `app`, with copies to `mirror`. `keys` are those of the table `mirror` after the name.
fn site(app: &str, mirror: &str, keys: &str) -> Site {
    // Longer than any pause of the machine, unless the test is about the timeout.
    let timeout = if keys.contains("timeout") { "" } else { ", timeout = \"10m\"" };
    let tables = format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nmirror = {{ upstream = \"copy\"{timeout}{keys} }}\n\
         [upstream.app]\nservers = [{app:?}]\n[upstream.copy]\nservers = [{mirror:?}]\n"
    );
    Site::custom("server.timeouts.body = \"10m\"", &tables, |setup| setup)
}

/// Waits until the metric has this value.
fn becomes(site: &Site, metric: &str, label: &str, wanted: usize) {
    let mut found = 0.0;
    wait_until(metric, || {
        found = site.brisk.metrics().sum(metric, &[label]);
        ((found - wanted as f64).abs() < 0.5).then_some(())
    });
}

fn mirrored(site: &Site, result: &str, wanted: usize) {
    becomes(site, "brisk_mirrored_requests_total", &format!("result=\"{result}\""), wanted);
}

/// Memory of copies.
fn held(site: &Site) -> f64 {
    site.brisk.metrics().sum("brisk_budget_held_bytes", &["budget=\"mirrors\""])
}

fn skipped(site: &Site, reason: &str, wanted: usize) {
    becomes(site, "brisk_mirror_skips_total", &format!("reason=\"{reason}\""), wanted);
}

/// The last `count` requests of a server: line without version, and body.
fn lines(origin: &Origin, count: usize) -> Vec<(String, String)> {
    let requests = wait_until("requests", || Some(origin.requests()).filter(|all| all.len() >= count));
    assert_eq!(requests.len(), count);
    let line = |message: &Message| message.head.line.rsplit_once(' ').expect("a version").0.to_owned();
    let mut lines: Vec<_> = requests.iter().map(|message| (line(message), message.text())).collect();
    lines.sort();
    lines
}

const CHUNKED: &str = "POST /chunked HTTP/1.1\r\nHost: site.test\r\nTransfer-Encoding: chunked\r\n\r\n\
                       3\r\none\r\n5\r\n,two,\r\n0\r\n\r\n";

#[test]
fn a_mirror_receives_requests_with_their_bodies_and_its_responses_are_discarded() {
    // A server that reads bodies before it responds: a body that it does not take is not mirrored.
    let (app, mirror) = (Origin::fixed("own"), Origin::fixed("from the mirror"));
    let site = site(&app.url(), &format!("{}/base", mirror.url()), "");
    let mut connection = site.connect();
    let mut texts = vec![connection.get(NAME, "/name?a=b").text()];
    let post = format!("POST /length HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 4\r\n\r\nbody");
    texts.extend([post.as_str(), CHUNKED].map(|request| connection.request(request).text()));
    for (option, path) in [("--http1.1", "/one"), ("--http2", "/two")] {
        texts.push(site.curl(&[option, "--data", "form"], path).success());
        texts.push(site.curl(&[option, "--head"], path).success());
    }
    assert!(texts.iter().all(|text| !text.contains("mirror")), "{texts:?}");
    let own = |line: &str, body: &str| (line.to_owned(), body.to_owned());
    assert_eq!(
        lines(&mirror, 7),
        [
            own("GET /base/name?a=b", ""),
            own("HEAD /base/one", ""),
            own("HEAD /base/two", ""),
            own("POST /base/chunked", "one,two,"),
            own("POST /base/length", "body"),
            own("POST /base/one", "form"),
            own("POST /base/two", "form"),
        ]
    );
    let copy = mirror.requests().into_iter().find(|request| request.head.line.starts_with("GET"));
    let copy = copy.expect("the first request");
    assert_eq!((copy.header("host"), copy.header("x-forwarded-for")), (Some(NAME), Some("127.0.0.1")));
    mirrored(&site, "answered", 7);
}

#[test]
fn a_slow_or_absent_mirror_does_not_change_responses() {
    let (app, gated) = (Nginx::http(), GatedOrigin::new("late"));
    let own = app.address().port().to_string();
    let slow = site(&app.url(), &gated.url(), ", timeout = \"100ms\"");
    let mut connection = slow.connect();
    for _ in 0..3 {
        assert_eq!(connection.get(NAME, "/name").text(), own);
    }
    mirrored(&slow, "timed-out", 3);
    let closed = Nginx::http();
    let absent = site(&app.url(), &closed.url(), "");
    drop(closed);
    let mut connection = absent.connect();
    for _ in 0..3 {
        assert_eq!(connection.get(NAME, "/name").text(), own);
    }
    mirrored(&absent, "failed", 3);
}

#[test]
fn a_copy_outlives_the_connection_of_its_client() {
    let (app, gated) = (Nginx::http(), GatedOrigin::new("late"));
    let site = site(&app.url(), &gated.url(), "");
    assert_eq!(site.get("/name").status(), 200);
    gated.last_request();
    wait_until("the end of the connection", || {
        (site.brisk.metrics().sum("brisk_connections_open", &["listener=\"https\""]) < 0.5).then_some(())
    });
    gated.open();
    mirrored(&site, "answered", 1);
}

#[test]
fn long_bodies_are_not_mirrored_and_counted() {
    let (app, mirror) = (Origin::fixed("own"), Origin::fixed("copy"));
    let site = site(&app.url(), &mirror.url(), ", body_size = \"7B\"");
    let mut connection = site.connect();
    assert_eq!(connection.request(CHUNKED).text(), "own");
    assert_eq!(app.last_request().text(), "one,two,");
    skipped(&site, "body-size", 1);
    let post = |length: usize| {
        format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length))
    };
    assert_eq!(connection.request(&post(8)).text(), "own");
    skipped(&site, "body-size", 2);
    assert_eq!(connection.request(&post(7)).text(), "own");
    assert_eq!(lines(&mirror, 1), [("POST /".to_owned(), "x".repeat(7))]);
}

#[test]
fn a_client_has_half_of_the_requests_in_progress() {
    let (app, gated) = (Nginx::http(), GatedOrigin::new("late"));
    let site = site(&app.url(), &gated.url(), ", requests = 4");
    let mut connection = site.connect();
    for _ in 0..5 {
        assert_eq!(connection.get(NAME, "/name").status(), 200);
    }
    skipped(&site, "concurrency", 3);
    assert_eq!(lines(&gated, 2).len(), 2);
    let stream = connect_from(Ipv4Addr::new(127, 0, 0, 2), site.brisk.https());
    assert_eq!(site.client().over(stream).expect("a handshake").get(NAME, "/name").status(), 200);
    assert_eq!(lines(&gated, 3).len(), 3, "another client has its share");
    gated.open();
    mirrored(&site, "answered", 3);
    assert_eq!(connection.get(NAME, "/name").status(), 200);
    mirrored(&site, "answered", 4);
}

#[test]
fn a_share_of_the_requests_is_mirrored() {
    let (app, mirror) = (Nginx::http(), Origin::fixed("copy"));
    let site = site(&app.url(), &mirror.url(), ", percent = 25");
    let mut connection = site.connect();
    for _ in 0..400 {
        assert_eq!(connection.get(NAME, "/name").status(), 200);
    }
    // More than six standard deviations around 100.
    let copies = wait_until("copies", || Some(mirror.requests().len()).filter(|copies| *copies > 45));
    mirrored(&site, "failed", 0);
    assert!(copies < 155, "{copies}");
}

#[test]
fn uploads_that_end_early_and_switches_of_protocols_are_not_mirrored() {
    let (app, mirror) = (Origin::fixed("own"), Origin::fixed("copy"));
    let site = site(&app.url(), &mirror.url(), "");
    let upgrade =
        format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(site.connect().request(&upgrade).text(), "own");
    skipped(&site, "upgrade", 1);
    let mut connection = site.connect();
    write!(connection, "POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 10\r\n\r\nhalf")
        .expect("a server");
    connection.flush().expect("a server");
    wait_until("the beginning of a copy", || (held(&site) > 0.0).then_some(()));
    drop(connection);
    skipped(&site, "incomplete", 1);
    assert_eq!(mirror.requests().len(), 0);
}

/// A server that takes everything and answers nothing.
fn sink() -> Origin {
    Origin::raw(|mut stream| {
        let mut buffer = vec![0; 1 << 16];
        while stream.read(&mut buffer)? > 0 {}
        Ok(())
    })
}

#[test]
fn copies_for_one_client_leave_memory_for_those_of_others() {
    let (app, mirror) = (sink(), Origin::fixed("copy"));
    let site = site(&app.url(), &mirror.url(), ", body_size = \"8MiB\"");
    let reaches = |at_least: f64| wait_until("memory", || Some(held(&site)).filter(|held| *held >= at_least));
    // Each upload pauses before its last byte.
    let upload = |source: u8| {
        let stream = connect_from(Ipv4Addr::new(127, 0, 0, source), site.brisk.https());
        let mut connection = site.client().over(stream).expect("a handshake");
        let length = 8 << 20;
        write!(connection, "POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {length}\r\n\r\n")
            .expect("a server");
        connection.write_all(&vec![b'x'; length - 1]).expect("a server");
        connection
    };
    let own = [upload(1), upload(1)];
    reaches(16e6);
    let third = upload(1);
    skipped(&site, "memory", 1);
    let other = upload(2);
    let all = reaches(24e6);
    assert!(all < 33e6, "{all}");
    skipped(&site, "memory", 1);
    drop((own, third, other));
    wait_until("released memory", || (held(&site) < 0.5).then_some(()));
}
