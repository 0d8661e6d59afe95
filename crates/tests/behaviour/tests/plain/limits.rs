//! Limits of requests by key: rate and number at a time, for routes and hosts.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use brisk_behaviour::h2::{self, Frames};
use brisk_behaviour::site::{NAME, NAMES, Site, connect_from, setup, upstream};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::client::TlsStream;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::{TIMEOUT, wait_until};

/// A route that responds, with these keys.
fn route(path: &str, keys: &str) -> String {
    format!("\n[[host.route]]\npath = \"{path}\"\nrespond = {{ body = \"here\" }}\n{keys}\n")
}

fn get(connection: &mut TlsStream, path: &str, headers: &str) -> Message {
    write!(connection, "GET {path} HTTP/1.1\r\nHost: {NAME}\r\n{headers}\r\n").expect("a server");
    Message::read_response(connection).expect("a response")
}

/// Statuses of requests on connections of their own, which the kernel distributes over the workers.
fn statuses(site: &Site, path: &str, headers: &str, count: usize) -> Vec<u16> {
    (0..count).map(|_| get(&mut site.connect(), path, headers).status()).collect()
}

fn counted(site: &Site, limit: &str, result: &str) -> u64 {
    let labels = [format!("limit=\"{limit}\""), format!("result=\"{result}\"")];
    site.brisk.metrics().sum("brisk_limit_requests_total", &[&labels[0], &labels[1]]) as u64
}

#[test]
fn a_client_that_exceeds_the_rate_of_a_route_is_refused_there() {
    let tables =
        [route("/limited", "limits = [\"few\"]"), route("/", ""), "[limit.few]\nrate = \"3/h\"\n".to_owned()];
    let site = Site::custom("server.workers = 2\n", &tables.concat(), |setup| setup);
    assert_eq!(statuses(&site, "/limited", "", 5), [200, 200, 200, 429, 429]);
    let response = site.get("/limited");
    let wait: u64 = response.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds");
    assert!((1..=1200).contains(&wait), "{wait}");
    assert_eq!(statuses(&site, "/", "X-Forwarded-For: 192.0.2.1\r\n", 5), [200; 5], "another route");
    let mut other = site
        .client()
        .over(connect_from(Ipv4Addr::new(127, 0, 0, 2), site.brisk.https()))
        .expect("a handshake");
    assert_eq!(get(&mut other, "/limited", "").status(), 200);
    assert!(site.brisk.logged("\"rate-limit\"").contains("\"status\":429"));
    assert_eq!((counted(&site, "few", "passed"), counted(&site, "few", "rate")), (4, 3));
}

#[test]
fn no_number_of_empty_pairs_hides_a_key() {
    let tables = [
        route("/cookie", "limits = [\"cookie\"]"),
        route("/parameter", "limits = [\"parameter\"]"),
        "[limit.cookie]\nrate = \"2/h\"\nby = \"{request.cookie.user}\"\n[limit.parameter]\nrate = \"2/h\"\nby = \"{request.query.user}\"\n"
            .to_owned(),
    ];
    let site = Site::with(&tables.concat());
    let cookie = format!("Cookie: {}user=a\r\n", ";".repeat(3_000));
    assert_eq!(statuses(&site, "/cookie", &cookie, 3), [200, 200, 429]);
    let path = format!("/parameter?{}user=a", "&".repeat(3_000));
    assert_eq!(statuses(&site, &path, "", 3), [200, 200, 429]);
}

