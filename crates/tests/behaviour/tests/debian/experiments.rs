//! Experiments on visitors: drawing of connections, differences between variants, and decisions by measurements of pages.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use brisk_behaviour::site::{LIMIT, NAME, NAMES, Site, setup, upstream};
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::client::TlsStream;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{command, run, wait_until};
use brisk_visits::{Settings, Visits};
use rustix::net::{AddressFamily, SocketType};
use serde_json::{Value, json};

/// Keys before the host.
fn keys(folder: &Path) -> String {
    format!("visits.enabled = true\nvisits.folder = \"{}\"\n", folder.display())
}

/// Another address of this machine: of each one visit in ten minutes counts.
fn next_address() -> Ipv4Addr {
    static LAST: AtomicU32 = AtomicU32::new(0);
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 1).to_bits() + LAST.fetch_add(1, Ordering::Relaxed))
}

/// A connection of a visitor with an address of its own.
fn connect(site: &Site) -> TlsStream {
    let SocketAddr::V4(brisk) = site.brisk.https() else { panic!("an address of IPv4") };
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    rustix::net::bind(&socket, &SocketAddrV4::new(next_address(), 0)).expect("an address of this machine");
    rustix::net::connect(&socket, &brisk).expect("a connection");
    site.client().over(TcpStream::from(socket)).expect("a handshake")
}

/// A page that a coding makes shorter by as much as its level allows, and always alike: it is compressed in one go.
fn tables(experiments: &str) -> String {
    let rows: Vec<_> = (0..1_000_u32).map(|row| format!("<tr><td>{row}<td>{}", row * row % 977)).collect();
    let page = format!("<!doctype html><html><head><title>0</title></head><body><table>{}", rows.concat());
    let respond = format!("{{ body = {page:?}, content_type = \"text/html\" }}");
    format!(
        "visits = true\ncompression = {{ codings = [\"gzip\"] }}\n\n[[host.route]]\npath = \"/\"\nrespond = {respond}\n\n\
         {experiments}"
    )
}

fn experiment(name: &str, setting: &str, value: &str) -> String {
    format!("[experiment.{name}]\nsetting = \"{setting}\"\nvalues = [{value}]\n")
}

/// Waits until each of these experiments has come to this.
fn wait_for(brisk: &Brisk, experiments: &[&str], decision: &str) {
    for name in experiments {
        let labels = [&*format!("experiment=\"{name}\""), &*format!("decision=\"{decision}\"")];
        wait_until("the experiment", || {
            (brisk.metrics().sum("brisk_experiment_decision", &labels) > 0.0).then_some(())
        });
    }
}

/// What one connection got: its tickets and the length of its page; and the id of its page view.
struct Seen {
    tickets: u32,
    length: usize,
    id: String,
}

fn visit(stream: &mut TlsStream) -> Seen {
    let answer = stream.request(&format!(
        "GET / HTTP/1.1\r\nHost: {NAME}\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n\
         Accept-Encoding: gzip\r\n\r\n"
    ));
    assert_eq!((answer.status(), answer.header("content-encoding")), (200, Some("gzip")));
    let timings = answer.head.all("server-timing");
    let id = timings.iter().find_map(|value| value.strip_prefix("visit;desc=")).expect("an id");
    Seen { tickets: stream.tls().tls13_tickets_received(), length: answer.body.len(), id: id.to_owned() }
}

/// Reports a page that opened the connection, and whose content came after `time`. Without a wait, which brisk would compare with
/// its own clock, and so with a pause of the machine.
fn report(stream: &mut TlsStream, id: &str, time: u32) {
    let body = format!("id={id}&connect=1&tls=1&ttfb={time}&load={time}&lcp={time}");
    let length = body.len();
    let head = format!("POST /.brisk/beacon HTTP/1.1\r\nHost: {NAME}\r\nSec-Fetch-Site: same-origin\r\n");
    assert_eq!(stream.request(&format!("{head}Content-Length: {length}\r\n\r\n{body}")).status(), 204);
}

/// Visits by arm, as the metrics have them.
fn counted(brisk: &Brisk, name: &str, arm: &str) -> u64 {
    let labels = [&*format!("experiment=\"{name}\""), &*format!("arm=\"{arm}\"")];
    brisk.metrics().sum("brisk_experiment_seconds_count", &labels) as u64
}

