//! `brisk bench compare` with real servers, started by the scripts of `bench/peers`.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::LIMIT;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::{Finished, Process, run, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

const HEAD: &str = r#"
title = "Test"
prepare = "PEERS/prepare"
options = "-c 4 -n 100 --per-connection 1 --timeout 150s --ca {ca} --connect 127.0.0.1:{port} https://bench.test/static"
"#;

const NGINX: &str = r#"
[[target]]
name = "nginx"
start = "PEERS/run nginx {port}"
version = "echo {port}"
ports = ["port"]
ready = "127.0.0.1:{port}"
"#;

const BRISK: &str = r#"
[[target]]
name = "brisk"
start = "PEERS/run brisk {port}"
ports = ["port"]
ready = "127.0.0.1:{port}"
"#;

const MODES: &str = r#"
[[mode]]
name = "full"
options = "--tls 1.2"
[[mode]]
name = "resumed"
options = "--tls 1.2 --mix session-id"
"#;

/// A plan in a folder of its own, in which everything that it starts lives.
struct Plan {
    folder: TempDir,
}

impl Plan {
    fn new(parts: &[&str]) -> Self {
        let folder = TempDir::with_prefix("brisk-test-bench-").expect("a temporary folder");
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../bench/peers");
        let text = parts.concat().replace("PEERS", &peers.display().to_string());
        fs::write(folder.path().join("plan.toml"), text).expect("a temporary file");
        Self { folder }
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(brisk_program());
        command.args(["bench", "compare", "plan.toml"]).args(options).current_dir(self.folder.path());
        command.env("PEERS_DIR", self.folder.path().join("peers"));
        command
    }

    /// The process that wrote its number into a file of this name, when there is one.
    fn started(&self, name: &str) -> String {
        wait_until(name, || {
            let folders = fs::read_dir(self.folder.path().join("peers")).ok()?;
            let files = folders.filter_map(Result::ok).map(|entry| entry.path().join(name));
            let pid =
                files.filter_map(|file| fs::read_to_string(file).ok()).find(|text| text.ends_with('\n'))?;
            Some(pid.trim().to_owned())
        })
    }

