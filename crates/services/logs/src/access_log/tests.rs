use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brisk_telemetry::{
    EarlyData, EarlyRequest, MalformedReason, Metrics, Milestone, RequestId, Resumption, ResumptionFailure,
    Side, Timeline, TlsFacts,
};
use brisk_wire::HttpVersion;
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use serde_json::Value;

use super::*;
use crate::lost_lines::LostLines;
use crate::otlp::Exporter;
use crate::settings::{AccessLogTarget, AppName, JournalSettings, OtlpSettings, Severity};
use crate::template::LogTemplate;

pub(crate) fn connection() -> ConnectionRecord {
    let (client, local) = ("203.0.113.7:51234".parse().unwrap(), "192.0.2.1:443".parse().unwrap());
    let mut connection = ConnectionRecord::new(7, client, local, Timeline::start());
    connection.rtt = Some(Duration::from_micros(12_345));
    connection.requests = 3;
    connection
}

pub(crate) fn secure_connection() -> ConnectionRecord {
    let facts = TlsFacts {
        version: ProtocolVersion::TLS1_3,
        suite: CipherSuite::TLS_AES_128_GCM_SHA256,
        group: Some(NamedGroup::X25519MLKEM768),
        scheme: Some(SignatureScheme::ECDSA_SECP256R1_SHA256),
        resumption: Resumption::Full,
        resumption_failure: None,
        early_data: None,
        server_name: Some("example.com".into()),
        alpn: Some(HttpVersion::Http2),
        client_subject: Some("CN=a \"b\"".into()),
        client_chain: Box::default(),
        fingerprints: None,
        hello_retry: false,
        handshake_time: Duration::from_micros(812),
    };
    let mut connection = connection();
    connection.tls = Some(Box::new(facts));
    connection
}

pub(crate) fn request(connection: &ConnectionRecord) -> RequestRecord<'_> {
    RequestRecord {
        outputs: LogOutputs::All,
        connection,
        client: connection.client,
        id: RequestId(0xabc),
        method: "GET",
        host: "example.com",
        path: "/a?b=c",
        version: HttpVersion::Http2,
        status: 200,
        bytes_sent: 1234,
        bytes_received: 5,
        duration: Duration::from_micros(3100),
        upstream: Some("http://127.0.0.1:8080"),
        upstream_time: Some(Duration::from_micros(2900)),
        upstream_start: Some(Duration::from_micros(100)),
        trace: None,
        user: None,
        referer: None,
        user_agent: Some(b"curl/8"),
        headers: &[],
        early: None,
        error: None,
        error_side: None,
        upgraded_end: None,
        labels: &[],
        label_field: "labels",
    }
}

/// Lines lost so far by all outputs.
fn dropped(log: &AccessLog) -> u64 {
    log.dropped_counters().map(|(_, count)| count.load(Ordering::Relaxed)).sum()
}

fn text_line(record: &RequestRecord<'_>) -> String {
    let mut line = Vec::new();
    text::line(&mut line, Event::Request(record), false);
    String::from_utf8(line).unwrap()
}

fn json_line(record: &RequestRecord<'_>) -> Value {
    let mut line = Vec::new();
    json::line(&mut line, Event::Request(record), false);
    serde_json::from_slice(&line).unwrap()
}

#[test]
fn a_text_line_is_the_combined_format_and_fields() {
    let connection = secure_connection();
    let line = text_line(&request(&connection));
    let (start, rest) = line.split_once(" [").unwrap();
    let (_, rest) = rest.split_once("] ").unwrap();
    assert_eq!(start, "203.0.113.7 - -");
    assert_eq!(
        rest,
        "\"GET /a?b=c HTTP/2.0\" 200 1234 \"-\" \"curl/8\" host=\"example.com\" id=0000000000000abc bytes_received=5 \
         duration_us=3100 upstream=\"http://127.0.0.1:8080\" upstream_us=2900 connection=7 connection_requests=3 \
         rtt_us=12345 tls=\"TLS 1.3\" suite=TLS_AES_128_GCM_SHA256 group=X25519MLKEM768 scheme=ecdsa_secp256r1_sha256 \
         resumption=full handshake_us=812 hello_retry=0 server_name=\"example.com\" alpn=h2 \
         client_subject=\"CN=a \\x22b\\x22\"\n"
    );
}

