//! Requests of a pipeline on a connection.

use std::future::poll_fn;
use std::mem;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use brisk_http::error::ConnectionError;
use brisk_http::http1::request::Output;
use brisk_http::message::Response;
use brisk_http_connection::Connection;
use brisk_http_connection::interim::InterimReceivers;
use brisk_upstream_group::UpstreamIo;
use brisk_upstream_group::metrics::PipelineRepeat;
use bytes::Bytes;
use http::Method;

use super::messages::Messages;
use super::{Failure, Frames, Http1, Owner, upstream_error};
use crate::error::UpstreamError;
use crate::head_watch::{HeadWait, HeadWatch};
use crate::interim::pass;
use crate::pipeline::Followers;

/// Maximum wait for the head of a response that delays others, and for its body.
const DELAY: Duration = Duration::from_millis(100);

/// Maximum length in bytes of a body that is read completely before the connection passes on; a longer one is
/// [`PipelineRepeat::Large`].
pub(crate) const GATHERED: usize = 64 << 10;

impl Http1 {
    /// Begins to send `heads`: the first request and those of `followers`.
    pub(crate) fn begin_all(&mut self, heads: Output, followers: Followers) {
        self.messages.begin_all(heads);
        self.followers = (!followers.is_empty()).then(|| Box::new(followers));
    }

    /// Waits for the head of the response to the request with `method` that is next on the connection, and skips responses
    /// before it that no request waits for. `is_first` permits `wait` for the head; a request behind the first fails after
    /// [`DELAY`] with [`ConnectionError::Neighbour`], to be sent again.
    pub(crate) async fn next_head(
        &mut self,
        method: &Method,
        client: &Connection,
        wait: HeadWait<'_>,
        interims: InterimReceivers<'_>,
        is_first: bool,
    ) -> Result<Response<()>, Failure> {
        let Self { messages, deadline, followers, owner, reused, .. } = self;
        let deadline: &_ = deadline;
        let mut followers = followers.as_deref_mut();
        let mut skip = Skip::default();
        // The first request may use all of `wait` if it delays no other one.
        let mut waits_long = is_first && followers.is_none();
        let part = if waits_long { wait } else { DELAY.min(wait.head).into() };
        let mut watch = HeadWatch::start(deadline, None, part);
        let answered = poll_fn(|context| {
            if let Err(error) = messages.poll_send(context) {
                return Poll::Ready(Err(upstream_error(error, None)));
            }
            let has_room = client.poll_room(context).is_ready();
            if has_room {
                match skip.poll(messages, followers.as_deref_mut(), context) {
                    Poll::Ready(Ok(())) => {
                        let polled = messages.poll_head(context, method);
                        pass(messages.take_interims(), interims, polled.is_ready());
                        if let Poll::Ready(head) = polled {
                            return Poll::Ready(head.map_err(|error| upstream_error(error, None)));
                        }
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(UpstreamError::Closed(error))),
                    Poll::Pending => {}
                }
            }
            // The time of a client that does not read its responses is not that of the server.
            if !has_room && waits_long {
                watch.restart();
                return Poll::Pending;
            }
            loop {
                let overdue = ready!(watch.poll_overdue(context));
                if waits_long {
                    return Poll::Ready(Err(overdue));
                }
                if !is_first {
                    return Poll::Ready(Err(UpstreamError::Closed(ConnectionError::Neighbour)));
                }
                if let Some(followers) = &mut followers {
                    followers.send_again(PipelineRepeat::Slow);
                    // Responses to the followers arrive on this connection too, so it must not carry another request.
                    *owner = Owner::None;
                }
                waits_long = true;
                let rest = HeadWait { head: wait.head.saturating_sub(DELAY), ..wait };
                watch = HeadWatch::start(deadline, None, rest);
            }
        });
        // A request behind another one uses a kept connection, even before the first response has ended.
        let reused = mem::replace(reused, true) || !is_first;
        let answered = answered.await.map_err(|error| Failure { error, was_sent: true, reused })?;
        deadline.clear();
        Ok(answered)
    }

    /// Reads the body of a response, so that the requests behind can continue. Returns the frames, and the [`PipelineRepeat`]
    /// if they are not the whole body.
    pub(crate) async fn gather(
        &mut self,
        client: &Connection,
    ) -> Result<(Frames, Option<PipelineRepeat>), ConnectionError> {
        let mut frames = Frames::default();
        self.deadline.set(DELAY);
        let rest = poll_fn(|context| {
            if client.poll_room(context).is_ready()
                && let Poll::Ready(gathered) = self.messages.poll_gather(context, &mut frames, GATHERED)
            {
                return Poll::Ready(gathered.map(|is_whole| (!is_whole).then_some(PipelineRepeat::Large)));
            }
            self.deadline.poll_expired(context).map(|()| Ok(Some(PipelineRepeat::Slow)))
        })
        .await?;
        self.deadline.clear();
        Ok((frames, rest))
    }

    /// Begins the response to the next request of the pipeline, with `method`. Returns the response if it has arrived
    /// completely.
    pub(crate) fn take_next(&mut self, method: &Method) -> Option<(Response<()>, Bytes)> {
        self.messages.take_next(method)
    }

    /// Prepares for a response that follows those to abandoned requests.
    pub(crate) fn begin_next(&mut self) {
        self.messages.begin_next();
    }

    /// Whether the response to another request may follow the one that was read: only on a connection of [`Owner::Any`].
    pub(crate) fn can_continue(&self) -> bool {
        self.messages.can_continue() && matches!(self.owner, Owner::Any)
    }

    /// Whether requests wait behind the one that uses the connection.
    pub(crate) fn has_followers(&self) -> bool {
        self.followers.as_ref().is_some_and(|followers| !followers.is_empty())
    }

    /// Sends the requests behind this one again. The connection is closed after its response, with [`Owner::None`].
    pub(crate) fn send_followers_again(&mut self, reason: PipelineRepeat) {
        if let Some(mut followers) = self.followers.take() {
            followers.send_again(reason);
            self.owner = Owner::None;
        }
    }

    pub(crate) fn followers_mut(&mut self) -> Option<&mut Followers> {
        self.followers.as_deref_mut()
    }

    /// Ends the pipeline, after its last response.
    pub(crate) fn end_pipeline(&mut self) {
        self.followers = None;
    }
}

/// Skips responses to abandoned requests.
#[derive(Default)]
struct Skip {
    /// The method of the request whose response is being skipped.
    method: Option<Method>,
    has_head: bool,
    /// Its body so far, which is dropped.
    frames: Frames,
}

impl Skip {
    /// Ready when the next response is wanted, or with [`ConnectionError::Neighbour`] if one of those before it is longer than
    /// [`GATHERED`] or ends the connection.
    fn poll(
        &mut self,
        messages: &mut Messages<UpstreamIo>,
        mut followers: Option<&mut Followers>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), ConnectionError>> {
        loop {
            if self.method.is_none() {
                self.method = followers.as_deref_mut().and_then(Followers::take_abandoned);
            }
            let Some(method) = &self.method else { return Poll::Ready(Ok(())) };
            if !self.has_head {
                ready!(messages.poll_head(context, method))?;
                self.has_head = true;
            }
            // Also a body that is dropped is read to its end, which alone shows where the next response
            // begins.
            let is_whole = ready!(messages.poll_gather(context, &mut self.frames, GATHERED))?;
            if !is_whole || !messages.can_continue() {
                return Poll::Ready(Err(ConnectionError::Neighbour));
            }
            *self = Self::default();
            messages.begin_next();
        }
    }
}