#[track_caller]
fn wait_for_count(brisk: &Brisk, name: &str, arms: [(&str, usize); 2]) {
    wait_until(name, || {
        let is_counted = |(arm, count): &(&str, usize)| counted(brisk, name, arm) == *count as u64;
        arms.iter().all(is_counted).then_some(())
    });
}

/// The congestion control of the server's side of a connection.
fn congestion(site: &Site, stream: &TlsStream) -> String {
    let port = stream.tcp().local_addr().expect("a bound socket").port();
    let filter = format!("sport = :{} and dport = :{port}", site.brisk.https().port());
    let shown = run(command("ss").args(["-tinH", &filter]), b"", LIMIT).success();
    let name = shown.lines().nth(1).and_then(|line| line.split_whitespace().next());
    name.unwrap_or_else(|| panic!("no congestion control in {shown:?}")).to_owned()
}

#[test]
fn connections_get_what_their_arms_say_and_beacons_join_the_arm_of_their_connection() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut experiments = vec![
        experiment("tickets", "tls.tickets_per_handshake", "3"),
        experiment("level", "compression.gzip_level", "1"),
    ];
    let mut names = vec!["tickets", "level"];
    // Where the kernel has it for all there is nothing to try.
    let is_other = brisk_net::Congestion::usual().expect("a congestion control") != "reno";
    if is_other {
        experiments.push(experiment("tcp", "net.ipv4.tcp_congestion_control", "\"reno\""));
        names.push("tcp");
    }
    let site = Site::custom(&keys(folder.path()), &tables(&experiments.concat()), |setup| setup);
    wait_for(&site.brisk, &names, "go-on");
    let (mut tickets, mut lengths) = (BTreeMap::new(), BTreeMap::new());
    let mut controls = BTreeMap::new();
    let mut count = 0;
    // Each of three arms is missing after that many with a probability of 2^-40.
    while count < 40 {
        let mut stream = connect(&site);
        let seen = visit(&mut stream);
        *tickets.entry(seen.tickets).or_insert(0) += 1;
        *lengths.entry(seen.length).or_insert(0) += 1;
        *controls.entry(congestion(&site, &stream)).or_insert(0) += 1;
        report(&mut stream, &seen.id, 20_000);
        count += 1;
    }
    assert_eq!(tickets.keys().collect::<Vec<_>>(), [&1, &3]);
    assert_eq!(lengths.len(), 2, "{lengths:?}");
    let arm = |number: u32| format!("tls.tickets_per_handshake = {number}");
    wait_for_count(&site.brisk, "tickets", [(&arm(1), tickets[&1]), (&arm(3), tickets[&3])]);
    // The lower level makes the longer page.
    let [short, long] = [lengths.values().next(), lengths.values().last()].map(|count| *count.expect("two"));
    let arm = |number: u32| format!("compression.gzip_level = {number}");
    wait_for_count(&site.brisk, "level", [(&arm(6), short), (&arm(1), long)]);
    let reno = controls.get("reno").copied().unwrap_or_default();
    let name = r#"net.ipv4.tcp_congestion_control = \"reno\""#;
    if is_other {
        assert_eq!(controls.len(), 2, "{controls:?}");
        wait_until("tcp", || (counted(&site.brisk, "tcp", name) == reno as u64).then_some(()));
    }
    assert_eq!(site.brisk.metrics().sum("brisk_beacons_refused_total", &[]) as u64, 0);
}

