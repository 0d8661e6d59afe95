//! `brisk bench compare` with real servers, started by the scripts of `bench/peers`.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use brisk_testkit::process::{Finished, Process, run, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::site::LIMIT;

const HEAD: &str = r#"
title = "Test"
prepare = "PEERS/prepare"
options = "-c 4 -d 150ms --warmup 20ms --per-connection 1 --ca {ca} --connect 127.0.0.1:{port} https://bench.test/static"
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
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/peers");
        let text = parts.concat().replace("PEERS", &peers.display().to_string());
        fs::write(folder.path().join("plan.toml"), text).expect("a temporary file");
        Self { folder }
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brisk"));
        command.args(["bench", "compare", "plan.toml"]).args(options).current_dir(self.folder.path());
        command.env("PEERS_DIR", self.folder.path().join("peers"));
        command
    }

    fn run(&self, options: &[&str]) -> Finished {
        run(&mut self.command(options), b"", LIMIT)
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn ratio(report: &Value, cell: usize) -> f64 {
    report["cells"][cell]["measures"]["rate"]["ratio"]["median"].as_f64().expect("a ratio")
}

#[test]
fn two_servers_are_compared_and_stopped() {
    let compare = "[compare]\nmode = \"full\"\nrounds = [3, 3]\n";
    let plan = Plan::new(&[HEAD, compare, NGINX, BRISK, MODES]);
    let report = json(&plan.run(&["--json", "--html", "page.html", "--markdown", "page.md"]).success());
    assert_eq!(report["rounds"], 3);
    assert_eq!(report["cells"].as_array().expect("cells").len(), 4);
    for cell in report["cells"].as_array().expect("cells") {
        assert_eq!((&cell["errors"], &cell["failure"]), (&Value::from(0), &Value::Null), "{cell}");
        let cpu = cell["measures"]["server-cpu"]["value"]["median"].as_f64().expect("processor time");
        assert!(cpu > 1.0, "{cell}");
    }
    // A full handshake signs; a resumed one does not. The cells are in the order of modes and then targets.
    for resumed in [2, 3] {
        assert!(ratio(&report, resumed) > 1.2, "{report:#}");
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
    assert!(text.contains("nginx, wrong was given up: "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn an_interrupted_comparison_tells_what_it_has_and_stops_the_servers() {
    let plan = Plan::new(&[HEAD, "[compare]\nrounds = [1000, 1000]\n", NGINX, MODES]);
    let mut process = Process::start(&mut plan.command(&["--json"]));
    let pid = wait_until("a running nginx", || {
        let folder = fs::read_dir(plan.folder.path().join("peers")).ok()?;
        let files = folder.filter_map(Result::ok).map(|entry| entry.path().join("nginx.pid"));
        files.filter_map(|file| fs::read_to_string(file).ok()).find(|text| !text.trim().is_empty())
    });
    process.signal(Signal::INT);
    assert!(process.wait().success(), "{}", process.stderr());
    let report = wait_until("a report", || serde_json::from_str::<Value>(&process.stdout()).ok());
    assert_eq!(report["ended"], "interrupted");
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "nginx still runs");
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
