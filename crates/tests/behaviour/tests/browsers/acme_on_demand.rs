//! Certificates on demand: a real server decides which names are served, pebble issues, and clients invent names.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use brisk_behaviour::site::setup;
use brisk_testkit::brisk::Brisk;
use brisk_testkit::client::TlsClient;
use brisk_testkit::origin::Origin;
use brisk_testkit::pebble::{Pebble, PebbleOptions};
use brisk_testkit::process::wait_until;
use brisk_testkit::redis::Redis;

use crate::acme::{base, connect, record, state};

/// Says yes to names of customers that begin with `good`, and counts the questions.
fn decider() -> Origin {
    Origin::answering(|request, stream| {
        let status = if request.head.line.contains("?domain=good") { "200 OK" } else { "403 Forbidden" };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
    })
}

/// How often `name` was asked about.
fn asked(decider: &Origin, name: &str) -> usize {
    let about = format!("domain={name}&");
    decider.requests().iter().filter(|request| request.head.line.contains(&about)).count()
}

fn host(decider: &Origin, more: &str) -> String {
    format!(
        "[[host]]\nnames = [\"platform.test\"]\nacme = true\n\
         on_demand = {{ ask = \"{}/ask\", names = [\"*.shops.test\"]{more} }}\n",
        decider.url()
    )
}

fn config(pebble: &Pebble, state: &Path, decider: &Origin, more: &str) -> String {
    base(pebble, state) + &host(decider, more)
}

fn start(config: &str) -> Brisk {
    setup().config(config).start()
}

/// One handshake, and why it failed.
fn try_once(pebble: &Pebble, brisk: &Brisk, name: &str) -> Result<(), String> {
    let connected = TlsClient::new(&pebble.root(), name).connect(brisk.https());
    connected.map(drop).map_err(|error| error.to_string())
}

#[test]
fn the_first_handshake_of_a_name_waits_for_its_certificate_and_others_are_refused() {
    let (pebble, state, decider) = (PebbleOptions::default().start(), state(), decider());
    let config = config(&pebble, state.path(), &decider, ", wait = \"50s\"");
    let brisk = start(&config);
    connect(&pebble, brisk.https(), "platform.test");
    assert_eq!(try_once(&pebble, &brisk, "good.shops.test"), Ok(()));
    assert_eq!(try_once(&pebble, &brisk, "good.shops.test"), Ok(()));
    // A reload forgets nothing of it.
    let _ = brisk.reload();
    assert_eq!(try_once(&pebble, &brisk, "good.shops.test"), Ok(()));
    assert_eq!(asked(&decider, "good.shops.test"), 1);
    for _ in 0..3 {
        let error = try_once(&pebble, &brisk, "bad.shops.test").expect_err("it was refused");
        assert!(error.contains("HandshakeFailure"), "{error}");
    }
    assert_eq!(asked(&decider, "bad.shops.test"), 1, "a refusal is remembered");
    for name in ["good.other.test", "good.a.shops.test", "shops.test"] {
        let error = try_once(&pebble, &brisk, name).expect_err("it fits no pattern");
        assert!(error.contains("UnrecognisedName"), "{name}: {error}");
        assert_eq!(asked(&decider, name), 0);
    }
    assert_eq!(pebble.orders(), 2, "{}", pebble.log());
    let metrics = brisk.metrics();
    assert!(metrics.sum("brisk_on_demand_names", &[]) > 0.9);
    let listed =
        setup().file("brisk.toml", &config).run("cert", &["list", "--config", "brisk.toml"]).success();
    assert!(listed.contains("good.shops.test") && listed.contains("platform.test"), "{listed}");
    // Without names only hosts of the file are renewed: nobody is asked about the others there.
    let renewed =
        setup().file("brisk.toml", &config).run("cert", &["renew", "--config", "brisk.toml"]).success();
    assert!(renewed.contains("platform.test") && !renewed.contains("good.shops.test"), "{renewed}");
    drop(brisk);
    // What is kept needs nobody's word after a restart.
    drop(decider);
    let again = start(&config);
    assert_eq!(try_once(&pebble, &again, "good.shops.test"), Ok(()));
    assert_eq!(pebble.orders(), 2);
}

