//! Copy of bytes between a client and a server: [`Directions`], with one [`Direction`] each.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use brisk_net::{Deadline, TurnLimit};
use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum size of a read in bytes, and of the data that waits for a sink. Both directions of a connection together hold at most
/// the 64 KiB that each connection may hold without a reservation.
const CHUNK: usize = 32 << 10;

thread_local! {
    /// The read buffer, shared by all connections of a worker, so that idle connections hold none. Data that the other
    /// side does not accept immediately is copied out.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into_boxed_slice());
}

/// One of the two directions between a client and a server. While nothing waits for the sink, it holds no memory.
#[derive(Debug)]
struct Direction {
    /// Read, but not yet written.
    pending: Bytes,
    /// Bytes that the sink has accepted.
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

/// The two directions between a client and a server.
#[derive(Debug)]
pub(crate) struct Directions {
    to_server: Direction,
    to_client: Direction,
}

/// A side of [`Directions`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Cause of the end of [`Directions::copy`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum CopyEnd {
    /// Both sides have ended.
    Closed,
    Failed(Side),
    Idle,
    /// Nothing was copied for the time of [`IdleLimit::giving_way_after`], and the slot was needed for another connection.
    Evicted,
}

/// The limit of the time in which [`Directions::copy`] copies nothing.
pub(crate) struct IdleLimit<'d> {
    deadline: &'d Deadline,
    /// Time until [`CopyEnd::Idle`].
    end: Duration,
    /// Time until the connection may give way to others; `None` if it never does.
    quiet: Option<Duration>,
    /// Whether the connection may give way now.
    gives_way: bool,
}

impl<'d> IdleLimit<'d> {
    /// A limit of `end`, after which the copy ends with [`CopyEnd::Idle`].
    pub(crate) fn new(deadline: &'d Deadline, end: Duration) -> Self {
        Self { deadline, end, quiet: None, gives_way: false }
    }

    /// The limit of a connection that in a shortage [is evicted](brisk_net::DeadlineWheel::evict_idle) once it has been idle for
    /// `quiet`.
    pub(crate) fn giving_way_after(self, quiet: Duration) -> Self {
        // A longer one would postpone the end.
        Self { quiet: Some(quiet).filter(|quiet| *quiet < self.end), ..self }
    }

    fn restart(&mut self) {
        self.gives_way = false;
        self.deadline.set(self.quiet.unwrap_or(self.end));
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<CopyEnd> {
        ready!(self.deadline.poll_expired(context));
        if self.deadline.is_evicted() {
            return Poll::Ready(CopyEnd::Evicted);
        }
        let Some(quiet) = self.quiet.filter(|_| !self.gives_way) else { return Poll::Ready(CopyEnd::Idle) };
        self.gives_way = true;
        self.deadline.set_idle(self.end.saturating_sub(quiet));
        // Registers the task for the new deadline, which lies in the future.
        self.deadline.poll_expired(context).map(|()| CopyEnd::Idle)
    }
}

impl Directions {
    /// Directions that begin with bytes which were read already; the client may have data to be flushed.
    pub(crate) fn new(from_client: Bytes, from_server: Bytes) -> Self {
        let to_client = Direction { unflushed: true, ..Direction::new(from_server) };
        Self { to_server: Direction::new(from_client), to_client }
    }

    /// Whether a side has not accepted all that was read from the other one.
    pub(crate) fn is_blocked(&self) -> bool {
        self.to_server.is_blocked() || self.to_client.is_blocked()
    }

