//! A captured 0-RTT flight, sent repeatedly to a fleet with a common Redis: its request is processed as early data at most
//! once, also while Redis fails.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard};
use std::thread;

use brisk_behaviour::fleet::Fleet;
use brisk_behaviour::fleet::{early_fleet, keys};
use brisk_behaviour::site::{LIMIT, NAME};
use brisk_testkit::brisk::Brisk;
use brisk_testkit::client::TlsClient;
use brisk_testkit::early::intercept;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::{TIMEOUT, command, run, wait_until};
use brisk_testkit::redis::Redis;
use brisk_testkit::relay::pass_on;

/// As often is the flight sent again.
const COPIES: usize = 200;

/// Senders at a time.
const SENDERS: usize = 8;

/// Attempts of a test in which Redis may be later than the deadline, which is a second at most: a pause of the machine may be
/// longer.
const ATTEMPTS: usize = 10;

const EARLY: &str = "GET /name?early 1";
const LATE: &str = "GET /name?early -";

fn request() -> String {
    format!("GET /name?early HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n")
}

/// Two gateways in front of an nginx, with routes that take early data.
struct Stage {
    redis: Mutex<Redis>,
    nginx: Nginx,
    fleet: Fleet,
}

impl Stage {
    fn new() -> Self {
        let (redis, nginx) = (Redis::start(), Nginx::recording());
        let fleet = early_fleet(2, &keys(redis.port(), ""), &nginx.url());
        Self { redis: Mutex::new(redis), nginx, fleet }
    }

    fn redis(&self) -> MutexGuard<'_, Redis> {
        self.redis.lock().expect("no test goes on after a panic")
    }

    /// Waits until both gateways talk to a Redis that was started again. Until they send something they do not notice
    /// that the former one is gone.
    fn wait_for_redis(&self) {
        wait_until("two gateways at Redis", || {
            let others: usize = self.redis().info("connected_clients").parse().expect("a number");
            (others > 2).then_some(())
        });
        self.fleet.wait_for_store();
    }

    /// A client with a session made at the first gateway, which is in Redis too.
    fn client(&self) -> TlsClient {
        let dropped = || self.fleet.total("brisk_session_store_dropped_writes_total", &[]);
        wait_until("a client whose session is in Redis", || {
            let (before, dropped_before) = (self.sessions(), dropped());
            let client = self.fleet.client();
            let mut first = client.connect(self.fleet.members[0].https()).expect("a handshake");
            assert_eq!(first.get(NAME, "/name?first").status(), 200);
            wait_until("a session in Redis, or a dropped one", || {
                (self.sessions() > before || dropped() > dropped_before).then_some(())
            });
            (self.sessions() > before).then_some(client)
        })
    }

    /// Number of sessions that Redis was too late for, or that the gateways did not ask it for.
    fn unanswered(&self) -> u64 {
        let labels = ["late", "down", "missed"].map(|outcome| format!("outcome=\"{outcome}\""));
        let lookups = |label: &String| self.fleet.total("brisk_session_store_lookups_total", &[label]);
        labels.iter().map(lookups).sum()
    }

    /// Sessions in Redis that were not taken.
    fn sessions(&self) -> usize {
        let keys = self.redis().cli(&["KEYS", "brisk:s:*"]);
        let is_whole = |key: &&str| self.redis().cli(&["STRLEN", key]) != "0";
        keys.lines().filter(|key| !key.is_empty()).filter(is_whole).count()
    }

    /// The flight of that request with the session of `client`.
    fn flight(client: &TlsClient) -> Vec<u8> {
        client.first_flight(request().as_bytes()).bytes().to_vec()
    }

    /// Sends `flight` as often, to both gateways in turn and by several at once; `before` is told of each copy. Returns
    /// when both are done with all of it.
    fn attack(&self, flight: &[u8], copies: usize, before: impl Fn(usize) + Sync) {
        let accepted = self.accepted();
        let (next, barrier) = (AtomicUsize::new(0), Barrier::new(SENDERS));
        let addresses: Vec<_> = self.fleet.members.iter().map(Brisk::https).collect();
        thread::scope(|scope| {
            for _ in 0..SENDERS {
                scope.spawn(|| {
                    barrier.wait();
                    loop {
                        let copy = next.fetch_add(1, Ordering::Relaxed);
                        if copy >= copies {
                            return;
                        }
                        before(copy);
                        replay(flight, addresses[copy % addresses.len()]);
                    }
                });
            }
        });
        wait_until("gateways that are done", || {
            let all = self.accepted() >= accepted + copies as u64;
            (all && self.fleet.total("brisk_connections_open", &[]) == 0).then_some(())
        });
    }

    fn accepted(&self) -> u64 {
        self.fleet.total("brisk_connections_accepted_total", &[])
    }

    /// How often the request reached the upstream as early data; the gateways' metrics and logs say the same.
    #[track_caller]
    fn early(&self) -> usize {
        let counted = self.fleet.total("brisk_early_requests_total", &[]) as usize;
        let forwarded = self.fleet.total("brisk_early_requests_total", &["treatment=\"forwarded\""]);
        assert_eq!(forwarded as usize, counted, "nothing is held");
        let logged =
            |lines: Vec<String>| lines.iter().filter(|line| line.contains("\"early\":\"forwarded\"")).count();
        wait_until("as many lines of the logs of nginx and the gateways", || {
            let arrived = self.nginx.requests().iter().filter(|request| *request == EARLY).count();
            let lines: usize = self.fleet.members.iter().map(|member| logged(member.access_log())).sum();
            (lines == counted && arrived == counted).then_some(())
        });
        assert!(!self.nginx.requests().contains(&LATE.to_owned()), "nobody has finished a handshake");
        counted
    }
}

