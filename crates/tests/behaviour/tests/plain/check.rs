//! `brisk check`: one clear message with position and key, the nearest valid name for a typo, exit code 2.

use brisk_behaviour::site::{NAME, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;

fn wrong(config: &str, parts: &[&str]) {
    let setup = setup().config(config);
    for output in [setup.check("brisk.toml"), setup.fail()] {
        assert_eq!(output.status.code(), Some(2), "{}", output.text());
        for part in parts {
            assert!(output.stderr.contains(part), "{part} is missing: {}", output.stderr);
        }
        assert_eq!(output.stdout, "");
    }
}

const MINIMAL: &str = "[server]\nhttps = [\"127.0.0.1:0\"]\n";

#[test]
fn a_right_file_is_ok() {
    let ca = TestCa::new();
    let config = base("") + &host(&[NAME], &[&ca.server(&[NAME]).issue()]);
    let said = setup().config(&config).check("brisk.toml").success();
    let lines: Vec<_> = said.lines().collect();
    assert!(lines.len() == 2 && lines[1] == "brisk.toml: ok", "{said}");
    assert!(lines[0].contains("ECDSA P-256 for site.test: first flight of "), "{said}");
}

#[test]
fn unknown_keys_are_told_with_line_and_nearest_name() {
    wrong(&format!("{MINIMAL}proxy_protcol = true\n"), &["brisk.toml:3", "proxy_protcol", "proxy_protocol"]);
    wrong("[servr]\n", &["brisk.toml:1", "servr", "server"]);
    wrong(
        &format!("{MINIMAL}[[host]]\nnames = [\"localhost\"]\nhstss = 1\n"),
        &["brisk.toml:5", "host[0].hstss", "hsts"],
    );
}

#[test]
fn terms_of_other_programs_bring_their_counterparts() {
    let route = format!("{MINIMAL}[[host]]\nnames = [\"localhost\"]\n[[host.route]]\npath = \"/\"\n");
    wrong(
        &format!("{route}proxy_pass = \"http://127.0.0.1:1\"\n"),
        &["brisk.toml:7", "nginx", "upstream = \"app\""],
    );
    wrong(
        "server {\n  listen 443 ssl;\n}\n",
        &["brisk.toml:1", "the syntax of nginx", "docs/configuration.md"],
    );
}

#[test]
fn wrong_values_are_told_with_line_and_what_would_be_right() {
    wrong("[server]\nhttps = [\"localhost:8443\"]\n", &["brisk.toml:2", "server.https[0]", "0.0.0.0:443"]);
    wrong(
        &format!("{MINIMAL}[server.timeouts]\nidle = \"1 hour\"\n"),
        &["brisk.toml:4", "server.timeouts.idle"],
    );
    wrong(&format!("{MINIMAL}[server.timeouts]\nidle = 60\n"), &["brisk.toml:4", "server.timeouts.idle"]);
    let route = "[[host]]\nnames = [\"localhost\"]\n[[host.route]]\npath = \"/\"\nupstream = \"ap\"\n";
    let upstream = "[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n";
    wrong(&format!("{MINIMAL}{route}{upstream}"), &["brisk.toml:7", "host[0].route[0].upstream", "app"]);
}

#[test]
fn what_a_fleet_shares_is_told_before_it_is_missed() {
    let host = "[[host]]\nnames = [\"localhost\"]\n";
    wrong(
        &format!("{MINIMAL}[sessions]\nticket_keys = \"secret\"\nsecret = \"none\"\n{host}"),
        &["brisk.toml:5", "sessions.secret", "cannot read none"],
    );
    wrong(
        &format!("{MINIMAL}[sessions]\nticket_keys = \"redis\"\n{host}"),
        &["brisk.toml:4", "sessions.ticket_keys", "[sessions.redis]"],
    );
    wrong(&format!("{MINIMAL}{host}early_data = \"saef\"\n"), &["brisk.toml:5", "did you mean `safe`?"]);
}

#[test]
fn a_file_that_is_no_toml_or_missing() {
    wrong("[server\n", &["brisk.toml:1"]);
    let output = setup().check("none.toml");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stderr.contains("none.toml"), "{}", output.stderr);
}

#[test]
fn nothing_starts_half() {
    let config = base("") + "\n[[host]]\nnames = [\"site.test\"]\n";
    let output = setup().config(&config).fail();
    assert_eq!(output.status.code(), Some(2), "{}", output.text());
    assert_eq!(output.stdout, "");
}
