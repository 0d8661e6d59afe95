//! A connection to an upstream with one request after the other, [`Http1`], driven by the task of the request that uses it. Without
//! a task of its own, it causes no task switch per request. It carries HTTP/1.1, or FastCGI, uwsgi or SCGI.
//!
//! Requests are written from their parts; header values of a response share the read buffer. A response can never be
//! taken for that of another request: a connection with unsent or unread bytes is not reused.

mod frames;
mod messages;
mod pipelined;

use std::net::SocketAddr;
use std::rc::Weak;
use std::task::{Context, Poll};
use std::time::Duration;

use brisk_http::cgi::Variables;
use brisk_http::error::{ConnectionError, Http2Error};
use brisk_http::http1::{HeadLimits, MalformedResponse};
use brisk_http::message::{Request, Response};
use brisk_http_connection::Connection;
use brisk_http_connection::body::request::{BodyProgress, ClientFailure, RequestBody};
use brisk_http_connection::interim::InterimReceivers;
use brisk_net::Deadline;
use brisk_telemetry::Side;
use brisk_upstream_group::UpstreamIo;
use bytes::Bytes;
use http_body::Frame;

pub(crate) use self::frames::Frames;
pub(crate) use self::messages::ApplicationServer;
use self::messages::Messages;
pub(crate) use self::pipelined::GATHERED;
use crate::error::UpstreamError;
use crate::head_watch::{HeadWait, HeadWatch};
use crate::interim::pass;
use crate::open::OpenConnection;
use crate::pipeline::Followers;

/// One connection. Idle ones are in [`Pool`](crate::pool::Pool); dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Http1 {
    messages: Messages<UpstreamIo>,
    /// Whether the connection has carried a request before, so that the server may have closed it meanwhile.
    reused: bool,
    deadline: Deadline,
    open: OpenConnection,
    /// The clients whose requests may follow.
    owner: Owner,
    /// Requests that were sent already and wait for their responses.
    followers: Option<Box<Followers>>,
}

/// The clients whose requests a connection may carry.
#[derive(Debug)]
pub(crate) enum Owner {
    /// All clients: the connection is pooled.
    Any,
    /// One client connection, after a login (see [`login`](crate::login)).
    Client(Weak<Connection>),
    /// The client connection, and the address, that the PROXY header names.
    Proxied(Weak<Connection>, SocketAddr),
    /// No client: the connection is closed after this request.
    None,
}

/// Parameters of one request on a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExchangeFacts<'a> {
    pub(crate) client: &'a Connection,
    pub(crate) progress: Option<&'a BodyProgress>,
    pub(crate) interims: InterimReceivers<'a>,
    /// Variables for an application server.
    pub(crate) variables: Option<&'a Variables>,
}

/// The failure of a request without a response.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: UpstreamError,
    /// Whether a part of the request or of its body was sent. Otherwise it can be repeated unchanged.
    pub(crate) was_sent: bool,
    /// Whether the connection had carried a request before: its end is then no evidence against the server.
    pub(crate) reused: bool,
}

/// The transport after a switch of protocols.
#[derive(Debug)]
pub(crate) struct Upgraded {
    pub(crate) io: UpstreamIo,
    /// Bytes of the new protocol that were received with the response.
    pub(crate) read_ahead: Bytes,
    pub(crate) open: OpenConnection,
}

impl Http1 {
    /// A connection before its first request, over HTTP/1.1 or to an application server. `limits` are those for heads of responses.
    pub(crate) fn new(
        io: UpstreamIo,
        deadline: Deadline,
        open: OpenConnection,
        limits: HeadLimits,
        application: Option<ApplicationServer>,
    ) -> Box<Self> {
        let messages = Messages::new(io, limits, application);
        Box::new(Self { messages, reused: false, deadline, open, owner: Owner::Any, followers: None })
    }

