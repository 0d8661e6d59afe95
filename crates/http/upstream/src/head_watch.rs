//! The wait for the head of a response at one server: [`HeadWatch`], within the limits of a [`HeadWait`].

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use brisk_http_connection::body::request::BodyProgress;
use brisk_net::Deadline;
use brisk_upstream_group::metrics::Repeat;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::error::UpstreamError;

/// Time after which a request awaits [`Exit::exclusions`]. Most responses arrive before, so that most requests do not register
/// with the `Server`.
const USUAL: Duration = Duration::from_millis(500);

/// Limits of the wait for the head of a response.
#[derive(Clone, Copy)]
pub(crate) struct HeadWait<'a> {
    /// Timeout, after which the request fails with [`UpstreamError::HeadTimeout`].
    pub(crate) head: Duration,
    /// The way to another server; `None` for a request that must not be repeated.
    pub(crate) exit: Option<&'a dyn Exit>,
}

/// The way of a waiting request to another server, once `timeouts.attempt` has passed or its server is excluded.
pub(crate) trait Exit {
    /// Time after which the request leaves its server: `timeouts.attempt`.
    fn attempt(&self) -> Duration;

    /// Signals to waiting requests that the server is excluded.
    fn exclusions(&self) -> &Notify;

    /// Whether the request leaves its server for `reason`, which fails the attempt. Otherwise the request stays: no other
    /// server is available, the share of such requests is used up, or the server is not excluded.
    fn leave(&self, reason: Repeat) -> bool;
}

impl From<Duration> for HeadWait<'_> {
    fn from(head: Duration) -> Self {
        Self { head, exit: None }
    }
}

/// The deadline for the head of a response: `timeouts.head`. It restarts with every piece of the request body.
pub(crate) struct HeadWatch<'a> {
    deadline: &'a Deadline,
    progress: Option<&'a BodyProgress>,
    wait: HeadWait<'a>,
    seen: u64,
    /// End of the part of the wait that [`Self::deadline`] measures, from the start of the wait.
    end: Duration,
    /// The next signal of [`Exit::exclusions`], after [`USUAL`].
    exclusion: Option<Pin<Box<Notified<'a>>>>,
    has_left: bool,
}

impl<'a> HeadWatch<'a> {
    pub(crate) fn start(
        deadline: &'a Deadline,
        progress: Option<&'a BodyProgress>,
        wait: HeadWait<'a>,
    ) -> Self {
        let mut watch =
            Self { deadline, progress, wait, seen: 0, end: Duration::ZERO, exclusion: None, has_left: false };
        watch.restart();
        watch
    }

    /// Ready with [`UpstreamError::RequestBodyTimeout`] or [`UpstreamError::HeadTimeout`] if neither side has made progress
    /// within [`HeadWait::head`], or if the request leaves its server.
    pub(crate) fn poll_overdue(&mut self, context: &mut Context<'_>) -> Poll<UpstreamError> {
        if let Some(progress) = self.progress
            && self.seen != progress.bytes()
        {
            self.seen = progress.bytes();
            self.restart();
        }
        while self.deadline.poll_expired(context).is_ready() {
            if let Some(error) = self.part_ended() {
                return Poll::Ready(error);
            }
        }
        while let Some(exclusion) = &mut self.exclusion
            && exclusion.as_mut().poll(context).is_ready()
        {
            if self.leaves_excluded() {
                return Poll::Ready(UpstreamError::HeadTimeout);
            }
        }
        Poll::Pending
    }

    /// Begins the wait anew.
    pub(crate) fn restart(&mut self) {
        self.end = self.end_after(Duration::ZERO);
        self.deadline.set(self.end);
    }

    /// End of the part of the wait that begins after `passed`.
    fn end_after(&self, passed: Duration) -> Duration {
        let HeadWait { head, exit } = self.wait;
        let Some(exit) = exit else { return head };
        let ends = [USUAL, exit.attempt()].into_iter().filter(|end| *end > passed);
        ends.min().unwrap_or(head).min(head)
    }

    /// The end of a part of the wait: the error that ends the attempt, or `None` after the start of the next part.
    fn part_ended(&mut self) -> Option<UpstreamError> {
        let HeadWait { head, exit } = self.wait;
        let Some(exit) = exit else { return Some(self.blame()) };
        if self.end >= exit.attempt().min(head) && exit.leave(Repeat::Silent) {
            self.has_left = true;
            return Some(UpstreamError::HeadTimeout);
        }
        if self.end >= head {
            return Some(self.blame());
        }
        // The server may have been excluded before the request awaits the signal.
        if self.exclusion.is_none() && self.leaves_excluded() {
            return Some(UpstreamError::HeadTimeout);
        }
        let next = self.end_after(self.end);
        self.deadline.set(next.saturating_sub(self.end));
        self.end = next;
        None
    }

    /// Whether the request leaves its server, because that is excluded. Otherwise the request waits for the next signal.
    fn leaves_excluded(&mut self) -> bool {
        // An exclusion between the question and the next poll is not missed: the signal is awaited from here on.
        self.exclusion = self.wait.exit.map(|exit| Box::pin(exit.exclusions().notified()));
        self.has_left = self.wait.exit.is_some_and(|exit| exit.leave(Repeat::Excluded));
        self.has_left
    }

    /// Whether the request goes to another server, before the end of [`HeadWait::head`].
    pub(crate) fn has_left(&self) -> bool {
        self.has_left
    }

    fn blame(&self) -> UpstreamError {
        // The response may depend on the rest of the upload, for which the client is responsible.
        if self.progress.is_some_and(BodyProgress::waits_for_client) {
            UpstreamError::RequestBodyTimeout
        } else {
            UpstreamError::HeadTimeout
        }
    }
}