/// Sends `flight` and waits for the first of the answer, as whoever replays would see it.
fn replay(flight: &[u8], to: SocketAddr) {
    let mut tcp = TcpStream::connect(to).expect("a gateway that listens");
    tcp.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    tcp.write_all(flight).expect("a gateway that reads");
    // A full handshake or a resumed one: the gateway always answers.
    tcp.read_exact(&mut [0; 5]).expect("a gateway that answers");
}

const NOTHING: fn(usize) = |_| {};

#[test]
fn what_openssl_has_sent_is_worth_nothing_again() {
    assert!((0..ATTEMPTS).any(|_| flight_of_openssl_is_delivered_once()), "Redis is late each time");
}

/// `false` if Redis was late for the session of openssl.
fn flight_of_openssl_is_delivered_once() -> bool {
    let stage = Stage::new();
    let folder = stage.fleet.members[0].folder();
    let session = folder.join("session").display().to_string();
    let early = folder.join("early").display().to_string();
    std::fs::write(&early, request()).expect("a temporary file");
    let openssl = |to: SocketAddr, options: &[&str], input: &[u8]| {
        let mut openssl = command("openssl");
        openssl.args(["s_client", "-connect", &to.to_string(), "-tls1_3", "-ign_eof", "-CAfile"]);
        openssl.arg(stage.fleet.ca.root_file()).args(["-servername", NAME]).args(options);
        run(&mut openssl, input, LIMIT)
    };
    let first = format!("GET /name?first HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n");
    openssl(stage.fleet.members[0].https(), &["-sess_out", &session], first.as_bytes());
    wait_until("a session in Redis", || (stage.sessions() > 0).then_some(()));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let between = listener.local_addr().expect("a bound socket");
    let options = ["-sess_in", &session, "-early_data", &early];
    let (output, flight) = thread::scope(|scope| {
        let client = scope.spawn(|| openssl(between, &options, b""));
        let (client_side, flight) = intercept(&listener);
        let mut server_side = TcpStream::connect(stage.fleet.members[1].https()).expect("a gateway");
        server_side.write_all(&flight).expect("a gateway that reads");
        let clone = |stream: &TcpStream| stream.try_clone().expect("a socket");
        pass_on(clone(&client_side), clone(&server_side));
        pass_on(server_side, client_side);
        (client.join().expect("openssl ends"), flight)
    });
    let text = output.text();
    if !text.contains("Early data was accepted") && stage.unanswered() > 0 {
        return false;
    }
    assert!(text.contains("Early data was accepted") && text.contains("HTTP/1.1 200 OK"), "{text}");
    assert_eq!(stage.early(), 1, "it was delivered");
    stage.attack(&flight, COPIES, NOTHING);
    assert_eq!(stage.early(), 1, "and never again");
    true
}

#[test]
fn a_flight_that_was_held_back_gets_through_once() {
    assert!((0..ATTEMPTS).any(|_| held_back_flight_is_delivered_once()), "Redis is late each time");
}

