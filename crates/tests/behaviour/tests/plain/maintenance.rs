//! Maintenance of a host, which a file switches without a reload.

use std::fs;
use std::net::Ipv4Addr;

use brisk_behaviour::h2::{self, Frames};
use brisk_behaviour::site::{NAME, Site, connect_from, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::process::wait_until;

const TABLES: &str =
    "maintenance = { file = \"switch\", page = \"away.html\", retry_after = \"2m\", allow = [\"127.0.0.2\"] }
error_pages = { 5xx = \"50x.html\" }

[[host.route]]
path = \"/\"
respond = { body = \"here\" }
";

#[test]
fn a_file_switches_maintenance_on_and_off() {
    let site =
        Site::custom("", TABLES, |setup| setup.file("away.html", "<p>back soon").file("50x.html", "broken"));
    assert_eq!(site.get("/").text(), "here");
    fs::write(site.brisk.folder().join("switch"), "").expect("a file");
    wait_until("maintenance", || (site.get("/").status() == 503).then_some(()));
    for path in ["/", "/none"] {
        let away = site.get(path);
        assert_eq!((away.status(), away.text().as_str()), (503, "<p>back soon"));
        assert_eq!(
            (away.header("retry-after"), away.header("content-type")),
            (Some("120"), Some("text/html"))
        );
        assert_eq!(away.header("cache-control"), Some("no-store"));
    }
    let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
    let frames = Frames::exchange(&mut connection, &[h2::preface(), h2::get(1, "/")].concat(), 1);
    assert_eq!(frames.body(1), "<p>back soon");
    let operator = connect_from(Ipv4Addr::new(127, 0, 0, 2), site.brisk.https());
    let mut operator = site.client().over(operator).expect("a handshake");
    assert_eq!(operator.get(NAME, "/").text(), "here", "a client in `allow`");
    fs::remove_file(site.brisk.folder().join("switch")).expect("a file");
    wait_until("the end of maintenance", || (site.get("/").status() == 200).then_some(()));
}

#[test]
fn a_gateway_starts_in_maintenance_and_wrong_keys_are_reported() {
    let site = Site::custom("", TABLES, |setup| {
        setup.file("away.html", "<p>back soon").file("50x.html", "broken").file("switch", "")
    });
    assert_eq!(site.get("/").status(), 503);
    let ca = TestCa::new();
    let start = base("") + &host(&[NAME], &[&ca.server(&[NAME]).issue()]);
    for (keys, part) in [
        ("retry_after = \"0s\"", "maintenance.retry_after: 0ms is out of range"),
        ("page = \"none.html\"", "maintenance.page: cannot read none.html"),
        ("allow = [\"x\"]", "maintenance.allow[0]"),
        ("files = 1", "did you mean `file`?"),
    ] {
        let config = format!("{start}maintenance = {{ file = \"switch\", {keys} }}\n");
        let output = setup().config(&config).check("brisk.toml");
        assert_eq!(output.status.code(), Some(2), "{}", output.text());
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
}
