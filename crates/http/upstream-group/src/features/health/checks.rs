//! Active health checks of the servers of a group, once per process.

mod application;
mod grpc;

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use brisk_http::server_url::ServerScheme;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use http::uri::{Scheme, Uri};
use http::{Request, StatusCode, header};
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioExecutor;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::ActiveChecks;
use super::server_health::Verdict;
use crate::group::GroupState;
use crate::io::HyperIo;
use crate::server::ServerState;

/// Runs the [`ActiveChecks`] of a group for as long as the future is polled. Returns at once if none are configured.
///
/// Run it once per process and group, not per worker: all workers share the verdicts.
pub async fn run_checks(group: Arc<GroupState>) {
    let Some(checks) = &group.settings().health.active else {
        return;
    };
    let mut changes = group.changes();
    let mut watches = JoinSet::new();
    let mut watched: Vec<(Arc<ServerState>, AbortHandle)> = Vec::new();
    loop {
        let servers = changes.borrow_and_update().servers.clone();
        // A server that remains keeps its watch, so that a change of DNS does not begin the
        // counts of its checks anew.
        watched.retain(|(server, watch)| {
            let is_present = servers.iter().any(|present| Arc::ptr_eq(present, server));
            if !is_present {
                watch.abort();
            }
            is_present
        });
        for (index, server) in servers.iter().enumerate() {
            if !watched.iter().any(|(known, _)| Arc::ptr_eq(known, server)) {
                // Spread over the interval to avoid bursts.
                let delay = checks.interval * index as u32 / servers.len() as u32;
                let watch = watches.spawn(watch(Arc::clone(&group), Arc::clone(server), delay));
                watched.push((Arc::clone(server), watch));
            }
        }
        // Only aborted watches end.
        while watches.try_join_next().is_some() {}
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn watch(group: Arc<GroupState>, server: Arc<ServerState>, delay: Duration) {
    let Some(checks) = &group.settings().health.active else {
        return;
    };
    let mut ticks = interval_at(Instant::now() + delay, checks.interval.max(Duration::from_millis(1)));
    // Checks that were late, for example while the machine was suspended, are not made up for in a burst.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut streak = Streak::default();
    loop {
        ticks.tick().await;
        // One limit for connecting and response together: a server that sends byte by byte is down as well.
        let outcome = outcome_within(checks.timeout, check(&group, &server, checks)).await;
        let name = &group.settings().name;
        match streak.add(outcome.is_ok(), checks) {
            None => {}
            Some(Verdict::Up) => {
                tracing::info!(group = %name, server = server.name(), "upstream server is up again");
                group.set_checked(&server, Verdict::Up);
            }
            Some(Verdict::Down) => {
                let reason = outcome.err().unwrap_or_default();
                tracing::warn!(group = %name, server = server.name(), %reason, "upstream server is down");
                group.set_checked(&server, Verdict::Down);
            }
        }
    }
}

/// Outcome of a check that has the time `limit`.
async fn outcome_within(
    limit: Duration,
    check: impl Future<Output = Result<(), String>>,
) -> Result<(), String> {
    match AssertUnwindSafe(timeout(limit, check)).catch_unwind().await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err("no answer in time".to_owned()),
        // A failure like others: if the watch ended with it, the last verdict about the server would never change.
        Err(_) => Err("the check panicked".to_owned()),
    }
}

/// Consecutive checks with the same outcome.
#[derive(Debug, Default)]
struct Streak {
    down: bool,
    against: u32,
}

impl Streak {
    /// Records a check. Returns the new [`Verdict`], if it changes after [`ActiveChecks::healthy_after`] or
    /// [`ActiveChecks::unhealthy_after`] checks.
    fn add(&mut self, good: bool, checks: &ActiveChecks) -> Option<Verdict> {
        // The outcome agrees with the verdict in force. One such check resets the count:
        // failures must be consecutive.
        if good != self.down {
            self.against = 0;
            return None;
        }
        self.against += 1;
        let needed = if self.down { checks.healthy_after } else { checks.unhealthy_after };
        if self.against < needed.max(1) {
            return None;
        }
        self.against = 0;
        self.down = !self.down;
        Some(if self.down { Verdict::Down } else { Verdict::Up })
    }
}

async fn check(group: &GroupState, server: &ServerState, checks: &ActiveChecks) -> Result<(), String> {
    // A new connection for each check: a kept one would not show that the server accepts no more connections.
    // Not by `ServerState::connect`, which logs failures: here only a changed verdict is logged.
    let io = server.dialer().connect(&server.own_header()).await.map_err(|error| error.to_string())?;
    // Bytes of the gateway would have no meaning in a protocol that it does not know.
    if server.url().scheme().is_stream() {
        return Ok(());
    }
    if let Some(service) = &checks.grpc {
        return grpc::check(HyperIo::new(io), scheme(server), authority(server, checks), service)
            .await
            .map_err(|error| error.to_string());
    }
    let status = if let Some(protocol) = server.url().scheme().cgi() {
        let settings = (checks, &group.settings().cgi);
        application::check(io, protocol, settings, authority(server, checks)).await
    } else {
        let request = request(server, checks).map_err(|error| error.to_string())?;
        ask(server, HyperIo::new(io), request).await
    };
    let status = status.map_err(|error| error.to_string())?;
    let good = match checks.status {
        Some(expected) => status == expected,
        // A redirect is a response of a working application, for example from `/` to a login.
        None => status.is_success() || status.is_redirection(),
    };
    if good { Ok(()) } else { Err(format!("status {}", status.as_u16())) }
}

/// The scheme of requests over HTTP/2 (RFC 9113 section 8.3.1).
fn scheme(server: &ServerState) -> Scheme {
    if server.url().scheme() == ServerScheme::Https { Scheme::HTTPS } else { Scheme::HTTP }
}

fn authority<'a>(server: &'a ServerState, checks: &'a ActiveChecks) -> &'a str {
    checks.host.as_deref().unwrap_or(server.url().authority().as_str())
}

fn request(server: &ServerState, checks: &ActiveChecks) -> http::Result<Request<Empty<Bytes>>> {
    let authority = authority(server, checks);
    let request = Request::get(checks.path.clone()).header(header::USER_AGENT, "brisk-health-check");
    if !server.multiplexes() {
        return request.header(header::HOST, authority).body(Empty::new());
    }
    // RFC 9113 section 8.3.1: `:authority` in place of `Host`.
    let uri = Uri::builder().scheme(scheme(server)).authority(authority).path_and_query(checks.path.clone());
    request.uri(uri.build()?).body(Empty::new())
}

async fn ask(
    server: &ServerState,
    io: HyperIo,
    request: Request<Empty<Bytes>>,
) -> Result<StatusCode, CheckError> {
    if server.multiplexes() {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        answer(sender.send_request(request), connection).await
    } else {
        let (mut sender, connection) = http1::handshake(io).await?;
        answer(sender.send_request(request), connection).await
    }
}

async fn answer<B>(
    response: impl Future<Output = hyper::Result<http::Response<B>>>,
    connection: impl Future<Output = hyper::Result<()>>,
) -> Result<StatusCode, CheckError> {
    match select(pin!(response), pin!(connection)).await {
        Either::Left((response, _)) => Ok(response?.status()),
        // The connection may end together with the response.
        Either::Right((Ok(()), response)) => Ok(response.await?.status()),
        Either::Right((Err(error), _)) => Err(error.into()),
    }
}

/// Error of a check without a status.
type CheckError = Box<dyn std::error::Error + Send + Sync>;

#[cfg(test)]
mod tests {
    use futures_util::future::lazy;
    use http::uri::PathAndQuery;

    use super::*;

    #[tokio::test]
    async fn a_check_that_panics_has_failed() {
        let broken = lazy(|_| -> Result<(), String> { panic!("as a bug would") });
        assert!(outcome_within(Duration::MAX, broken).await.is_err());
    }

    #[test]
    fn a_verdict_changes_after_as_many_checks_as_asked() {
        let checks = ActiveChecks::new(PathAndQuery::from_static("/"));
        let mut streak = Streak::default();
        let mut add = |outcomes: &str| {
            let verdicts = outcomes.chars().filter_map(|outcome| streak.add(outcome == '+', &checks));
            verdicts.collect::<Vec<_>>()
        };
        assert_eq!(add("+--+--"), []);
        assert_eq!(add("-"), [Verdict::Down]);
        assert_eq!(add("--+-+"), []);
        assert_eq!(add("+"), [Verdict::Up]);
        assert_eq!(add("+++"), []);
    }
}
