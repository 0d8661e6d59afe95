//! An HTTP/1.1 connection to an upstream, driven in the task of the request that uses it: no task of its own, hence no
//! task switches for each request.
//!
//! Requests are written from their parts, and the values of a response's headers share the bytes that were read. What came
//! for one request never answers another: a connection on which anything is left, to send or to be read, carries no further
//! one.

mod messages;

use std::rc::Weak;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use brisk_http::error::{ConnectionError, Http2Error};
use brisk_http::http1::MalformedResponse;
use brisk_http_connection::Connection;
use brisk_http_connection::body::request::{BodyProgress, ClientFailure, RequestBody};
use brisk_http_connection::interim::Interim;
use brisk_net::Deadline;
use brisk_telemetry::Side;
use bytes::Bytes;
use http::header::LINK;
use http::{Request, Response};
use http_body::Frame;

use self::messages::Messages;
use crate::error::UpstreamError;
use crate::io::UpstreamIo;
use crate::open::OpenConnection;

/// One connection. Idle ones lie in the pool; dropping it closes it.
#[derive(Debug)]
pub(crate) struct Http1 {
    messages: Messages<UpstreamIo>,
    /// It has carried a request before, so that the server may have closed it meanwhile.
    reused: bool,
    deadline: Deadline,
    open: OpenConnection,
    /// The clients whose requests come next.
    owner: Owner,
}

/// The clients whose requests a connection carries.
#[derive(Debug)]
pub(crate) enum Owner {
    /// Those of any client: it goes to the pool.
    Any,
    /// Those of one client connection.
    Client(Weak<Connection>),
    /// None after this one: it is closed.
    None,
}

/// A request that got no response.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: UpstreamError,
    /// Something of the request was sent, its body perhaps; otherwise it can be sent as it is.
    pub(crate) was_sent: bool,
    /// The connection had carried a request before.
    pub(crate) reused: bool,
}

/// The remains of a connection whose protocol was switched.
#[derive(Debug)]
pub(crate) struct Upgraded {
    pub(crate) io: UpstreamIo,
    /// Bytes of the new protocol that came with the response.
    pub(crate) read_ahead: Bytes,
    pub(crate) open: OpenConnection,
}

impl Http1 {
    /// A connection ready for its first request. Heads of responses may have `head_size` bytes.
    pub(crate) fn new(
        io: UpstreamIo,
        deadline: Deadline,
        open: OpenConnection,
        head_size: usize,
    ) -> Box<Self> {
        let messages = Messages::new(io, head_size);
        Box::new(Self { messages, reused: false, deadline, open, owner: Owner::Any })
    }

    /// Sends `request` and waits for the head of the response, for at most `limit` without progress. The body is left to
    /// [`poll_frame`](Self::poll_frame). Hints that come before the answer (103) go to `interim`. What is sent of the request is its head as it is, and its body, which is taken from it.
    pub(crate) async fn exchange(
        &mut self,
        request: &mut Request<RequestBody>,
        progress: Option<&BodyProgress>,
        limit: Duration,
        interim: Option<&Interim>,
    ) -> Result<Response<()>, Failure> {
        let reused = self.reused;
        if self.found_closed() {
            let error = UpstreamError::Closed(ConnectionError::Ended);
            return Err(Failure { error, was_sent: false, reused });
        }
        self.messages.begin(request);
        let method = request.method();
        let mut watch = HeadWatch::start(&self.deadline, progress, limit);
        let messages = &mut self.messages;
        let answered = std::future::poll_fn(|context| {
            if let Err(error) = messages.poll_send(context) {
                return Poll::Ready(Err(upstream_error(error, progress)));
            }
            match messages.poll_head(context, method) {
                Poll::Ready(answered) => {
                    Poll::Ready(answered.map_err(|error| upstream_error(error, progress)))
                }
                Poll::Pending => {
                    // Hints that come with the answer are of no use any more.
                    if let Some((interim, hints)) = interim.zip(messages.take_hints()) {
                        interim.hint(hints.get_all(LINK));
                    }
                    watch.poll_overdue(context).map(Err)
                }
            }
        });
        match answered.await {
            Ok(response) => {
                self.reused = true;
                self.deadline.clear();
                Ok(response)
            }
            Err(error) => Err(Failure { error, was_sent: true, reused }),
        }
    }

