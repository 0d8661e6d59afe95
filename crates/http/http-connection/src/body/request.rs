//! The body of a request on its way to an upstream: streaming or gathered, within a size limit and above a minimum
//! rate.

use std::cell::Cell;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use brisk_http::claims::{self, OwnNames};
use brisk_http::error::BodyError;
use brisk_net::Deadline;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

use crate::body::client::ClientBody;
use crate::body::copied::CopiedBody;
use crate::body::gathered::Gathered;
use crate::connection::Connection;

/// The body of a request on its way to an upstream.
#[derive(Debug)]
pub enum RequestBody {
    /// No body.
    Empty,
    /// Body as it arrives from the client, within the limits of its [`BodyProgress`].
    Client(ClientBody, Rc<BodyProgress>),
    /// Body that was gathered before it is forwarded (`buffer_request`).
    Gathered(Box<Gathered>),
    /// Whole body of a repeated or mirrored request; empty at the end.
    Again(Bytes),
    /// Body that is copied for a mirror.
    Copied(Box<CopiedBody>),
}

/// Progress of a request body, shared by the body, which the upstream connection owns, and the request that waits for
/// its response.
#[derive(Debug)]
pub struct BodyProgress {
    limit: u64,
    /// Names that the client's trailers must not have; `None` for no trailers.
    own_names: Option<Rc<OwnNames>>,
    bytes: Cell<u64>,
    waits: Cell<bool>,
    ended: Cell<bool>,
    failure: Cell<Option<ClientFailure>>,
    pace: Option<Pace>,
}

/// Minimum rate of the body until the response begins. After that, both sides may send at any rate, and the upstream's
/// pauses are limited.
#[derive(Debug)]
struct Pace {
    deadline: Deadline,
    /// Maximum pause.
    pause: Duration,
    /// Bytes per second, averaged over the time spent waiting; 0 for no minimum.
    rate: u64,
    waiting_since: Cell<Duration>,
    waited: Cell<Duration>,
    answered: Cell<bool>,
}

/// Failure of a client to send its request body as required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFailure {
    /// The body or its connection failed.
    Broken,
    /// The body exceeds `body_size` of the route.
    TooLarge,
    /// The body arrived below `body_rate`, or paused for longer than `timeouts.body`.
    TooSlow,
}

impl BodyProgress {
    /// Number of bytes received from the client.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Whether the upload waits for the client.
    pub fn waits_for_client(&self) -> bool {
        self.waits.get()
    }

    /// Whether the body was read to its end.
    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// The [`ClientFailure`], if any.
    pub fn failure(&self) -> Option<ClientFailure> {
        self.failure.get()
    }

    /// Records that the response has begun: the rate of the rest is not limited.
    pub fn answered(&self) {
        if let Some(pace) = &self.pace {
            pace.answered.set(true);
        }
    }

    fn set_waits(&self, waits: bool) {
        if self.waits.replace(waits) == waits {
            return;
        }
        match &self.pace {
            Some(pace) if waits => pace.begin_wait(self.bytes.get()),
            Some(pace) => pace.end_wait(),
            None => {}
        }
    }

    /// Ready when the client has paused for too long or has been too slow on average.
    fn poll_overdue(&self, context: &mut Context<'_>) -> Poll<()> {
        match &self.pace {
            Some(pace) if !pace.answered.get() => pace.deadline.poll_expired(context),
            _ => Poll::Pending,
        }
    }

    fn check(&self, frame: Result<Frame<Bytes>, BodyError>) -> Result<Frame<Bytes>, BodyError> {
        let mut frame = frame.inspect_err(|_| self.failure.set(Some(ClientFailure::Broken)))?;
        if let Some(trailers) = frame.trailers_mut() {
            // RFC 9110 section 6.5.1: an upstream may merge trailers into the head, where it trusts the names
            // of the gateway.
            match &self.own_names {
                Some(own_names) => claims::clean_trailers(trailers, own_names),
                None => trailers.clear(),
            }
        }
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        self.bytes.set(self.bytes.get() + length);
        // Checked while the body arrives: a chunked body states no length in advance.
        if self.bytes.get() > self.limit {
            self.failure.set(Some(ClientFailure::TooLarge));
            return Err(BodyError::TooLarge);
        }
        Ok(frame)
    }
}

