//! Request bodies gathered completely before they are forwarded (`buffer_request`), so that a slow client never occupies an
//! upstream: in memory, and above 64 KiB in an unnamed file.

use std::fs::File;
use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use brisk_budget::Resource;
use brisk_http::error::BodyError;
use brisk_net::Deadline;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::body::request::{BodyProgress, RequestBody};
use crate::connection::Connection;
use crate::holding::Holding;

/// Maximum memory of one body in bytes, and the size of reads and writes of the file.
const MEMORY: usize = 64 << 10;

/// Rate in bytes per second below which a body gives way to other clients, after [`GRACE`], and the pause after which it does.
const SLOW: u64 = 16 << 10;
const GRACE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(2);

/// Interval in which a body that pauses is examined by [`is_slow`].
const ROUND: Duration = Duration::from_secs(1);

/// Maximum time for which a body of a client that holds little waits until others release memory, and the interval of its
/// attempts.
const WAIT: Duration = Duration::from_secs(5);
const ATTEMPT: Duration = Duration::from_millis(100);

/// A complete request body.
#[derive(Debug)]
pub struct Gathered {
    /// The first part, in a file if the body is long; otherwise the whole body is in memory.
    memory: Bytes,
    file: Option<Spilled>,
    trailers: Option<HeaderMap>,
    /// Progress of the client's upload.
    progress: Option<Rc<BodyProgress>>,
    holding: Rc<Holding>,
}

/// The part of a body in a file, which precedes the part in memory.
#[derive(Debug)]
struct Spilled {
    file: Arc<File>,
    length: u64,
    position: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl Gathered {
    /// Gathers all of `body`, which arrives on `connection`. Fails if the body fails, if the client has no memory left for
    /// it, and if the body arrives slowly or pauses while other clients need the memory.
    pub async fn from(mut body: RequestBody, connection: &Rc<Connection>) -> Result<Self, BodyError> {
        // No bytes yet: otherwise a client could reserve memory by its `Content-Length` alone.
        let mut holding = connection.reserve(Resource::Requests, 0).map_err(|_| BodyError::NoRoom)?;
        let started = Instant::now();
        let deadline = connection.register_deadline();
        let progress = body.progress().cloned();
        let (mut bytes, mut latest) = (0, started);
        let (mut memory, mut file, mut trailers) = (Vec::new(), None, None);
        loop {
            let frame = match next(&mut body, deadline.as_ref()).await {
                Poll::Ready(Some(frame)) => frame?.into_data(),
                Poll::Ready(None) => break,
                Poll::Pending => Ok(Bytes::new()),
            };
            match frame {
                Ok(data) => {
                    extend(&mut holding, &mut memory, &data, deadline.as_ref()).await?;
                    bytes += data.len() as u64;
                    if !data.is_empty() {
                        latest = Instant::now();
                    }
                    let pauses = latest.elapsed() >= PAUSE;
                    // Both conditions are necessary: a slow body is welcome while memory is free, and a fast
                    // one is complete soon.
                    if holding.must_yield() && (pauses || is_slow(bytes, started.elapsed())) {
                        return Err(BodyError::NoRoom);
                    }
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
            if memory.len() > MEMORY {
                // The reservation stays: `gathered_total` counts memory and files together.
                file = Some(Spilled::after(file, mem::take(&mut memory).into()).await?);
            }
        }
        Ok(Self { memory: memory.into(), file, trailers, progress, holding: Rc::new(holding) })
    }

    /// A copy of a body of which nothing was sent yet, for a repetition. Both share memory and file.
    #[must_use]
    pub fn copy(&self) -> Self {
        let file = self.file.as_ref().map(|file| Spilled {
            // Reads have explicit positions, so that copies share the file without a common offset.
            file: Arc::clone(&file.file),
            length: file.length,
            position: file.position,
            reading: None,
        });
        Self {
            memory: self.memory.clone(),
            file,
            trailers: self.trailers.clone(),
            progress: self.progress.clone(),
            holding: Rc::clone(&self.holding),
        }
    }

    /// Progress of the client's upload.
    pub fn progress(&self) -> Option<&Rc<BodyProgress>> {
        self.progress.as_ref()
    }

    /// Number of bytes still to be sent.
    pub fn length(&self) -> u64 {
        self.memory.len() as u64 + self.file.as_ref().map_or(0, |file| file.length - file.position)
    }

    /// Whether trailers follow the data.
    pub fn has_trailers(&self) -> bool {
        self.trailers.is_some()
    }

    /// The next frame, as for [`http_body::Body::poll_frame`].
    pub fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(file) = &mut self.file {
            if file.position < file.length {
                let read = ready!(file.poll_read(context)).map_err(BodyError::Spill);
                return Poll::Ready(Some(read.map(Frame::data)));
            }
            // Frees the disk space of the unnamed file before the rest of the exchange.
            self.file = None;
        }
        if !self.memory.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(mem::take(&mut self.memory)))));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

/// The next frame of `body`; pending if it does not arrive within a round.
async fn next(
    body: &mut RequestBody,
    deadline: Option<&Deadline>,
) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
    let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
    match deadline {
        Some(deadline) => {
            // Without a deadline a body that pauses would not return here, and could not yield its memory.
            deadline.set(ROUND);
            deadline.within(frame).await.map_or(Poll::Pending, Poll::Ready)
        }
        None => Poll::Ready(frame.await),
    }
}

