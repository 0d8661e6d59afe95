//! Upstreams: a real nginx, and origins that record requests. Headers, balancing, pools, TLS and HTTP/2.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread;
use std::time::Duration;

use brisk_behaviour::site::{NAME, Site, proxy_to, upstream};
use brisk_testkit::ca::TestCa;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;
use rustix::process::Signal;

/// Timeouts of an upstream: TLS handshakes take seconds on a busy machine.
const LENIENT: &str = "timeouts = { connect = \"1m\", head = \"2m\" }\n";

/// The lines of nginx' `/headers`, by name.
fn echoed(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

#[test]
fn the_upstream_learns_who_asked_and_how() {
    let nginx = Nginx::http();
    let site = Site::proxying(&[&nginx.url()]);
    let authority = format!("{NAME}:{}", site.brisk.https().port());
    for option in ["--http1.1", "--http2"] {
        let lies = ["--header", "X-Forwarded-For: 203.0.113.9", "--header", "Forwarded: for=203.0.113.9"];
        let own = ["--header", "X-Own: kept", "--header", "X-Request-Id: chosen"];
        let seen = echoed(&site.curl(&[&[option], &lies[..], &own[..]].concat(), "/headers").success());
        assert_eq!(seen["protocol"], "HTTP/1.1");
        assert_eq!(seen["host"], authority);
        assert_eq!(seen["x-own"], "kept");
        assert_eq!(seen["x-forwarded-for"], "127.0.0.1");
        assert_eq!(seen["x-forwarded-proto"], "https");
        assert_eq!(seen["x-forwarded-host"], authority);
        assert_eq!(seen["forwarded"], format!("for=127.0.0.1;host=\"{authority}\";proto=https"));
        assert_eq!(seen["x-request-id"].len(), 16, "{seen:?}");
    }
}

#[test]
fn a_trusted_proxys_headers_are_extended() {
    let nginx = Nginx::http();
    let site =
        Site::custom("server.trusted_proxies = [\"127.0.0.0/8\"]\n", &proxy_to(&[&nginx.url()]), |setup| {
            setup
        });
    let options = [
        "--header",
        "X-Forwarded-For: 203.0.113.9",
        "--header",
        "X-Forwarded-Proto: http",
        "--header",
        "Forwarded: for=203.0.113.9",
    ];
    let seen = echoed(&site.curl(&options, "/headers").success());
    assert_eq!(seen["x-forwarded-for"], "203.0.113.9, 127.0.0.1");
    assert_eq!(seen["x-forwarded-proto"], "http");
    assert!(seen["forwarded"].starts_with("for=203.0.113.9;proto=http, for=127.0.0.1;"), "{seen:?}");
}

#[test]
fn hop_by_hop_headers_end_at_brisk() {
    let origin = Origin::answering(|_, stream| {
        use std::io::Write;
        let headers = "Connection: X-Internal\r\nX-Internal: 1\r\nKeep-Alive: timeout=9\r\nX-Public: 1\r\n";
        write!(stream, "HTTP/1.1 200 OK\r\n{headers}Content-Length: 0\r\n\r\n")
    });
    let site = Site::proxying(&[&origin.url()]);
    let mut connection = site.connect();
    let answer = connection.request(&format!(
        "GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: X-Own, keep-alive\r\nX-Own: 1\r\nX-Public: 1\r\n\
         Keep-Alive: 5\r\nProxy-Authorization: Basic eA==\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\n\r\n"
    ));
    let request = origin.last_request();
    for name in ["x-own", "keep-alive", "proxy-authorization", "proxy-connection", "te"] {
        assert_eq!(request.header(name), None, "{name}");
    }
    assert_eq!(request.header("x-public"), Some("1"));
    assert_eq!((answer.header("x-internal"), answer.header("keep-alive")), (None, None));
    assert_eq!(answer.header("x-public"), Some("1"));
}

#[test]
fn bodies_of_every_size_come_through() {
    let nginx = Nginx::http();
    let site = Site::proxying(&[&nginx.url()]);
    for (path, size) in [("/1k", 1 << 10), ("/1m", 1 << 20)] {
        for option in ["--http1.1", "--http2"] {
            let body = site.curl(&[option], path).success();
            assert!(body.len() == size && body.bytes().all(|byte| byte == b'x'), "{path} {option}");
        }
    }
    let ranged = site.curl(&["--range", "0-9", "--write-out", " %{response_code}"], "/1k").success();
    assert_eq!(ranged, "xxxxxxxxxx 206");
}

#[test]
fn upstreams_over_h2c_and_over_verified_tls() {
    let ca = TestCa::new();
    let leaf = ca.server(&["backend.test"]).issue();
    let (h2c, https) = (Nginx::h2c(), Nginx::https(&leaf));
    let tls = |protocol: &str| {
        let tls =
            format!("tls = {{ ca = \"ca.pem\", server_name = \"backend.test\", protocol = {protocol:?} }}\n");
        proxy_to(&[&https.url()]) + &tls + LENIENT
    };
    for (tables, protocol) in
        [(proxy_to(&[&h2c.url()]), "HTTP/2.0"), (tls("http/1.1"), "HTTP/1.1"), (tls("h2"), "HTTP/2.0")]
    {
        let site = Site::custom("", &tables, |setup| setup.file("ca.pem", ca.root_pem()));
        for option in ["--http1.1", "--http2"] {
            let seen = echoed(&site.curl(&[option], "/headers").success());
            assert_eq!((seen["protocol"].as_str(), seen["x-forwarded-proto"].as_str()), (protocol, "https"));
            assert_eq!(site.curl(&[option], "/1m").success().len(), 1 << 20);
        }
    }
}

/// What TLS has encrypted and the kernel did not take at first has to follow when there is room, to the last byte.
#[test]
fn uploads_over_tls_arrive_whole_although_the_upstream_pauses() {
    let ca = TestCa::new();
    let plain = Nginx::http();
    let reads_all = format!(
        "location /upload {{ client_max_body_size 64m; proxy_pass_request_body off; proxy_set_header Content-Length \"\"; \
         proxy_pass {}/name; }}",
        plain.url()
    );
    let https = Nginx::https_with(&ca.server(&["backend.test"]).issue(), &reads_all);
    let tls = "tls = { ca = \"ca.pem\", server_name = \"backend.test\", protocol = \"http/1.1\" }\n";
    let tables = proxy_to(&[&https.url()]) + tls + LENIENT;
    let site = Site::custom("", &tables, |setup| setup.file("ca.pem", ca.root_pem()));
    let file = site.brisk.folder().join("upload");
    let data = format!("@{}", file.display());
    for (size, option) in [(1 << 20, "--http1.1"), (6 << 20, "--http1.1"), (12 << 20, "--http2")] {
        fs::write(&file, vec![b'x'; size]).expect("a file");
        // Connected, so that the pause is one in the upload.
        assert_eq!(site.get("/name").status(), 200);
        https.process().pause();
        thread::scope(|scope| {
            let upload = scope.spawn(|| site.curl(&[option, "--data-binary", &data], "/upload").success());
            thread::sleep(Duration::from_millis(500));
            https.process().signal(Signal::CONT);
            assert_eq!(
                upload.join().expect("an answer"),
                plain.address().port().to_string(),
                "{size} {option}"
            );
        });
    }
}

#[test]
fn an_upstream_whose_certificate_is_wrong_gets_nothing() {
    let ca = TestCa::new();
    let https = Nginx::https(&ca.server(&["backend.test"]).issue());
    let other_name = "tls = { ca = \"ca.pem\", server_name = \"other.test\" }\n";
    let other_ca = "tls = { ca = \"other.pem\", server_name = \"backend.test\" }\n";
    for tls in [other_name, other_ca, ""] {
        let tables = proxy_to(&[&https.url()]) + tls + LENIENT;
        let site = Site::custom("", &tables, |setup| {
            setup.file("ca.pem", ca.root_pem()).file("other.pem", TestCa::new().root_pem())
        });
        assert_eq!(site.get("/1k").status(), 502, "{tls:?}");
    }
}

fn names(site: &Site, requests: usize) -> Vec<String> {
    let mut connection = site.connect();
    (0..requests).map(|_| connection.get(NAME, "/name").text()).collect()
}

#[test]
fn requests_go_round_by_weight() {
    let servers = [Nginx::http(), Nginx::http()];
    let [first, second] = servers.each_ref().map(Nginx::url);
    let tables = format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n[upstream.app]\nservers = [{first:?}, {{ url = {second:?}, weight = 3 }}]\n"
    );
    let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
    let names = names(&site, 40);
    let second = servers[1].address().port().to_string();
    assert_eq!(names.iter().filter(|name| **name == second).count(), 30, "{names:?}");
}

