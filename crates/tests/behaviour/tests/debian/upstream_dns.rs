//! Servers of upstreams from DNS, answered by Knot.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};

use brisk_behaviour::site::{NAME, NAMES, Site, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::knot::Knot;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::{free_port, wait_until};

const ZONE: &str = "app.test";

/// Tables of a group whose servers `knot` names, which are asked for again every 100 to 200 ms.
fn group(servers: &str, knot: &Knot, more: &str) -> String {
    format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n[upstream.app]\nservers = [{servers}]\n{more}\
         [upstream.app.dns]\nservers = [\"{}\"]\nmin_ttl = \"100ms\"\nmax_ttl = \"200ms\"\n",
        knot.address()
    )
}

fn one_worker(tables: &str) -> Site {
    Site::custom("server.workers = 1\n", tables, |setup| setup)
}

fn resolved(nginx: &Nginx) -> String {
    format!("{{ url = \"http://web.{ZONE}:{}\", resolve = true }}", nginx.address().port())
}

/// An nginx at three addresses; `/address` names the one that was used.
fn at_three_addresses() -> Nginx {
    Nginx::http_with(
        "listen 127.0.0.2:PORT;\nlisten 127.0.0.3:PORT;\nlocation = /address { return 200 $server_addr; }\n\
         location = /slow { limit_rate 400k; alias FOLDER/1m; }",
    )
}

/// How often each server answered one of 12 requests for `path`.
fn answers(site: &Site, path: &str) -> BTreeMap<String, usize> {
    let mut connection = site.connect();
    let mut answers = BTreeMap::new();
    for _ in 0..12 {
        *answers.entry(connection.get(NAME, path).text()).or_default() += 1;
    }
    answers
}

#[track_caller]
fn wait_for(site: &Site, path: &str, expected: &[&str]) {
    wait_until("the servers that DNS names", || {
        let found: BTreeSet<_> = answers(site, path).into_keys().collect();
        found.iter().eq(expected.iter()).then_some(())
    });
}

#[test]
fn each_address_is_a_server_and_removed_ones_finish_their_requests() {
    let nginx = at_three_addresses();
    let knot = Knot::serving(ZONE, "web A 127.0.0.1");
    let site = Site::with(&group(&resolved(&nginx), &knot, ""));
    // The first request waits for the first answer.
    assert_eq!(site.get("/address").text(), "127.0.0.1");
    let mut slow = site.connect();
    write!(slow, "GET /slow HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n").expect("a request");
    let mut first = [0; 16];
    slow.read_exact(&mut first).expect("the begin of a response");
    knot.set(ZONE, "web A 127.0.0.2\nweb A 127.0.0.3");
    wait_for(&site, "/address", &["127.0.0.2", "127.0.0.3"]);
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).expect("the rest of the response");
    assert!(rest.ends_with("x".repeat(1 << 20).as_bytes()), "{} bytes", rest.len());
    let metrics = site.brisk.metrics();
    let port = nginx.address().port();
    let known =
        |address: &str| metrics.sum("brisk_upstream_healthy", &[&format!("server=\"{address}:{port}\"")]);
    assert!(known("127.0.0.2") > 0.5 && known("127.0.0.3") > 0.5);
    wait_until("the end of the removed server", || {
        let labels = [format!("server=\"127.0.0.1:{port}\"")];
        let labels = labels.each_ref().map(String::as_str);
        (site.brisk.metrics().sum("brisk_upstream_connections_open", &labels) < 0.5).then_some(())
    });
}

#[test]
fn failures_keep_the_addresses_and_a_reload_does_too() {
    let nginx = at_three_addresses();
    let knot = Knot::serving(ZONE, "web A 127.0.0.2");
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let tables = |more: &str| {
        format!("{}{}{}", base(""), host(&NAMES, &[&leaf]), group(&resolved(&nginx), &knot, more))
    };
    let site = Site { brisk: setup().config(&tables("")).start(), ca };
    assert_eq!(site.get("/address").text(), "127.0.0.2");
    // The name no longer exists.
    knot.set(ZONE, "other A 127.0.0.3");
    site.brisk.log_with("web.app.test has no A or AAAA records");
    assert_eq!(site.get("/address").text(), "127.0.0.2");
    knot.set(ZONE, "web A 127.0.0.3");
    site.brisk.log_with("a name of upstream servers is resolved again");
    wait_for(&site, "/address", &["127.0.0.3"]);
    let changed = tables("retry = false\n");
    drop(knot);
    site.brisk.log_with("cannot resolve web.app.test");
    site.brisk.write("brisk.toml", changed);
    assert!(site.brisk.reload().contains("reloaded: "));
    for _ in 0..4 {
        assert_eq!(site.get("/address").text(), "127.0.0.3");
    }
}

#[test]
fn a_group_without_addresses_is_unavailable_until_dns_names_one() {
    let nginx = at_three_addresses();
    let knot = Knot::serving(ZONE, "");
    let site = Site::with(&group(&resolved(&nginx), &knot, ""));
    let refused = site.get("/none");
    assert_eq!(refused.status(), 503);
    assert!(site.brisk.logged("/none").contains("\"no-server\""));
    knot.set(ZONE, "web A 127.0.0.1");
    wait_until("the first server", || (site.get("/address").status() == 200).then_some(()));
}

