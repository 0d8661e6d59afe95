use std::net::SocketAddr;

use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

use super::*;
use crate::outcome::{Resumption, ResumptionFailure};
use crate::record::ConnectionEnd;
use crate::sink::Sink;
use crate::timeline::Timeline;

pub(crate) fn facts() -> TlsFacts {
    TlsFacts {
        version: ProtocolVersion::TLS1_3,
        suite: CipherSuite::TLS_AES_128_GCM_SHA256,
        group: Some(NamedGroup::X25519),
        scheme: Some(SignatureScheme::ECDSA_SECP256R1_SHA256),
        resumption: Resumption::Full,
        resumption_failure: None,
        early_data: None,
        server_name: None,
        alpn: None,
        client_subject: None,
        client_chain: Box::default(),
        fingerprints: None,
        hello_retry: false,
        handshake_time: Duration::from_millis(3),
    }
}

/// Whether the page has exactly this line.
fn shows(metrics: &Arc<Metrics>, line: &str) -> bool {
    metrics.render().lines().any(|shown| shown == line)
}

#[test]
fn the_page_ends_and_names_every_metric_once() {
    let metrics = Metrics::new();
    let page = metrics.render();
    assert!(page.ends_with("# EOF\n"));
    let mut names: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(names.iter().all(|name| name.starts_with("brisk_")), "{names:?}");
}

#[test]
fn every_metric_on_the_page_is_documented() {
    let documentation = include_str!("../../../../../docs/metrics.md");
    let metrics = Metrics::new();
    assert_eq!(metrics.undocumented(documentation), [""; 0]);
}

#[test]
fn requests_are_counted_by_status_and_side() {
    let metrics = Metrics::new();
    let time = Duration::from_micros(700);
    metrics.request(200, None, Some(time), time);
    metrics.request(200, None, None, time);
    metrics.request(502, Some(Side::Upstream), None, time);
    metrics.request(0, Some(Side::Client), None, time);
    metrics.request(999, None, None, time);
    assert!(shows(&metrics, "brisk_requests_total{status=\"200\"} 2"));
    assert!(shows(&metrics, "brisk_requests_total{status=\"502\"} 1"));
    assert!(shows(&metrics, "brisk_requests_total{status=\"none\"} 2"));
    assert!(shows(&metrics, "brisk_request_errors_total{side=\"upstream\"} 1"));
    assert!(shows(&metrics, "brisk_request_errors_total{side=\"internal\"} 0"));
    assert!(shows(&metrics, "brisk_request_seconds_bucket{le=\"0.0005\"} 0"));
    assert!(shows(&metrics, "brisk_request_seconds_bucket{le=\"0.001\"} 5"));
    assert!(shows(&metrics, "brisk_request_seconds_bucket{le=\"+Inf\"} 5"));
    assert!(shows(&metrics, "brisk_upstream_response_seconds_count 1"));
}

#[test]
fn what_several_threads_count_adds_up() {
    let metrics = Metrics::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..1000).for_each(|_| metrics.request(204, None, None, Duration::ZERO)));
        }
    });
    assert!(shows(&metrics, "brisk_requests_total{status=\"204\"} 8000"));
}

#[test]
fn connections_are_open_from_accept_to_close() {
    let metrics = Metrics::new();
    let sink = Sink::new(Arc::clone(&metrics));
    let accepted = |listener| {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut record = ConnectionRecord::new(1, address, address, Timeline::start());
        record.report_to(&sink, listener);
        record
    };
    let [mut ended, mut dropped, open] = [(); 3].map(|()| accepted(Listening::Https));
    let plain = accepted(Listening::Http);
    (ended.bytes_received, ended.bytes_sent) = (100, 2000);
    ended.finish(ConnectionEnd::Served("idle"));
    (dropped.bytes_received, dropped.bytes_sent, dropped.early_bytes) = (1, 1, 517);
    drop((ended, dropped));
    metrics.connection_refused(Refusal::ClientLimit);
    assert!(shows(&metrics, "brisk_connections_open{listener=\"https\"} 1"));
    assert!(shows(&metrics, "brisk_connections_open{listener=\"http\"} 1"));
    assert!(shows(&metrics, "brisk_connections_accepted_total{listener=\"https\"} 3"));
    assert!(shows(&metrics, "brisk_connections_refused_total{reason=\"client-limit\"} 1"));
    assert!(shows(&metrics, "brisk_received_bytes_total 101"));
    assert!(shows(&metrics, "brisk_sent_bytes_total 2001"));
    assert!(shows(&metrics, "brisk_early_data_bytes_total 517"));
    drop((open, plain));
    assert!(shows(&metrics, "brisk_connections_open{listener=\"https\"} 0"));
    assert!(shows(&metrics, "brisk_connections_open{listener=\"http\"} 0"));
}