#[test]
fn a_hash_keeps_together_what_belongs_together() {
    let servers = [Nginx::http(), Nginx::http(), Nginx::http()];
    let urls = servers.each_ref().map(Nginx::url);
    let tables = proxy_to(&urls.each_ref().map(String::as_str))
        + "balance = \"consistent_hash\"\nhash_by = \"header:X-User\"\n";
    let site = Site::with(&tables);
    let server_of = |user: usize| {
        let request = format!("GET /name HTTP/1.1\r\nHost: {NAME}\r\nX-User: {user}\r\n\r\n");
        let names: BTreeSet<_> = (0..3).map(|_| site.connect().request(&request).text()).collect();
        assert_eq!(names.len(), 1, "user {user} was sent to {names:?}");
        names.into_iter().next()
    };
    let used: BTreeSet<_> = (0..30).map(server_of).collect();
    assert_eq!(used.len(), 3, "30 users on {used:?}");
}

#[test]
fn connections_to_the_upstream_are_used_again() {
    let origin = Origin::fixed("again");
    let site = Site::custom("server.workers = 1\n", &proxy_to(&[&origin.url()]), |setup| setup);
    for _ in 0..5 {
        assert_eq!(site.get("/").text(), "again");
    }
    assert_eq!((origin.connections(), origin.requests().len()), (1, 5));
}

