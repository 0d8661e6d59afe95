//! The admin listener: what `/metrics` says after known traffic, and health.

use brisk_testkit::process::wait_until;

use crate::site::{NAME, Site, proxy_to};

#[test]
fn health_and_readiness() {
    let site = Site::new();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(site.brisk.ask_admin(path).status(), 200, "{path}");
    }
    assert_eq!(site.brisk.ask_admin("/other").status(), 404);
}

#[test]
fn the_page_is_what_prometheus_reads() {
    let page = Site::new().brisk.ask_admin("/metrics");
    assert!(page.header("content-type").unwrap_or_default().starts_with("application/openmetrics-text"));
    let text = page.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("brisk_") && value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn traffic_is_counted() {
    let nginx = brisk_testkit::nginx::Nginx::http();
    let site = Site::with(&proxy_to(&[&nginx.url()]));
    for _ in 0..3 {
        assert_eq!(site.get("/1k").status(), 200);
    }
    assert_eq!(site.get("/none").status(), 404);
    let full = [
        "version=\"TLS 1.3\"",
        "group=\"X25519MLKEM768\"",
        "scheme=\"ecdsa_secp256r1_sha256\"",
        "resumption=\"full\"",
    ];
    for (name, labels, expected) in [
        ("brisk_handshakes_total", &full[..], 4.0),
        ("brisk_handshake_seconds_count", &[], 4.0),
        ("brisk_key_operations_total", &["outcome=\"ok\""], 4.0),
        ("brisk_key_operation_seconds_count", &[], 4.0),
        ("brisk_requests_total", &["status=\"200\""], 3.0),
        ("brisk_requests_total", &["status=\"404\""], 1.0),
        ("brisk_request_seconds_count", &[], 4.0),
        ("brisk_upstream_response_seconds_count", &[], 4.0),
        ("brisk_upstream_requests_total", &["group=\"app\""], 4.0),
        ("brisk_upstream_healthy", &["group=\"app\""], 1.0),
        ("brisk_connections_accepted_total", &[], 4.0),
        ("brisk_connections_open", &[], 0.0),
        ("brisk_handshakes_failed_total", &[], 0.0),
    ] {
        // A connection is counted as closed a moment after its client closed it.
        wait_until(&format!("{name} {labels:?} {expected}"), || {
            let found = site.brisk.metrics().sum(name, labels);
            ((found - expected).abs() < 0.5).then_some(())
        });
    }
    let metrics = site.brisk.metrics();
    assert!(metrics.sum("brisk_sent_bytes_total", &[]) > 3072.0, "{}", metrics.0);
    let expiry = metrics.sum("brisk_certificate_expiry_timestamp_seconds", &[]);
    assert!(expiry > 1.7e9, "{}", metrics.0);
    assert!(metrics.0.contains(NAME), "{}", metrics.0);
}
