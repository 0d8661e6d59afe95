//! Load of `brisk bench`, verified by the log of HAProxy.

use std::collections::BTreeMap;

use brisk_behaviour::site::NAMES;
use brisk_testkit::ca::TestCa;
use brisk_testkit::haproxy::Haproxy;
use brisk_testkit::process::wait_until;

use crate::bench::{bench, result};

/// A HAProxy that takes early data, and the CA of its certificate.
struct Target {
    ca: TestCa,
    haproxy: Haproxy,
}

/// Version, whether the session was resumed, whether the handshake was incomplete, protocol.
const CONFIGURATION: &str = r#"
global
  log stdout format raw local0
  ssl-default-bind-options ssl-min-ver TLSv1.2 TICKETS
defaults
  mode http
  log global
  timeout client 30s
  timeout connect 1s
  timeout server 1s
frontend all
  bind 127.0.0.1:PORT ssl crt FOLDER/pair.pem alpn h2,http/1.1 allow-0rtt
  http-request set-var(txn.early) ssl_fc_has_early
  log-format "seen: %[ssl_fc_protocol] %[ssl_fc_is_resumed] %[var(txn.early)] %HV"
  http-request return status 200 content-type text/plain string hello
"#;

impl Target {
    fn new(options: &str) -> Self {
        let ca = TestCa::new();
        let leaf = ca.server(&NAMES).issue();
        let haproxy = Haproxy::with_certificate(&leaf, &CONFIGURATION.replace(" TICKETS", options));
        Self { ca, haproxy }
    }

    /// How often each line was written.
    fn seen(&self) -> BTreeMap<String, usize> {
        let mut seen = BTreeMap::new();
        for line in self.haproxy.process().stdout().lines().filter_map(|line| line.strip_prefix("seen: ")) {
            *seen.entry(line.to_owned()).or_default() += 1;
        }
        seen
    }

    /// Forty connections of this kind are about forty lines like this one: HAProxy drops lines when nobody reads them
    /// quickly enough, and one or two more may come from before the run.
    #[track_caller]
    fn sees(&self, options: &str, line: &str) {
        let count = || self.seen().get(line).copied().unwrap_or_default();
        let before = count();
        let result = result(&mut bench(
            &self.ca,
            self.haproxy.address().port(),
            "/",
            &format!("-n 40 -c 4 -r 1 {options}"),
        ));
        assert_eq!(result["responses"]["2xx"], 40, "{result}");
        wait_until(&format!("{line:?} for {options}"), || (count() - before >= 20).then_some(()));
    }
}

#[test]
fn every_kind_of_handshake_is_seen_by_haproxy() {
    let target = Target::new("");
    target.sees("--mix full --tls 1.3", "TLSv1.3 0 0 HTTP/1.1");
    target.sees("--mix full --tls 1.2", "TLSv1.2 0 0 HTTP/1.1");
    target.sees("--mix ticket --tls 1.2", "TLSv1.2 1 0 HTTP/1.1");
    target.sees("--mix psk", "TLSv1.3 1 0 HTTP/1.1");
    target.sees("--mix psk --h2 1", "TLSv1.3 1 0 HTTP/2.0");
    // HAProxy calls data early as long as the handshake is not complete, which it is by the time of its rules, for
    // openssl's client too. That it accepted the data is what the client saw, or there would be failures.
    target.sees("--mix 0-rtt", "TLSv1.3 1 0 HTTP/1.1");
    target.sees("--mix 0-rtt --h2 1", "TLSv1.3 1 0 HTTP/2.0");
}

#[test]
fn sessions_of_haproxy_are_resumed_by_id() {
    Target::new(" no-tls-tickets").sees("--mix session-id", "TLSv1.2 1 0 HTTP/1.1");
}