#[test]
fn a_json_line_says_the_same() {
    let connection = secure_connection();
    let line = json_line(&request(&connection));
    assert_eq!(line["event"], "request");
    assert_eq!(line["client"], "203.0.113.7");
    assert_eq!(line["client_port"], 51234);
    assert_eq!(line["path"], "/a?b=c");
    assert_eq!(line["status"], 200);
    assert_eq!(line["duration_us"], 3100);
    assert_eq!(line["tls"], "TLS 1.3");
    assert_eq!(line["group"], "X25519MLKEM768");
    assert_eq!(line["resumption"], "full");
    assert_eq!(line["client_subject"], "CN=a \"b\"");
    assert!(line.get("referer").is_none() && line.get("error").is_none());
}

#[test]
fn early_data_and_a_resumption_that_failed_are_named() {
    let mut connection = secure_connection();
    let facts = connection.tls.as_mut().unwrap();
    facts.resumption_failure = Some(ResumptionFailure::Used);
    facts.early_data = Some(EarlyData::NotResumed);
    connection.early_bytes = 517;
    let mut record = request(&connection);
    record.early = Some(EarlyRequest::Held);
    let line = text_line(&record);
    assert!(
        line.contains(" resumption=full resumption_failure=used early_data=not-resumed handshake_us="),
        "{line}"
    );
    assert!(line.contains(" early=held connection=7 "), "{line}");
    assert!(line.ends_with(" early_bytes=517\n"), "{line}");
    let line = json_line(&record);
    assert_eq!((&line["early"], &line["early_bytes"]), (&"held".into(), &517.into()));
}

#[test]
fn labels_have_a_field_of_their_own() {
    let connection = connection();
    let mut record = request(&connection);
    let label = |name: &str, text: &str| (name.into(), text.into());
    let labels = [label("tcp", "congestion_control = \"bbr\""), label("records", "growing_records = false")];
    record.labels = &labels;
    let line = text_line(&record);
    let field =
        " labels=\"tcp: congestion_control = \\x22bbr\\x22; records: growing_records = false\" connection=7 ";
    assert!(line.contains(field), "{line}");
    let line = json_line(&record);
    assert_eq!(line["labels"]["tcp"], "congestion_control = \"bbr\"");
    assert_eq!(line["labels"].as_object().unwrap().len(), 2);
    record.labels = &[];
    assert!(json_line(&record).get("labels").is_none() && !text_line(&record).contains("labels"));
}

#[test]
fn a_user_takes_the_place_of_the_second_dash_and_cannot_end_it() {
    let connection = connection();
    let mut record = request(&connection);
    record.user = Some("b\u{f6}b \"x] [y");
    assert!(text_line(&record).contains(" - b\\xC3\\xB6b\\x20\\x22x]\\x20[y ["), "{}", text_line(&record));
    assert_eq!(json_line(&record)["user"], "b\u{f6}b \"x] [y");
    record.user = None;
    assert!(json_line(&record).get("user").is_none());
}

#[test]
fn nothing_a_client_sends_ends_a_field_or_a_line() {
    let connection = connection();
    let hostile = "x\" 200 0 \"\n127.0.0.1 - - \r\\\x1b[31m\u{7f}\u{e9}";
    let mut record = request(&connection);
    (record.method, record.host, record.path) = (hostile, hostile, hostile);
    record.referer = Some(hostile.as_bytes());
    record.user_agent = Some(b"\xff\0\"");
    let line = text_line(&record);
    assert_eq!(line.matches('\n').count(), 1);
    assert!(line.ends_with('\n') && line.trim_end().bytes().all(|byte| (0x20..0x7f).contains(&byte)));
    let mut benign = record.clone();
    (benign.method, benign.host, benign.path) = ("x", "x", "x");
    let plain = Some(b"x".as_slice());
    (benign.referer, benign.user_agent) = (plain, plain);
    assert_eq!(line.matches('"').count(), text_line(&benign).matches('"').count());
    assert!(line.contains("\\x22 200 0 \\x22\\x0A127.0.0.1"));
    let mut raw = Vec::new();
    json::line(&mut raw, Event::Request(&record), false);
    assert_eq!(raw.split(|byte| *byte == b'\n').skip(1).count(), 1);
    let object = json_line(&record);
    assert_eq!(object["host"], hostile);
    assert_eq!(object["user_agent"], "\u{fffd}\0\"");
    assert_eq!(object["status"], 200);
}