#[test]
fn a_handshake_that_may_not_wait_is_refused_and_the_name_is_served_a_moment_later() {
    let (pebble, state, decider) = (PebbleOptions::default().start(), state(), decider());
    let brisk = start(&config(&pebble, state.path(), &decider, ", wait = \"0ms\""));
    try_once(&pebble, &brisk, "good.shops.test").expect_err("there is no certificate yet");
    connect(&pebble, brisk.https(), "good.shops.test");
    assert_eq!(asked(&decider, "good.shops.test"), 1);
    wait_until("a certificate in the store", || {
        record(state.path(), "certificates", "good.shops.test", "ecdsa")
    });
}

#[test]
fn orders_and_names_have_limits() {
    let (pebble, state, decider) = (PebbleOptions::default().start(), state(), decider());
    let brisk = start(&config(&pebble, state.path(), &decider, ", wait = \"50s\", orders = \"2/h\""));
    for name in ["good1.shops.test", "good2.shops.test"] {
        assert_eq!(try_once(&pebble, &brisk, name), Ok(()));
    }
    try_once(&pebble, &brisk, "good3.shops.test").expect_err("a third order would be too many");
    brisk.log_with("rate limit of on-demand orders reached");
    assert!(
        !state.path().join("certificates/on-demand-tried/good3.shops.test").exists(),
        "nothing was tried"
    );
    let tried = state.path().join("certificates/on-demand-tried/good1.shops.test");
    wait_until("a name that is kept", || (!tried.exists()).then_some(()));
    assert!(record(state.path(), "orders", "good3.shops.test", "ecdsa").is_none());
    assert_eq!(try_once(&pebble, &brisk, "good1.shops.test"), Ok(()));
    drop(brisk);
    let full = start(&config(&pebble, state.path(), &decider, ", wait = \"50s\", most = 2"));
    try_once(&pebble, &full, "good4.shops.test").expect_err("a third name would be too many");
    full.log_with("limit of on-demand names reached");
    assert_eq!(try_once(&pebble, &full, "good2.shops.test"), Ok(()));
}

#[test]
fn names_that_a_client_invents_cost_few_questions_and_no_order() {
    let (pebble, state, decider) = (PebbleOptions::default().start(), state(), decider());
    let begun = Instant::now();
    let brisk = start(&config(&pebble, state.path(), &decider, ", wait = \"50s\""));
    connect(&pebble, brisk.https(), "platform.test");
    assert_eq!(try_once(&pebble, &brisk, "good.shops.test"), Ok(()));
    for number in 0..100 {
        try_once(&pebble, &brisk, &format!("bad{number}.shops.test")).expect_err("it was refused");
    }
    let questions = decider.requests().len() as u64;
    // The limit of a client begins anew each minute.
    assert!(questions <= 31 + 30 * (begun.elapsed().as_secs() / 60), "{questions}");
    assert_eq!(try_once(&pebble, &brisk, "good.shops.test"), Ok(()));
    assert_eq!(pebble.orders(), 2);
}

#[test]
fn a_server_that_does_not_decide_has_nothing_ordered_and_is_reported() {
    let (pebble, state) = (PebbleOptions::default().start(), state());
    let fails = Arc::new(AtomicBool::new(true));
    let own = Arc::clone(&fails);
    let decider = Origin::answering(move |_, stream| {
        let status = if own.load(Ordering::SeqCst) { "500 Oops" } else { "200 OK" };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
    });
    let brisk = start(&config(&pebble, state.path(), &decider, ", wait = \"50s\""));
    try_once(&pebble, &brisk, "good.shops.test").expect_err("nobody said that it is served");
    let log = brisk.log_with("names on demand cannot be decided");
    assert!(log.contains("500") && log.contains("/ask"), "{log}");
    fails.store(false, Ordering::SeqCst);
    // It is asked again after a while.
    connect(&pebble, brisk.https(), "good.shops.test");
}