#[test]
fn a_key_is_formed_from_the_request_over_every_protocol() {
    let tables = [
        route("/", "limits = [\"user\", \"all\"]"),
        "[limit.user]\nrate = \"2/h\"\nby = \"{request.cookie.user}\"\n[limit.all]\nrate = \"100/h\"\nby = \"*\"\n".to_owned(),
    ];
    let site = Site::with(&tables.concat());
    assert_eq!(statuses(&site, "/", "Cookie: user=a\r\n", 3), [200, 200, 429]);
    assert_eq!(statuses(&site, "/", "Cookie: x=1; user=b\r\n", 1), [200]);
    assert_eq!(statuses(&site, "/", "", 4), [200; 4], "without a key");
    let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
    let cookie = [("cookie", "user=b")];
    let request = [h2::preface(), h2::get_with(1, "/", &cookie), h2::get_with(3, "/", &cookie)].concat();
    let mut frames = Frames::exchange(&mut connection, &request, 1);
    if !frames.has_ended(3) {
        frames.read_until_end(&mut connection, 3);
    }
    assert_eq!(frames.body(1), "here");
    assert!(frames.body(3).contains("429"), "{}", frames.body(3));
    // Refused requests take no token of the other limit.
    assert_eq!(counted(&site, "all", "passed"), 8);
}

#[test]
fn behind_a_trusted_proxy_the_clients_of_its_list_are_limited() {
    let tables = [route("/", "limits = [\"few\"]"), "[limit.few]\nrate = \"1/h\"\n".to_owned()];
    let keys = "server.trusted_proxies = [\"127.0.0.1/32\", \"10.0.0.0/8\"]\n";
    let site = Site::custom(keys, &tables.concat(), |setup| setup);
    for (list, status) in [
        ("192.0.2.1", 200),
        ("192.0.2.1", 429),
        ("192.0.2.1, 10.1.1.1", 429),
        ("198.51.100.7, 192.0.2.1:4711", 429),
        ("192.0.2.2", 200),
        ("2001:db8::1", 200),
        ("2001:db8::2", 429),
        // Without an address, the proxy is the client.
        ("192.0.2.1, unknown", 200),
        ("192.0.2.2, unknown", 429),
    ] {
        let response = get(&mut site.connect(), "/", &format!("X-Forwarded-For: {list}\r\n"));
        assert_eq!(response.status(), status, "{list}");
    }
    assert_eq!(statuses(&site, "/", "", 1), [429], "the proxy itself");
    let from_stranger = || {
        let tcp = connect_from(Ipv4Addr::new(127, 0, 0, 2), site.brisk.https());
        let mut stranger = site.client().over(tcp).expect("a handshake");
        get(&mut stranger, "/", "X-Forwarded-For: 203.0.113.9\r\n").status()
    };
    assert_eq!((from_stranger(), from_stranger()), (200, 429), "its list is not believed");
}

#[test]
fn the_limits_of_a_host_apply_unless_a_route_has_its_own() {
    let tables = [
        "limits = [\"host\"]\n".to_owned(),
        route("/a", ""),
        route("/own", "limits = [\"own\"]"),
        route("/open", "limits = []"),
        "[limit.host]\nrate = \"2/h\"\n[limit.own]\nrate = \"1/h\"\nstatus = 503\n".to_owned(),
    ];
    let site = Site::with(&tables.concat());
    assert_eq!(statuses(&site, "/a", "", 1), [200]);
    assert_eq!(statuses(&site, "/missing", "", 2), [404, 429], "requests without a route count");
    assert_eq!(statuses(&site, "/own", "", 2), [200, 503]);
    assert_eq!(statuses(&site, "/open", "", 3), [200; 3]);
}

#[test]
fn a_dry_run_refuses_nothing_and_counts() {
    let tables =
        [route("/", "limits = [\"few\"]"), "[limit.few]\nrate = \"1/h\"\ndry_run = true\n".to_owned()];
    let site = Site::with(&tables.concat());
    assert_eq!(statuses(&site, "/", "", 3), [200; 3]);
    assert_eq!((counted(&site, "few", "passed"), counted(&site, "few", "dry_run")), (1, 2));
}

