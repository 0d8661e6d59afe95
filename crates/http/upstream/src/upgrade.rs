//! Switched protocols such as WebSocket: joins the client's and the upstream's transport after HTTP has ended on both.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use brisk_http::message::HeaderList;
use brisk_http_connection::Connection;
use brisk_net::{Deadline, TurnLimit};
use brisk_telemetry::UpgradedEnd;
use brisk_upstream_group::UpstreamIo;
use bytes::{Buf, Bytes};
use http::header::{HeaderValue, UPGRADE};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::group::Lease;
use crate::http1::Upgraded;
use crate::open::OpenConnection;

/// Maximum size of a read in bytes.
const CHUNK: usize = 16 << 10;

thread_local! {
    /// The read buffer, shared by all connections of a worker, so that idle connections hold none. Data that the other
    /// side does not accept immediately is copied out.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into_boxed_slice());
}

/// The upstream's transport after a switch of protocols (`101`), waiting for the client's transport.
pub struct PendingUpgrade {
    upstream: UpstreamIo,
    read_ahead: Bytes,
    lease: Lease,
    _open: OpenConnection,
}

/// Number of bytes copied so far after a switch of protocols, and the cause of the end.
#[derive(Debug, Default)]
pub struct Joined {
    /// Bytes from the client to the upstream.
    pub from_client: Cell<u64>,
    /// Bytes from the upstream to the client.
    pub from_upstream: Cell<u64>,
    /// Cause of the end; `None` before the end. The first cause is kept.
    pub end: Cell<Option<UpgradedEnd>>,
}

impl Joined {
    /// Records the cause of the end, unless an earlier one exists.
    pub fn ended(&self, cause: UpgradedEnd) {
        self.end.set(self.end.get().or(Some(cause)));
    }
}

impl PendingUpgrade {
    pub(crate) fn new(upgraded: Upgraded, lease: Lease) -> Self {
        let Upgraded { io, read_ahead, open } = upgraded;
        Self { upstream: io, read_ahead, lease: lease.upgraded(), _open: open }
    }

    /// Stores the transport in `connection` for its driver, which calls [`Self::take`].
    pub(crate) fn leave_to(self, connection: &Connection) {
        connection.extras.leave_upgrade(Box::new(self));
    }

    /// Takes the transport that a request on `connection` has left; `None` if no protocol was switched.
    pub fn take(connection: &Connection) -> Option<Box<Self>> {
        connection.extras.take_upgrade()?.downcast().ok()
    }

    /// Copies in both directions until both sides have ended, one has failed, or neither has sent anything for
    /// `timeouts.upgraded`; the cause is in [`Joined::end`].
    ///
    /// `read_ahead` contains bytes read from the client after its request; `deadline` is the deadline of the client's
    /// connection. The end of one side is passed on as the end of writing; the other direction continues. `joined` is
    /// updated continuously, so that it is also correct if the future is dropped.
    pub async fn join<C>(self, mut client: C, read_ahead: Bytes, deadline: &Deadline, joined: &Joined)
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let limit = self.lease.pause_limit();
        let mut upstream = self.upstream;
        let mut to_upstream = Direction::new(read_ahead);
        // The response that switched protocols may still be in the client's buffer.
        let mut to_client = Direction { unflushed: true, ..Direction::new(self.read_ahead) };
        deadline.set(limit);
        let end = std::future::poll_fn(|context| {
            let before = to_upstream.moved + to_client.moved;
            let up = to_upstream.poll(context, &mut client, &mut upstream);
            if to_upstream.state != State::Open {
                joined.ended(UpgradedEnd::ClientClosed);
            }
            let down = to_client.poll(context, &mut upstream, &mut client);
            if to_client.state != State::Open {
                joined.ended(UpgradedEnd::UpstreamClosed);
            }
            joined.from_client.set(to_upstream.moved);
            joined.from_upstream.set(to_client.moved);
            match (up, down) {
                (Poll::Ready(Err(Failed::Source)), _) | (_, Poll::Ready(Err(Failed::Sink))) => {
                    return Poll::Ready(UpgradedEnd::ClientClosed);
                }
                (Poll::Ready(Err(Failed::Sink)), _) | (_, Poll::Ready(Err(Failed::Source))) => {
                    return Poll::Ready(UpgradedEnd::Error);
                }
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => {
                    return Poll::Ready(UpgradedEnd::UpstreamClosed);
                }
                _ => {}
            }
            if to_upstream.moved + to_client.moved != before {
                deadline.set(limit);
            }
            deadline.poll_expired(context).map(|()| UpgradedEnd::IdleTimeout)
        });
        joined.ended(end.await);
    }
}

impl fmt::Debug for PendingUpgrade {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PendingUpgrade").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

/// Whether each protocol in the `Upgrade` fields of a response is among `requested`, the fields of the request, and at least
/// one is named. A client that receives another protocol would interpret its bytes as one that it chose.
///
/// `h2c` is never accepted: its streams would bypass the checks of requests.
pub(crate) fn is_requested(requested: &[HeaderValue], response: &HeaderList) -> bool {
    let requested: Vec<_> = requested.iter().flat_map(protocols).collect();
    let mut switched = response.get_all(UPGRADE).flat_map(protocols).peekable();
    switched.peek().is_some()
        && switched.all(|protocol| {
            !protocol.eq_ignore_ascii_case("h2c")
                && requested.iter().any(|own| own.eq_ignore_ascii_case(protocol))
        })
}

/// RFC 9110 section 7.8: a comma-separated list. A value that is not text counts as one unknown protocol.
fn protocols(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or("\u{fffd}").split(',').map(str::trim).filter(|protocol| !protocol.is_empty())
}

/// One of the two directions of [`PendingUpgrade::join`].
#[derive(Debug)]
struct Direction {
    /// Read, but not yet written.
    pending: Bytes,
    moved: u64,
    unflushed: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The source has ended; the sink must be shut down.
    Ending,
    Ended,
}

/// The side of a direction that failed.
#[derive(Debug)]
enum Failed {
    Source,
    Sink,
}

impl Direction {
    fn new(pending: Bytes) -> Self {
        Self { pending, moved: 0, unflushed: false, state: State::Open }
    }

