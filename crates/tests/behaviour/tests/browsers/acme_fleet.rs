//! Three gateways that share Redis: one order per name, each gateway responds to the authority, and each serves after a
//! restart without Redis.

use std::path::Path;

use brisk_behaviour::site::setup;
use brisk_testkit::brisk::{Brisk, Setup};
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::pebble::{Pebble, PebbleOptions};
use brisk_testkit::process::wait_until;
use brisk_testkit::redis::Redis;

use crate::acme::{HOST, base, connect, host, state};

const OTHER: &str = "other.test";

fn config(pebble: &Pebble, redis: &Redis, node: u8, hosts: &[&str]) -> String {
    config_with(pebble, redis, (node, state().path()), hosts)
}

fn config_with(pebble: &Pebble, redis: &Redis, (node, state): (u8, &Path), hosts: &[&str]) -> String {
    let hosts: String = hosts.iter().map(|name| host(&[name], "")).collect();
    // Each has an address of its own, and the ports at which the authority checks.
    let own = base(pebble, state).replace("[\"127.0.0.1:", &format!("[\"127.0.0.{node}:"));
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
    let folder = state();
    let of_third = |hosts: &[&str]| config_with(&pebble, &redis, (3, folder.path()), hosts);
    let third = prepare(&of_third(&[OTHER])).start();
    connect(&pebble, third.https(), OTHER);
    // The third does not have this host, and is the one that the authority asks.
    let nodes: Vec<Brisk> =
        [1, 2].iter().map(|node| prepare(&config(&pebble, &redis, *node, &[HOST])).start()).collect();
    let leafs: Vec<_> = nodes.iter().map(|node| leaf(&connect(&pebble, node.https(), HOST))).collect();
    assert_eq!(leafs[0], leafs[1], "both show the one that was ordered");
    assert_eq!(pebble.orders(), 2, "one for each name: {}", pebble.log());
    third.write("brisk.toml", of_third(&[OTHER, HOST]));
    third.reload();
    assert_eq!(leaf(&connect(&pebble, third.https(), HOST)), leafs[0]);
    assert_eq!(pebble.orders(), 2);
    // What is in Redis does not show the keys to those who read there.
    let keys = redis.cli(&["--raw", "KEYS", "*value/certificates*"]);
    let name = keys.lines().next().expect("a certificate");
    assert!(!redis.cli(&["--raw", "GET", name]).contains("PRIVATE KEY"));
}

#[test]
fn a_gateway_that_restarts_without_redis_serves_and_an_empty_redis_causes_no_order() {
    let (pebble, mut redis) = (PebbleOptions::default().start(), Redis::start());
    let states = [(); 3].map(|()| state());
    let configs: Vec<_> = (1..)
        .zip(&states)
        .map(|(node, state)| config_with(&pebble, &redis, (node, state.path()), &[HOST, OTHER]))
        .collect();
    let mut nodes: Vec<Brisk> = configs.iter().map(|config| prepare(config).start()).collect();
    for node in &nodes {
        for name in [HOST, OTHER] {
            connect(&pebble, node.https(), name);
        }
    }
    redis.kill();
    drop(nodes.remove(1));
    nodes.insert(1, prepare(&configs[1]).start());
    // Nothing is waited for: no handshake fails, the first after the restart included.
    for _ in 0..20 {
        for (node, name) in nodes.iter().flat_map(|node| [(node, HOST), (node, OTHER)]) {
            let stream = TlsClient::new(&pebble.root(), name).connect(node.https());
            stream.unwrap_or_else(|error| panic!("{name} at {}: {error}", node.https()));
        }
    }
    let list = || prepare(&configs[0]).run("cert", &["list", "--config", "brisk.toml"]);
    let failed = list();
    assert!(!failed.status.success() && failed.stderr.contains("cannot read"), "{}", failed.text());

    redis.restart();
    assert_eq!(redis.cli(&["DBSIZE"]), "0", "it has lost all");
    wait_until("certificates that are back", || {
        let keys = redis.cli(&["--raw", "KEYS", "*value/certificates/*"]);
        (keys.lines().count() == 2).then_some(())
    });
    let listed = list().success();
    assert!(listed.contains(HOST) && listed.contains("Pebble"), "{listed}");
    let (state, shown) = (state(), leaf(&connect(&pebble, nodes[0].https(), HOST)));
    let fourth = prepare(&config_with(&pebble, &redis, (4, state.path()), &[HOST, OTHER])).start();
    assert_eq!(leaf(&connect(&pebble, fourth.https(), HOST)), shown);
    assert_eq!(pebble.orders(), 2, "{}", pebble.log());
}
