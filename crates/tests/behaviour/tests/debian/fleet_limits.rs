//! Rates that two gateways count together in Redis, and requests without a decision of Redis.

use std::io::Write;

use brisk_behaviour::fleet::{Fleet, fleet_with, in_time, keys};
use brisk_behaviour::site::NAME;
use brisk_testkit::http1::Message;
use brisk_testkit::process::wait_until;
use brisk_testkit::redis::{Redis, RedisOptions};

/// A route for each limit, at its name, and one for both of the first two.
fn tables(limits: &[(&str, &str)]) -> String {
    let route = |path: &str, names: &str| {
        format!("\n[[host.route]]\npath = \"/{path}\"\nrespond = {{}}\nlimits = [{names}]\n")
    };
    let routes = limits.iter().map(|(name, _)| route(name, &format!("\"{name}\"")));
    let limits = limits.iter().map(|(name, keys)| format!("[limit.{name}]\nfleet = true\n{keys}\n"));
    routes.chain(limits).collect()
}

fn response(fleet: &Fleet, member: usize, path: &str, key: &str) -> Message {
    let mut connection = fleet.client().connect(fleet.members[member].https()).expect("a handshake");
    write!(connection, "GET {path} HTTP/1.1\r\nHost: {NAME}\r\nX-Key: {key}\r\n\r\n").expect("a server");
    Message::read_response(&mut connection).expect("a response")
}

fn statuses(fleet: &Fleet, members: &[usize], path: &str, key: &str) -> Vec<u16> {
    members.iter().map(|member| response(fleet, *member, path, key).status()).collect()
}

/// Waits for a decision of Redis, which may be later than the deadline on a busy machine.
#[track_caller]
fn decided(fleet: &Fleet, member: usize, path: &str, status: u16) {
    wait_until(&format!("status {status} at {path}"), || {
        (response(fleet, member, path, "").status() == status).then_some(())
    });
}

/// Number of scripts that Redis has executed.
fn evaluations(redis: &Redis) -> u64 {
    let statistics = redis.cli(&["info", "commandstats"]);
    let line = statistics.lines().find_map(|line| line.strip_prefix("cmdstat_eval:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn gateways_of_a_fleet_share_a_rate_with_one_command_for_each_decision() {
    let create = || {
        let redis = Redis::start();
        let limits = [("few", "rate = \"5/h\"\nby = \"{request.header.x-key}\"")];
        let fleet = fleet_with(2, &keys(redis.port(), ""), &tables(&limits));
        fleet.wait_for_store();
        (redis, fleet)
    };
    in_time(create, share_a_rate);
}

/// Requests of all kinds at both gateways.
fn share_a_rate(redis: &Redis, fleet: &Fleet) {
    assert_eq!(statuses(fleet, &[0, 1, 0, 1, 0], "/few", "a"), [200; 5]);
    assert_eq!(statuses(fleet, &[1, 0, 1, 0, 1, 0], "/few", "a"), [429; 6]);
    // Each gateway has asked once about the exhausted key, and knows since then.
    assert_eq!(evaluations(redis), 7);
    let wait: u64 = response(fleet, 1, "/few", "a")
        .header("retry-after")
        .and_then(|text| text.parse().ok())
        .expect("seconds");
    assert!((1..=720).contains(&wait), "{wait}");
    assert_eq!(statuses(fleet, &[0, 1], "/few", "b"), [200, 200], "another key");
    let total = |result: &str| {
        fleet.total("brisk_limit_requests_total", &["limit=\"few\"", &format!("result=\"{result}\"")])
    };
    assert_eq!((total("passed"), total("rate")), (7, 7));
    assert_eq!(fleet.total("brisk_limit_undecided_total", &[]), 0);
    // Keys are hashed, and full buckets are forgotten.
    let names = redis.cli(&["keys", "brisk:r:*"]);
    assert_eq!(names.lines().filter(|name| !name.is_empty()).count(), 2, "{names}");
    for name in names.lines() {
        let lifetime: i64 = redis.cli(&["pttl", name]).trim().parse().expect("milliseconds");
        assert!((1..=3_600_000).contains(&lifetime), "{lifetime}");
    }
}

#[test]
fn requests_without_a_decision_of_redis_are_treated_as_configured() {
    let mut redis = Redis::start();
    let limits = [
        ("local", "rate = \"2/h\""),
        ("allow", "rate = \"1/h\"\non_failure = \"allow\""),
        ("deny", "rate = \"300/h\"\non_failure = \"deny\""),
    ];
    let fleet = fleet_with(2, &keys(redis.port(), ""), &tables(&limits));
    fleet.wait_for_store();
    decided(&fleet, 0, "/deny", 200);
    redis.pause();
    assert_eq!(statuses(&fleet, &[0], "/deny", ""), [503], "no reply in time");
    redis.resume();
    redis.kill();
    wait_until("gateways without Redis", || {
        (fleet.total("brisk_session_store_breaker_open", &[]) == 2).then_some(())
    });
    assert_eq!(statuses(&fleet, &[0, 1, 0, 1, 0, 1], "/local", ""), [200, 200, 200, 200, 429, 429]);
    assert_eq!(statuses(&fleet, &[0, 1, 0, 1], "/allow", ""), [200; 4]);
    assert_eq!(statuses(&fleet, &[1], "/deny", ""), [503]);
    assert!(fleet.members[1].logged("\"limit-store\"").contains("\"error_side\":\"internal\""));
    let label = ["limit=\"allow\""];
    assert_eq!(fleet.total("brisk_limit_undecided_total", &label), 4);
    redis.restart();
    fleet.wait_for_store();
    decided(&fleet, 1, "/deny", 200);
}

#[test]
fn a_redis_that_permits_no_scripts_is_reported() {
    let rules = "brisk on >hush ~brisk:* resetchannels -@all +get +set +hgetall +hsetnx +hdel +info";
    let redis = Redis::with(RedisOptions::default().user(rules));
    let limits = [("few", "rate = \"1/h\"\non_failure = \"deny\"")];
    let login = "sessions.redis.username = \"brisk\"\nsessions.redis.password_file = \"password\"\n";
    let fleet = fleet_with(1, &keys(redis.port(), login), &tables(&limits));
    fleet.wait_for_store();
    assert_eq!(statuses(&fleet, &[0], "/few", ""), [503]);
    assert!(fleet.members[0].log_with("refuses EVAL").contains("+eval +time"));
    assert_eq!(fleet.total("brisk_session_store_breaker_open", &[]), 0, "sessions work");
    redis.cli(&["acl", "setuser", "brisk", "+eval", "+time"]);
    decided(&fleet, 0, "/few", 429);
}