    /// Sends `request` and waits for the head of the response, within `wait`.
    /// [`Self::poll_frame`] returns the body.
    ///
    /// Moves the body out of `request` and leaves the head unchanged, so that the request can be repeated. Interim
    /// responses are sent to `interims`. Nothing is read while the responses of `client` may hold no more
    /// memory ([`Connection::poll_room`]).
    pub(crate) async fn exchange(
        &mut self,
        request: &mut Request<RequestBody>,
        facts: ExchangeFacts<'_>,
        wait: HeadWait<'_>,
    ) -> Result<Response<()>, Failure> {
        let ExchangeFacts { client, progress, interims, variables } = facts;
        let reused = self.reused;
        // Before anything is written: a request that was sent may have been executed, and could not always be
        // repeated.
        if self.found_closed() {
            let error = UpstreamError::Closed(ConnectionError::Ended);
            return Err(Failure { error, was_sent: false, reused });
        }
        if let Err(error) = self.messages.begin(request, variables) {
            return Err(Failure { error, was_sent: false, reused });
        }
        let method = request.method();
        let mut watch = HeadWatch::start(&self.deadline, progress, wait);
        let messages = &mut self.messages;
        let answered = std::future::poll_fn(|context| {
            if let Err(error) = messages.poll_send(context) {
                return Poll::Ready(Err(upstream_error(error, progress)));
            }
            let has_room = client.poll_room(context).is_ready();
            let polled = if has_room { messages.poll_head(context, method) } else { Poll::Pending };
            pass(messages.take_interims(), interims, polled.is_ready());
            match polled {
                Poll::Ready(answered) => {
                    Poll::Ready(answered.map_err(|error| upstream_error(error, progress)))
                }
                // The time of a client that does not read its responses is not that of the server.
                Poll::Pending if !has_room => {
                    watch.restart();
                    Poll::Pending
                }
                Poll::Pending => watch.poll_overdue(context).map(Err),
            }
        });
        match answered.await {
            Ok(response) => {
                self.reused = true;
                self.deadline.clear();
                Ok(response)
            }
            // Also after a failed write: a part of the request may have left before.
            Err(error) => Err(Failure { error, was_sent: true, reused }),
        }
    }

    /// The next frame of the response's body. Continues sending the request meanwhile.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        let polled = self.messages.poll_frame(context);
        // A server with Nagle's algorithm holds the body back until the head is acknowledged, which the kernel delays by 40 ms.
        if polled.is_pending()
            && let Some(io) = self.messages.awaits_body()
        {
            io.acknowledge();
        }
        polled
    }

    /// Number of received bytes that wait for the reader of the response.
    pub(crate) fn unread(&self) -> usize {
        self.messages.unread()
    }

    /// Remaining length of the response's body in bytes, if known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.messages.left()
    }

    /// Takes the response's body, if its length is known and it has arrived completely.
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
        self.messages.take_whole()
    }

    /// Whether the connection can carry another request: the last request and its response are complete.
    pub(crate) fn is_reusable(&self) -> bool {
        self.messages.are_done()
    }

    /// Whether an idle connection is unusable: the server has closed it or sent bytes without a request, as far as the
    /// kernel has reported it. Costs one `read`.
    pub(crate) fn found_closed(&mut self) -> bool {
        !self.messages.are_done() || self.messages.has_unasked()
    }

    /// Releases memory that an idle connection does not need.
    pub(crate) fn rest(&mut self) {
        self.deadline.clear();
        self.messages.rest();
    }

    /// The [`Deadline`] for the next bytes.
    pub(crate) fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// The clients whose requests may follow.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Restricts the connection to requests of `owner`. A connection that belongs to one client never becomes [`Owner::Any`]
    /// again.
    pub(crate) fn belong_to(&mut self, owner: Owner) {
        self.owner = owner;
    }

    /// Takes the transport after a `101` response, once the request is sent; [`UpstreamError::HeadTimeout`] after `limit`.
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

/// Converts the error of a connection without a response. An error of the request body in `progress` takes precedence: the
/// failure of the connection is its consequence.
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
        (
            None,
            ConnectionError::Malformed(MalformedResponse::Interim)
            | ConnectionError::Http2(Http2Error::Interim),
        ) => UpstreamError::InterimResponses,
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
    /// A failure after a response had begun: the request is not repeated.
    pub(crate) fn after_sending(error: UpstreamError) -> Self {
        Self { error, was_sent: true, reused: false }
    }

    /// The failure of a request that has to be sent again because of others: [`ConnectionError::Neighbour`].
    pub(crate) fn of_neighbour() -> Self {
        Self { error: UpstreamError::Closed(ConnectionError::Neighbour), was_sent: true, reused: true }
    }

    /// A failure before a connection existed.
    pub(crate) fn connecting(error: UpstreamError) -> Self {
        Self { error, was_sent: false, reused: false }
    }
}
