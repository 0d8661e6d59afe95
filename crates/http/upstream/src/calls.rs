//! Requests that wait for the head of a response ([`Call`]): counted for the limit of concurrent requests of their server, and
//! admitted by it.

use std::time::Instant;

use brisk_http_connection::Connection;
use brisk_upstream_group::RequestCounts;
use brisk_upstream_group::places::{Grant, Place};
use tokio::time::timeout;

use crate::error::UpstreamError;
use crate::group::Server;
use crate::open::AtLimit;
use crate::proxied::Requester;

/// A request at a server, from its admission to the head of the response. Dropped before, it counts as lost.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    server: &'a Server,
    begun: Instant,
    admission: Admission<'a>,
    is_answered: bool,
}

#[derive(Debug)]
enum Admission<'a> {
    /// The server never has a limit.
    Uncounted,
    /// The server has no limit at present.
    Counted,
    /// The server is overloaded.
    Permitted { _permit: Box<(Place, LimitMark<'a>)> },
}

/// Marks the connection of a client whose request waits for a server at its limit: a client that closes its side is then gone.
#[derive(Debug)]
struct LimitMark<'a>(&'a Connection);

impl Server {
    /// Begins a request, which began to use its time at `begun`; `None` if the server is overloaded, so that the request needs a
    /// permit ([`Self::wait_for_call`]).
    pub(crate) fn begin_call(&self, begun: Instant) -> Option<Call<'_>> {
        let admission = match self.state().concurrency() {
            None => Admission::Uncounted,
            Some(concurrency) if concurrency.is_limited() => return None,
            Some(_) => self.count_begun(),
        };
        Some(Call { server: self, begun, admission, is_answered: false })
    }

    /// Begins a request of `client` with a permit of an overloaded server. Waits for it as the limit permits, at most for
    /// `queue.timeout` or else `timeouts.connect`.
    ///
    /// # Errors
    ///
    /// [`UpstreamError::ServerLimit`] without a permit in time, with [`AtLimit::Fail`] at once.
    pub(crate) async fn wait_for_call<'a>(
        &'a self,
        client: Requester<'a>,
        at_limit: AtLimit,
    ) -> Result<Call<'a>, UpstreamError> {
        let mut admission = Admission::Uncounted;
        if let Some(concurrency) = self.state().concurrency() {
            let permits = concurrency.permits();
            // Before the wait too: it is the longest part of the time in which the client may leave.
            let mark = LimitMark::set(client.connection);
            let place = match permits.try_take_for(client.share()) {
                Some(place) => Ok(place),
                None if at_limit == AtLimit::Fail => return Err(UpstreamError::ServerLimit),
                None => self.wait_for_permit(client).await,
            };
            admission = match place {
                Ok(place) => Admission::Permitted { _permit: Box::new((place, mark)) },
                // A trial of a server that may have no overload causes no failure.
                Err(_) if concurrency.refuses_none() => self.count_begun(),
                Err(error) => {
                    self.state().metrics().limit_refusal();
                    return Err(error);
                }
            };
        }
        Ok(Call { server: self, begun: Instant::now(), admission, is_answered: false })
    }

    fn count_begun(&self) -> Admission<'static> {
        self.count_call(|counts| counts.in_flight += 1);
        Admission::Counted
    }

    async fn wait_for_permit(&self, client: Requester<'_>) -> Result<Place, UpstreamError> {
        let concurrency = self.state().concurrency().ok_or(UpstreamError::ServerLimit)?;
        let waiting = concurrency.permits().wait(self.worker(), client.share());
        let mut waiting = waiting.ok_or(UpstreamError::ServerLimit)?;
        let settings = self.group_settings();
        let longest = settings.pool.queue.timeout.unwrap_or(settings.timeouts.connect);
        let longest = concurrency.wait().map_or(longest, |wait| wait.min(longest));
        let metrics = self.state().metrics();
        metrics.wait_begun();
        // Ends with the future as well, which a client that leaves drops.
        let _end = WaitEnd(self);
        match timeout(longest, &mut waiting).await {
            Ok(Grant::Place(place)) => Ok(place),
            // No connections pass between requests here.
            Ok(Grant::Connection | Grant::Refused) | Err(_) => Err(UpstreamError::ServerLimit),
        }
    }

    /// Passes the counts of this worker on, also if no further request follows. Called once a second.
    pub(crate) fn report_calls(&self) {
        if let Some(concurrency) = self.state().concurrency() {
            self.call_counts().report(concurrency);
        }
    }

    fn count_call(&self, change: impl FnOnce(&mut RequestCounts)) {
        if let Some(concurrency) = self.state().concurrency() {
            self.call_counts().change(self.now(), concurrency, change);
        }
    }
}

/// Counts the end of a wait for a permit.
struct WaitEnd<'a>(&'a Server);

impl Drop for WaitEnd<'_> {
    fn drop(&mut self) {
        self.0.state().metrics().wait_ended();
    }
}

impl Call<'_> {
    /// Records that the response has begun.
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let in_flight = match self.admission {
            Admission::Uncounted => return,
            Admission::Counted => -1,
            // Counted by the permits.
            Admission::Permitted { .. } => 0,
        };
        let is_answered = self.is_answered;
        let micros = if is_answered { self.begun.elapsed().as_micros() as u64 } else { 0 };
        self.server.count_call(|counts| {
            counts.in_flight += in_flight;
            counts.micros += micros;
            counts.answered += u64::from(is_answered);
            counts.lost += u64::from(!is_answered);
        });
    }
}

impl<'a> LimitMark<'a> {
    fn set(connection: &'a Connection) -> Self {
        connection.flow.begin_at_limit();
        Self(connection)
    }
}

impl Drop for LimitMark<'_> {
    fn drop(&mut self) {
        self.0.flow.end_at_limit();
    }
}