    /// Ready when the source has ended and the sink was shut down, or with the side that has [`Failed`]. Returns to the event
    /// loop at [`TurnLimit`].
    fn poll<R, W>(
        &mut self,
        context: &mut Context<'_>,
        source: &mut R,
        sink: &mut W,
    ) -> Poll<Result<(), Failed>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut turn = TurnLimit::default();
        loop {
            ready!(self.poll_drain(context, sink)).map_err(|_| Failed::Sink)?;
            match self.state {
                State::Open if turn.is_reached() => {
                    ready!(self.poll_flush(context, sink)).map_err(|_| Failed::Sink)?;
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                State::Open => match self.poll_fill(context, source, sink)? {
                    Poll::Ready(length) => turn.take(length),
                    Poll::Pending => {
                        ready!(self.poll_flush(context, sink)).map_err(|_| Failed::Sink)?;
                        return Poll::Pending;
                    }
                },
                State::Ending => {
                    ready!(Pin::new(&mut *sink).poll_shutdown(context)).map_err(|_| Failed::Sink)?;
                    self.state = State::Ended;
                }
                State::Ended => return Poll::Ready(Ok(())),
            }
        }
    }

    fn poll_drain<W: AsyncWrite + Unpin>(
        &mut self,
        context: &mut Context<'_>,
        sink: &mut W,
    ) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let written = ready!(Pin::new(&mut *sink).poll_write(context, &self.pending))?;
            self.wrote(written)?;
            self.pending.advance(written);
        }
        self.pending = Bytes::new();
        Poll::Ready(Ok(()))
    }

    /// Reads once, and writes as much as the sink accepts immediately. Returns the number of bytes that were read.
    fn poll_fill<R, W>(
        &mut self,
        context: &mut Context<'_>,
        source: &mut R,
        sink: &mut W,
    ) -> Poll<Result<usize, Failed>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(source).poll_read(context, &mut buffer)).map_err(|_| Failed::Source)?;
            let read = buffer.filled();
            if read.is_empty() {
                self.state = State::Ending;
                return Poll::Ready(Ok(0));
            }
            let written = match Pin::new(sink).poll_write(context, read) {
                Poll::Ready(written) => {
                    let wrote = written.and_then(|written| self.wrote(written).map(|()| written));
                    wrote.map_err(|_| Failed::Sink)?
                }
                Poll::Pending => 0,
            };
            if written < read.len() {
                self.pending = Bytes::copy_from_slice(&read[written..]);
            }
            Poll::Ready(Ok(read.len()))
        })
    }

    fn poll_flush<W: AsyncWrite + Unpin>(
        &mut self,
        context: &mut Context<'_>,
        sink: &mut W,
    ) -> Poll<io::Result<()>> {
        if self.unflushed {
            ready!(Pin::new(sink).poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn wrote(&mut self, written: usize) -> io::Result<()> {
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.moved += written as u64;
        self.unflushed = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_direction_copies_more_than_the_sink_takes_at_once_and_passes_the_end_on() {
        let (mut far_source, mut source) = duplex(64 << 10);
        let (mut sink, mut far_sink) = duplex(100);
        let sent: Vec<u8> = (0..50_000_u32).map(|number| number as u8).collect();
        far_source.write_all(&sent).await.expect("write");
        drop(far_source);
        let mut direction = Direction::new(Bytes::from_static(b"ahead"));
        let mut received = Vec::new();
        let copy = std::future::poll_fn(|context| direction.poll(context, &mut source, &mut sink));
        let (copied, read) = tokio::join!(copy, far_sink.read_to_end(&mut received));
        copied.expect("copied");
        read.expect("read to the end");
        assert_eq!(&received[..5], b"ahead");
        assert_eq!(&received[5..], &sent[..]);
        assert_eq!(direction.moved, 50_005);
    }

    /// A source with another piece at any time, and a sink that takes everything.
    struct Endless(usize);

    impl AsyncRead for Endless {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            buf.put_slice(&vec![0; self.0]);
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_turn_copies_a_limited_part_in_pieces_of_any_length() {
        for (piece, pieces) in [(1, TurnLimit::FRAMES), (CHUNK, TurnLimit::BYTES / CHUNK)] {
            let (mut source, mut sink) = (Endless(piece), tokio::io::sink());
            let mut direction = Direction::new(Bytes::new());
            let mut context = Context::from_waker(Waker::noop());
            for turn in 1..=3 {
                assert!(direction.poll(&mut context, &mut source, &mut sink).is_pending());
                assert_eq!(direction.moved, (turn * pieces * piece) as u64);
            }
        }
    }

    #[test]
    fn only_a_requested_protocol_is_switched_to() {
        let check = |request: &'static str, response: &'static str| {
            let response = [(UPGRADE, HeaderValue::from_static(response))].into_iter().collect();
            is_requested(&[HeaderValue::from_static(request)], &response)
        };
        assert!(check("websocket", "WebSocket") && check("a/1, b", "b"));
        for (request, response) in [
            ("websocket", "h2c"),
            ("h2c", "h2c"),
            ("websocket", "other"),
            ("websocket", "websocket, other"),
            ("a", ""),
        ] {
            assert!(!check(request, response), "{request} {response}");
        }
        assert!(!is_requested(&[HeaderValue::from_static("websocket")], &HeaderList::new()));
    }
}
