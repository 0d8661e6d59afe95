//! `brisk capture` beside tshark: recordings of real clients and servers over a link with delay and loss.

mod join;
mod record;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use brisk_behaviour::linked::{link, words_before};
use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{LIMIT, NAME, NAMES, Site};
use brisk_link::{Link, SERVER};
use brisk_testkit::ca::TestCa;
use brisk_testkit::process::{Process, command, run, wait_until};
use brisk_testkit::programs::program;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// Bytes of the file that clients request.
const LARGE: usize = 300_000;

/// Results that both programs have, after `tcp.analysis.`.
const FLAGS: [&str; 15] = [
    "reused_ports",
    "zero_window_probe",
    "zero_window",
    "zero_window_probe_ack",
    "lost_segment",
    "ack_lost_segment",
    "keep_alive",
    "keep_alive_ack",
    "window_update",
    "window_full",
    "duplicate_ack",
    "spurious_retransmission",
    "fast_retransmission",
    "out_of_order",
    "retransmission",
];

/// A recording at the client's end of a link.
struct Recorder {
    tcpdump: Process,
    file: PathBuf,
}

impl Recorder {
    fn start(link: &Link, folder: &TempDir) -> Self {
        let file = folder.path().join("recorded.pcap");
        let mut tcpdump = link.client(program("tcpdump"));
        tcpdump.args(["-Z", "root", "-i", "client", "-U", "-w"]).arg(&file);
        let tcpdump = Process::start(&mut tcpdump);
        wait_until("tcpdump", || tcpdump.stderr().contains("listening on").then_some(()));
        Self { tcpdump, file }
    }

    /// Ends the recording when it contains the end of `connections` connections.
    fn end(mut self, connections: usize) -> PathBuf {
        wait_until("the end of all connections", || {
            let ended = json(&self.file, &[]);
            // The end of a QUIC connection is not visible: its response and three more datagrams are.
            let ended = ended.iter().filter(|line| match line["event"].as_str() {
                Some("quic") => {
                    line["response_us"].is_u64() && line["server_udp"]["datagrams"].as_u64() > Some(3)
                }
                _ => line["end"].as_str().is_some_and(|end| end != "open"),
            });
            (ended.count() >= connections).then_some(())
        });
        self.tcpdump.signal(Signal::INT);
        self.tcpdump.wait();
        self.file
    }
}

/// Lines of `brisk capture FILE --json`.
fn json(file: &Path, options: &[&str]) -> Vec<Value> {
    let mut brisk = Command::new(brisk_program());
    brisk.arg("capture").arg(file).arg("--json").args(options);
    let text = run(&mut brisk, b"", LIMIT).success();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn text(file: &Path, options: &[&str]) -> String {
    let mut brisk = Command::new(brisk_program());
    brisk.arg("capture").arg(file).args(options);
    run(&mut brisk, b"", LIMIT).success()
}

fn curl(link: &Link, ca: &TestCa, port: u16, options: &[&str]) -> Command {
    let mut curl = link.client(program("curl"));
    curl.args(["--silent", "--show-error", "--max-time", "170", "--noproxy", "*", "--cacert"])
        .arg(ca.root_file());
    curl.args(["--connect-to", &format!("::{SERVER}:")]).args(options);
    curl.arg(format!("https://{NAME}:{port}/large")).args(["--output", "/dev/null"]);
    curl
}

/// A folder with the file `large`.
fn pages() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let content: Vec<u8> = (0..LARGE).map(|index| (index * index / 7) as u8).collect();
    fs::write(folder.path().join("large"), content).expect("a file");
    folder
}

fn nginx(link: &Link, ca: &TestCa, pages: &TempDir) -> Process {
    let leaf = ca.server(&NAMES).issue();
    nginx_with(link, (&leaf.chain, &leaf.key), pages)
}

