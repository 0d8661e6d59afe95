use std::net::SocketAddr;
use std::time::Instant;

use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

use super::*;
use crate::outcome::{Resumption, ResumptionFailure};

fn facts() -> TlsFacts {
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
        hello_retry: false,
        handshake_time: Duration::from_millis(3),
    }
}

/// Figures of a session layer that has everything, so that every metric is on the page.
fn figures() -> SessionFigures {
    SessionFigures {
        ticket_keys: vec![TicketKeyFigures {
            id: "0a1b2c3d".to_owned(),
            age: 60,
            seals: true,
            seals_from: Some(1_700_000_000),
            opens_until: None,
            sealed: 3,
            opened: 2,
        }],
        store: Some(StoreFigures {
            used: 4,
            operations: 2,
            operation_micros: 1500,
            ..StoreFigures::default()
        }),
        ..SessionFigures::default()
    }
}

/// Whether the page has exactly this line.
fn shows(metrics: &Arc<Metrics>, line: &str) -> bool {
    metrics.render().lines().any(|shown| shown == line)
}

#[test]
fn the_page_ends_and_names_every_metric_once() {
    let metrics = Metrics::new();
    metrics.set_session_source(figures);
    metrics.set_key_source(KeyFigures::default);
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
    let documentation = include_str!("../../../../docs/metrics.md");
    let metrics = Metrics::new();
    metrics.set_session_source(figures);
    metrics.set_key_source(KeyFigures::default);
    let page = metrics.render();
    for name in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(documentation.contains(&format!("`{name}")), "{name} is not documented");
    }
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
    let accepted = |listener| {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut record = ConnectionRecord::new(1, address, address, Instant::now());
        record.count_in(&metrics, listener);
        record
    };
    let [mut ended, mut dropped, open] = [(); 3].map(|()| accepted(Listening::Https));
    let plain = accepted(Listening::Http);
    (ended.bytes_received, ended.bytes_sent) = (100, 2000);
    ended.end();
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
        "brisk_handshakes_total{version=\"TLS 1.3\",group=\"x25519\",scheme=\"ecdsa_secp256r1_sha256\",\
         resumption=\"full\"} 1"
    ));
    assert!(shows(&metrics, "brisk_handshakes_failed_total{outcome=\"timed-out\"} 1"));
    let labels = "version=\"TLS 1.3\",resumption=\"full\"";
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
fn ticket_keys_and_the_fleets_store_are_shown_where_there_are_any() {
    let metrics = Metrics::new();
    metrics.set_session_source(SessionFigures::default);
    assert!(!metrics.render().contains("brisk_session_store_"));
    metrics.set_session_source(figures);
    assert!(shows(&metrics, "brisk_ticket_key_age_seconds{key=\"0a1b2c3d\"} 60"));
    assert!(shows(&metrics, "brisk_ticket_key_seals{key=\"0a1b2c3d\"} 1"));
    assert!(shows(&metrics, "brisk_ticket_key_sealed_total{key=\"0a1b2c3d\"} 3"));
    assert!(!metrics.render().contains("brisk_ticket_key_opens_until_timestamp_seconds{"));
    assert!(shows(&metrics, "brisk_session_store_lookups_total{outcome=\"used\"} 4"));
    assert!(shows(&metrics, "brisk_session_store_operation_seconds_total 0.0015"));
    assert!(shows(&metrics, "brisk_session_store_breaker_open 0"));
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

#[test]
fn the_key_engine_reports_its_queue_and_its_batches() {
    let metrics = Metrics::new();
    assert!(!metrics.render().contains("brisk_key_queue_length"));
    let batch_gains = vec![BatchGain { bits: 3072, engine: "ifma", gain: 2.5 }];
    let figures = KeyFigures { queue_length: 7, by_batch: [1, 0, 3, 8], faults: 2, batch_gains, gpu: None };
    metrics.set_key_source(move || figures.clone());
    for line in [
        "brisk_key_queue_length 7",
        "brisk_key_batch_operations_total{size=\"1\"} 1",
        "brisk_key_batch_operations_total{size=\"4\"} 8",
        "brisk_key_faults_total 2",
        "brisk_key_batch_gain{engine=\"ifma\",bits=\"3072\"} 2.5",
    ] {
        assert!(shows(&metrics, line), "{line} is not in {}", metrics.render());
    }
    assert!(!metrics.render().contains("brisk_key_gpu"));
}

#[test]
fn a_gpu_reports_its_work_and_its_loss() {
    let metrics = Metrics::new();
    let gpu = GpuFigures { pending: 9, launches: 3, faults: 4, taken_over: 5, is_lost: true };
    metrics.set_key_source(move || KeyFigures { faults: 2, gpu: Some(gpu), ..KeyFigures::default() });
    for line in [
        "brisk_key_faults_total 6",
        "brisk_key_gpu_pending 9",
        "brisk_key_gpu_launches_total 3",
        "brisk_key_gpu_taken_over_total 5",
        "brisk_key_gpu_lost 1",
    ] {
        assert!(shows(&metrics, line), "{line} is not in {}", metrics.render());
    }
}

#[test]
fn an_upstream_is_shown_while_it_is_held() {
    let metrics = Metrics::new();
    let upstream = metrics.upstream("app", "http://127.0.0.1:8080");
    let labels = "{group=\"app\",server=\"http://127.0.0.1:8080\"}";
    let healthy = |value| format!("brisk_upstream_healthy{labels} {value}");
    assert!(shows(&metrics, &healthy(1)));
    upstream.unhealthy();
    upstream.request();
    upstream.failure();
    upstream.connection_opened();
    assert!(shows(&metrics, &healthy(0)));
    assert!(shows(&metrics, &format!("brisk_upstream_requests_total{labels} 1")));
    assert!(shows(&metrics, &format!("brisk_upstream_failures_total{labels} 1")));
    assert!(shows(&metrics, &format!("brisk_upstream_connections_open{labels} 1")));
    drop(upstream);
    assert!(!metrics.render().contains("127.0.0.1:8080"));
}

#[test]
fn figures_of_other_layers_are_shown() {
    let metrics = Metrics::new();
    assert!(!metrics.render().contains("brisk_tickets"));
    metrics.set_session_source(|| SessionFigures {
        tickets_opened: 4,
        sessions_bytes: 99,
        ..SessionFigures::default()
    });
    metrics.reloaded(Reload::Refused);
    let host = "a\"b".to_owned();
    metrics.set_certificates(vec![CertificateExpiry {
        host,
        algorithm: "rsa".to_owned(),
        not_after: 1_800_000_000,
    }]);
    assert!(shows(&metrics, "brisk_tickets_offered_total{outcome=\"opened\"} 4"));
    assert!(shows(&metrics, "brisk_sessions_held_bytes 99"));
    assert!(shows(&metrics, "brisk_reloads_total{outcome=\"refused\"} 1"));
    let expiry = "brisk_certificate_expiry_timestamp_seconds{host=\"a\\\"b\",algorithm=\"rsa\"} 1800000000";
    assert!(shows(&metrics, expiry), "{}", metrics.render());
}
