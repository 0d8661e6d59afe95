//! Bodies of responses with a limit of time or pace.

use std::num::NonZeroU64;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use brisk_http::error::BodyError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// A body that fails at a time, which is examined in each `poll_frame`: the end is an error even if data is ready.
#[derive(Debug)]
pub struct TimedBody<B> {
    body: B,
    end: Pin<Box<Sleep>>,
}

impl<B> TimedBody<B> {
    /// Ends `body` at `time` with [`BodyError::RequestTimeout`].
    pub fn new(body: B, time: Instant) -> Self {
        Self { body, end: Box::pin(sleep_until(time)) }
    }
}

impl<B: Body<Data = Bytes, Error = BodyError> + Unpin> Body for TimedBody<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(BodyError::RequestTimeout)));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Pace of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bytes per second.
    pub rate: NonZeroU64,
    /// Bytes at the beginning of a response that are sent without delay.
    pub after: u64,
}

/// Maximum size of a piece in bytes, which is that of pieces of files and upstreams. A longer frame is a whole body in memory.
const PIECE: usize = 64 << 10;

/// A body whose pieces are delayed to keep a [`Bandwidth`]. The wait precedes the read of a piece, so no piece is held then.
#[derive(Debug)]
pub struct PacedBody<B> {
    body: B,
    bandwidth: Bandwidth,
    started: Instant,
    sent: u64,
    /// Rest of a frame of more than [`PIECE`] bytes, which is in memory anyway.
    rest: Bytes,
    next: Option<Pin<Box<Sleep>>>,
}

impl<B> PacedBody<B> {
    /// Paces `body` from now on.
    pub fn new(body: B, bandwidth: Bandwidth) -> Self {
        Self { body, bandwidth, started: Instant::now(), sent: 0, rest: Bytes::new(), next: None }
    }

    /// Waits until the pace permits the next piece.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(paced) = self.sent.checked_sub(self.bandwidth.after).filter(|paced| *paced > 0) else {
            // The pace begins when the bytes without delay have been sent.
            self.started = Instant::now();
            return Poll::Ready(());
        };
        // 128 bits, because a product of 64 bits overflows after 18 TB.
        let micros = u128::from(paced) * 1_000_000 / u128::from(self.bandwidth.rate.get());
        let time = self.started + Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        if time <= Instant::now() {
            return Poll::Ready(());
        }
        let next = self.next.get_or_insert_with(|| Box::pin(sleep_until(time)));
        // The timer is kept if another event has woken the task.
        if next.deadline() != time {
            next.as_mut().reset(time);
        }
        next.as_mut().poll(context)
    }

    fn send(&mut self, mut data: Bytes) -> Polled {
        if data.len() > PIECE {
            self.rest = data.split_off(PIECE);
        }
        self.sent += data.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(data))))
    }
}

impl<B: Body<Data = Bytes, Error = BodyError> + Unpin> Body for PacedBody<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        // Before the pace, so that no wait follows the last piece.
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        ready!(self.poll_turn(context));
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            return self.send(rest);
        }
        match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => self.send(data),
                Err(trailers) => Poll::Ready(Some(Ok(trailers))),
            },
            end => Poll::Ready(end),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, hint) = (self.rest.len() as u64, self.body.size_hint());
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower().saturating_add(rest));
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper.saturating_add(rest));
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    fn full(length: usize) -> impl Body<Data = Bytes, Error = BodyError> + Unpin {
        Full::new(Bytes::from(vec![b'x'; length])).map_err(|never| match never {})
    }

    fn bandwidth(rate: u64, after: u64) -> Bandwidth {
        Bandwidth { rate: NonZeroU64::new(rate).expect("a rate"), after }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_takes_the_time_of_its_pace() {
        let kib = 1024;
        for (length, after, seconds) in [(640, 0, 9), (640, 128, 7), (64, 0, 0), (640, 640, 0), (0, 0, 0)] {
            let started = Instant::now();
            let body = PacedBody::new(full(length * kib), bandwidth(64 << 10, (after * kib) as u64));
            assert_eq!(body.size_hint().exact(), Some((length * kib) as u64));
            let sent = body.collect().await.expect("a body").to_bytes();
            assert_eq!(sent.len(), length * kib);
            // The last piece is not followed by a pause.
            assert_eq!(started.elapsed().as_secs(), seconds, "{length} KiB after {after} KiB");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_fails_at_its_time() {
        let paced = || PacedBody::new(full(640 << 10), bandwidth(64 << 10, 0));
        let started = Instant::now();
        let in_time = TimedBody::new(paced(), started + Duration::from_mins(1)).collect().await;
        assert_eq!(in_time.expect("a body").to_bytes().len(), 640 << 10);
        let started = Instant::now();
        let late = TimedBody::new(paced(), started + Duration::from_secs(5)).collect().await;
        assert!(matches!(late, Err(BodyError::RequestTimeout)));
        assert_eq!(started.elapsed().as_secs(), 5);
    }
}
