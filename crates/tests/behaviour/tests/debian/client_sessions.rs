//! The client packages in `clients`: sessions that survive a restart, against brisk, nginx and a server in Go, and the
//! round trips that they save.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use brisk_behaviour::linked::{link, words_before};
use brisk_behaviour::site::{LIMIT, NAME, NAMES, Site};
use brisk_link::SERVER;
use brisk_testkit::ca::TestCa;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::{Process, run, wait_until};
use tempfile::TempDir;

const NGINX: &str = "ssl_protocols TLSv1.2 TLSv1.3; ssl_early_data on; ssl_session_cache shared:all:1m;";

/// A program of the client packages, which `make test` builds; `None` without it.
fn built(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("the path of this test");
    let target = test.ancestors().nth(3).expect("the target folder");
    let program = target.join("clients").join(name);
    if !program.exists() {
        eprintln!("skipped: {} is missing, `make client-packages` builds it", program.display());
    }
    program.exists().then_some(program)
}

/// A server with `site.test`, its process, and whether it accepts early data.
struct Server {
    ca: TestCa,
    address: SocketAddr,
    takes_early_data: bool,
    _process: Box<dyn std::any::Any>,
}

fn servers() -> Vec<Server> {
    let site = Site::with("early_data = \"safe\"\n");
    let (ca, address) = (site.ca, site.brisk.https());
    let brisk = Server { ca, address, takes_early_data: true, _process: Box::new(site.brisk) };
    let ca = TestCa::new();
    let nginx = Nginx::https_with(&ca.server(&NAMES).issue(), NGINX);
    let nginx = Server { ca, address: nginx.address(), takes_early_data: true, _process: Box::new(nginx) };
    let mut servers = vec![brisk, nginx];
    if let Some(program) = built("go-server") {
        let ca = TestCa::new();
        let leaf = ca.server(&NAMES).issue();
        let process = Process::start(Command::new(program).arg(&leaf.chain).arg(&leaf.key));
        let address = wait_until("the address of the server", || {
            let text = process.stdout();
            text.strip_suffix('\n')?.trim().parse().ok()
        });
        servers.push(Server { ca, address, takes_early_data: false, _process: Box::new(process) });
    }
    servers
}

/// The output of a new process: kind of handshake, early data, status, time.
fn fetch(
    mut command: Command,
    folder: &Path,
    ca: &TestCa,
    address: SocketAddr,
    options: &str,
) -> Vec<String> {
    command.arg(folder).arg(ca.root_file()).args([NAME, &address.to_string(), "/"]);
    let output = run(command.args(options.split_whitespace()), b"", LIMIT).success();
    output.split_whitespace().map(str::to_owned).collect()
}

fn sessions(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "session")).collect()
}

/// Sessions resume in the next process. A copied or modified file leads to a full handshake without an error.
#[track_caller]
fn sessions_survive(program: &Path, server: &Server, options: &str, early: &str) {
    let folder = TempDir::new().expect("a folder");
    let fetch = |folder: &Path| {
        let words = fetch(Command::new(program), folder, &server.ca, server.address, options);
        words[..2].join(" ")
    };
    assert_eq!(fetch(folder.path()), "full not-sent", "{options}");
    assert_eq!(fetch(folder.path()), format!("resumed {early}"), "{options}");
    let copy = TempDir::new().expect("a folder");
    for file in fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("a file").path()) {
        fs::copy(&file, copy.path().join(file.file_name().expect("a name"))).expect("a copy");
    }
    assert_eq!(fetch(copy.path()), "full not-sent", "copied, {options}");
    assert!(!sessions(folder.path()).is_empty());
    for file in sessions(folder.path()) {
        let mut sealed = fs::read(&file).expect("a session");
        let middle = sealed.len() / 2;
        sealed[middle] ^= 1;
        fs::write(&file, sealed).expect("a session");
    }
    assert_eq!(fetch(folder.path()), "full not-sent", "modified, {options}");
    assert_eq!(fetch(folder.path()), format!("resumed {early}"), "after a modified one, {options}");
}

#[test]
fn sessions_of_the_rust_package_survive_a_restart() {
    let Some(program) = built("debug/examples/fetch") else { return };
    for server in servers() {
        let early = if server.takes_early_data { "accepted" } else { "not-sent" };
        for (options, early) in [("tls12", "not-sent"), ("", "not-sent"), ("early", early)] {
            sessions_survive(&program, &server, options, early);
        }
    }
}

#[test]
fn sessions_of_the_go_package_survive_a_restart() {
    let Some(program) = built("go-fetch") else { return };
    for server in servers() {
        for options in ["tls12", ""] {
            sessions_survive(&program, &server, options, "not-sent");
        }
    }
}

/// Round trips until the response of a first request, with these programs and options, in a new folder and then again.
const ROUND_TRIPS: [(&str, &str, [u32; 2]); 5] = [
    ("debug/examples/fetch", "tls12", [4, 3]),
    ("debug/examples/fetch", "", [3, 3]),
    ("debug/examples/fetch", "early", [3, 2]),
    ("go-fetch", "tls12", [4, 3]),
    ("go-fetch", "", [3, 3]),
];

/// On a busy machine a single measurement is late now and then.
const TRIES: usize = 30;

#[test]
fn a_restart_costs_fewer_round_trips_with_stored_sessions() {
    let Some(link) = link("delay=200ms") else { return };
    let keys = format!("server.https = [\"{SERVER}:0\"]");
    let site =
        Site::custom(&keys, "early_data = \"safe\"\n", |setup| setup.behind(&words_before(&link.server(""))));
    let address = SocketAddr::new(SERVER.into(), site.brisk.https().port());
    for (program, options, expected) in ROUND_TRIPS {
        let Some(program) = built(program) else { continue };
        let measure = || {
            let folder = TempDir::new().expect("a folder");
            [(); 2].map(|()| {
                let words = fetch(link.client(&program), folder.path(), &site.ca, address, options);
                words[3].parse::<f64>().expect("milliseconds")
            })
        };
        let mut seen = Vec::new();
        let is_right = (0..TRIES).any(|_| {
            let times = measure();
            eprintln!("{} {options}: {times:?} ms", program.display());
            seen.push(times);
            times.map(|time| (time / 400.0).round() as u32) == expected
        });
        assert!(is_right, "{} {options}: {seen:?} ms, expected {expected:?} round trips", program.display());
    }
}
