//! `timeouts`: limits of time for servers.

mod keys;

use std::time::Duration;

use brisk_config_file::{Findings, KeyPath, Period};

use super::{Context, GroupFeature, GroupScope, TIMEOUTS};
pub use keys::{ServerTimeoutsKeys, TimeoutsKeys};

/// Timeouts of servers.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamTimeouts {
    /// Timeout for connecting, including TLS. Default: 5 s.
    pub connect: Duration,
    /// Timeout from the end of the request to the head of the response. Default: 60 s.
    pub head: Duration,
    /// Time from the end of the request to the head of the response after which a request that may be repeated goes to another
    /// server. Default: [`Self::head`], so that no response is given up that would arrive in time.
    pub attempt: Option<Duration>,
    /// Maximum pause within a response body. Default: 60 s.
    pub body: Duration,
    /// Maximum pause after a switch of protocols. Default: 60 s.
    pub upgraded: Duration,
    /// HTTP/2: time without a frame, while requests are open, after which `PING` is sent. Without a reply within
    /// `connect`, the connection is closed. `None` sends no `PING`. Default: 30 s.
    pub ping: Option<Duration>,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            head: Duration::from_mins(1),
            attempt: None,
            body: Duration::from_mins(1),
            upgraded: Duration::from_mins(1),
            ping: Some(Duration::from_secs(30)),
        }
    }
}

/// Timeouts of a request in place of those of its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTimeouts {
    /// In place of [`UpstreamTimeouts::head`].
    pub head: Option<Duration>,
    /// In place of [`UpstreamTimeouts::attempt`].
    pub attempt: Option<Duration>,
    /// In place of [`UpstreamTimeouts::body`].
    pub body: Option<Duration>,
}

/// `timeouts` of groups.
#[derive(Debug)]
pub struct TimeoutsFeature;

impl GroupFeature for TimeoutsFeature {
    type Keys = TimeoutsKeys;
    type Settings = UpstreamTimeouts;

    fn resolve(
        keys: &TimeoutsKeys,
        group: &GroupScope<'_>,
        context: &mut Context<'_, '_>,
    ) -> UpstreamTimeouts {
        let (keys, path) = (&keys.timeouts, group.key("timeouts"));
        let usual = UpstreamTimeouts::default();
        let mut limit = |key: &str, value: Option<Period>, usual: Duration| {
            context.findings.within(&path.key(key), value, Period(usual), &TIMEOUTS).0
        };
        let head = limit("head", keys.head, usual.head);
        let attempt = keys.attempt.map(|attempt| limit("attempt", Some(attempt), attempt.0));
        let timeouts = UpstreamTimeouts {
            connect: limit("connect", keys.connect, usual.connect),
            head,
            attempt,
            body: limit("body", keys.body, usual.body),
            upgraded: limit("upgraded", keys.upgraded, usual.upgraded),
            ping: keys
                .ping
                .map_or(usual.ping, |ping| ping.0.map(|period| limit("ping", Some(period), period.0))),
        };
        // With the `head` of the group: a route with a longer `head` may have a longer `attempt` too.
        let path = path.key("attempt");
        check_attempt(attempt, head, &path, context.findings);
        if attempt.is_some() && group.keys.retry.is_off() {
            context.findings.wrong(&path, "has no effect with retry = false: requests are sent once");
        }
        timeouts
    }
}

/// Reports an `attempt` at `path` that is longer than `head`.
pub fn check_attempt(attempt: Option<Duration>, head: Duration, path: &KeyPath, findings: &mut Findings<'_>) {
    if let Some(attempt) = attempt.filter(|attempt| *attempt > head) {
        let message = format!("{} is longer than `head`, {}", Period(attempt), Period(head));
        findings.wrong(path, message);
    }
}
