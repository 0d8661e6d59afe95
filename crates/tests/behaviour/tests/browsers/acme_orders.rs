//! Interrupted ACME orders, and manual orders by `brisk cert`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use brisk_behaviour::site::setup;
use brisk_testkit::brisk::Setup;
use brisk_testkit::ca::TestCa;
use brisk_testkit::pebble::PebbleOptions;
use brisk_testkit::process::wait_until;
use brisk_testkit::relay::pass_on;
use rustix::process::Signal;
use serde_json::Value;

use crate::acme::{HOST, base, connect, host, record, state};

/// Where the authority checks: connections wait until there is a gateway to lead them to, so that a check neither fails nor
/// succeeds while there is none.
struct HeldPort {
    port: u16,
    gateway: Arc<Mutex<Option<SocketAddr>>>,
}

impl HeldPort {
    fn bind() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let gateway: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        let target = Arc::clone(&gateway);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), target) = (client, Arc::clone(&target)) else { continue };
                thread::spawn(move || pass(client, &target));
            }
        });
        Self { port, gateway }
    }

    fn lead_to(&self, gateway: SocketAddr) {
        *self.gateway.lock().unwrap_or_else(PoisonError::into_inner) = Some(gateway);
    }
}

fn pass(client: TcpStream, target: &Mutex<Option<SocketAddr>>) {
    loop {
        let target = *target.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(target) = target {
            let Ok(server) = TcpStream::connect(target) else { return };
            pass_on(client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
            return pass_on(server, client);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// What the log says after each step of an order, at which the program is killed; of the last the authority has checked.
const STEPS: [&str; 3] = ["ordered a certificate", "the authority may check", "the authority has checked"];

#[test]
fn an_order_that_is_cut_off_anywhere_is_finished_with_one_order() {
    for (index, step) in STEPS.iter().enumerate() {
        let (held, state) = (HeldPort::bind(), state());
        let pebble = PebbleOptions::default().https(held.port).start();
        let own_port = format!("127.0.0.1:{}", held.port);
        let config = base(&pebble, state.path()).replace(&own_port, "127.0.0.1:0") + &host(&[HOST], "");
        let with_steps = |setup: Setup| setup.config(&config).option("--log").option("info,brisk_acme=debug");
        let mut first = with_steps(setup()).start();
        if index == STEPS.len() - 1 {
            held.lead_to(first.https());
        }
        first.log_with(step);
        first.process().signal(Signal::KILL);
        first.wait();
        let second = with_steps(setup()).start();
        held.lead_to(second.https());
        connect(&pebble, second.https(), HOST);
        second.log_with("a certificate was obtained");
        assert_eq!(pebble.orders(), 1, "killed at {step:?}: {}", pebble.log());
    }
}

/// Kills the program during the order of another name in each round, at moments that are spread over the order. The next
/// start finishes the order; only a kill between the authority's response and the following write repeats it.
fn kill_during_orders(rounds: usize) {
    let (held, state) = (HeldPort::bind(), state());
    let pebble = PebbleOptions::default().https(held.port).start();
    let own_port = format!("127.0.0.1:{}", held.port);
    let base = base(&pebble, state.path()).replace(&own_port, "127.0.0.1:0");
    let mut repeated = 0;
    for round in 0..rounds {
        let name = format!("shop{round}.test");
        let config = base.clone() + &host(&[&name], "");
        let before = pebble.orders();
        let mut first = setup().config(&config).start();
        held.lead_to(first.https());
        first.log_with("obtaining a certificate");
        thread::sleep(Duration::from_millis(round as u64 * 131 % 1500));
        first.process().signal(Signal::KILL);
        first.wait();
        let second = setup().config(&config).start();
        held.lead_to(second.https());
        connect(&pebble, second.https(), &name);
        let issued = record(state.path(), "certificates", &name, "ecdsa").expect("a certificate");
        assert_eq!(issued["names"][0], name.as_str());
        let orders = pebble.orders() - before;
        assert!((1..=2).contains(&orders), "{name}: {orders} orders: {}", pebble.log());
        repeated += orders - 1;
        wait_until("the end of the order", || {
            record(state.path(), "orders", &name, "ecdsa").is_none().then_some(())
        });
    }
    let kept = fs::read_dir(state.path().join("certificates/certificates")).expect("certificates").count();
    assert_eq!(kept, rounds, "one for each name");
    println!("{rounds} kills repeated {repeated} orders");
}

#[test]
fn kills_during_orders_repeat_an_order_at_most_once() {
    kill_during_orders(6);
}

#[test]
#[ignore = "takes minutes; the short variant runs always"]
fn a_hundred_kills_during_orders_repeat_an_order_at_most_once_per_name() {
    kill_during_orders(100);
}

#[test]
fn an_order_is_continued_when_the_authority_said() {
    let (pebble, state) = (PebbleOptions::default().order_pause(3600).start(), state());
    let config = base(&pebble, state.path()) + &host(&[HOST], "");
    let brisk = setup().config(&config).start();
    let log = brisk.log_with("no certificate was obtained");
    assert!(log.contains("the authority asks to wait 3"), "{log}");
    let mut status = record(state.path(), "status", HOST, "ecdsa").expect("a status");
    let number = |name: &str| status[name].as_u64().expect("a number");
    let pause = number("retry") - number("failed");
    // The time of the failure is later than that of the response, by a pause of the machine at most.
    assert!((3400..=3601).contains(&pause), "{status}");
    drop(brisk);
    // An hour later.
    status["retry"] = 0.into();
    status["held"] = Value::Array(Vec::new());
    let file = state.path().join("certificates/status").join(HOST).join("ecdsa");
    fs::write(file, status.to_string()).expect("a record");
    let again = setup().config(&config).start();
    connect(&pebble, again.https(), HOST);
    assert_eq!(pebble.orders(), 1, "{}", pebble.log());
}

#[test]
fn certificates_are_listed_renewed_and_revoked_by_hand() {
    let (pebble, state) = (PebbleOptions::default().start(), state());
    let config = base(&pebble, state.path()) + &host(&[HOST, "www.shop.test"], "");
    let brisk = setup().config(&config).start();
    connect(&pebble, brisk.https(), HOST);
    brisk.log_with("the authority advises when to renew");
    let by_hand = setup().file("brisk.toml", &config);
    let cert = |words: &[&str]| {
        let words: Vec<_> = words.iter().copied().chain(["--config", "brisk.toml"]).collect();
        by_hand.run("cert", &words)
    };
    let table = cert(&["list"]).success();
    let place = format!("kept in {}", state.path().join("certificates").display());
    for text in ["shop.test www.shop.test", "ecdsa", "Pebble Intermediate CA", "next renewal", &place] {
        assert!(table.contains(text), "{table}");
    }
    assert!(cert(&["inspect", "www.shop.test"]).success().contains(&pebble.directory()));
    assert!(cert(&["renew"]).success().contains("not due"));
    assert_eq!(pebble.orders(), 1);
    let before = record(state.path(), "certificates", HOST, "ecdsa").expect("a certificate");
    // The gateway that runs answers for it.
    assert!(cert(&["obtain", HOST]).success().contains("obtained"));
    assert_eq!(pebble.orders(), 2);
    assert_ne!(record(state.path(), "certificates", HOST, "ecdsa"), Some(before));
    assert!(cert(&["revoke", HOST]).success().contains("revoked"));
    wait_until("an order of the gateway", || (pebble.orders() == 3).then_some(()));
    let unknown = cert(&["obtain", "other.test"]);
    assert!(!unknown.status.success() && unknown.stderr.contains(HOST), "{}", unknown.stderr);
}

#[test]
fn certificates_of_certbot_are_taken_over_without_an_order() {
    let (pebble, old) = (PebbleOptions::default().start(), state());
    let brisk = setup().config(&(base(&pebble, old.path()) + &host(&[HOST], ""))).start();
    connect(&pebble, brisk.https(), HOST);
    drop(brisk);
    let issued = record(old.path(), "certificates", HOST, "ecdsa").expect("a certificate");
    let text = |name: &str| issued[name].as_str().expect("PEM").to_owned();
    let state = state();
    let config = base(&pebble, state.path()) + &host(&[HOST], "");
    let with_certbot = setup()
        .file("certbot/live/shop.test/fullchain.pem", text("chain"))
        .file("certbot/live/shop.test/privkey.pem", text("key"))
        .file("certbot/renewal/shop.test.conf", format!("[renewalparams]\nserver = {}\n", pebble.directory()))
        .file("brisk.toml", &config);
    let words = ["import-certbot", "--from", "certbot", "--config", "brisk.toml"];
    assert!(with_certbot.run("cert", &words).success().contains("1 imported"));
    let imported = record(state.path(), "certificates", HOST, "ecdsa").expect("a certificate");
    assert_eq!(imported["authority"].as_str(), Some(&*pebble.directory()));
    let second = with_certbot.option("--config").option("brisk.toml").start();
    connect(&pebble, second.https(), HOST);
    second.log_with("the authority advises when to renew");
    assert_eq!(pebble.orders(), 1);
    assert!(fs::metadata(state.path().join("certificates/certificates/shop.test/ecdsa")).is_ok());
    // It was issued to another account than the gateway's, which is no reason never to renew it.
    drop(second);
    let chain = text("chain");
    let leaf = chain.split_inclusive("-----END CERTIFICATE-----\n").next().expect("a certificate");
    pebble.advise(leaf, "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z");
    fs::remove_dir_all(state.path().join("certificates/status")).expect("a status");
    let third = setup().config(&config).start();
    third.log_with("a certificate was obtained");
    assert_eq!(pebble.orders(), 2, "{}", pebble.log());
}

/// Every file and folder below `folder`, and itself.
fn all_below(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { all.extend(all_below(&path)) } else { all.push(path) }
    }
    all
}

#[test]
fn what_root_does_by_hand_belongs_to_the_user_of_the_service() {
    const USER: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can become another user");
    }
    let (ca, state) = (TestCa::new(), state());
    let leaf = ca.server(&[HOST]).issue();
    let config = format!(
        "server.https = [\"127.0.0.1:0\"]\nserver.state_dir = {:?}\n{}",
        state.path().display().to_string(),
        host(&[HOST], "")
    );
    let by_hand = setup()
        .file("certbot/live/shop.test/fullchain.pem", fs::read(&leaf.chain).expect("a chain"))
        .file("certbot/live/shop.test/privkey.pem", fs::read(&leaf.key).expect("a key"))
        .file("brisk.toml", &config);
    let words = ["import-certbot", "--from", "certbot", "--config", "brisk.toml"];
    chown(state.path(), Some(USER), Some(USER)).expect("root may");
    assert!(by_hand.run("cert", &words).success().contains("1 imported"));
    assert!(record(state.path(), "certificates", HOST, "ecdsa").is_some());
    for path in all_below(state.path()) {
        assert_eq!(fs::metadata(&path).expect("a file").uid(), USER, "{}", path.display());
    }
    let missing = config.replace(&state.path().display().to_string(), "/nonexistent/state");
    let refused = setup().file("brisk.toml", missing).run("cert", &["list", "--config", "brisk.toml"]);
    assert!(refused.stderr.contains("/nonexistent/state does not exist yet"), "{}", refused.text());
}

#[test]
fn what_is_damaged_in_the_store_is_made_anew() {
    let (pebble, state) = (PebbleOptions::default().start(), state());
    for kind in ["orders", "status", "certificates"] {
        let folder = state.path().join("certificates").join(kind).join(HOST);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("ecdsa"), "{ \"names\": [").expect("a file");
    }
    let config = base(&pebble, state.path()) + &host(&[HOST], "");
    let brisk = setup().config(&config).start();
    connect(&pebble, brisk.https(), HOST);
    let log = brisk.log_with("a certificate was obtained");
    assert!(log.contains("the stored order is lost") && log.contains("is damaged"), "{log}");
    assert_eq!(pebble.orders(), 1);
}
