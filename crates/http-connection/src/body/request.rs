//! The body of a request on its way to an upstream: streaming or gathered, within a size limit and above a minimum
//! rate.

use std::cell::Cell;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use brisk_http::claims;
use brisk_http::error::BodyError;
use brisk_net::Deadline;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

use crate::body::gathered::Gathered;
use crate::body::upload::Upload;
use crate::connection::Connection;

/// The body of a request on its way to an upstream.
#[derive(Debug)]
pub enum RequestBody {
    /// No body.
    Empty,
    /// Body as it arrives from the client.
    Client(LimitedUpload),
    /// Body that was gathered before it is forwarded.
    Gathered(Box<Gathered>),
    /// Whole body of a repeated request; empty at the end.
    Again(Bytes),
}

/// The body of a request that is to be forwarded.
#[derive(Debug)]
pub enum Arriving {
    /// Streaming from the client.
    Stream(Upload),
    /// Gathered completely.
    Whole(Box<Gathered>),
}

/// A streaming request body with a size limit.
#[derive(Debug)]
pub struct LimitedUpload {
    upload: Upload,
    progress: Rc<BodyProgress>,
}

/// Progress of a request body, shared by the body, which the upstream connection owns, and the request that waits for
/// its response.
#[derive(Debug)]
pub struct BodyProgress {
    limit: u64,
    bytes: Cell<u64>,
    waits: Cell<bool>,
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
    /// The body exceeds the limit of the route.
    TooLarge,
    /// The body arrived too slowly or paused for too long.
    TooSlow,
}

impl BodyProgress {
    /// Progress of a body of at most `limit` bytes that arrives on `connection`.
    pub fn new(connection: &Rc<Connection>, limit: u64) -> Rc<Self> {
        Rc::new(Self {
            limit,
            pace: Pace::of(connection),
            bytes: Cell::new(0),
            waits: Cell::new(false),
            failure: Cell::new(None),
        })
    }

    /// Number of bytes received from the client.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Whether the upload waits for the client.
    pub fn waits_for_client(&self) -> bool {
        self.waits.get()
    }

    /// The client's failure, if any.
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
            claims::clean_trailers(trailers);
        }
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        self.bytes.set(self.bytes.get() + length);
        if self.bytes.get() > self.limit {
            self.failure.set(Some(ClientFailure::TooLarge));
            return Err(BodyError::TooLarge);
        }
        Ok(frame)
    }
}

impl Arriving {
    /// Whether there is no body.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Stream(upload) => upload.is_end_stream(),
            Self::Whole(gathered) => gathered.length() == 0 && !gathered.has_trailers(),
        }
    }

    /// The progress of the body. A streaming body must end within `limit` bytes.
    pub fn progress(&self, connection: &Rc<Connection>, limit: u64) -> Rc<BodyProgress> {
        match self {
            Self::Stream(_) => BodyProgress::new(connection, limit),
            Self::Whole(gathered) => Rc::clone(gathered.progress()),
        }
    }

    /// The body for an upstream; `progress` is its progress.
    pub fn into_request_body(self, progress: Option<&Rc<BodyProgress>>) -> RequestBody {
        match (self, progress) {
            (Self::Stream(upload), Some(progress)) => RequestBody::client(upload, Rc::clone(progress)),
            (Self::Whole(gathered), Some(_)) => RequestBody::Gathered(gathered),
            (_, None) => RequestBody::Empty,
        }
    }
}

impl From<Upload> for Arriving {
    fn from(upload: Upload) -> Self {
        Self::Stream(upload)
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
        let Some(earned) = bytes.checked_div(self.rate) else { return Duration::MAX };
        (self.pause + Duration::from_secs(earned)).saturating_sub(self.waited.get())
    }
}

impl RequestBody {
    /// The rest of `upload`, recorded in `progress`.
    pub fn client(upload: Upload, progress: Rc<BodyProgress>) -> Self {
        Self::Client(LimitedUpload { upload, progress })
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let body = match self.get_mut() {
            Self::Empty => return Poll::Ready(None),
            Self::Again(data) if data.is_empty() => return Poll::Ready(None),
            Self::Again(data) => return Poll::Ready(Some(Ok(Frame::data(mem::take(data))))),
            Self::Client(body) => body,
            Self::Gathered(body) => return body.poll_frame(context),
        };
        let polled = Pin::new(&mut body.upload).poll_frame(context);
        let progress = &body.progress;
        progress.set_waits(polled.is_pending());
        match polled {
            Poll::Pending if progress.poll_overdue(context).is_ready() => {
                progress.failure.set(Some(ClientFailure::TooSlow));
                Poll::Ready(Some(Err(BodyError::ClientTimeout)))
            }
            // hyper treats a reset with NO_ERROR as the end of the body; a client must not send it (RFC 9113 section
            // 8.1).
            Poll::Ready(None) if body.upload.is_on_stream() && !body.upload.is_end_stream() => {
                progress.failure.set(Some(ClientFailure::Broken));
                Poll::Ready(Some(Err(BodyError::ClientReset)))
            }
            polled => polled.map(|frame| frame.map(|frame| progress.check(frame))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Client(body) => body.upload.is_end_stream(),
            Self::Gathered(body) => body.length() == 0 && !body.has_trailers(),
            Self::Again(data) => data.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Client(body) => body.upload.size_hint(),
            Self::Gathered(body) => SizeHint::with_exact(body.length()),
            Self::Again(data) => SizeHint::with_exact(data.len() as u64),
        }
    }
}

impl Drop for LimitedUpload {
    fn drop(&mut self) {
        self.progress.set_waits(false);
    }
}