#[test]
fn an_error_names_what_went_wrong_and_whose_fault_it_is() {
    let connection = connection();
    let mut record = request(&connection);
    (record.status, record.error, record.error_side) = (0, Some("upstream-timeout"), Some(Side::Upstream));
    assert!(text_line(&record).contains("\" 000 1234 "));
    assert!(text_line(&record).contains(" error=upstream-timeout error_side=upstream "));
    assert_eq!(json_line(&record)["error_side"], "upstream");
}

#[test]
fn a_failed_handshake_says_how_far_it_came() {
    let mut connection = connection();
    connection.timeline.mark(Milestone::ClientHello);
    let mut line = Vec::new();
    text::line(&mut line, Event::Handshake(&connection, HandshakeOutcome::TimedOut), false);
    let line = String::from_utf8(line).unwrap();
    assert!(
        line.contains("] \"-\" 000 0 \"-\" \"-\" outcome=timed-out reached=client-hello duration_us="),
        "{line}"
    );
    let mut line = Vec::new();
    json::line(&mut line, Event::Handshake(&connection, HandshakeOutcome::PlainHttp), false);
    let object: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(object["event"], "handshake");
    assert_eq!(object["outcome"], "plain-http");
}

#[test]
fn code_points_without_a_name_appear_as_numbers() {
    let mut connection = secure_connection();
    if let Some(facts) = &mut connection.tls {
        facts.group = Some(NamedGroup(0x9999));
    }
    assert!(text_line(&request(&connection)).contains(" group=0x9999 "));
}

#[test]
fn milestones_are_offsets_from_the_start_of_the_connection() {
    let mut connection = secure_connection();
    let start = std::time::SystemTime::UNIX_EPOCH + Duration::from_micros(1_763_691_730_042_017);
    connection.timeline = Timeline::start_at(Instant::now(), start);
    connection.timeline.mark_after(Milestone::ClientHello, Duration::from_micros(120));
    connection.timeline.mark_after(Milestone::HandshakeFinished, Duration::from_micros(900));
    let mut line = Vec::new();
    text::line(&mut line, Event::Request(&request(&connection)), true);
    let line = String::from_utf8(line).unwrap();
    let end = " connected=2025-11-21T02:22:10.042017Z \
               milestones_us=\"tcp-established=0 client-hello=120 handshake-finished=900\"\n";
    assert!(line.ends_with(end), "{line}");
    let mut line = Vec::new();
    json::line(&mut line, Event::Handshake(&connection, HandshakeOutcome::TimedOut), true);
    let object: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(object["connected"], "2025-11-21T02:22:10.042017Z");
    assert_eq!(object["milestones_us"]["handshake-finished"], 900);
}

fn file_settings(path: &std::path::Path, format: AccessLogFormat) -> AccessLogSettings {
    AccessLogSettings {
        format,
        target: AccessLogTarget::File(path.to_owned()),
        ..AccessLogSettings::default()
    }
}

fn no_exporter(_: &OtlpSettings) -> Result<Box<dyn Exporter>, String> {
    Err("no exporter".to_owned())
}

fn open(path: &std::path::Path, format: AccessLogFormat) -> AccessLog {
    AccessLog::open(&[file_settings(path, format)], no_exporter).unwrap().unwrap()
}