fn nginx_with(link: &Link, (chain, key): (&Path, &Path), pages: &TempDir) -> Process {
    let (folder, config) = (pages.path().display(), pages.path().join("nginx.conf"));
    let text = format!(
        "user root;\ndaemon off;\nworker_processes 1;\npid {folder}/nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n\
         access_log off;\nserver {{ listen {SERVER}:8443 ssl http2; ssl_certificate {};\nssl_certificate_key {};\n\
         root {folder}; }} }}\n",
        chain.display(),
        key.display()
    );
    fs::write(&config, text).expect("a file");
    let mut nginx = link.server(program("nginx"));
    let process = Process::start(nginx.arg("-e").arg("stderr").arg("-c").arg(&config));
    wait_until("nginx", || {
        let mut probe = link.client(program("curl"));
        probe.args(["--silent", "--insecure", "--max-time", "60", "--output", "/dev/null"]);
        run(probe.arg(format!("https://{SERVER}:8443/")), b"", LIMIT).status.success().then_some(())
    });
    process
}

/// Facts of a packet: connection, results, acknowledged packet, microseconds since, bytes in flight.
type Facts = (u64, Vec<String>, Option<u64>, Option<i64>, Option<u64>);

fn of_brisk(file: &Path) -> BTreeMap<u64, Facts> {
    let lines = json(file, &["--packets"]);
    let packets = lines.iter().filter(|line| line["event"] == "packet");
    packets
        .map(|line| {
            let flags = line["flags"].as_array().into_iter().flatten();
            let mut flags: Vec<_> = flags.map(|flag| flag.as_str().expect("a name").to_owned()).collect();
            flags.sort();
            // tshark does not print a round trip time of zero.
            let micros = line["acked_ms"].as_f64().map(|ms| (ms * 1e3).round() as i64);
            let micros = micros.filter(|micros| *micros != 0);
            let facts = (
                line["connection"].as_u64().expect("a number"),
                flags,
                line["acked"].as_u64(),
                micros,
                line["in_flight"].as_u64(),
            );
            (line["packet"].as_u64().expect("a number"), facts)
        })
        .collect()
}

fn of_tshark(file: &Path) -> BTreeMap<u64, Facts> {
    let mut tshark = command("tshark");
    tshark.arg("-r").arg(file).args(["-Y", "tcp", "-T", "fields", "-E", "separator=|"]);
    let others = ["acks_frame", "ack_rtt", "bytes_in_flight"];
    let analysis = FLAGS.iter().chain(&others).map(|name| format!("tcp.analysis.{name}"));
    for field in ["frame.number".to_owned(), "tcp.stream".to_owned()].into_iter().chain(analysis) {
        tshark.args(["-e", &field]);
    }
    let output = run(&mut tshark, b"", LIMIT).success();
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').collect();
        let (numbers, rest) = cells.split_at(2);
        let (flags, others) = rest.split_at(FLAGS.len());
        let flags = FLAGS.iter().zip(flags).filter(|(_, cell)| !cell.is_empty());
        let mut flags: Vec<_> = flags.map(|(name, _)| (*name).to_owned()).collect();
        // tshark calls fast and spurious retransmissions retransmissions too.
        let is_special = |flag: &String| flag == "fast_retransmission" || flag == "spurious_retransmission";
        if flags.iter().any(is_special) {
            flags.retain(|flag| flag != "retransmission");
        }
        flags.sort();
        let micros = others[1].parse::<f64>().ok().map(|seconds| (seconds * 1e6).round() as i64);
        let facts = (
            numbers[1].parse().expect("a stream"),
            flags,
            others[0].parse().ok(),
            micros,
            others[2].parse().ok(),
        );
        (numbers[0].parse().expect("a number"), facts)
    };
    output.lines().map(row).collect()
}

/// Most packets in a thousand whose results may differ; losses are random.
const DIFFERENT: usize = 2;

#[track_caller]
fn agree(file: &Path) {
    let (brisk, tshark) = (of_brisk(file), of_tshark(file));
    assert!(brisk.len() > 100 && brisk.keys().eq(tshark.keys()), "{} {}", brisk.len(), tshark.len());
    let pairs = || brisk.iter().zip(tshark.values());
    for ((packet, brisk), tshark) in pairs() {
        assert_eq!((brisk.0, brisk.2, brisk.3), (tshark.0, tshark.2, tshark.3), "stream and RTT of {packet}");
    }
    let different: Vec<_> = pairs().filter(|((_, brisk), tshark)| brisk != tshark).collect();
    assert!(different.len() * 1000 <= brisk.len() * DIFFERENT, "{different:#?}");
    let flags = brisk.values().filter(|facts| !facts.1.is_empty()).count();
    eprintln!("{} packets, {flags} with results, {} differences", brisk.len(), different.len());
}

