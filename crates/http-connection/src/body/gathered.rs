//! Request bodies gathered completely before they are forwarded, so that a slow client never occupies an upstream: in
//! memory, and above a limit in an unnamed file.

use std::fs::File;
use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use brisk_http::error::BodyError;
use brisk_telemetry::Metrics;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as _, Frame};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::body::request::{BodyProgress, RequestBody};

/// Maximum memory of one body in bytes, and the size of reads and writes of the file.
const MEMORY: usize = 64 << 10;

/// A complete request body.
#[derive(Debug)]
pub struct Gathered {
    /// The first part, in a file if the body is long; otherwise the whole body is in memory.
    memory: Bytes,
    file: Option<Spilled>,
    trailers: Option<HeaderMap>,
    /// Progress of the client's upload.
    progress: Option<Rc<BodyProgress>>,
    _room: Room,
}

/// Share of one body in the limit for all bodies; released on drop.
#[derive(Debug)]
pub struct Room {
    metrics: Arc<Metrics>,
    /// Limit for all bodies of the process, in bytes.
    limit: u64,
    taken: u64,
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
    /// Gathers all of `body`. Fails if the body fails or exceeds `room`.
    pub async fn from(mut body: RequestBody, mut room: Room) -> Result<Self, BodyError> {
        let progress = body.progress().cloned();
        let (mut memory, mut file, mut trailers) = (BytesMut::new(), None, None);
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            match frame?.into_data() {
                Ok(data) => {
                    room.take(data.len() as u64)?;
                    memory.extend_from_slice(&data);
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
            if memory.len() > MEMORY {
                file = Some(Spilled::after(file, mem::take(&mut memory).freeze()).await?);
            }
        }
        Ok(Self { memory: memory.freeze(), file, trailers, progress, _room: room })
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

impl Room {
    /// An empty reservation. All reservations with the same `metrics` share `limit` bytes.
    pub fn new(metrics: &Arc<Metrics>, limit: u64) -> Self {
        Self { metrics: Arc::clone(metrics), limit, taken: 0 }
    }

    fn take(&mut self, bytes: u64) -> Result<(), BodyError> {
        self.taken += bytes;
        let gathered = self.metrics.body_gathered(bytes);
        if gathered > self.limit { Err(BodyError::NoRoom) } else { Ok(()) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.metrics.gathered_body_released(self.taken);
    }
}

impl Spilled {
    /// Appends `data` to the file of `spilled`, or writes it to a new file.
    async fn after(spilled: Option<Self>, data: Bytes) -> Result<Self, BodyError> {
        let written = spawn_blocking(move || {
            let mut spilled = match spilled {
                Some(spilled) => spilled,
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