#[test]
fn a_prefix_can_be_stripped() {
    let origin = Origin::fixed("here");
    let tables = "\n[[host.route]]\npath = \"/api\"\nupstream = \"app\"\nstrip_prefix = true\n";
    let site = Site::with(&(tables.to_owned() + &upstream(&[&origin.url()])));
    for (asked, forwarded) in [("/api/users?x=1", "/users?x=1"), ("/api", "/"), ("/api/", "/")] {
        site.get(asked);
        assert_eq!(origin.last_request().head.line, format!("GET {forwarded} HTTP/1.1"));
    }
}

#[test]
fn active_checks_take_a_server_out_and_bring_it_back() {
    let sick = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let own = std::sync::Arc::clone(&sick);
    let origin = Origin::answering(move |request, stream| {
        use std::io::Write;
        let fails =
            own.load(std::sync::atomic::Ordering::SeqCst) && request.head.line.starts_with("GET /health ");
        let status = if fails { "500 Oops" } else { "200 OK" };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
    });
    let nginx = Nginx::http();
    // Three failures are no pause of the machine, which fails one check.
    let health = "health = { path = \"/health\", interval = \"1s\", timeout = \"1s\", unhealthy_after = 3, healthy_after = 1 }\n";
    let site = Site::with(&(proxy_to(&[&origin.url(), &nginx.url()]) + health));
    let healthy = |wanted: f64| {
        wait_until("a changed health", || {
            let found = site.brisk.metrics().sum("brisk_upstream_healthy", &[]);
            ((found - wanted).abs() < 0.5).then_some(())
        });
    };
    healthy(2.0);
    sick.store(true, std::sync::atomic::Ordering::SeqCst);
    healthy(1.0);
    let name = nginx.address().port().to_string();
    wait_until("responses of the other server alone", || {
        names(&site, 10).iter().all(|found| *found == name).then_some(())
    });
    sick.store(false, std::sync::atomic::Ordering::SeqCst);
    healthy(2.0);
}