impl Pace {
    fn of(connection: &Connection) -> Option<Self> {
        let settings = connection.settings()?;
        Some(Self {
            deadline: connection.register_deadline()?,
            pause: settings.timeouts.body,
            rate: settings.body_rate,
            waiting_since: Cell::default(),
            waited: Cell::default(),
            answered: Cell::new(false),
        })
    }

    /// Begins to wait for the client, which has sent `bytes` bytes so far.
    fn begin_wait(&self, bytes: u64) {
        self.waiting_since.set(self.deadline.now());
        self.deadline.set(self.pause.min(self.time_left(bytes)));
    }

    fn end_wait(&self) {
        let waited = self.deadline.now().saturating_sub(self.waiting_since.get());
        self.waited.set(self.waited.get() + waited);
    }

    /// Remaining time for the client: the maximum pause once in total, plus the time for `bytes` at the minimum rate.
    fn time_left(&self, bytes: u64) -> Duration {
        // A rate of 0 disables the minimum, but not the maximum pause in `begin_wait`.
        let Some(earned) = bytes.checked_div(self.rate) else { return Duration::MAX };
        (self.pause + Duration::from_secs(earned)).saturating_sub(self.waited.get())
    }
}

impl RequestBody {
    /// The body of a request on `connection`, which fails above `limit` bytes. Its trailers lose the fields with `own_names`.
    pub fn new(body: ClientBody, connection: &Connection, limit: u64, own_names: Rc<OwnNames>) -> Self {
        Self::with(body, connection, limit, Some(own_names))
    }

    /// The bytes that a client sends through a tunnel on `connection`. They have no trailers.
    pub fn tunnel(body: ClientBody, connection: &Connection) -> Self {
        Self::with(body, connection, u64::MAX, None)
    }

    fn with(body: ClientBody, connection: &Connection, limit: u64, own_names: Option<Rc<OwnNames>>) -> Self {
        if body.is_end_stream() {
            return Self::Empty;
        }
        let progress = BodyProgress {
            limit,
            own_names,
            pace: Pace::of(connection),
            bytes: Cell::new(0),
            waits: Cell::new(false),
            ended: Cell::new(false),
            failure: Cell::new(None),
        };
        Self::Client(body, Rc::new(progress))
    }

    /// Progress of the body's arrival from the client.
    pub fn progress(&self) -> Option<&Rc<BodyProgress>> {
        match self {
            Self::Client(_, progress) => Some(progress),
            Self::Gathered(body) => body.progress(),
            Self::Copied(copied) => copied.body().progress(),
            Self::Empty | Self::Again(_) => None,
        }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let (body, progress) = match self.get_mut() {
            Self::Empty => return Poll::Ready(None),
            Self::Again(data) if data.is_empty() => return Poll::Ready(None),
            Self::Again(data) => return Poll::Ready(Some(Ok(Frame::data(mem::take(data))))),
            Self::Client(body, progress) => (body, progress),
            Self::Gathered(body) => return body.poll_frame(context),
            Self::Copied(copied) => return copied.poll_frame(context),
        };
        let polled = Pin::new(body).poll_frame(context);
        progress.set_waits(polled.is_pending());
        // Data that has arrived is accepted even after the deadline, which only limits the wait for more.
        if polled.is_pending() && progress.poll_overdue(context).is_ready() {
            progress.failure.set(Some(ClientFailure::TooSlow));
            return Poll::Ready(Some(Err(BodyError::ClientTimeout)));
        }
        polled.map(|frame| frame.map(|frame| progress.check(frame)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Client(body, _) => body.is_end_stream(),
            Self::Gathered(body) => body.length() == 0 && !body.has_trailers(),
            Self::Again(data) => data.is_empty(),
            Self::Copied(copied) => copied.body().is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Client(body, _) => body.size_hint(),
            Self::Gathered(body) => SizeHint::with_exact(body.length()),
            Self::Again(data) => SizeHint::with_exact(data.len() as u64),
            Self::Copied(copied) => copied.body().size_hint(),
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        // After this drop only the progress can report to the request whether all of its body was read.
        if let Self::Client(body, progress) = self {
            progress.set_waits(false);
            progress.ended.set(body.is_end_stream());
        }
    }
}