#[test]
fn closing_a_log_writes_every_line_of_every_thread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = open(&path, AccessLogFormat::Json);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let log = &log;
            scope.spawn(move || {
                let mut connection = connection();
                connection.id = thread;
                (0..500).for_each(|_| log.log(&request(&connection)));
            });
        }
    });
    assert_eq!(dropped(&log), 0);
    close(&log);
    let lines = fs::read_to_string(&path).unwrap();
    let of_thread = |id: u64| {
        let ids =
            lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["connection"].clone());
        ids.filter(|connection| *connection == id).count()
    };
    assert_eq!((0..4).map(of_thread).collect::<Vec<_>>(), [500; 4]);
}

#[test]
fn a_line_is_written_without_another_one_coming() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = open(&path, AccessLogFormat::Text);
    let connection = connection();
    for round in 1..=3 {
        log.log(&request(&connection));
        wait_until(|| fs::read_to_string(&path).unwrap().lines().count() == round);
    }
}

#[test]
fn a_renamed_log_is_followed_by_a_new_one_after_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let (path, rotated) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let log = open(&path, AccessLogFormat::Text);
    let connection = connection();
    log.log(&request(&connection));
    wait_until(|| fs::read_to_string(&path).unwrap().lines().count() == 1);
    fs::rename(&path, &rotated).unwrap();
    log.reopen();
    wait_until(|| path.exists());
    log.log(&request(&connection));
    close(&log);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
    assert_eq!(fs::read_to_string(&rotated).unwrap().lines().count(), 1);
}

#[test]
fn one_thread_may_write_to_several_logs() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().join("a"), folder.path().join("b")];
    let logs = [&paths[0], &paths[1]].map(|path| open(path, AccessLogFormat::Text));
    let connection = connection();
    for _ in 0..10 {
        for log in &logs {
            log.log(&request(&connection));
        }
    }
    logs.iter().for_each(close);
    for path in paths {
        assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 10);
    }
}

#[test]
fn characters_that_change_a_terminal_are_escaped_in_json() {
    let connection = connection();
    let agent = "a\u{9b}31m\u{7f}\u{202e}\u{2066}\u{200f}\u{2028}\u{2029}\u{e0001}é→\"";
    let mut line = Vec::new();
    let record = RequestRecord { user_agent: Some(agent.as_bytes()), ..request(&connection) };
    json::line(&mut line, Event::Request(&record), false);
    let text = String::from_utf8(line).unwrap();
    let written = r#""a\u009b31m\u007f\u202e\u2066\u200f\u2028\u2029\udb40\udc01é→\"""#;
    assert!(text.contains(written), "{text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["user_agent"], agent);
}

#[test]
fn the_line_of_a_malformed_request_is_bounded_and_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = open(&path, AccessLogFormat::Text);
    let excerpt = [&b"GET /\"\n"[..], &[b'a'; 1000]].concat();
    let connection = connection();
    let (reason, status) = (MalformedReason::LineFeed, 400);
    log.log_malformed(&MalformedRecord { connection: &connection, reason, status, excerpt: &excerpt });
    log.log_malformed(&MalformedRecord { connection: &connection, reason, status: 0, excerpt: b"" });
    close(&log);
    let text = fs::read_to_string(&path).unwrap();
    let [first, second] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    let rest =
        "0 \"-\" \"-\" error=line-feed error_side=client connection=7 connection_requests=3 rtt_us=12345";
    assert!(first.ends_with(&format!("] \"GET /\\x22\\x0A{}\" 400 {rest}", "a".repeat(193))), "{first}");
    assert!(second.ends_with(&format!("] \"-\" 000 {rest}")), "{second}");
}

#[test]
fn a_log_that_cannot_be_opened_names_its_file() {
    let path = std::path::Path::new("/nonexistent/access.log");
    let error = AccessLog::open(&[file_settings(path, AccessLogFormat::Text)], no_exporter).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot open the access log /nonexistent/access.log: No such file"),
        "{error}"
    );
}

#[test]
fn a_blocked_target_loses_lines_and_blocks_no_caller() {
    let log = open(std::path::Path::new("/dev/full"), AccessLogFormat::Text);
    let connection = connection();
    (0..100).for_each(|_| log.log(&request(&connection)));
    wait_until(|| dropped(&log) == 100);
}

