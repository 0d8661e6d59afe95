//! An HTTP/1.1 connection to an upstream, driven in the task of the request that uses it: no task of its own, hence no
//! task switches for each request.

use std::pin::pin;
use std::rc::Weak;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use brisk_net::Deadline;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1;
use tokio::task::unconstrained;

use crate::body::request::{BodyProgress, ClientFailure, RequestBody};
use crate::connection::Connection;
use crate::error::UpstreamError;
use crate::upstream::io::{HyperIo, UpstreamIo};
use crate::upstream::open::OpenConnection;

/// Bytes that are read ahead of a response, and gathered of a request; a longer head that is allowed needs more. A
/// client that reads nothing makes its upstream connections hold this much each, beside the budget of its answers.
const READ_BUFFER: usize = 64 << 10;

/// One connection. Idle ones lie in the pool; dropping it closes it.
#[derive(Debug)]
pub(crate) struct Http1 {
    sender: http1::SendRequest<RequestBody>,
    connection: Option<http1::Connection<HyperIo, RequestBody>>,
    /// The connection future is complete and must not be polled again.
    ended: bool,
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
    /// The request, when nothing of it was sent.
    pub(crate) unsent: Option<Request<RequestBody>>,
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
    pub(crate) async fn new(
        io: UpstreamIo,
        deadline: Deadline,
        open: OpenConnection,
        head_size: usize,
    ) -> Result<Box<Self>, UpstreamError> {
        let mut builder = http1::Builder::new();
        builder.max_header_size(head_size).max_buf_size(READ_BUFFER.max(head_size));
        let (sender, connection) =
            builder.handshake(HyperIo::new(io)).await.map_err(UpstreamError::Closed)?;
        Ok(Box::new(Self {
            sender,
            connection: Some(connection),
            ended: false,
            reused: false,
            deadline,
            open,
            owner: Owner::Any,
        }))
    }

    /// Sends `request` and waits for the head of the response, for at most `limit` without progress.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<RequestBody>,
        progress: Option<&BodyProgress>,
        limit: Duration,
    ) -> Result<Response<Incoming>, Box<Failure>> {
        // Only driving the connection, just before, can make the answer ready. So it is polled without a waker, which
        // saves a wake-up per request, and without tokio's budget, which would need the waker.
        let mut answer = pin!(unconstrained(self.sender.try_send_request(request)));
        let mut watch = HeadWatch::start(&self.deadline, progress, limit);
        let (connection, ended) = (&mut self.connection, &mut self.ended);
        let answered = std::future::poll_fn(|context| {
            drive(connection, ended, context);
            if let Poll::Ready(answer) = answer.as_mut().poll(&mut quiet()) {
                return Poll::Ready(Ok(answer));
            }
            if *ended && connection.take().is_some() {
                // A request that is still in hyper's queue comes back when the connection is dropped.
                return answer.as_mut().poll(&mut quiet()).map(Ok);
            }
            watch.poll_overdue(context).map(Err)
        });
        let reused = self.reused;
        match answered.await {
            Ok(Ok(response)) => Ok(self.answered(response)),
            Ok(Err(error)) => Err(Box::new(Failure::sending(error, progress, reused))),
            Err(error) => Err(Box::new(Failure { error, unsent: None, reused })),
        }
    }

    /// Whether the connection can carry another request: everything of the last one is sent and received.
    pub(crate) fn is_reusable(&self) -> bool {
        !self.ended && self.sender.is_ready()
    }

    /// Moves the connection on. After its end, what is left of a body is all there is.
    pub(crate) fn drive(&mut self, context: &mut Context<'_>) {
        drive(&mut self.connection, &mut self.ended, context);
        if self.ended {
            self.connection = None;
        }
    }

    /// Whether the server has closed the idle connection, as far as the kernel has reported by now.
    pub(crate) fn found_closed(&mut self) -> bool {
        self.drive(&mut quiet());
        !self.is_reusable()
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

    /// Takes the transport back after a 101 response.
    pub(crate) async fn into_upgraded(mut self) -> Result<Upgraded, UpstreamError> {
        let mut connection = self.connection.take().ok_or(UpstreamError::UnexpectedUpgrade)?;
        if !self.ended {
            std::future::poll_fn(|context| connection.poll_without_shutdown(context))
                .await
                .map_err(UpstreamError::Closed)?;
        }
        let parts = connection.into_parts();
        let io = parts.io.into_inner();
        Ok(Upgraded { io, read_ahead: parts.read_buf, open: self.open })
    }

    fn answered(&mut self, response: Response<Incoming>) -> Response<Incoming> {
        self.reused = true;
        self.deadline.clear();
        response
    }
}

/// A context for what is known to be ready or to be polled again.
pub(crate) fn quiet() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn drive(
    connection: &mut Option<http1::Connection<HyperIo, RequestBody>>,
    ended: &mut bool,
    context: &mut Context<'_>,
) {
    if let (false, Some(connection)) = (*ended, connection) {
        // The request or its body gets an error as well.
        *ended = connection.poll_without_shutdown(context).is_ready();
    }
}

impl Failure {
    /// What hyper's error means, with the request if nothing of it was sent.
    pub(crate) fn sending(
        mut error: TrySendError<Request<RequestBody>>,
        progress: Option<&BodyProgress>,
        reused: bool,
    ) -> Self {
        let unsent = error.take_message();
        let error = error.into_error();
        let error = match progress.and_then(BodyProgress::failure) {
            Some(ClientFailure::Broken) => UpstreamError::RequestBody(error),
            Some(ClientFailure::TooLarge) => UpstreamError::RequestBodyTooLarge,
            Some(ClientFailure::TooSlow) => UpstreamError::RequestBodyTimeout,
            None if error.is_parse_too_large() => UpstreamError::HeadTooLarge,
            None if error.is_parse() => UpstreamError::Malformed(error),
            None => UpstreamError::Closed(error),
        };
        Self { error, unsent, reused }
    }

    /// A failure after a response had begun.
    pub(crate) fn after_sending(error: UpstreamError) -> Box<Self> {
        Box::new(Self { error, unsent: None, reused: false })
    }

    /// A failure before there was a connection.
    pub(crate) fn connecting(error: UpstreamError, request: Request<RequestBody>) -> Box<Self> {
        Box::new(Self { error, unsent: Some(request), reused: false })
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
