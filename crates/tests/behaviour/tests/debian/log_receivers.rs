//! Outputs of the access log beside files: rsyslog over UDP, TCP and a Unix socket, and journald.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;

use brisk_behaviour::site::{LIMIT, NAME, Site};
use brisk_testkit::process::{Process, TIMEOUT, command, run, wait_until};
use brisk_testkit::rsyslog::Rsyslog;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

fn site(outputs: &str) -> Site {
    let keys =
        format!("access_log.output = [{{ file = \"access.log\" }}, {outputs}]\naccess_log.format = \"text\"");
    Site::custom(&keys, ROUTE, |setup| setup)
}

const ROUTE: &str = "\n[[host.route]]\npath = \"/\"\nrespond = { body = \"x\" }\n";

/// The line without its time, since each output formats the line itself.
fn without_time(line: &str) -> String {
    let (start, rest) = line.split_once(" [").expect("a time");
    format!("{start}{}", rest.split_once(']').expect("a time").1)
}

#[test]
fn rsyslog_receives_lines_over_udp_tcp_and_a_unix_socket() {
    let rsyslog = Rsyslog::start();
    let (address, socket) = (rsyslog.address(), rsyslog.socket());
    let site = site(&format!(
        "{{ syslog = {{ server = \"udp://{address}\" }} }}, \
         {{ syslog = {{ server = \"tcp://{address}\", facility = \"daemon\", severity = \"notice\", app_name = \"web\" }} }}, \
         {{ syslog = {{ server = \"unix:{}\", structured_data = \"access@32473\" }}, format = {{ template = \"{{request.target}} \
         {{request.header.user-agent}}\" }} }}",
        socket.display()
    ));
    site.curl(&["--user-agent", "a \"q\" ]\\ b"], "/receivers?q=1");
    let line = without_time(&site.brisk.logged("/receivers"));
    let process = site.brisk.process().id().to_string();
    let header = |message: &Value| {
        let parts = ["app", "process", "id", "priority"]
            .map(|key| message[key].as_str().unwrap_or_default().to_owned());
        assert!(
            message["time"].as_str().is_some_and(|time| time.ends_with('Z') || time.contains("+00:00")),
            "{message}"
        );
        assert_eq!((&*parts[1], &*parts[2]), (&*process, "request"), "{message}");
        (parts[0].clone(), parts[3].clone())
    };
    let udp = rsyslog.message("imudp", "/receivers");
    assert_eq!(header(&udp), ("brisk".to_owned(), (23 * 8 + 6).to_string()));
    assert_eq!(without_time(udp["message"].as_str().expect("text")), line);
    let tcp = rsyslog.message("imtcp", "/receivers");
    assert_eq!(header(&tcp), ("web".to_owned(), (3 * 8 + 5).to_string()));
    assert_eq!(without_time(tcp["message"].as_str().expect("text")), line);
    let unix = rsyslog.message("imuxsock", "/receivers");
    assert_eq!(unix["message"], "/receivers?q=1 a \\x22q\\x22 ]\\x5C b");
    let fields = &unix["data"]["rfc5424-sd"]["access@32473"];
    for (key, value) in [
        ("event", "request"),
        ("client", "127.0.0.1"),
        ("method", "GET"),
        ("path", "/receivers?q=1"),
        ("status", "200"),
        ("tls", "TLS 1.3"),
        ("user_agent", "a \\x22q\\x22 ]\\x5C b"),
    ] {
        assert_eq!(fields[key], value, "{key} in {unix}");
    }
}