#[test]
fn packets_of_brisk_and_curl_over_a_lossy_link_have_the_results_of_tshark() {
    let Some(link) = link("delay=10ms,loss=3%") else { return };
    let (pages, recordings) = (pages(), tempfile::tempdir().expect("a folder"));
    let site = Site::custom(
        &format!("server.https = [\"{SERVER}:0\"]"),
        &format!("\n[[host.route]]\npath = \"/\"\nstatic = {:?}\n", pages.path()),
        |setup| setup.behind(&words_before(&link.server(""))),
    );
    let recorder = Recorder::start(&link, &recordings);
    for options in [&[][..], &["--tls-max", "1.2"], &["--http1.1", "--limit-rate", "200k"]] {
        run(&mut curl(&link, &site.ca, site.brisk.https().port(), options), b"", LIMIT).success();
    }
    agree(&recorder.end(3));
}

#[test]
fn packets_of_nginx_and_openssl_have_the_results_of_tshark_in_every_file_format() {
    let Some(link) = link("delay=5ms,rate=20M,queue=40k") else { return };
    let (ca, pages, recordings) = (TestCa::new(), pages(), tempfile::tempdir().expect("a folder"));
    let _nginx = nginx(&link, &ca, &pages);
    let recorder = Recorder::start(&link, &recordings);
    run(&mut curl(&link, &ca, 8443, &[]), b"", LIMIT).success();
    let mut openssl = link.client(program("openssl"));
    openssl.args(["s_client", "-quiet", "-ign_eof", "-connect", &format!("{SERVER}:8443")]);
    run(&mut openssl, b"GET /large HTTP/1.0\r\n\r\n", LIMIT);
    let file = recorder.end(2);
    agree(&file);
    let plain = text(&file, &[]);
    let ng = recordings.path().join("recorded.pcapng");
    run(command("editcap").arg("-F").arg("pcapng").arg(&file).arg(&ng), b"", LIMIT).success();
    assert_eq!(text(&ng, &[]), plain);
    let compressed = recordings.path().join("recorded.zst");
    run(command("zstd").arg("-q").arg(&ng).arg("-o").arg(&compressed), b"", LIMIT).success();
    assert_eq!(text(&compressed, &[]), plain);
    let mut brisk = Command::new(brisk_program());
    let bytes = fs::read(&file).expect("a file");
    assert_eq!(run(brisk.args(["capture", "-"]), &bytes, LIMIT).success(), plain);
}

/// Requests and responses: packet, stream of HTTP/2, and method with path or status.
fn requests_of_brisk(file: &Path, keys: &str) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    // Late packets of earlier connections have no handshake.
    for connection in json(file, &["--keylog", keys]).iter().filter(|line| line["tls"].is_string()) {
        assert!(connection["is_decrypted"] == true, "{connection:#}");
        for request in connection["requests"].as_array().into_iter().flatten() {
            let text = |name: &str| request[name].as_str().expect("a text");
            all.push((
                request["packet"].as_u64().expect("a number"),
                format!("{} {}", text("method"), text("path")),
            ));
            // tshark shows a response of HTTP/1.1 at the end of its body.
            let field = if request["protocol"] == "HTTP/1.1" { "end_packet" } else { "response_packet" };
            let response = request[field].as_u64().unwrap_or_else(|| panic!("{connection:#}"));
            all.push((response, request["status"].to_string()));
        }
    }
    all.sort();
    all
}