    /// The next frame of the response's body, while the request goes on.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        self.messages.poll_frame(context)
    }

    /// What is left of the response's body, if its length is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.messages.left()
    }

    /// The response's body, if all of it is here already.
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
        self.messages.take_whole()
    }

    /// Whether the connection can carry another request: everything of the last one is sent and received.
    pub(crate) fn is_reusable(&self) -> bool {
        self.messages.are_done()
    }

    /// Whether an idle connection cannot be used: as far as the kernel has reported by now, the server has closed it or
    /// sent something without a request.
    pub(crate) fn found_closed(&mut self) -> bool {
        !self.messages.are_done() || self.messages.poll_unasked(&mut quiet()).is_ready()
    }

    /// Gives up memory that an idle connection does not need.
    pub(crate) fn rest(&mut self) {
        self.deadline.clear();
        self.messages.rest();
    }

    /// The deadline for the next bytes.
    pub(crate) fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// The clients whose requests come next.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Lets the connection carry no requests but those of `owner`. A connection that belongs to one client is never
    /// shared again.
    pub(crate) fn belong_to(&mut self, owner: Owner) {
        self.owner = owner;
    }

    /// Takes the transport back after a 101 response, once the request is sent, within `limit`.
    pub(crate) async fn into_upgraded(mut self, limit: Duration) -> Result<Upgraded, UpstreamError> {
        self.deadline.set(limit);
        let sent = std::future::poll_fn(|context| match self.messages.poll_sent(context) {
            Poll::Ready(sent) => Poll::Ready(sent.map_err(UpstreamError::Closed)),
            Poll::Pending => self.deadline.poll_expired(context).map(|()| Err(UpstreamError::HeadTimeout)),
        });
        sent.await?;
        let (io, read_ahead) = self.messages.into_parts();
        Ok(Upgraded { io, read_ahead, open: self.open })
    }
}

/// A context for what is known to be ready or to be polled again.
pub(crate) fn quiet() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// The error of a request whose connection gave no response.
pub(crate) fn upstream_error(error: ConnectionError, progress: Option<&BodyProgress>) -> UpstreamError {
    match (progress.and_then(BodyProgress::failure), &error) {
        (Some(ClientFailure::Broken), _) => UpstreamError::RequestBody(error),
        (Some(ClientFailure::TooLarge), _) => UpstreamError::RequestBodyTooLarge,
        (Some(ClientFailure::TooSlow), _) => UpstreamError::RequestBodyTimeout,
        (None, ConnectionError::RequestBody(body)) => match body.side() {
            Side::Client => UpstreamError::RequestBody(error),
            _ => UpstreamError::RequestBuffer(error),
        },
        (
            None,
            ConnectionError::Malformed(MalformedResponse::HeadTooLarge)
            | ConnectionError::Http2(Http2Error::HeadTooLarge),
        ) => UpstreamError::HeadTooLarge,
        (None, ConnectionError::Malformed(MalformedResponse::TransferCoding)) => {
            UpstreamError::TransferCoding
        }
        (None, ConnectionError::Malformed(_) | ConnectionError::Http2(Http2Error::Broken(_))) => {
            UpstreamError::Malformed(error)
        }
        (None, _) => UpstreamError::Closed(error),
    }
}

impl Failure {
    /// A failure after a response had begun.
    pub(crate) fn after_sending(error: UpstreamError) -> Self {
        Self { error, was_sent: true, reused: false }
    }

    /// A failure before there was a connection.
    pub(crate) fn connecting(error: UpstreamError) -> Self {
        Self { error, was_sent: false, reused: false }
    }
}

/// The deadline for the head of a response, which starts anew with every piece of the request body.
pub(crate) struct HeadWatch<'a> {
    deadline: &'a Deadline,
    progress: Option<&'a BodyProgress>,
    limit: Duration,
    seen: u64,
}

impl<'a> HeadWatch<'a> {
    pub(crate) fn start(deadline: &'a Deadline, progress: Option<&'a BodyProgress>, limit: Duration) -> Self {
        deadline.set(limit);
        Self { deadline, progress, limit, seen: 0 }
    }

    /// Ready with the reason when neither side has made progress for too long.
    pub(crate) fn poll_overdue(&mut self, context: &mut Context<'_>) -> Poll<UpstreamError> {
        if let Some(progress) = self.progress
            && self.seen != progress.bytes()
        {
            self.seen = progress.bytes();
            self.deadline.set(self.limit);
        }
        self.deadline.poll_expired(context).map(|()| self.blame())
    }

    fn blame(&self) -> UpstreamError {
        if self.progress.is_some_and(BodyProgress::waits_for_client) {
            UpstreamError::RequestBodyTimeout
        } else {
            UpstreamError::HeadTimeout
        }
    }
}
