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

/// Has curl ask three times, each time on a new connection, until its sessions have the `expected` outcomes at the three members:
/// a connection may come before the store has the session of the one before, or be too late for the deadline of the store.
#[track_caller]
fn curl(fleet: &Fleet, relay: &Relay, options: &[&str], path: &str, expected: [&str; 3]) {
    let mut seen = Vec::new();
    for attempt in 0..ATTEMPTS {
        let path = format!("{path}{attempt}");
        let url = format!("https://{NAME}:{}{path}", relay.address().port());
        let mut curl = command("curl");
        curl.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--header", "Connection: close"]);
        curl.args(["--http1.1", "--resolve", &format!("{NAME}:{}:127.0.0.1", relay.address().port())]);
        curl.arg("--cacert").arg(fleet.ca.root_file()).args(options).args([&url, &url, &url]);
        run(&mut curl, b"", LIMIT).success();
        let lines = wait_until("a line of each member's log", || {
            let told = told(fleet, &path);
            told.iter().all(|lines| lines.len() == 1).then_some(told)
        });
        seen.push(lines.concat());
        if seen[attempt] == expected {
            return;
        }
    }
    panic!("other outcomes: {seen:?}")
}

/// Attempts of [`curl`].
const ATTEMPTS: usize = 20;

#[test]
fn curl_resumes_at_every_member() {
    let redis = Redis::start();
    // Keys from the secret are there at once.
    let fleet = fleet(3, &keys(redis.port(), "sessions.ticket_keys = \"secret\""));
    fleet.wait_for_store();
    let relay = relay(&fleet);
    // curl wants no tickets of TLS 1.2.
    curl(&fleet, &relay, &["--tls-max", "1.2"], "/?12-", ["full", "session-id", "session-id"]);
    curl(&fleet, &relay, &[], "/?13-", ["full", "psk", "psk"]);
}

#[test]
fn curl_resumes_stateful_sessions_at_every_member() {
    let redis = Redis::start();
    let fleet = fleet(3, &keys(redis.port(), "tls.stateful = true\nsessions.ticket_keys = \"memory\""));
    fleet.wait_for_store();
    let relay = relay(&fleet);
    curl(&fleet, &relay, &[], "/?", ["full", "psk", "psk"]);
}

/// A page that asks again each time when its connection was closed.
const PAGE: &str = "<!doctype html><script>
const pause = ms => new Promise(done => setTimeout(done, ms));
(async () => {
  for (let turn = 1; turn <= 1000; turn++) {
    await pause(900);
    await fetch('/turn-' + turn, {cache: 'no-store'}).catch(() => {});
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
    wait_until("early data at the member after another one", || {
        let turns = turns(&fleet);
        let is_found = |pair: &[(usize, usize, String)]| pair[1].2 == "0-rtt" && pair[0].1 != pair[1].1;
        turns.windows(2).any(is_found).then_some(())
    });
}

/// Turns of the page with the member that got the request, and the resumption of its connection, in their order.
fn turns(fleet: &Fleet) -> Vec<(usize, usize, String)> {
    let mut turns = Vec::new();
    for (member, brisk) in fleet.members.iter().enumerate() {
        for line in brisk.access_log() {
            let line: Value = serde_json::from_str(&line).expect("JSON");
            let turn = line["path"].as_str().and_then(|path| path.strip_prefix("/turn-")?.parse().ok());
            let resumption = line["resumption"].as_str().unwrap_or_default();
            turns.extend(turn.map(|turn: usize| (turn, member, resumption.to_owned())));
        }
    }
    turns.sort();
    turns
}