#[test]
fn an_experiment_with_an_effect_is_decided_and_stops_by_itself() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tried = experiment("tickets", "tls.tickets_per_handshake", "2");
    let site = Site::custom(&keys(folder.path()), &tables(&tried), |setup| setup);
    wait_for(&site.brisk, &["tickets"], "go-on");
    let mut seen = [0; 2];
    // As many as a decision needs.
    while seen.iter().any(|count| *count < 260) {
        let mut stream = connect(&site);
        let visit = visit(&mut stream);
        let other = usize::from(visit.tickets == 2);
        assert!([1, 2].contains(&visit.tickets), "{}", visit.tickets);
        seen[other] += 1;
        let spread = 20 * u32::try_from(seen[other] % 50).expect("a small number");
        report(&mut stream, &visit.id, [40_000, 30_000][other] + spread);
    }
    // It would be looked at in some seconds anyway.
    site.brisk.reload();
    wait_for(&site.brisk, &["tickets"], "better");
    let line = site.brisk.log_with("no connection is drawn any more");
    for part in [
        "\"tls.tickets_per_handshake = 2\" is better than \"tls.tickets_per_handshake = 1\"",
        "That is what sending the tickets costs; ",
    ] {
        assert!(line.contains(part), "{line}");
    }
    let is_control = |site: &Site| (0..20).all(|_| visit(&mut connect(site)).tickets == 1);
    assert!(is_control(&site));
    // From the first connection of another process on.
    drop(site);
    let site = Site::custom(&keys(folder.path()), &tables(&tried), |setup| setup);
    assert!(is_control(&site));
    wait_for(&site.brisk, &["tickets"], "better");
    assert!(is_control(&site));
    // It ends with its table, and begins anew with it.
    let config = fs::read_to_string(site.brisk.folder().join("brisk.toml")).expect("the configuration");
    site.brisk.write("brisk.toml", config.replace(&tried, ""));
    site.brisk.reload();
    assert_eq!(site.brisk.metrics().sum("brisk_experiment_decision", &[]) as u64, 0);
    assert!(is_control(&site));
    site.brisk.write("brisk.toml", config);
    site.brisk.reload();
    wait_for(&site.brisk, &["tickets"], "go-on");
    let mut tickets = (0..60).map(|_| visit(&mut connect(&site)).tickets);
    assert!(tickets.any(|tickets| tickets == 2));
}