#[test]
fn names_whose_order_failed_are_listed_with_the_words_of_the_authority() {
    let (pebble, state, decider) = (PebbleOptions::default().start(), state(), decider());
    let config = config(&pebble, state.path(), &decider, ", wait = \"50s\"").replace("*.shops", "*.blocked");
    let brisk = start(&config);
    try_once(&pebble, &brisk, "good.blocked.test").expect_err("the authority refuses it");
    // Listed after the handshake has been refused.
    let setup = setup().file("brisk.toml", &config);
    let has_reason = |text: &str| text.contains("good.blocked.test") && text.contains("policy");
    wait_until("the failed name in the list of the command", || {
        let listed = setup.run("cert", &["list", "--config", "brisk.toml"]).success();
        has_reason(&listed).then_some(())
    });
    wait_until("the failed name in the list of the gateway", || {
        has_reason(&brisk.ask_admin("/certificates").text()).then_some(())
    });
}

#[test]
fn a_fleet_orders_once_for_a_name() {
    let (pebble, redis, decider) = (PebbleOptions::default().start(), Redis::start(), decider());
    let node = |node: u8| {
        let own = base(&pebble, state().path()).replace("[\"127.0.0.1:", &format!("[\"127.0.0.{node}:"));
        let config = format!(
            "acme.store = \"redis\"\nsessions.secret = \"secret\"\nsessions.redis = {{ servers = [\"redis://127.0.0.1:{}\"] }}\n{own}{}",
            redis.port(),
            host(&decider, ", wait = \"50s\"").replace("acme = true\n", "")
        );
        setup().file("secret", [b's'; 48]).config(&config).start()
    };
    let nodes = [node(1), node(2)];
    std::thread::scope(|scope| {
        for brisk in &nodes {
            scope.spawn(|| assert_eq!(try_once(&pebble, brisk, "good.shops.test"), Ok(())));
        }
    });
    assert_eq!(pebble.orders(), 1, "{}", pebble.log());
}

#[test]
fn only_names_that_are_used_are_renewed() {
    let (pebble, state, decider) = (PebbleOptions::default().start(), state(), decider());
    let names = ["good1.shops.test", "good2.shops.test"];
    let config = config(&pebble, state.path(), &decider, ", wait = \"50s\"").replace("acme = true\n", "");
    let first = start(&config);
    for name in names {
        assert_eq!(try_once(&pebble, &first, name), Ok(()));
    }
    drop(first);
    let issued = |name: &str| record(state.path(), "certificates", name, "ecdsa").expect("a certificate");
    let before = names.map(issued);
    for (name, issued) in names.iter().zip(&before) {
        let chain = issued["chain"].as_str().expect("PEM");
        let leaf = chain.split_inclusive("-----END CERTIFICATE-----\n").next().expect("a certificate");
        pebble.advise(leaf, "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z");
        // As if it had not just been obtained, and the authority were to be asked again.
        let mut old = issued.clone();
        old["obtained"] = 1.into();
        let file = state.path().join("certificates/certificates").join(name).join("ecdsa");
        fs::write(file, old.to_string()).expect("a record");
    }
    let _ = fs::remove_dir_all(state.path().join("certificates/status"));
    let second = start(&config);
    assert_eq!(try_once(&pebble, &second, names[0]), Ok(()), "the one before is shown meanwhile");
    second.log_with("renewed certificate published");
    wait_until("a renewal", || (issued(names[0])["chain"] != before[0]["chain"]).then_some(()));
    assert_eq!(issued(names[1])["chain"], before[1]["chain"], "nobody has asked for it");
    assert_eq!(asked(&decider, names[0]) + decider_renewals(&decider, names[0]), 2, "and before the renewal");
    assert_eq!(pebble.orders(), 3);
}

/// Questions on behalf of no client.
fn decider_renewals(decider: &Origin, name: &str) -> usize {
    let about = format!("domain={name} ");
    decider.requests().iter().filter(|request| request.head.line.contains(&about)).count()
}