#[test]
fn health_of_an_address_survives_other_changes() {
    let nginx = at_three_addresses();
    // Nothing listens on 127.0.0.9.
    let knot = Knot::serving(ZONE, "web A 127.0.0.1\nweb A 127.0.0.9");
    let port = nginx.address().port();
    let more = "health = { max_failures = 1, failure_pause = \"1h\" }\n";
    let site = one_worker(&group(&resolved(&nginx), &knot, more));
    let metric = |name: &str, address: &str| {
        site.brisk.metrics().sum(name, &[&format!("server=\"{address}:{port}\"")])
    };
    wait_for(&site, "/address", &["127.0.0.1"]);
    assert!(metric("brisk_upstream_failures_total", "127.0.0.9") > 0.5);
    knot.set(ZONE, "web A 127.0.0.1\nweb A 127.0.0.2\nweb A 127.0.0.9");
    wait_for(&site, "/address", &["127.0.0.1", "127.0.0.2"]);
    assert!(metric("brisk_upstream_failures_total", "127.0.0.9") < 1.5);
    assert!(metric("brisk_upstream_healthy", "127.0.0.9") < 0.5);
}

#[test]
fn active_checks_follow_the_addresses() {
    let nginx = at_three_addresses();
    let knot = Knot::serving(ZONE, "web A 127.0.0.1");
    let more = "health = { path = \"/health\", interval = \"1s\", timeout = \"1s\" }\n";
    let site = Site::with(&group(&resolved(&nginx), &knot, more));
    assert_eq!(site.get("/address").text(), "127.0.0.1");
    knot.set(ZONE, "web A 127.0.0.1\nweb A 127.0.0.9");
    site.brisk.log_with("upstream server is down");
    wait_for(&site, "/address", &["127.0.0.1"]);
}

#[test]
fn records_of_a_service_state_ports_weights_and_priorities() {
    let servers = [Nginx::http(), Nginx::http(), Nginx::http()];
    let ports = servers.each_ref().map(|server| server.address().port());
    let names = ports.map(|port| port.to_string());
    let service = |priorities: [u16; 3], weights: [u16; 3]| {
        let lines = (0..3).map(|index| {
            format!("_web._tcp SRV {} {} {} web\n", priorities[index], weights[index], ports[index])
        });
        lines.collect::<String>() + "web A 127.0.0.1\n"
    };
    let knot = Knot::serving(ZONE, &service([10, 10, 20], [3, 1, 5]));
    let site = one_worker(&group(&format!("\"srv+http://_web._tcp.{ZONE}\""), &knot, ""));
    let counted = |expected: [usize; 3]| {
        wait_until("shares of requests by weight", || {
            let answers = answers(&site, "/name");
            let counts = names.each_ref().map(|name| answers.get(name).copied().unwrap_or_default());
            (counts == expected).then_some(())
        });
    };
    counted([9, 3, 0]);
    knot.set(ZONE, &service([10, 10, 10], [2, 1, 1]));
    counted([6, 3, 3]);
    knot.set(ZONE, &service([10, 20, 20], [0, 1, 1]));
    counted([12, 0, 0]);
    drop(servers);
    // The target of the first priority is gone, and so are the backups: the error is that of a server.
    assert_eq!(site.get("/name").status(), 502);
}

#[test]
fn an_address_with_two_priorities_of_a_service_remains_a_server_of_the_first() {
    let servers = [Nginx::http(), Nginx::http()];
    let ports = servers.each_ref().map(|server| server.address().port());
    // The first server is a backup too.
    let service = |weight: u16| {
        let lines = [(10, weight, ports[0]), (20, 5, ports[0]), (10, 1, ports[1])];
        let lines =
            lines.map(|(priority, weight, port)| format!("_web._tcp SRV {priority} {weight} {port} web\n"));
        lines.concat() + "web A 127.0.0.1\n"
    };
    let knot = Knot::serving(ZONE, &service(1));
    let site = one_worker(&group(&format!("\"srv+http://_web._tcp.{ZONE}\""), &knot, ""));
    // The first answer creates the servers, later ones change them.
    for (weight, expected) in [(1, [6, 6]), (3, [9, 3]), (2, [8, 4])] {
        knot.set(ZONE, &service(weight));
        wait_until("shares of requests by weight", || {
            let answers = answers(&site, "/name");
            let counts = ports.map(|port| answers.get(&port.to_string()).copied().unwrap_or_default());
            (counts == expected).then_some(())
        });
    }
}

#[test]
fn the_certificate_of_a_service_names_its_domain() {
    let ca = TestCa::new();
    for (name, status) in [(ZONE, 200), ("web.app.test", 502)] {
        let nginx = Nginx::https(&ca.server(&[name]).issue());
        let port = nginx.address().port();
        let knot = Knot::serving(ZONE, &format!("_web._tcp SRV 1 1 {port} web\nweb A 127.0.0.1"));
        let more = "tls = { ca = \"ca.pem\" }\ntimeouts = { connect = \"1m\" }\n";
        let tables = group(&format!("\"srv+https://_web._tcp.{ZONE}\""), &knot, more);
        let site = Site::custom("", &tables, |setup| setup.file("ca.pem", ca.root_pem()));
        assert_eq!(site.get("/1k").status(), status, "{name}");
    }
}

#[test]
fn the_number_of_addresses_is_limited() {
    // More than a datagram holds.
    let records: Vec<_> = (1..=200).map(|number| format!("web A 127.0.1.{number}\n")).collect();
    let knot = Knot::serving(ZONE, &records.concat());
    let server = format!("{{ url = \"http://web.{ZONE}:{}\", resolve = true }}", free_port());
    let site = Site::with(&(group(&server, &knot, "") + "max_addresses = 7\n"));
    let line = site.brisk.log_with("a name has more addresses than `dns.max_addresses`");
    assert!(line.contains("ignored=193"), "{line}");
    wait_until("seven servers", || {
        let servers = site.brisk.metrics().sum("brisk_upstream_healthy", &[]);
        ((servers - 7.0).abs() < 0.5).then_some(())
    });
}