#[test]
fn some_connections_get_hints_and_others_do_not() {
    let origin = Origin::answering(|_, stream| {
        stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<p>hello</p>\n",
        )
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let route = "[[host.route]]\npath = \"/\"\nupstream = \"app\"\nearly_hints = [\"</a.css>; rel=preload; as=style\"]\n";
    let tried = experiment("hints", "early_hints", "false");
    let tables = format!("visits = true\n\n{route}{}\n{tried}", upstream(&[&origin.url()]));
    let site = Site::custom(&keys(folder.path()), &tables, |setup| setup);
    wait_for(&site.brisk, &["hints"], "go-on");
    let view = ["--http2", "--include", "--header", "Sec-Fetch-Mode: navigate"];
    let view = [&view[..], &["--header", "Sec-Fetch-Dest: document"]].concat();
    let mut seen = [0; 2];
    for _ in 0..40 {
        let answer = site.curl(&view, "/").success();
        let without = usize::from(!answer.starts_with("HTTP/2 103"));
        seen[without] += 1;
        let id = answer.lines().find_map(|line| line.split_once("visit;desc=")).expect("an id").1;
        report(&mut connect(&site), id.trim(), 20_000);
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    let arms = [("early_hints = true", seen[0]), ("early_hints = false", seen[1])];
    wait_for_count(&site.brisk, "hints", arms);
}

#[test]
fn one_connection_and_one_address_have_one_vote() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tried = experiment("tickets", "tls.tickets_per_handshake", "2");
    let site = Site::custom(&keys(folder.path()), &tables(&tried), |setup| setup);
    wait_for(&site.brisk, &["tickets"], "go-on");
    let all = |brisk: &Brisk| {
        let metrics = brisk.metrics();
        let of = |name: &str| metrics.sum(name, &[]) as u64;
        (of("brisk_visits_total"), of("brisk_experiment_seconds_count"))
    };
    let mut stream = connect(&site);
    for _ in 0..10 {
        let id = visit(&mut stream).id;
        report(&mut stream, &id, 30_000);
    }
    wait_until("the visits of one connection", || (all(&site.brisk) == (10, 1)).then_some(()));
    for _ in 0..10 {
        let mut stream = site.connect();
        let id = visit(&mut stream).id;
        report(&mut stream, &id, 30_000);
    }
    wait_until("the visits of one address", || (all(&site.brisk) == (20, 2)).then_some(()));
}

#[test]
fn the_access_log_has_the_arms_of_the_host_that_was_asked_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tried = experiment("tickets", "tls.tickets_per_handshake", "2") + &format!("hosts = [\"{NAME}\"]\n");
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let of = |name: &str| host(&[name], &[&leaf]) + "visits = true\n";
    let config = base(&keys(folder.path())) + &of(NAME) + &of("localhost") + &tried;
    let site = Site { brisk: setup().config(&config).start(), ca };
    wait_for(&site.brisk, &["tickets"], "go-on");
    let logged = |path: &str| {
        let line: Value = serde_json::from_str(&site.brisk.logged(path)).expect("a line of JSON");
        line.get("experiments").cloned()
    };
    let mut seen = [0; 2];
    for number in 0..40 {
        let mut stream = connect(&site);
        for path in ["first", "second"] {
            stream.get(NAME, &format!("/{number}-{path}"));
        }
        stream.get("localhost", &format!("/{number}-other"));
        let tickets = stream.tls().tls13_tickets_received();
        let arms = json!({ "tickets": format!("tls.tickets_per_handshake = {tickets}") });
        seen[tickets as usize - 1] += 1;
        for path in ["first", "second"] {
            assert_eq!(logged(&format!("/{number}-{path}")), Some(arms.clone()), "{path}");
        }
        assert_eq!(logged(&format!("/{number}-other")), None);
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn a_second_process_that_cannot_have_the_port_leaves_experiments_and_visits_as_they_are() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let config = |port: u16, experiment: &str| {
        let keys = format!(
            "server.https = [\"127.0.0.1:{port}\"]\nserver.state_dir = {:?}\nvisits.enabled = true\n",
            folder.path()
        );
        base(&keys) + &host(&NAMES, &[&leaf]) + &tables(experiment)
    };
    let tried = experiment("tickets", "tls.tickets_per_handshake", "2");
    let mut site = Site { brisk: setup().config(&config(0, &tried)).start(), ca };
    wait_for(&site.brisk, &["tickets"], "go-on");
    let mut seen = [0; 2];
    let mut record = |brisk: &Site| {
        let mut stream = connect(brisk);
        let visit = visit(&mut stream);
        report(&mut stream, &visit.id, 20_000);
        seen[visit.tickets as usize - 1] += 1;
        let arm = |number: u32| format!("tls.tickets_per_handshake = {number}");
        wait_for_count(&brisk.brisk, "tickets", [(&arm(1), seen[0]), (&arm(2), seen[1])]);
    };
    record(&site);
    let address = site.brisk.https();
    let expected = format!(
        "cannot listen on {address}: Address already in use (os error 98); another program has it, or another brisk"
    );
    let other = experiment("records", "tls.growing_records", "false");
    // With the same experiment, with another one, and with none: each would be the configuration in force, if it came to that.
    for experiment in [&*tried, &other, ""] {
        let ended = setup().config(&config(address.port(), experiment)).fail();
        assert_eq!((ended.status.code(), &*ended.stdout), (Some(1), ""), "{}", ended.stderr);
        let errors: Vec<_> =
            ended.stderr.lines().filter(|line| line.contains(&address.to_string())).collect();
        assert_eq!(errors, [&*expected]);
        // From the database, where the other would have ended it.
        site.brisk.reload();
        wait_for(&site.brisk, &["tickets"], "go-on");
        record(&site);
    }
    site.brisk.terminate();
    assert!(site.brisk.wait().success());
    let visits = Visits::open(&folder.path().join("visits"), Settings::default()).expect("a thread");
    let reports = visits.reader().expect("a store").experiments().expect("an answer");
    let found: Vec<_> = reports.iter().map(|one| (&*one.name, one.ended, one.decided)).collect();
    assert_eq!(found, [("tickets", None, None)]);
    assert_eq!(reports[0].arms.iter().map(|arm| arm.visits).sum::<u64>(), 4);
}

#[test]
fn an_experiment_behind_a_proxy_that_names_no_client_says_that_it_sees_no_visitor() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let keys = keys(folder.path()) + "server.trusted_proxies = [\"127.0.0.0/8\"]\n";
    let tried = experiment("tickets", "tls.tickets_per_handshake", "2");
    let site = Site::custom(&keys, &tables(&tried), |setup| setup);
    wait_for(&site.brisk, &["tickets"], "go-on");
    for _ in 0..60 {
        let mut stream = connect(&site);
        let seen = visit(&mut stream);
        assert_eq!(seen.tickets, 1, "not drawn");
        report(&mut stream, &seen.id, 20_000);
    }
    wait_until("all visits", || {
        (site.brisk.metrics().sum("brisk_visits_total", &[]) as u64 == 60).then_some(())
    });
    // It would be looked at in some seconds anyway.
    site.brisk.reload();
    let log = site.brisk.log_with("Nothing to compare");
    let line = log.lines().find(|line| line.contains("Nothing to compare")).expect("a line");
    for part in
        ["of 60 page views that opened their connection none counts", "experiment=tickets", "trusted_proxies"]
    {
        assert!(line.contains(part), "{line}");
    }
}