#[test]
fn outputs_have_their_own_formats_samples_and_headers() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a", "b", "c"].map(|name| folder.path().join(name));
    let template = |text: &str| AccessLogFormat::Template(Arc::new(LogTemplate::new(text).unwrap()));
    let mut outputs = [
        file_settings(&paths[0], template("{request.header.x} {request.header.y}")),
        file_settings(&paths[1], template("{request.header.z} {request.header.x}")),
        file_settings(&paths[2], AccessLogFormat::Json),
    ];
    outputs[2].sample = Sample::new(1e-12);
    let log = AccessLog::open(&outputs, no_exporter).unwrap().unwrap();
    assert_eq!(log.headers().iter().map(|name| &**name).collect::<Vec<_>>(), ["x", "y", "z"]);
    let connection = connection();
    let headers = [Some(&b"1"[..]), None, Some(b"3")];
    let id = RequestId(u64::MAX);
    log.log(&RequestRecord { headers: &headers, id, ..request(&connection) });
    close(&log);
    assert_eq!(paths.map(|path| fs::read_to_string(path).unwrap()), ["1 -\n", "3 1\n", ""]);
}

#[test]
fn listed_outputs_get_the_requests_that_list_them() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a", "b", "c"].map(|name| folder.path().join(name));
    let path = AccessLogFormat::Template(Arc::new(LogTemplate::new("{request.path}").unwrap()));
    let mut outputs = paths.clone().map(|file| file_settings(&file, path.clone()));
    outputs[2].only_listed = true;
    let log = AccessLog::open(&outputs, no_exporter).unwrap().unwrap();
    let connection = connection();
    for (path, outputs) in [
        ("/all", LogOutputs::All),
        ("/none", LogOutputs::NONE),
        ("/b", LogOutputs::Listed(0b10)),
        ("/ac", LogOutputs::Listed(0b101)),
    ] {
        log.log(&RequestRecord { path, outputs, ..request(&connection) });
    }
    log.log_handshake(&connection, HandshakeOutcome::TimedOut);
    close(&log);
    let lines = paths.map(|path| fs::read_to_string(path).unwrap());
    assert_eq!(lines, ["/all\n/ac\n-\n", "/all\n/b\n-\n", "/ac\n"]);
}

#[test]
fn lines_of_a_receiver_that_never_came_are_counted_at_the_end() {
    let journal = JournalSettings {
        socket: "/nonexistent/socket".into(),
        facility: "daemon".parse().unwrap(),
        severity: Severity::Informational,
        app_name: AppName::default(),
    };
    let target = AccessLogTarget::Journal(journal);
    let outputs = [AccessLogSettings { target, ..AccessLogSettings::default() }];
    let log = AccessLog::open(&outputs, no_exporter).unwrap().unwrap();
    let metrics = Metrics::new();
    metrics.collector::<LostLines>().attach(&log);
    let connection = connection();
    (0..10).for_each(|_| log.log(&request(&connection)));
    log.close();
    let sum = "brisk_access_log_lost_lines_total{output=\"journal:/nonexistent/socket\"} 10";
    wait_until(|| metrics.render().contains(sum));
    // A later log with the same output adds to the sum of one that has ended.
    drop(log);
    let log = AccessLog::open(&outputs, no_exporter).unwrap().unwrap();
    metrics.collector::<LostLines>().attach(&log);
    log.log(&request(&connection));
    log.close();
    wait_until(|| metrics.render().contains(&sum.replace(" 10", " 11")));
}

/// Longer than any pause of the machine.
const LIMIT: Duration = Duration::from_mins(3);

/// Closes `log`, and waits until its threads have ended; [`AccessLog::close`] does not wait that long.
fn close(log: &AccessLog) {
    log.close();
    log.outputs.iter().for_each(|output| output.writer.wait(Instant::now() + LIMIT));
}

/// Waits for a condition; a generous limit turns a hang into a failure.
#[track_caller]
fn wait_until(condition: impl Fn() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < limit, "the condition never came true");
        std::thread::yield_now();
    }
}