#[test]
fn no_client_forges_a_message_or_a_field() {
    let rsyslog = Rsyslog::start();
    let (address, socket) = (rsyslog.address(), rsyslog.socket());
    let syslog = |server: String| {
        format!("{{ syslog = {{ server = \"{server}\", structured_data = \"access@32473\" }} }}")
    };
    let servers =
        [format!("udp://{address}"), format!("tcp://{address}"), format!("unix:{}", socket.display())];
    let site = site(&servers.map(syslog).join(", "));
    let hostile = b"\xef\xbb\xbf\"] [evil@1 a=\"b\"]\\ <13>1 - x forged - - - \xff\xc2\x85 12 <13>1 - x y\t";
    let forged: &[&[u8]] = &[
        b"GET /forged\n<13>1 - x forged - - - /forged HTTP/1.1",
        b"GET /forged\0<13>1 - x forged - - - /forged HTTP/1.1",
        b"\xef\xbb\xbfGET /forged\"] [evil@1 HTTP/1.1",
        b"GET /forged HTTP/1.1\r\nUser-Agent: a\nForged: b",
    ];
    for line in forged {
        let mut stream = site.connect();
        stream.write_all(&[line, &b"\r\nHost: site.test\r\n\r\n"[..]].concat()).expect("a connection");
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let mut stream = site.connect();
    let start = format!("GET /last HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\nUser-Agent: ");
    stream.write_all(&[start.as_bytes(), hostile, b"\r\n\r\n"].concat()).expect("a connection");
    stream.read_to_end(&mut Vec::new()).expect("a response");
    // Each worker writes for itself, so the line of the last request can come before others.
    let requests = forged.len() + 1;
    let lines = wait_until("a line of each request", || {
        let lines = site.brisk.access_log();
        (lines.len() == requests).then_some(lines)
    });
    let lines: Vec<_> = lines.iter().map(|line| without_time(line)).collect();
    for input in ["imudp", "imtcp", "imuxsock"] {
        let messages = wait_until("a message of each request", || {
            let messages = rsyslog.messages(input);
            (messages.len() == requests).then_some(messages)
        });
        let mut received: Vec<_> =
            messages.iter().map(|message| without_time(message["message"].as_str().expect("text"))).collect();
        let mut lines = lines.clone();
        received.sort();
        lines.sort();
        assert_eq!(received, lines, "{input}");
        for message in &messages {
            assert_eq!(message["app"], "brisk", "{message}");
            let elements = message["data"]["rfc5424-sd"].as_object().expect("structured data");
            assert_eq!(elements.keys().collect::<Vec<_>>(), ["access@32473"], "{message}");
            assert_eq!(elements["access@32473"]["client"], "127.0.0.1", "{message}");
        }
    }
}

#[test]
fn lines_wait_for_a_server_that_restarts() {
    let mut rsyslog = Rsyslog::start();
    let address = rsyslog.address();
    let site = site(&format!("{{ syslog = {{ server = \"tcp://{address}\" }} }}"));
    site.get("/first");
    rsyslog.message("imtcp", "/first");
    rsyslog.stop();
    for number in 0..20 {
        site.get(&format!("/waits/{number}"));
    }
    site.brisk.log_with("the receiver of the access log is down");
    rsyslog.restart();
    for number in 0..20 {
        rsyslog.message("imtcp", &format!("/waits/{number} "));
    }
    wait_until("a line about the return", || {
        site.get("/again");
        site.brisk.process().stderr().contains("takes lines again").then_some(())
    });
    // Of the outage and of its end, not of each line. A pause of the machine may be another outage.
    let reports = site.brisk.process().stderr().matches("the receiver of the access log").count();
    assert!((2..20).contains(&reports), "{reports} reports");
    assert!(lost(&site, "tcp://") < 0.5);
}

fn lost(site: &Site, output: &str) -> f64 {
    site.brisk.metrics().sum("brisk_access_log_lost_lines_total", &[&format!("output=\"{output}")])
}

#[test]
fn a_server_that_hangs_or_is_missing_stops_no_worker_and_its_lost_lines_are_counted() {
    let rsyslog = Rsyslog::start();
    let address = rsyslog.address();
    let keys = format!(
        "server.workers = 1\naccess_log.output = [{{ file = \"access.log\" }}, \
         {{ syslog = {{ server = \"tcp://{address}\", max_size = \"32KiB\" }} }}, \
         {{ syslog = {{ server = \"unix:{}\", max_size = \"32KiB\" }} }}]",
        rsyslog.socket().with_extension("missing").display()
    );
    let site = Site::custom(&keys, ROUTE, |setup| setup);
    site.get("/before");
    rsyslog.message("imtcp", "/before");
    rsyslog.process().pause();
    let request = |path: &str| format!("GET /{path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    let long = request(&"x".repeat(30_000));
    let mut stream = site.connect();
    wait_until("lost lines of both", || {
        (0..50).for_each(|_| assert_eq!(stream.request(&long).status(), 200));
        (lost(&site, "tcp://") > 0.5 && lost(&site, "unix:") > 0.5).then_some(())
    });
    // A server that hangs takes lines as long as the kernel has room for them.
    let reports = || site.brisk.process().stderr().matches("the receiver of the access log is down").count();
    wait_until("reports of both", || (reports() >= 2).then_some(()));
    assert!(reports() < 10, "{} reports", reports());
    rsyslog.process().signal(Signal::CONT);
    wait_until("lines after the pause", || {
        site.get("/after");
        let lines = rsyslog.messages("imtcp");
        lines
            .iter()
            .any(|line| line["message"].as_str().is_some_and(|line| line.contains("/after")))
            .then_some(())
    });
    wait_until("the lines in the file", || {
        let lines = site.brisk.access_log();
        (lines.iter().filter(|line| line.contains("xxxx")).count() >= 50).then_some(())
    });
}

/// journald, with its socket and its files in a folder, as an instance for a namespace.
struct Journald {
    _process: Process,
    folder: TempDir,
}

impl Journald {
    /// `None` where users may not mount folders, so that the test is to be skipped.
    fn start() -> Option<Self> {
        let namespace = ["--mount", "--user", "--map-root-user"];
        let permitted =
            run(command("unshare").args(namespace).args(["mount", "--bind", "/tmp", "/run"]), b"", LIMIT);
        if !permitted.status.success() {
            eprintln!("skipped, since this machine allows no mount namespaces: {}", permitted.stderr);
            return None;
        }
        let folder = TempDir::with_prefix("brisk-journald-").expect("a temporary folder");
        let [run, log] = ["run", "log"].map(|name| folder.path().join(name));
        fs::create_dir_all(run.join("systemd")).expect("a temporary folder");
        fs::create_dir_all(log.join("journal")).expect("a temporary folder");
        // Its paths are fixed, so that it sees other folders there.
        let mut script = String::new();
        for (folder, place) in [(&run, "/run"), (&log, "/var/log")] {
            writeln!(script, "mount --bind '{}' {place} &&", folder.display()).expect("a string");
        }
        script.push_str("exec /lib/systemd/systemd-journald brisk");
        let mut unshare = command("unshare");
        unshare.args(namespace).args(["sh", "-c", &script]);
        let process = Process::start(&mut unshare);
        let journald = Self { _process: process, folder };
        wait_until("the socket of journald", || journald.socket().exists().then_some(()));
        Some(journald)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("run/systemd/journal.brisk/socket")
    }

    /// Waits for the entry of brisk whose message contains `text`.
    fn entry(&self, text: &str) -> Value {
        let has_text = |entry: &Value| entry["MESSAGE"].as_str().is_some_and(|line| line.contains(text));
        wait_until("an entry", || self.entries().into_iter().find(has_text))
    }

    fn entries(&self) -> Vec<Value> {
        let folders = fs::read_dir(self.folder.path().join("log/journal")).expect("a folder");
        let files = folders.map(|folder| folder.expect("a folder").path().join("system.journal"));
        let Some(file) = files.into_iter().find(|file| file.exists()) else { return Vec::new() };
        let mut journalctl = command("journalctl");
        journalctl.args([OsStr::new("--file"), file.as_os_str()]);
        journalctl.args(["--output=json", "--all", "SYSLOG_IDENTIFIER=brisk"]);
        let text = run(&mut journalctl, b"", LIMIT).success();
        text.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
    }
}

#[test]
fn journald_receives_entries_with_fields() {
    let Some(journald) = Journald::start() else { return };
    let site = site(&format!(
        "{{ journal = {{ socket = \"{}\", severity = \"notice\" }}, format = {{ template = \"{{request.method}} {{request.target}} \
         {{response.status}}\" }} }}",
        journald.socket().display()
    ));
    let hostile = "a\u{feff}\"\u{85}\\ MESSAGE=forged\u{9b}";
    site.curl(&["--user-agent", hostile], "/journal");
    let entry = journald.entry("/journal");
    for (key, value) in [
        ("MESSAGE", "GET /journal 200"),
        ("PRIORITY", "5"),
        ("SYSLOG_FACILITY", "23"),
        ("BRISK_EVENT", "request"),
        ("BRISK_CLIENT", "127.0.0.1"),
        ("BRISK_PATH", "/journal"),
        ("BRISK_STATUS", "200"),
        ("BRISK_TLS", "TLS 1.3"),
        ("BRISK_USER_AGENT", "a\\xEF\\xBB\\xBF\\x22\\xC2\\x85\\x5C MESSAGE=forged\\xC2\\x9B"),
        ("_TRANSPORT", "journal"),
        ("_PID", &site.brisk.process().id().to_string()),
    ] {
        assert_eq!(entry[key], value, "{key} in {entry}");
    }
    let mut stream = TcpStream::connect(site.brisk.https()).expect("a listener");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("a connection");
    assert_eq!(journald.entry(" 000")["BRISK_OUTCOME"], "plain-http");
}

#[test]
fn an_entry_that_is_too_long_for_a_datagram_arrives_in_a_file() {
    let Some(journald) = Journald::start() else { return };
    let site = site(&format!("{{ journal = {{ socket = \"{}\" }} }}", journald.socket().display()));
    // Four bytes for each in the message and in the field: more than the socket buffer holds.
    let agent = vec![0xff; 40_000];
    let mut stream = site.connect();
    let start = format!("GET /long HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\nUser-Agent: ");
    stream.write_all(&[start.as_bytes(), &agent, b"\r\n\r\n"].concat()).expect("a connection");
    stream.read_to_end(&mut Vec::new()).expect("a response");
    let entry = journald.entry("/long");
    assert_eq!(entry["BRISK_USER_AGENT"].as_str().map(str::len), Some(160_000));
    assert_eq!(entry["BRISK_USER_AGENT"], "\\xFF".repeat(40_000));
}