#[test]
fn a_reload_keeps_the_rates_of_unchanged_limits() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let config = |body: &str, burst: u32| {
        let start = base("") + &host(&NAMES, &[&leaf]);
        let route = format!(
            "\n[[host.route]]\npath = \"/\"\nrespond = {{ body = \"{body}\" }}\nlimits = [\"few\"]\n"
        );
        format!("{start}{route}[limit.few]\nrate = \"2/h burst {burst}\"\n")
    };
    let site = Site { brisk: setup().config(&config("old", 2)).start(), ca };
    assert_eq!(statuses(&site, "/", "", 3), [200, 200, 429]);
    site.brisk.write("brisk.toml", config("new", 2));
    assert!(site.brisk.reload().contains("reloaded"));
    assert_eq!(statuses(&site, "/", "", 1), [429]);
    site.brisk.write("brisk.toml", config("new", 3));
    assert!(site.brisk.reload().contains("reloaded"));
    assert_eq!(statuses(&site, "/", "", 1), [200], "another limit");
}

/// An origin that responds to a request for each message.
fn on_demand() -> (Origin, Sender<()>) {
    let (release, held) = channel();
    let held = Mutex::new(held);
    let origin = Origin::answering(move |_, stream| {
        // The test's end releases it too.
        let _ = held.lock().expect("no handler panics").recv();
        write_response(stream, b"done")
    });
    (origin, release)
}

fn with_concurrency(origin: &Origin, keys: &str) -> Site {
    let tables = [
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nlimits = [\"slots\"]\n".to_owned(),
        upstream(&[&origin.url()]),
        "timeouts = { head = \"10m\" }\n".to_owned(),
        format!("[limit.slots]\nconcurrency = 2\n{keys}"),
    ];
    Site::with(&tables.concat())
}

fn begin(site: &Site, headers: &str) -> TlsStream {
    let mut connection = site.connect();
    write!(connection, "GET / HTTP/1.1\r\nHost: {NAME}\r\n{headers}\r\n").expect("a server");
    connection
}

#[test]
fn a_key_has_a_number_of_requests_at_a_time() {
    let (origin, release) = on_demand();
    let site = with_concurrency(&origin, "by = \"{request.header.x-key}\"\nstatus = 503\n");
    let mut first = begin(&site, "X-Key: a\r\n");
    let second = begin(&site, "X-Key: a\r\n");
    wait_until("two requests at the origin", || (origin.requests().len() == 2).then_some(()));
    let refused = get(&mut site.connect(), "/", "X-Key: a\r\n");
    assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("1")));
    assert!(site.brisk.logged("\"concurrency-limit\"").contains("\"status\":503"));
    assert_eq!(counted(&site, "slots", "concurrency"), 1);
    let other = begin(&site, "X-Key: b\r\n");
    wait_until("a request of another key", || (origin.requests().len() == 3).then_some(()));
    // A client that goes gives its slot back, and so does a response.
    drop(second);
    wait_until("a free slot", || {
        let decided = || counted(&site, "slots", "passed") + counted(&site, "slots", "concurrency");
        let before = decided();
        let _third = begin(&site, "X-Key: a\r\n");
        wait_until("a decision", || (decided() > before).then_some(()));
        (counted(&site, "slots", "passed") == 4).then_some(())
    });
    drop(other);
    for _ in 0..8 {
        let _ = release.send(());
    }
    first.tcp().set_read_timeout(Some(TIMEOUT)).expect("a socket");
    assert_eq!(Message::read_response(&mut first).expect("a response").text(), "done");
    wait_until("no request in progress", || {
        (get(&mut site.connect(), "/", "X-Key: a\r\n").status() == 200).then_some(())
    });
}

#[test]
fn a_plain_connection_is_not_limited_by_the_limits_of_routes() {
    let tables = [route("/", "limits = [\"few\"]"), "[limit.few]\nrate = \"1/h\"\n".to_owned()];
    let site = Site::with(&tables.concat());
    for _ in 0..3 {
        let mut http = TcpStream::connect(site.brisk.http()).expect("a listener");
        write!(http, "GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a connection");
        assert_eq!(Message::read_response(&mut http).expect("a redirect").status(), 308);
    }
}
