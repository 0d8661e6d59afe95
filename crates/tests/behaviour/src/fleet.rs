//! Gateways that share session secrets, through a file or Redis.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::client::TlsClient;
use brisk_testkit::process::{run, wait_until};
use serde_json::Value;

use crate::openssl::{REQUEST, facts_of, s_client};
use crate::pauses::Pauses;
use crate::site::{LIMIT, NAME, NAMES, setup, upstream as upstream_table};

const SECRET: &[u8] = b"a secret of the fleet that is long enough for it\n";

/// Gateways with the same certificate, and a client that trusts it.
#[derive(Debug)]
pub struct Fleet {
    /// CA of the common certificate.
    pub ca: TestCa,
    leaf: Leaf,
    /// Gateways, in the order in which they were added.
    pub members: Vec<Brisk>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self::new()
    }
}

impl Fleet {
    /// Creates a fleet without members.
    pub fn new() -> Self {
        let ca = TestCa::new();
        let leaf = ca.server(&NAMES).issue();
        Self { ca, leaf, members: Vec::new() }
    }

    /// Adds a gateway with these configuration keys and files.
    #[must_use]
    pub fn add(self, keys: &str, files: &[(&str, &[u8])]) -> Self {
        self.add_with(keys, "", files)
    }

    /// Adds a gateway with these configuration keys and files, and with `tables` after its `[[host]]`.
    #[must_use]
    fn add_with(mut self, keys: &str, tables: &str, files: &[(&str, &[u8])]) -> Self {
        let config = base(keys) + &host(&NAMES, &[&self.leaf]) + tables;
        let setup = setup().config(&config);
        let setup = files.iter().fold(setup, |setup, (name, contents)| setup.file(name, contents));
        self.members.push(setup.start());
        self
    }

    /// TLS client that trusts the fleet's CA, for `site.test`.
    pub fn client(&self) -> TlsClient {
        TlsClient::new(&self.ca.root_file(), NAME)
    }

    /// Sum of a metric over all members.
    pub fn total(&self, metric: &str, labels: &[&str]) -> u64 {
        let of_member = |member: &Brisk| member.metrics().sum(metric, labels).round() as u64;
        self.members.iter().map(of_member).sum()
    }

    /// Waits until Redis has confirmed `count` sessions. Handshakes do not wait for the confirmation, so a client could
    /// return too early.
    pub fn wait_for_sessions(&self, count: u64) {
        wait_until("sessions in the store", || (self.sessions() >= count).then_some(()));
    }

    /// Number of sessions that Redis has confirmed.
    pub fn sessions(&self) -> u64 {
        self.total("brisk_session_store_writes_total", &[])
    }

    /// Whether Redis has not replied to a lookup within the deadline, since the start.
    pub fn was_late(&self) -> bool {
        self.total("brisk_session_store_lookups_total", &["outcome=\"late\""]) > 0
    }

    /// Whether a gateway did without Redis, since the start: a consequence of a late reply, or a defect.
    fn was_without_store(&self) -> bool {
        let down = self.total("brisk_session_store_lookups_total", &["outcome=\"down\""]);
        let others = ["brisk_session_store_dropped_writes_total", "brisk_limit_undecided_total"];
        down + others.map(|name| self.total(name, &[])).iter().sum::<u64>() > 0
    }

    /// Waits until all members are connected to Redis.
    pub fn wait_for_store(&self) {
        wait_until("a session store at every member", || {
            (self.total("brisk_session_store_breaker_open", &[]) == 0).then_some(())
        });
    }

    /// Creates a session at `member`; returns its file.
    pub fn session(&self, member: usize, version: &str) -> String {
        let file = self.members[0].folder().join(format!("session{version}{member}")).display().to_string();
        assert_eq!(self.connect(member, &[version, "-sess_out", &file]), "full");
        file
    }

    /// Kind of the handshake at `member` with the session in `file`.
    pub fn resume(&self, member: usize, version: &str, file: &str) -> String {
        self.connect(member, &[version, "-sess_in", file])
    }

    /// Kind of the handshake of `openssl s_client` with these options at `member`: `full`, or a kind of resumption.
    pub fn connect(&self, member: usize, options: &[&str]) -> String {
        let options = [&["-servername", NAME], options].concat();
        let output = run(&mut s_client(&self.ca, &self.members[member], &options), REQUEST, LIMIT);
        facts_of(&output)["tls"]["resumption"].as_str().unwrap_or_default().to_owned()
    }
}

/// Attempts of [`in_time`].
const ATTEMPTS: usize = 20;

/// Calls `test` with a fleet and its servers of `create`, and again with new ones if it fails because Redis was late: the longest
/// deadline is a second, and a pause of the machine may be longer.
#[track_caller]
pub fn in_time<S>(create: impl Fn() -> (S, Fleet), test: impl Fn(&S, &Fleet)) {
    for _ in 0..ATTEMPTS {
        let pauses = Pauses::watch();
        let (servers, fleet) = create();
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(&servers, &fleet))) else { return };
        if !(fleet.was_late() || fleet.was_without_store() && pauses.has_paused()) {
            resume_unwind(panic);
        }
        eprintln!("Redis did not reply within the deadline: once more");
    }
    panic!("Redis did not reply within the deadline in {ATTEMPTS} attempts")
}

/// State of the ticket keys as the admin listener reports it (`GET /tickets`).
fn tickets(brisk: &Brisk) -> Value {
    let answer = brisk.ask_admin("/tickets");
    assert_eq!(answer.status(), 200);
    serde_json::from_str(&answer.text()).expect("JSON")
}

/// Ids of the ticket keys of a gateway.
pub fn ids(brisk: &Brisk) -> Vec<String> {
    let tickets = tickets(brisk);
    let keys = tickets["keys"].as_array().expect("a list of keys");
    keys.iter().map(|key| key["id"].as_str().expect("an id").to_owned()).collect()
}

/// Id of the ticket key that seals now.
pub fn sealing(brisk: &Brisk) -> Option<String> {
    let tickets = tickets(brisk);
    let seals = tickets["keys"].as_array()?.iter().find(|key| key["seals"] == true)?;
    Some(seals["id"].as_str()?.to_owned())
}

/// Configuration keys for sessions in Redis, followed by `more`. The deadline is long, because tests run in parallel.
pub fn keys(port: u16, more: &str) -> String {
    let redis = format!("servers = [\"redis://127.0.0.1:{port}\"]\nsessions.redis.deadline = \"1s\"");
    format!("sessions.secret = \"fleet.secret\"\nsessions.redis.{redis}\n{more}\n")
}

/// Creates a fleet of `members` gateways with these keys.
pub fn fleet(members: usize, keys: &str) -> Fleet {
    fleet_with(members, keys, "")
}

/// Like [`fleet`], with `tables` after the `[[host]]`.
pub fn fleet_with(members: usize, keys: &str, tables: &str) -> Fleet {
    let files: [(&str, &[u8]); 2] = [("fleet.secret", SECRET), ("password", b"hush\n")];
    (0..members).fold(Fleet::new(), |fleet, _| fleet.add_with(keys, tables, &files))
}

/// Creates a fleet connected to the Redis of `keys`, with early data on all routes to `upstream`.
pub fn early_fleet(members: usize, keys: &str, upstream: &str) -> Fleet {
    let route = "early_data = \"safe\"\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n";
    let fleet = fleet_with(members, keys, &format!("{route}{}", upstream_table(&[upstream])));
    fleet.wait_for_store();
    fleet
}
