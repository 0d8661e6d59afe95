//! `brisk serve` without a file: a development CA of its own, both certificates, the page or an upstream.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use brisk_behaviour::dashboard::ON;
use brisk_behaviour::site::{LIMIT, Site, facts, setup};
use brisk_testkit::brisk::{Brisk, Setup};
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::{command, run};

fn first_run(setup: Setup) -> Setup {
    setup.option("--listen").option("127.0.0.1:0").option("--state-dir").option("state")
}

fn curl(brisk: &Brisk, options: &[&str], path: &str) -> String {
    let url = format!("https://localhost:{}{path}", brisk.https().port());
    let mut curl = command("curl");
    curl.args(["--silent", "--show-error", "--cacert"]).arg(brisk.folder().join("state/ca.pem"));
    run(curl.args(options).arg(url), b"", LIMIT).success()
}

#[test]
fn the_first_run_serves_a_page_under_a_certificate_one_can_trust() {
    let brisk = first_run(setup()).start();
    let page = curl(&brisk, &[], "/");
    assert!(page.contains("<!doctype html>") && page.contains("TLS 1.3"), "{page}");
    let ecdsa = facts(&curl(&brisk, &[], "/connection.json"));
    assert_eq!(ecdsa["tls"]["scheme"], "ecdsa_secp256r1_sha256");
    let options = ["--tls-max", "1.2", "--ciphers", "ECDHE-RSA-AES128-GCM-SHA256"];
    let rsa = facts(&curl(&brisk, &options, "/connection.json"));
    assert_eq!(rsa["tls"]["suite"], "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
    let told = brisk.process().stdout();
    assert!(told.contains(&format!("https://localhost:{}", brisk.https().port())), "{told}");
    assert!(told.contains("ca.pem"), "{told}");
}

#[test]
fn the_first_run_has_a_dashboard_for_this_machine() {
    let (first, second) = (first_run(setup()).start(), first_run(setup()).start());
    // The port that it would have, and one that is free.
    assert_ne!(first.dashboard(), second.dashboard());
    for brisk in [&first, &second] {
        let address = brisk.dashboard();
        assert!(address.ip().is_loopback());
        let page =
            run(command("curl").args(["--silent", &format!("http://{address}/")]), b"", LIMIT).success();
        assert!(page.contains("<title>brisk: dashboard</title>"), "{page}");
    }
}

#[test]
fn the_first_page_leads_to_the_dashboard_the_documentation_and_a_server_of_ones_own() {
    let brisk = first_run(setup()).start();
    let page = curl(&brisk, &[], "/");
    let dashboard = format!("http://{}", brisk.dashboard());
    for (path, title) in [("/", "brisk: dashboard"), ("/docs/", "brisk: Documentation")] {
        let url = format!("{dashboard}{path}");
        assert!(page.contains(&format!("<a href=\"{url}\">")), "{page}");
        let found = run(command("curl").args(["--silent", &url]), b"", LIMIT).success();
        assert!(found.contains(&format!("<title>{title}</title>")), "{found}");
    }
    // Its configuration is right as it stands, and serves the server whose address is written into it.
    let config = page.split_once("<pre").and_then(|(_, rest)| rest.split_once('>'));
    let config = config.and_then(|(_, rest)| rest.split_once("</pre>")).expect("a configuration").0;
    let listen = brisk.https().to_string();
    assert!(config.contains(&format!("https = [\"{listen}\"]")), "{config}");
    setup().file("brisk.toml", config).check("brisk.toml").success();
    let nginx = Nginx::http();
    let config = config.replace("http://127.0.0.1:8080", &nginx.url()).replace(&listen, "127.0.0.1:0");
    let config = config.replace("[dashboard]", &format!("[dashboard]\n{}", ON.replace("dashboard.", "")));
    let own = setup().config(&config).option("--state-dir").option("state").start();
    assert_eq!(curl(&own, &[], "/name"), nginx.address().port().to_string());
}

#[test]
fn visitors_of_a_configured_host_see_nothing_of_the_dashboard() {
    let site = Site::custom(ON, "", |setup| setup);
    let page = site.get("/").text();
    assert!(page.contains("Your address") && !page.contains("Dashboard"), "{page}");
    assert!(!page.contains(&site.brisk.dashboard().to_string()) && !page.contains("{{"), "{page}");
}

#[test]
fn private_keys_are_for_their_owner_alone_and_stay_the_same() {
    let brisk = first_run(setup()).start();
    let state = brisk.folder().join("state");
    let mode = |path: &std::path::Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    let keys: Vec<_> = fs::read_dir(&state)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "key"))
        .collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    assert!(keys.iter().all(|key| mode(key) == 0o600));
    let authority = fs::read_to_string(state.join("ca.pem")).expect("a CA");
    let again = setup().option("--listen").option("127.0.0.1:0").option("--state-dir");
    let _again = again.option(&state.display().to_string()).start();
    assert_eq!(fs::read_to_string(state.join("ca.pem")).expect("a CA"), authority);
}

#[test]
fn one_option_puts_it_in_front_of_a_server() {
    let nginx = Nginx::http();
    let brisk = first_run(setup().option("--upstream").option(&nginx.url())).start();
    assert_eq!(curl(&brisk, &["--http2"], "/name"), nginx.address().port().to_string());
}

#[test]
fn session_secrets_are_written_only_when_told_to() {
    for told in [true, false] {
        let setup = first_run(setup());
        let file = setup.folder().join("secrets");
        let setup = setup.environment("SSLKEYLOGFILE", &file.display().to_string());
        let brisk = if told { setup.option("--keylog").start() } else { setup.start() };
        curl(&brisk, &[], "/");
        let secrets = fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(secrets.contains("CLIENT_TRAFFIC_SECRET_0"), told, "{secrets:?}");
    }
}

#[test]
fn the_log_says_when_the_kernel_has_fast_open_off() {
    let setting = fs::read_to_string("/proc/sys/net/ipv4/tcp_fastopen").expect("a setting of the kernel");
    let is_on = setting.trim().parse::<u32>().expect("a number") & 2 != 0;
    let mut brisk = first_run(setup()).start();
    brisk.terminate();
    brisk.wait();
    let log = brisk.log_with("drained");
    assert_eq!(log.contains("net.ipv4.tcp_fastopen"), !is_on);
}

#[test]
fn memory_is_not_filled_up_to_huge_pages() {
    let brisk = first_run(setup()).start();
    let status =
        fs::read_to_string(format!("/proc/{}/status", brisk.process().id())).expect("a running process");
    // Linux before 5.0 does not say.
    if let Some(enabled) = status.lines().find_map(|line| line.strip_prefix("THP_enabled:")) {
        assert_eq!(enabled.trim(), "0");
    }
}

#[test]
fn an_address_in_use_ends_the_start_with_code_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = setup().option("--listen").option(&address).option("--state-dir").option("state").fail();
    assert_eq!(output.status.code(), Some(1), "{}", output.text());
    assert!(output.stderr.contains(&address), "{}", output.stderr);
}