/// Appends `data` to `memory`. A client that holds little waits for a while until others release memory: its refusal makes
/// slow bodies yield.
async fn extend(
    holding: &mut Holding,
    memory: &mut Vec<u8>,
    data: &[u8],
    deadline: Option<&Deadline>,
) -> Result<(), BodyError> {
    let started = Instant::now();
    while holding.extend(memory, data, MEMORY).is_err() {
        loop {
            let Some(deadline) = deadline.filter(|_| holding.is_small() && started.elapsed() < WAIT) else {
                return Err(BodyError::NoRoom);
            };
            deadline.set(ATTEMPT);
            deadline.wait().await;
            if holding.has_room(data.len()) {
                break;
            }
        }
    }
    Ok(())
}

/// Whether a body of `bytes` so far arrives too slowly to keep memory that other clients need.
fn is_slow(bytes: u64, time: Duration) -> bool {
    let due = u128::from(SLOW) * time.saturating_sub(GRACE).as_millis() / 1000;
    u128::from(bytes) < due
}

impl Spilled {
    /// Appends `data` to the file of `spilled`, or writes it to a new file.
    async fn after(spilled: Option<Self>, data: Bytes) -> Result<Self, BodyError> {
        // `spawn_blocking`, because a slow disk would stop the worker and all of its connections.
        let written = spawn_blocking(move || {
            let mut spilled = match spilled {
                Some(spilled) => spilled,
                // `tempfile` removes the name at once, so that a crash leaves no data of a client behind.
                None => Self { file: Arc::new(tempfile::tempfile()?), length: 0, position: 0, reading: None },
            };
            spilled.file.write_all_at(&data, spilled.length)?;
            spilled.length += data.len() as u64;
            Ok(spilled)
        });
        written.await.map_err(io::Error::other).flatten().map_err(BodyError::Spill)
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let reading = self.reading.get_or_insert_with(|| {
            let (file, position) = (Arc::clone(&self.file), self.position);
            let length = (self.length - position).min(MEMORY as u64) as usize;
            spawn_blocking(move || {
                let mut piece = vec![0; length];
                file.read_exact_at(&mut piece, position)?;
                Ok(piece.into())
            })
        });
        let piece = ready!(Pin::new(reading).poll(context)).map_err(io::Error::other).flatten();
        self.reading = None;
        let piece = piece?;
        self.position += piece.len() as u64;
        Poll::Ready(Ok(piece))
    }
}