    fn run(&self, options: &[&str]) -> Finished {
        run(&mut self.command(options), b"", LIMIT)
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Bytes of the server's flight, which other work on the machine does not change.
fn ratio(report: &Value, cell: usize) -> f64 {
    report["cells"][cell]["measures"]["handshake-received"]["ratio"]["median"].as_f64().expect("a ratio")
}

#[test]
fn two_servers_are_compared_and_stopped() {
    let compare = "[compare]\nmode = \"full\"\nrounds = [3, 3]\n";
    let plan = Plan::new(&[HEAD, compare, NGINX, BRISK, MODES]);
    let report = json(&plan.run(&["--json", "--html", "page.html", "--markdown", "page.md"]).success());
    assert_eq!(report["rounds"], 3);
    assert_eq!(report["cells"].as_array().expect("cells").len(), 4);
    for cell in report["cells"].as_array().expect("cells") {
        assert_eq!((&cell["errors"], &cell["given_up"]), (&Value::from(0), &Value::from(false)), "{cell}");
        let cpu = cell["measures"]["server-cpu"]["value"]["median"].as_f64().expect("processor time");
        assert!(cpu > 1.0, "{cell}");
    }
    // A full handshake has certificates; a resumed one does not. The cells are in the order of modes and then targets.
    for resumed in [2, 3] {
        assert!(ratio(&report, resumed) < 0.9, "{report:#}");
    }
    let page = fs::read_to_string(plan.folder.path().join("page.html")).expect("a page");
    assert!(page.contains("<h1>Test</h1>"), "{page}");
    let document = fs::read_to_string(plan.folder.path().join("page.md")).expect("a document");
    assert!(document.contains("| resumed |"), "{document}");
    let port = report["targets"][0]["version"].as_str().expect("the port");
    assert!(TcpStream::connect(format!("127.0.0.1:{port}")).is_err(), "nginx still runs");
}

#[test]
fn a_missing_server_and_a_mode_that_fails_are_told() {
    let missing = r#"
[[target]]
name = "ghost"
optional = true
start = "sh -c 'echo get it with: magic >&2; exit 69'"
ready = "127.0.0.1:9"
"#;
    let compare = "[compare]\ntarget = \"nginx\"\nrounds = [1, 1]\n";
    let mode = "[[mode]]\nname = \"wrong\"\noptions = \"--sni other.test\"\n[[mode]]\nname = \"right\"\n";
    let plan = Plan::new(&[HEAD, compare, NGINX, missing, mode]);
    let text = plan.run(&[]).success();
    assert!(text.contains("ghost was left out: get it with: magic."), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(" nginx failed 0 nginx: given up, it failed twice: "), "{text}");
    assert!(words.contains(" is not valid for other.test."), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn an_interrupted_comparison_tells_what_it_has_and_stops_the_servers() {
    let origin = Nginx::recording();
    let there = "[[target]]\nname = \"plain\"\noptions = \"-r 1 -n 50 --warmup 0 --timeout 150s\"\n";
    let mode =
        |name| format!("[[mode]]\nname = \"{name}\"\noptions = \"http://{}/{name}\"\n", origin.address());
    let modes = [mode("first"), mode("second")].concat();
    let service = "[[service]]\nname = \"beside\"\nstart = \"PEERS/run nginx {beside}\"\nports = [\"beside\"]\n\
                   ready = \"127.0.0.1:{beside}\"\n";
    let plan =
        Plan::new(&["title = \"Test\"\n[compare]\nrounds = [1000, 1000]\n", service, there, modes.as_str()]);
    let mut process = Process::start(&mut plan.command(&["--json"]));
    // Then the first mode was measured.
    let is_second = |line: &String| line.contains("/second");
    wait_until("the second mode", || origin.requests().iter().any(is_second).then_some(()));
    let pid = plan.started("nginx.pid");
    process.signal(Signal::INT);
    assert!(process.wait().success(), "{}", process.stderr());
    let report = json(&process.stdout());
    assert_eq!(report["ended"], "interrupted");
    assert!(report["cells"][0]["measures"]["rate"]["value"]["median"].as_f64() > Some(1.0), "{report}");
    assert!(!Path::new("/proc").join(&pid).exists(), "nginx still runs");
}

/// A command that never does what it is started for, but says that it was started.
const STUCK: &str = "sh -c 'mkdir -p peers/stuck; echo $$ > peers/stuck/stuck.pid; exec sleep 600'";

#[test]
fn a_signal_while_servers_start_stops_them_in_one_line() {
    let silent = "ports = [\"port\"]\nready = \"127.0.0.1:{port}\"\n[[mode]]\nname = \"m\"\n";
    let slow_server = format!("[[target]]\nname = \"slow\"\nstart = \"{STUCK}\"\n{silent}");
    let slow_preparation =
        format!("prepare = \"{STUCK}\"\n[[target]]\nname = \"one\"\n[[mode]]\nname = \"m\"\n");
    let title = "title = \"Test\"\nprepare = \"PEERS/prepare\"\n";
    for (parts, signal, has_nginx) in [
        ([title, NGINX, slow_server.as_str()], Signal::INT, true),
        ([title, NGINX, slow_server.as_str()], Signal::TERM, true),
        (["title = \"Test\"\n", slow_preparation.as_str(), ""], Signal::INT, false),
    ] {
        let plan = Plan::new(&parts);
        let mut process = Process::start(&mut plan.command(&["--json"]));
        let mut started = vec![plan.started("stuck.pid")];
        started.extend(has_nginx.then(|| plan.started("nginx.pid")));
        process.signal(signal);
        assert_eq!(process.wait().code(), Some(1));
        assert_eq!(process.stderr(), "interrupted before anything was measured\n");
        assert_eq!(process.stdout(), "");
        for pid in started {
            assert!(!Path::new("/proc").join(&pid).exists(), "{pid} still runs");
        }
    }
}

#[test]
fn a_wrong_plan_is_one_line_and_exit_code_2() {
    for (from, to, hint) in [
        ("name = \"full\"", "nam = \"full\"", "unknown field `nam`"),
        ("--tls 1.2\"", "--tls 1.4\"", "target \"nginx\", mode \"full\": "),
        ("{port}\"\nversion", "{prot}\"\nversion", "{prot}"),
    ] {
        let text = [HEAD, NGINX, MODES].concat().replace(from, to);
        let finished = Plan::new(&[&text]).run(&[]);
        assert_eq!(finished.status.code(), Some(2), "{}", finished.text());
        assert!(finished.text().contains(hint), "{}", finished.text());
    }
    let finished = Plan::new(&[HEAD, NGINX, MODES]).run(&["--mode", "half"]);
    assert_eq!(finished.status.code(), Some(2));
    assert!(
        finished.text().contains("no mode is called \"half\": there are full, resumed"),
        "{}",
        finished.text()
    );
}