    /// Copies until both sides have ended, a side has failed, or nothing was copied within the [`IdleLimit`].
    ///
    /// The end of one side is passed on as the end of writing; the other direction continues. After each turn, `progress` gets
    /// the bytes from the client and from the server so far, and the side that ended first.
    pub(crate) async fn copy<C, S>(
        &mut self,
        client: &mut C,
        server: &mut S,
        mut limit: IdleLimit<'_>,
        mut progress: impl FnMut((u64, u64), Option<Side>),
    ) -> CopyEnd
    where
        C: AsyncRead + AsyncWrite + Unpin,
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { to_server, to_client } = self;
        let (mut first, mut before) = (None, (0, 0));
        limit.restart();
        poll_fn(|context| {
            let up = to_server.poll(context, client, server);
            if to_server.has_ended() {
                first.get_or_insert(Side::Client);
            }
            let down = to_client.poll(context, server, client);
            if to_client.has_ended() {
                first.get_or_insert(Side::Server);
            }
            let moved = (to_server.moved, to_client.moved);
            progress(moved, first);
            match (up, down) {
                (Poll::Ready(Err(Failed::Source)), _) | (_, Poll::Ready(Err(Failed::Sink))) => {
                    return Poll::Ready(CopyEnd::Failed(Side::Client));
                }
                (Poll::Ready(Err(Failed::Sink)), _) | (_, Poll::Ready(Err(Failed::Source))) => {
                    return Poll::Ready(CopyEnd::Failed(Side::Server));
                }
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(CopyEnd::Closed),
                _ => {}
            }
            // Only accepted bytes are progress: a side that reads nothing must not keep the connection open.
            if mem::replace(&mut before, moved) != moved {
                limit.restart();
            }
            limit.poll_end(context)
        })
        .await
    }
}

impl Direction {
    /// A direction that begins with `pending`, which was read from the source already.
    fn new(pending: Bytes) -> Self {
        Self { pending, moved: 0, unflushed: false, state: State::Open }
    }

    /// Whether the sink has not accepted all that was read.
    fn is_blocked(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the source has ended.
    fn has_ended(&self) -> bool {
        self.state != State::Open
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
                    // TLS buffers records, which must not wait for the next turn.
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
        // Frees the piece, because an idle direction must not hold memory.
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
        // Without this error, a sink that accepts nothing would be polled in a loop.
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

    use brisk_net::DeadlineWheel;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Instant, sleep};

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
        let copy = poll_fn(|context| direction.poll(context, &mut source, &mut sink));
        let (copied, read) = tokio::join!(copy, far_sink.read_to_end(&mut received));
        copied.expect("copied");
        read.expect("read to the end");
        assert_eq!(&received[..5], b"ahead");
        assert_eq!(&received[5..], &sent[..]);
        assert_eq!(direction.moved, 50_005);
    }

    /// Copies between two silent sides with a limit of `end`, and evicts the connection each second from the time `from` on.
    /// Returns the end and its time.
    async fn silent_copy(end: Duration, from: Duration) -> (CopyEnd, Duration) {
        let (wheel, start) = (DeadlineWheel::new(), Instant::now());
        let deadline = wheel.register();
        let ((_far_client, mut client), (_far_server, mut server)) = (duplex(1), duplex(1));
        let limit = IdleLimit::new(&deadline, end).giving_way_after(Duration::from_secs(5));
        let mut directions = Directions::new(Bytes::new(), Bytes::new());
        let copy = directions.copy(&mut client, &mut server, limit, |_, _| {});
        let shortage = async {
            sleep(from).await;
            loop {
                wheel.evict_idle();
                sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            end = copy => (end, start.elapsed()),
            () = wheel.run() => unreachable!("it never ends"),
            () = shortage => unreachable!("it never ends"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_gives_way_after_a_while_and_ends_at_its_limit_in_any_case() {
        let secs = Duration::from_secs;
        let (end, after) = silent_copy(secs(60), secs(1)).await;
        assert!(matches!(end, CopyEnd::Evicted) && (secs(5)..secs(8)).contains(&after), "{end:?} {after:?}");
        let (end, after) = silent_copy(secs(60), secs(100)).await;
        assert!(matches!(end, CopyEnd::Idle) && (secs(60)..secs(61)).contains(&after), "{end:?} {after:?}");
        let (end, after) = silent_copy(secs(3), secs(1)).await;
        assert!(matches!(end, CopyEnd::Idle) && (secs(3)..secs(4)).contains(&after), "{end:?} {after:?}");
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
}
