//! Resumption of TLS sessions with upstreams.

use brisk_behaviour::site::{Site, proxy_to};
use brisk_testkit::ca::TestCa;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::wait_until;

/// The requests of both servers by whether their connection resumed a session, as nginx and brisk count them.
fn counts(directives: &str) -> ([usize; 2], [f64; 2]) {
    let ca = TestCa::new();
    let leaf = ca.server(&["app.test"]).issue();
    // Each request has a connection of its own, and each server has ticket keys of its own.
    let servers = [0, 1].map(|_| Nginx::https_with(&leaf, &format!("keepalive_timeout 0;\n{directives}")));
    let [first, second] = servers.each_ref().map(Nginx::url);
    let tables = proxy_to(&[&first, &second]) + "tls = { ca = \"ca.pem\", server_name = \"app.test\" }\n";
    let tables = tables + "timeouts = { connect = \"1m\" }\n";
    let site = Site::custom("", &tables, |setup| setup.file("ca.pem", ca.root_pem()));
    for _ in 0..20 {
        assert_eq!(site.get("/1k").status(), 200);
    }
    let lines = wait_until("the record of the last request", || {
        let lines: Vec<_> = servers.iter().flat_map(Nginx::requests).collect();
        (lines.len() == 20).then_some(lines)
    });
    let seen =
        [".", "r"].map(|kind| lines.iter().filter(|line| line.split(' ').nth(1) == Some(kind)).count());
    let metrics = site.brisk.metrics();
    let counted = ["no", "yes"].map(|resumed| {
        metrics.sum("brisk_upstream_tls_handshakes_total", &[&format!("resumed=\"{resumed}\"")])
    });
    (seen, counted)
}

#[test]
fn connections_of_all_workers_resume_the_sessions_of_their_server() {
    for version in ["TLSv1.2", "TLSv1.3"] {
        let (seen, counted) = counts(&format!("ssl_protocols {version};"));
        assert_eq!(seen, [2, 18], "{version}");
        assert!((counted[0] - 2.0).abs() < 0.5 && (counted[1] - 18.0).abs() < 0.5, "{version}: {counted:?}");
    }
}

#[test]
fn servers_without_sessions_get_full_handshakes() {
    let (seen, counted) = counts("ssl_session_tickets off;");
    assert_eq!(seen, [20, 0]);
    assert!((counted[0] - 20.0).abs() < 0.5, "{counted:?}");
}