#[test]
fn handshakes_are_counted_by_what_they_agreed_on_and_by_outcome() {
    let metrics = Metrics::new();
    metrics.handshake(&facts());
    metrics.handshake_failed(HandshakeOutcome::TimedOut, None);
    assert!(shows(
        &metrics,
        "brisk_handshakes_total{version=\"TLS 1.3\",suite=\"TLS_AES_128_GCM_SHA256\",group=\"x25519\",scheme=\"ecdsa_secp256r1_sha256\",\
         resumption=\"full\"} 1"
    ));
    assert!(shows(&metrics, "brisk_handshakes_failed_total{outcome=\"timed-out\"} 1"));
    let labels = "version=\"TLS 1.3\",group=\"x25519\",resumption=\"full\"";
    let count = format!("brisk_handshake_seconds_count{{{labels}}} 1");
    assert!(shows(&metrics, &count), "{}", metrics.render());
    assert!(metrics.render().contains("brisk_handshake_seconds_sum"));
}

#[test]
fn a_session_that_was_not_resumed_is_counted_by_reason() {
    let metrics = Metrics::new();
    metrics.handshake(&facts());
    metrics.handshake(&TlsFacts { resumption_failure: Some(ResumptionFailure::StoreLate), ..facts() });
    assert!(shows(&metrics, "brisk_resumption_failures_total{reason=\"store-late\"} 1"));
    assert!(shows(&metrics, "brisk_resumption_failures_total{reason=\"used\"} 0"));
}

#[test]
fn early_data_is_counted_by_outcome_and_its_requests_by_treatment() {
    let metrics = Metrics::new();
    metrics.early_data(EarlyData::Accepted);
    metrics.early_request(EarlyRequest::Held);
    assert!(shows(&metrics, "brisk_early_data_total{outcome=\"accepted\"} 1"));
    assert!(shows(&metrics, "brisk_early_data_total{outcome=\"disabled\"} 0"));
    assert!(shows(&metrics, "brisk_early_requests_total{treatment=\"held\"} 1"));
    assert!(shows(&metrics, "brisk_early_requests_total{treatment=\"forwarded\"} 0"));
}

#[test]
fn key_operations_are_counted_by_engine_algorithm_and_outcome() {
    let metrics = Metrics::new();
    let performed = KeyOperationFacts {
        engine: Some("ifma"),
        algorithm: "rsa",
        outcome: KeyOutcome::Ok,
        wait: Duration::from_micros(80),
        compute: Duration::from_micros(240),
    };
    metrics.key_operation(&performed);
    metrics.key_operation(&KeyOperationFacts { engine: None, outcome: KeyOutcome::Overloaded, ..performed });
    let shown = |line: &str| assert!(shows(&metrics, line), "{line} is not in {}", metrics.render());
    shown("brisk_key_operations_total{engine=\"ifma\",algorithm=\"rsa\",outcome=\"ok\"} 1");
    shown("brisk_key_operations_total{engine=\"none\",algorithm=\"rsa\",outcome=\"overloaded\"} 1");
    shown("brisk_key_operation_wait_seconds_bucket{le=\"0.0001\",engine=\"ifma\",algorithm=\"rsa\"} 1");
    shown("brisk_key_operation_wait_seconds_count{engine=\"none\",algorithm=\"rsa\"} 1");
    shown("brisk_key_operation_compute_seconds_bucket{le=\"0.0002\",engine=\"ifma\",algorithm=\"rsa\"} 0");
    shown("brisk_key_operation_compute_seconds_count{engine=\"ifma\",algorithm=\"rsa\"} 1");
    assert!(!metrics.render().contains("brisk_key_operation_compute_seconds_count{engine=\"none\""));
}

#[derive(Debug)]
struct Kettle;

impl Collector for Kettle {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> std::fmt::Result {
        page.gauge("kettle_full", "Whether there is water.")?.gauge(&[("of", "tin")], 1_u64)?;
        page.seconds_counter("kettle_boil", "Time of boiling.")?
            .seconds_counter(&[], Duration::from_millis(1500))
    }
}

#[test]
fn a_registered_component_writes_metrics_of_its_own() {
    let metrics = Metrics::new();
    assert!(!metrics.render().contains("kettle"));
    metrics.register(Kettle);
    assert!(shows(&metrics, "brisk_kettle_full{of=\"tin\"} 1"));
    assert!(shows(&metrics, "brisk_kettle_boil_seconds_total 1.5"));
    assert!(metrics.render().ends_with("# EOF\n"));
}

#[test]
fn reloads_and_certificates_are_shown() {
    let metrics = Metrics::new();
    metrics.reloaded(Reload::Refused);
    let host = "a\"b".to_owned();
    metrics.set_certificates(vec![CertificateExpiry {
        host,
        algorithm: "rsa".to_owned(),
        not_after: 1_800_000_000,
    }]);
    assert!(shows(&metrics, "brisk_reloads_total{outcome=\"refused\"} 1"));
    let expiry = "brisk_certificate_expiry_timestamp_seconds{host=\"a\\\"b\",algorithm=\"rsa\"} 1800000000";
    assert!(shows(&metrics, expiry), "{}", metrics.render());
}
