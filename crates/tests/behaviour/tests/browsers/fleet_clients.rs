//! Returning clients that reach another gateway of the fleet: curl and Chromium, behind a relay that sends each connection
//! to the next gateway.
//!
//! curl 7.88 keeps sessions only while it runs, so it gets several addresses at once; it has no early data.

use std::net::SocketAddr;

use brisk_behaviour::fleet::Fleet;
use brisk_behaviour::fleet::{fleet, fleet_with, keys};
use brisk_behaviour::site::{LIMIT, NAME};
use brisk_testkit::brisk::Brisk;
use brisk_testkit::process::{command, run, wait_until};
use brisk_testkit::redis::Redis;
use brisk_testkit::relay::Relay;
use serde_json::Value;

use crate::chromium::Chromium;

fn relay(fleet: &Fleet) -> Relay {
    let addresses: Vec<SocketAddr> = fleet.members.iter().map(Brisk::https).collect();
    Relay::to(&addresses)
}

/// How connections with requests to this path began, by each member's access log.
fn told(fleet: &Fleet, path: &str) -> Vec<Vec<String>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_member = |lines: Vec<String>| {
        let lines = lines.iter().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let lines = lines.filter(|line| line["path"] == path);
        lines.map(|line| text(&line["resumption"])).collect()
    };
    fleet.members.iter().map(|member| of_member(member.access_log())).collect()
}

/// curl asks three times, each time on a new connection; what became of its sessions at the three members.
fn curl(fleet: &Fleet, relay: &Relay, options: &[&str], path: &str) -> Vec<String> {
    let url = format!("https://{NAME}:{}{path}", relay.address().port());
    let mut curl = command("curl");
    curl.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--header", "Connection: close"]);
    curl.args(["--http1.1", "--resolve", &format!("{NAME}:{}:127.0.0.1", relay.address().port())]);
    curl.arg("--cacert").arg(fleet.ca.root_file()).args(options).args([&url, &url, &url]);
    run(&mut curl, b"", LIMIT).success();
    let lines = wait_until("a line of each member's log", || {
        let told = told(fleet, path);
        told.iter().all(|lines| lines.len() == 1).then_some(told)
    });
    lines.into_iter().flatten().collect()
}

#[test]
fn curl_resumes_at_every_member() {
    let redis = Redis::start();
    // Keys from the secret are there at once.
    let fleet = fleet(3, &keys(redis.port(), "sessions.ticket_keys = \"secret\""));
    fleet.wait_for_store();
    let relay = relay(&fleet);
    let tls12 = curl(&fleet, &relay, &["--tls-max", "1.2"], "/?12");
    // curl wants no tickets of TLS 1.2.
    assert_eq!(tls12, ["full", "session-id", "session-id"]);
    let tls13 = curl(&fleet, &relay, &[], "/?13");
    assert_eq!(tls13, ["full", "psk", "psk"]);
}

#[test]
fn curl_resumes_stateful_sessions_at_every_member() {
    let redis = Redis::start();
    let fleet = fleet(3, &keys(redis.port(), "tls.stateful = true\nsessions.ticket_keys = \"memory\""));
    fleet.wait_for_store();
    let relay = relay(&fleet);
    assert_eq!(curl(&fleet, &relay, &[], "/"), ["full", "psk", "psk"]);
}

/// A page that asks again each time when its connection was closed.
const PAGE: &str = "<!doctype html><script>
const pause = ms => new Promise(done => setTimeout(done, ms));
(async () => {
  for (let turn = 1; turn <= 8; turn++) {
    await pause(900);
    await fetch('/' + turn, {cache: 'no-store'});
  }
})();
</script>";

/// Chromium 156 sends early data if it is asked to, by a feature that is off unless named; otherwise these are `psk`.
#[test]
fn chromium_resumes_with_early_data_at_the_other_member() {
    let redis = Redis::start();
    let page = format!("respond = {{ content_type = \"text/html\", body = {PAGE:?} }}\n");
    let tables = format!("early_data = \"safe\"\n[[host.route]]\npath = \"/\"\n{page}");
    let keys = keys(redis.port(), "sessions.ticket_keys = \"memory\"\nserver.timeouts.idle = \"300ms\"");
    let fleet = fleet_with(2, &keys, &tables);
    fleet.wait_for_store();
    let relay = relay(&fleet);
    let url = format!("https://localhost:{}/", relay.address().port());
    let chromium = Chromium::new(fleet.members[0].folder(), &fleet.members[0]);
    let _running = chromium.start(&["--enable-features=EnableTLS13EarlyData"], &url);
    // Chromium may open connections that it does not use: each takes a turn of the relay and a session.
    let mut served: Vec<(usize, String)> = Vec::new();
    for turn in 1..=8 {
        let (member, resumption) = served_at(&fleet, &format!("/{turn}"));
        if resumption == "0-rtt" && served.last().is_some_and(|(before, _)| *before != member) {
            return;
        }
        served.push((member, resumption));
    }
    panic!("no early data at the member after another one: {served:?}");
}

/// The member that got a request to this path, and the resumption of its connection.
fn served_at(fleet: &Fleet, path: &str) -> (usize, String) {
    wait_until(path, || {
        let mut told = told(fleet, path).into_iter().enumerate();
        told.find_map(|(member, lines)| Some((member, lines.first()?.clone())))
    })
}