/// `false` if Redis was late for the first copy or for the client.
fn held_back_flight_is_delivered_once() -> bool {
    let stage = Stage::new();
    let client = stage.client();
    let original = client.first_flight(request().as_bytes());
    stage.attack(original.bytes(), COPIES, NOTHING);
    let early = stage.early();
    if early == 0 && stage.unanswered() > 0 {
        return false;
    }
    assert_eq!(early, 1, "one of the copies comes first");
    // The client's own comes last, and costs it a full handshake; whether it asks again is for the client to know.
    let mut unfinished = original.send(stage.fleet.members[1].https()).expect("a gateway that listens");
    assert!(!unfinished.is_accepted().expect("the server's flight"));
    let mut connection = unfinished.finish().expect("the rest of the handshake");
    assert_eq!(connection.get(NAME, "/name?finished").status(), 200);
    assert_eq!(stage.early(), 1);
    let line = stage.fleet.members[1].logged("/name?finished");
    if ["store-late", "store-down"].iter().any(|reason| line.contains(reason)) {
        return false;
    }
    for fact in
        ["\"resumption\":\"full\"", "\"resumption_failure\":\"used\"", "\"early_data\":\"not-resumed\""]
    {
        assert!(line.contains(fact), "{fact}: {line}");
    }
    // All but the first of the copies, and the client's own, were refused. On a slow machine some because Redis was late.
    let replays = stage.fleet.total("brisk_early_data_replays_total", &[]);
    assert_eq!(replays + stage.unanswered(), COPIES as u64);
    true
}

#[test]
fn nothing_gets_through_while_redis_is_down_nor_when_it_is_back() {
    let stage = Stage::new();
    let flight = Stage::flight(&stage.client());
    stage.redis().kill();
    stage.attack(&flight, COPIES, NOTHING);
    assert_eq!(stage.early(), 0);
    stage.redis().restart();
    stage.wait_for_redis();
    stage.attack(&flight, COPIES / 10, NOTHING);
    assert_eq!(stage.early(), 0);
}

#[test]
fn nothing_gets_through_while_redis_hangs_nor_when_it_goes_on() {
    let stage = Stage::new();
    let [asked, unasked] = [(); 2].map(|()| Stage::flight(&stage.client()));
    stage.redis().pause();
    stage.attack(&asked, COPIES, NOTHING);
    // About the next flight, whose session it still has, Redis is not even asked.
    wait_until("gateways that spare Redis", || {
        (stage.fleet.total("brisk_session_store_breaker_open", &[]) == 2).then_some(())
    });
    stage.attack(&unasked, COPIES, NOTHING);
    stage.redis().resume();
    assert_eq!(stage.early(), 0);
    stage.fleet.wait_for_store();
    stage.attack(&asked, COPIES / 10, NOTHING);
    stage.attack(&unasked, COPIES / 10, NOTHING);
    assert_eq!(stage.early(), 0);
}

#[test]
fn redis_killed_amid_the_copies_lets_none_through_twice() {
    let stage = Stage::new();
    let mut through = 0;
    // At the last one, half of the copies come first. Redis may be too late for the very first of them.
    for when in [0, 1, 2].into_iter().chain([COPIES / 2; ATTEMPTS]) {
        let flight = Stage::flight(&stage.client());
        stage.attack(&flight, COPIES, |copy| {
            if copy == when {
                stage.redis().kill();
            }
        });
        stage.redis().restart();
        stage.wait_for_redis();
        stage.attack(&flight, COPIES / 10, NOTHING);
        let now = stage.early();
        assert!(now <= through + 1, "killed at copy {when}: {now} after {through}");
        through = now;
        if when == COPIES / 2 && through > 0 {
            break;
        }
    }
    assert!(through >= 1, "half of the copies came before each of the last kills");
}

#[test]
fn a_redis_that_comes_back_from_a_snapshot_gives_nothing_twice() {
    assert!((0..ATTEMPTS).any(|_| session_of_a_snapshot_is_used_once()), "Redis is late each time");
}

/// `false` if Redis was late for the session.
fn session_of_a_snapshot_is_used_once() -> bool {
    let stage = Stage::new();
    let flight = Stage::flight(&stage.client());
    stage.redis().cli(&["SAVE"]);
    // Taken by the gateway that did not make it, so that the other knows nothing of that.
    replay(&flight, stage.fleet.members[1].https());
    let is_delivered = wait_until("its request", || {
        let is_delivered = stage.nginx.requests().contains(&EARLY.to_owned());
        (is_delivered || stage.unanswered() > 0).then_some(is_delivered)
    });
    if !is_delivered {
        return false;
    }
    stage.redis().kill();
    stage.redis().restart();
    assert_eq!(stage.sessions(), 1, "Redis has it again");
    stage.wait_for_redis();
    assert_eq!(stage.sessions(), 1, "and gives it to whoever takes it");
    stage.attack(&flight, COPIES, NOTHING);
    assert_eq!(stage.early(), 1);
    true
}