fn requests_of_tshark(file: &Path, keys: &str) -> Vec<(u64, String)> {
    let mut tshark = command("tshark");
    tshark.arg("-r").arg(file).args(["-o", &format!("tls.keylog_file:{keys}"), "-d", "tcp.port==8443,tls"]);
    tshark.args(["-o", "tcp.reassemble_out_of_order:TRUE"]);
    tshark.args(["-Y", "http or http2.headers", "-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]);
    let names = ["http.request.method", "http.request.uri", "http.response.code"];
    let http2 = ["http2.headers.method", "http2.headers.path", "http2.headers.status"];
    for field in ["frame.number"].into_iter().chain(names).chain(http2) {
        tshark.args(["-e", field]);
    }
    let output = run(&mut tshark, b"", LIMIT).success();
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').collect();
        let [packet, method, uri, code, method2, path, status] = cells[..] else { panic!("{line}") };
        let request = format!("{method}{method2} {uri}{path}");
        let text = if request == " " { format!("{code}{status}") } else { request };
        (packet.parse().expect("a number"), text)
    };
    let mut all: Vec<_> = output.lines().map(row).collect();
    all.sort();
    all
}

#[test]
fn requests_decrypted_with_a_key_log_are_those_of_tshark() {
    let Some(link) = link("delay=10ms,loss=1%,reorder=2%") else { return };
    let (ca, pages, recordings) = (TestCa::new(), pages(), tempfile::tempdir().expect("a folder"));
    let _nginx = nginx(&link, &ca, &pages);
    let recorder = Recorder::start(&link, &recordings);
    let keys = recordings.path().join("keys");
    let ciphers = ["--ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384", "--tls-max", "1.2"];
    let chacha = ["--ciphers", "ECDHE-ECDSA-CHACHA20-POLY1305", "--tls-max", "1.2", "--http1.1"];
    for options in [&[][..], &["--http1.1"], &ciphers, &chacha] {
        let mut curl = curl(&link, &ca, 8443, options);
        // A second request on the connection.
        curl.arg(format!("https://{NAME}:8443/missing")).args(["--output", "/dev/null"]);
        run(curl.env("SSLKEYLOGFILE", &keys), b"", LIMIT).success();
    }
    let file = recorder.end(4);
    let keys = keys.to_str().expect("a path");
    let (ours, theirs) = (requests_of_brisk(&file, keys), requests_of_tshark(&file, keys));
    assert_eq!(ours.len(), 16, "{ours:#?}");
    assert_eq!(ours, theirs);
    // The same keys within the file.
    let ng = recordings.path().join("keys.pcapng");
    let mut editcap = command("editcap");
    run(editcap.args(["--inject-secrets", &format!("tls,{keys}")]).arg(&file).arg(&ng), b"", LIMIT).success();
    let lines = json(&ng, &[]);
    let first = lines.iter().find(|line| line["tls"].is_string()).expect("a handshake");
    let outside = json(&file, &["--keylog", keys]);
    let same = outside.iter().find(|line| line["connection"] == first["connection"]).expect("the connection");
    for (name, value) in first.as_object().expect("an object") {
        assert_eq!(value, &same[name], "{name}");
    }
    assert_eq!(first, same);
    let drawn = text(&ng, &["--ladder", &first["connection"].to_string()]);
    assert!(drawn.contains("GET /large") && drawn.contains("404 for /missing"), "{drawn}");
}

#[test]
fn a_connection_is_explained_with_the_facts_and_milestones_of_the_access_log() {
    let Some(link) = link("delay=20ms") else { return };
    let recordings = tempfile::tempdir().expect("a folder");
    let keys = format!("server.https = [\"{SERVER}:0\"]\naccess_log.format = \"json\"");
    let site = Site::custom(&keys, "", |setup| setup.behind(&words_before(&link.server(""))));
    let recorder = Recorder::start(&link, &recordings);
    let log = recordings.path().join("keys");
    let mut curl = curl(&link, &site.ca, site.brisk.https().port(), &["--http1.1", "--ciphers", "DEFAULT"]);
    run(curl.env("SSLKEYLOGFILE", &log), b"", LIMIT).success();
    let file = recorder.end(1);
    let lines = json(&file, &["--keylog", log.to_str().expect("a path")]);
    let [connection, summary] = &lines[..] else { panic!("{lines:#?}") };
    assert_eq!((&connection["event"], &summary["event"]), (&"connection".into(), &"summary".into()));
    let field = |name: &str| connection[name].as_str().unwrap_or_else(|| panic!("{name}: {connection:#}"));
    assert_eq!((field("server_name"), field("tls")), (NAME, "TLS 1.3"));
    assert!(field("ja4").starts_with("t13d") && connection["is_decrypted"] == true, "{connection:#}");
    let line: Value = serde_json::from_str(&site.brisk.logged("/large")).expect("JSON");
    for name in ["server_name", "tls", "suite", "group"] {
        assert_eq!(connection[name], line[name], "{name}: {line}");
    }
    assert_eq!(connection["certificates"][0]["subject"], NAME, "{connection:#}");
    assert!(connection["tickets"][0]["lifetime_s"].as_u64() > Some(0), "{connection:#}");
    let milestones =
        ["tcp-established", "client-hello", "handshake-finished", "first-request", "first-response"];
    let times = milestones.map(|name| connection["milestones_us"][name].as_u64().expect(name));
    assert!(times.is_sorted(), "{times:?}");
    let causes = connection["causes"].as_array().expect("causes");
    assert!(causes.iter().any(|cause| cause["message"] == "ServerHello"), "{connection:#}");
    let printed = text(&file, &[]);
    assert!(
        printed.contains("round trip") && printed.lines().all(|line| line.chars().count() <= 80),
        "{printed}"
    );
    let ladder = text(&file, &["--ladder", "0", "--keylog", log.to_str().expect("a path")]);
    for message in ["SYN", "ClientHello", "ServerHello", "Finished", "GET /large", "404 for /large"] {
        assert!(ladder.contains(message), "{message}: {ladder}");
    }
    assert!(ladder.lines().all(|line| line.chars().count() <= 80), "{ladder}");
}

/// A chain of four certificates with RSA keys, and its key. The server's first flight has more than 4,344 bytes.
fn four_certificates(folder: &Path) -> (PathBuf, PathBuf) {
    let openssl = |text: &str| {
        run(command("openssl").current_dir(folder).args(text.split_whitespace()), b"", LIMIT).success();
    };
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout 0.key -out 0.pem -subj /CN=root -days 9");
    let names: Vec<_> = (0..60).map(|number| format!("DNS:images-{number}.site.test")).collect();
    fs::write(folder.join("ca"), "basicConstraints=critical,CA:TRUE\n").expect("a file");
    fs::write(folder.join("leaf"), format!("subjectAltName=DNS:{NAME},{}\n", names.join(",")))
        .expect("a file");
    let mut chain = fs::read_to_string(folder.join("0.pem")).expect("a certificate");
    for (number, extensions) in [(1, "ca"), (2, "ca"), (3, "leaf")] {
        let issuer = number - 1;
        openssl(&format!(
            "req -newkey rsa:2048 -nodes -keyout {number}.key -out {number}.csr -subj /CN={number}"
        ));
        openssl(&format!(
            "x509 -req -in {number}.csr -CA {issuer}.pem -CAkey {issuer}.key -CAcreateserial -days 9 -extfile {extensions} \
             -out {number}.pem"
        ));
        chain = fs::read_to_string(folder.join(format!("{number}.pem"))).expect("a certificate") + &chain;
    }
    fs::write(folder.join("chain.pem"), chain).expect("a file");
    (folder.join("chain.pem"), folder.join("3.key"))
}

/// The two handshakes of Meitu's article: TLS 1.2, four certificates, and servers with an initial window of 3 and of 10.
#[test]
fn a_chain_beyond_the_initial_window_costs_a_round_trip() {
    let Some(link) = link("delay=30ms") else { return };
    let (pages, recordings) = (pages(), tempfile::tempdir().expect("a folder"));
    let (chain, key) = four_certificates(pages.path());
    let _nginx = nginx_with(&link, (&chain, &key), &pages);
    let handshake = |window: &str| {
        let mut ip = link.server(program("ip"));
        ip.args(["route", "replace", "10.77.0.1/32", "dev", "server", "initcwnd", window]);
        run(&mut ip, b"", LIMIT).success();
        let recorder = Recorder::start(&link, &recordings);
        let mut curl = link.client(program("curl"));
        curl.args(["--silent", "--show-error", "--max-time", "170", "--noproxy", "*", "--tls-max", "1.2"]);
        curl.arg("--cacert").arg(pages.path().join("0.pem")).args(["--connect-to", &format!("::{SERVER}:")]);
        curl.arg(format!("https://{NAME}:8443/large")).args(["--output", "/dev/null"]);
        run(&mut curl, b"", LIMIT).success();
        let lines = json(&recorder.end(1), &[]);
        let line = lines.iter().find(|line| line["tls"] == "TLS 1.2").expect("a handshake");
        assert_eq!(line["certificates"].as_array().map(Vec::len), Some(4), "{line:#}");
        assert!(line["flight_bytes"].as_u64() > Some(3 * 1448), "{line:#}");
        let windows = line["causes"].as_array().expect("causes").iter().filter(|cause| {
            // After the handshake, slow start continues.
            let is_handshake = cause["message"].as_str().is_some_and(|message| !message.contains("data"));
            cause["cause"] == "congestion-window" && cause["from"] == "server" && is_handshake
        });
        let waits: Vec<_> = windows.map(|cause| cause["ms"].as_f64().expect("a time")).collect();
        eprintln!("initial window {window}: {}", line["finding"]);
        (waits, line["handshake_us"].as_u64().expect("a time"))
    };
    // A pause of the machine takes longer than a round trip of the link: then both are recorded again.
    wait_until("a round trip for the initial window alone", || {
        let ((three, long), (ten, short)) = (handshake("3"), handshake("10"));
        (three.len() == 1 && three[0] > 55.0 && ten.is_empty() && long >= short + 50_000).then_some(())
    });
}

#[test]
fn names_and_versions_of_quic_are_those_of_tshark() {
    let Some(link) = link("delay=10ms") else { return };
    let recordings = tempfile::tempdir().expect("a folder");
    let keys = format!("server.https = [\"{SERVER}:8443\"]\nserver.http3 = true");
    let site = Site::custom(&keys, "", |setup| setup.behind(&words_before(&link.server(""))));
    let recorder = Recorder::start(&link, &recordings);
    let mut bench = link.client(brisk_program());
    bench.args([
        "bench",
        &format!("https://{NAME}:8443/"),
        "--connect",
        &format!("{SERVER}:8443"),
        "--h3",
        "1",
    ]);
    bench.args(["-n", "3", "-c", "1", "-r", "1", "--timeout", "150s", "--ca"]).arg(site.ca.root_file());
    run(&mut bench, b"", LIMIT).success();
    // bench opens one connection of its own before the three.
    let file = recorder.end(4);
    let lines = json(&file, &[]);
    let quic: Vec<_> = lines.iter().filter(|line| line["event"] == "quic").collect();
    let mut tshark = command("tshark");
    tshark.arg("-r").arg(&file).args(["-Y", "tls.handshake.type==1", "-T", "fields", "-E", "separator=|"]);
    for field in ["udp.srcport", "quic.version", "tls.handshake.extensions_server_name"] {
        tshark.args(["-e", field]);
    }
    let output = run(&mut tshark, b"", LIMIT).success();
    let hellos: Vec<_> = output.lines().collect();
    let row = |line: &&Value| {
        assert!(line["version"] == "QUIC v1" && line["has_retry"] == false, "{line:#}");
        assert!(line["response_us"].as_u64() >= Some(20_000) && line["offered_alpn"][0] == "h3", "{line:#}");
        format!("{}|0x00000001|{}", line["client_port"], line["server_name"].as_str().expect("a name"))
    };
    assert!(quic.len() >= 3, "{lines:#?}");
    assert_eq!(quic.iter().map(row).collect::<Vec<_>>(), hellos);
    let printed = text(&file, &[]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(printed.contains(&format!("{NAME}, QUIC v1, first response after")), "{printed}");
}

#[test]
fn packets_in_tunnels_and_fragments_are_those_of_tshark() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/seeds/capture");
    for name in ["tunnels.pcap", "fragments.pcap", "fragments6.pcap"] {
        let file = seeds.join(name);
        let ours = of_brisk(&file);
        assert!(ours.len() == 5 && ours == of_tshark(&file), "{name}: {ours:#?} {:#?}", of_tshark(&file));
    }
}

#[test]
fn files_that_are_no_captures_are_refused_with_a_message() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    fs::write(&file, "<!doctype html><title>no packets</title>").expect("a file");
    let mut brisk = Command::new(brisk_program());
    let output = run(brisk.arg("capture").arg(&file), b"", LIMIT);
    assert_eq!(output.status.code(), Some(1));
    let wanted = "no capture: the input is neither pcap nor pcapng; record one with tcpdump -w FILE";
    assert_eq!(output.stderr, format!("{}: {wanted}\n", file.display()));
}
