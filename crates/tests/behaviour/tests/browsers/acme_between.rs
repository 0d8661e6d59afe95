//! Authorities that behave in ways that pebble cannot: a real proxy in front of pebble changes its responses as a test
//! requires. Rate limits, a second authority, and processes killed during a response.

use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use brisk_behaviour::site::{Site, setup};
use brisk_testkit::brisk::{Brisk, Setup};
use brisk_testkit::client::TlsClient;
use brisk_testkit::http1::{Head, Message};
use brisk_testkit::origin::Origin;
use brisk_testkit::pebble::{Pebble, PebbleOptions};
use brisk_testkit::process::wait_until;
use rustix::process::Signal;
use serde_json::Value;

use crate::acme::{HOST, base, change, connect, host, record, state};

/// What is done with requests to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// They are passed on.
    Pass,
    /// They are refused for now (RFC 8555 section 6.6).
    Limit(&'static str),
    /// They are passed on, and what is answered is kept back.
    Hold(&'static str),
}

/// A proxy before a pebble.
struct Between {
    site: Site,
    shared: Arc<Shared>,
    _origin: Origin,
}

struct Shared {
    rule: Mutex<Rule>,
    held: AtomicUsize,
    limited: AtomicUsize,
    pebble: SocketAddr,
    client: TlsClient,
}

impl Between {
    fn before(pebble: &Pebble) -> Self {
        let shared = Arc::new(Shared {
            rule: Mutex::new(Rule::Pass),
            held: AtomicUsize::new(0),
            limited: AtomicUsize::new(0),
            pebble: (Ipv4Addr::LOCALHOST, pebble.directory_port()).into(),
            client: TlsClient::new(&pebble.ca_file(), "localhost"),
        });
        let own = Arc::clone(&shared);
        let origin = Origin::answering(move |request, stream| own.answer(request, stream));
        Self { site: Site::proxying(&[&origin.url()]), shared, _origin: origin }
    }

    fn set(&self, rule: Rule) {
        *self.shared.rule.lock().unwrap_or_else(PoisonError::into_inner) = rule;
    }

    /// `config` with this in the place of `pebble`.
    fn instead(&self, pebble: &Pebble, config: &str) -> String {
        let directory = format!("https://127.0.0.1:{}/dir", self.site.brisk.https().port());
        let ca = |file: &Path| format!("{:?}", file.display().to_string());
        config
            .replace(&pebble.directory(), &directory)
            .replace(&ca(&pebble.ca_file()), &ca(&self.site.ca.root_file()))
    }
}

impl Shared {
    fn rule(&self) -> Rule {
        *self.rule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: &Message, stream: &mut TcpStream) -> io::Result<()> {
        let is_for = |path: &str| request.head.line.contains(&format!(" {path}"));
        let rule = self.rule();
        if matches!(rule, Rule::Limit(path) if is_for(path)) {
            self.limited.fetch_add(1, Ordering::SeqCst);
            let body = r#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many new orders"}"#;
            return write!(
                stream,
                "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/problem+json\r\nRetry-After: 7200\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
        let answer = self.pass_on(request)?;
        if matches!(rule, Rule::Hold(path) if is_for(path)) {
            self.held.fetch_add(1, Ordering::SeqCst);
            while self.rule() == rule {
                thread::sleep(Duration::from_millis(10));
            }
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        stream.write_all(&answer)
    }

    /// Asks pebble the same: addresses in its answers are made of `Host`.
    fn pass_on(&self, request: &Message) -> io::Result<Vec<u8>> {
        let mut stream = self.client.connect(self.pebble)?;
        let length = request.body.len();
        let mut text = head(&request.head);
        text.extend([format!("content-length: {length}\r\nconnection: close\r\n\r\n")]);
        stream.write_all(&[text.concat().as_bytes(), &request.body].concat())?;
        let answer = if request.head.line.starts_with("HEAD ") {
            let head = Head::read(&mut stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            Message { head, ..Message::default() }
        } else {
            Message::read_response(&mut stream)?
        };
        let mut text = head(&answer.head);
        text.extend([format!("content-length: {}\r\n\r\n", answer.body.len())]);
        Ok([text.concat().as_bytes(), &answer.body].concat())
    }
}

/// The first line and the headers that are not about one connection.
fn head(head: &Head) -> Vec<String> {
    let ends_here = |name: &str| matches!(name, "connection" | "content-length" | "transfer-encoding");
    let kept = head.headers.iter().filter(|(name, _)| !ends_here(name));
    let lines = kept.map(|(name, value)| format!("{name}: {value}\r\n"));
    [format!("{}\r\n", head.line)].into_iter().chain(lines).collect()
}

fn with(config: &str) -> Setup {
    setup().config(config)
}

fn kill(mut brisk: Brisk) {
    brisk.process().signal(Signal::KILL);
    brisk.wait();
}

fn status(state: &Path) -> Value {
    record(state, "status", HOST, "ecdsa").expect("a status")
}

/// As if the pauses of the last failure were over.
fn let_time_pass(state: &Path) {
    let mut status = status(state);
    status["retry"] = 0.into();
    let file = state.join("certificates/status").join(HOST).join("ecdsa");
    for held in status["held"].as_array_mut().into_iter().flatten() {
        held["until"] = 0.into();
    }
    fs::write(file, status.to_string()).expect("a record");
}

#[test]
fn a_limit_of_the_authority_is_respected_and_costs_no_order() {
    let (pebble, state) = (PebbleOptions::default().start(), state());
    let between = Between::before(&pebble);
    between.set(Rule::Limit("/order-plz"));
    let config = between.instead(&pebble, &(base(&pebble, state.path()) + &host(&[HOST], "")));
    let first = with(&config).start();
    let log = first.log_with("no certificate was obtained");
    assert!(log.contains("too many new orders"), "{log}");
    let failed = status(state.path());
    let number = |name: &str| failed[name].as_u64().expect("a number");
    // Exactly as the authority said, rounded up to a second.
    let said = number("failed") + 7200..=number("failed") + 7201;
    assert!(said.contains(&number("retry")), "{failed}");
    assert!(said.contains(&failed["held"][0]["until"].as_u64().expect("a number")), "{failed}");
    kill(first);
    // A restart does not shorten the pause.
    let second = with(&config).start();
    wait_until("its look at the store", || {
        second.ask_admin("/metrics").text().contains("brisk").then_some(())
    });
    let _ = second.reload();
    assert_eq!(between.shared.limited.load(Ordering::SeqCst), 1);
    assert_eq!(status(state.path())["retry"], failed["retry"]);
    kill(second);
    between.set(Rule::Pass);
    let_time_pass(state.path());
    let third = with(&config).start();
    connect(&pebble, third.https(), HOST);
    third.log_with("a certificate was obtained");
    assert_eq!(pebble.orders(), 1, "{}", pebble.log());
}

#[test]
fn a_second_authority_is_asked_where_the_first_asks_to_be_left_alone() {
    let (first, second) = (PebbleOptions::default().start(), PebbleOptions::default().start());
    let state = state();
    let between = Between::before(&first);
    between.set(Rule::Limit("/order-plz"));
    let fallback = format!(
        "\n[[acme.fallback]]\ndirectory = {:?}\nca = {:?}\n",
        second.directory(),
        second.ca_file().display().to_string()
    );
    // Both check at the same ports.
    let own = base(&first, state.path())
        .replace(&format!(":{}\"", first.https()), &format!(":{}\"", second.https()))
        .replace(&format!(":{}\"", first.http()), &format!(":{}\"", second.http()));
    let config = between.instead(&first, &(own + &host(&[HOST], "") + &fallback));
    let brisk = with(&config).start();
    brisk.log_with("no certificate was obtained");
    let failed = status(state.path());
    let number = |name: &str| failed[name].as_u64().expect("a number");
    assert!(
        number("retry") < number("failed") + 600,
        "only the one that asked for it is left alone: {failed}"
    );
    kill(brisk);
    // The pause is over, and what the first has asked for is not.
    let mut after = failed.clone();
    after["retry"] = 0.into();
    fs::write(state.path().join("certificates/status").join(HOST).join("ecdsa"), after.to_string())
        .expect("a record");
    let brisk = with(&config).start();
    connect(&second, brisk.https(), HOST);
    brisk.log_with("a certificate was obtained");
    assert_eq!((first.orders(), second.orders()), (0, 1));
    assert_eq!(between.shared.limited.load(Ordering::SeqCst), 1);
}

/// Answers that a gateway is killed before, and the most orders that it takes then. Of an order that the authority has made and
/// nobody has heard of, nobody can know.
const ANSWERS: [(&str, usize); 4] =
    [("/sign-me-up", 1), ("/order-plz", 2), ("/finalize-order/", 1), ("/certZ/", 1)];

#[test]
fn who_is_killed_before_an_answer_comes_finishes_after_the_start() {
    for (path, orders) in ANSWERS {
        let (pebble, state) = (PebbleOptions::default().start(), state());
        let between = Between::before(&pebble);
        between.set(Rule::Hold(path));
        let config = between.instead(&pebble, &(base(&pebble, state.path()) + &host(&[HOST], "")));
        let first = with(&config).start();
        wait_until("the answer", || (between.shared.held.load(Ordering::SeqCst) == 1).then_some(()));
        kill(first);
        between.set(Rule::Pass);
        let second = with(&config).start();
        connect(&pebble, second.https(), HOST);
        second.log_with("a certificate was obtained");
        assert!(pebble.orders() <= orders, "killed before the answer of {path}: {}", pebble.log());
        assert_eq!(pebble.log().matches("accounts in memory").count(), 1, "{path}: {}", pebble.log());
    }
}

#[test]
fn an_order_whose_certificate_is_there_already_is_not_taken_for_the_next_one() {
    let (pebble, state) = (PebbleOptions::default().start(), state());
    let between = Between::before(&pebble);
    between.set(Rule::Hold("/certZ/"));
    let config = between.instead(&pebble, &(base(&pebble, state.path()) + &host(&[HOST], "")));
    let first = with(&config).start();
    wait_until("the answer", || (between.shared.held.load(Ordering::SeqCst) == 1).then_some(()));
    kill(first);
    between.set(Rule::Pass);
    let order = state.path().join("certificates/orders").join(HOST).join("ecdsa");
    let pending = fs::read(&order).expect("an order under way");
    let second = with(&config).start();
    second.log_with("a certificate was obtained");
    kill(second);
    assert!(!order.exists());
    // What a gateway leaves that is killed when the certificate is written, and the order is not removed yet.
    fs::write(&order, pending).expect("an order under way");
    let before = record(state.path(), "certificates", HOST, "ecdsa").expect("a certificate");
    let chain = before["chain"].as_str().expect("PEM");
    let leaf = chain.split_inclusive("-----END CERTIFICATE-----\n").next().expect("a certificate");
    pebble.advise(leaf, "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z");
    let _ = fs::remove_dir_all(state.path().join("certificates/status"));
    change(state.path(), |issued| issued["obtained"] = 1.into());
    let third = with(&config).start();
    third.log_with("a certificate was obtained");
    let after = record(state.path(), "certificates", HOST, "ecdsa").expect("a certificate");
    assert_ne!(after["key"], before["key"]);
    assert_eq!(pebble.orders(), 2, "{}", pebble.log());
}
