//! Three gateways that share Redis: one order per name, and each gateway responds to the authority.

use brisk_behaviour::site::setup;
use brisk_testkit::brisk::{Brisk, Setup};
use brisk_testkit::client::TlsStream;
use brisk_testkit::pebble::{Pebble, PebbleOptions};
use brisk_testkit::redis::Redis;

use crate::acme::{HOST, base, connect, host, state};

const OTHER: &str = "other.test";

fn config(pebble: &Pebble, redis: &Redis, node: u8, hosts: &[&str]) -> String {
    let hosts: String = hosts.iter().map(|name| host(&[name], "")).collect();
    // Each has an address of its own, and the ports at which the authority checks.
    let own = base(pebble, state().path()).replace("[\"127.0.0.1:", &format!("[\"127.0.0.{node}:"));
    format!(
        "acme.store = \"redis\"\nsessions.secret = \"secret\"\nsessions.redis = {{ servers = [\"redis://127.0.0.1:{}\"] }}\n{own}{hosts}",
        redis.port()
    )
}

fn prepare(config: &str) -> Setup {
    setup().file("secret", [b's'; 48]).config(config)
}

fn leaf(stream: &TlsStream) -> Vec<u8> {
    stream.tls().peer_certificates().expect("certificates")[0].to_vec()
}

#[test]
fn a_fleet_orders_once_and_any_gateway_answers_the_authority() {
    let (pebble, redis) = (PebbleOptions::default().start(), Redis::start());
    for name in [HOST, OTHER] {
        pebble.resolve(name, &["127.0.0.3"]);
    }
    let third = prepare(&config(&pebble, &redis, 3, &[OTHER])).start();
    connect(&pebble, third.https(), OTHER);
    // The third does not have this host, and is the one that the authority asks.
    let nodes: Vec<Brisk> =
        [1, 2].iter().map(|node| prepare(&config(&pebble, &redis, *node, &[HOST])).start()).collect();
    let leafs: Vec<_> = nodes.iter().map(|node| leaf(&connect(&pebble, node.https(), HOST))).collect();
    assert_eq!(leafs[0], leafs[1], "both show the one that was ordered");
    assert_eq!(pebble.orders(), 2, "one for each name: {}", pebble.log());
    third.write("brisk.toml", config(&pebble, &redis, 3, &[OTHER, HOST]));
    third.reload();
    assert_eq!(leaf(&connect(&pebble, third.https(), HOST)), leafs[0]);
    assert_eq!(pebble.orders(), 2);
    // What is in Redis does not show the keys to those who read there.
    let keys = redis.cli(&["--raw", "KEYS", "*value/certificates*"]);
    let name = keys.lines().next().expect("a certificate");
    assert!(!redis.cli(&["--raw", "GET", name]).contains("PRIVATE KEY"));
}
