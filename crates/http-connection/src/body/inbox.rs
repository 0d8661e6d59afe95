//! The body of a request on a stream of HTTP/2 or HTTP/3, between its connection and its reader.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::mem;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use brisk_http::error::BodyError;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;

/// Minimum step in bytes by which the buffer grows.
const STEP: usize = 16 << 10;

/// Received and unread part of a body, shared by the reader and the connection.
#[derive(Debug)]
pub struct Inbox {
    stream: u32,
    state: RefCell<State>,
    notices: Rc<Notices>,
}

#[derive(Debug)]
struct State {
    data: BytesMut,
    trailers: Option<HeaderMap>,
    /// Number of bytes still to be read, if the head states a length.
    left: Option<u64>,
    end: End,
    reader: Option<Waker>,
    /// Number of bytes read since the connection's last check.
    read: u32,
    is_dropped: bool,
    /// Whether the client waits for `100 Continue`.
    expects: Expects,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Ended,
    Failed,
}

/// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 section 10.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expects {
    No,
    Continue,
    Asked,
}

/// Bodies of a connection whose readers have acted.
#[derive(Default)]
pub struct Notices {
    streams: RefCell<Vec<u32>>,
    connection: RefCell<Option<Waker>>,
    in_turn: Cell<bool>,
    /// Bytes of all bodies read or discarded since the connection's last check.
    read: Cell<u32>,
}

/// Actions of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Number of bytes read, for the window of the stream.
    pub read: u32,
    /// Whether the reader was dropped.
    pub is_dropped: bool,
    /// Whether the client must be sent `100 Continue`.
    pub asks: bool,
}

impl Notices {
    /// Begins a turn of the connection, during which readers need not wake it.
    pub fn begin_turn(&self, context: &Context<'_>) {
        self.in_turn.set(true);
        let mut connection = self.connection.borrow_mut();
        if !connection.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *connection = Some(context.waker().clone());
        }
    }

    /// Ends the turn. Starts another one at once for actions that came too late for this one.
    pub fn end_turn(&self) {
        self.in_turn.set(false);
        if self.read.get() > 0 || !self.streams.borrow().is_empty() {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(connection) = &*self.connection.borrow() {
            connection.wake_by_ref();
        }
    }

    /// Takes the streams whose readers have acted since the last call. May contain duplicates.
    pub fn take(&self) -> Vec<u32> {
        self.streams.take()
    }

    /// Number of bytes of all bodies read or dropped since the last call.
    pub fn take_read(&self) -> u32 {
        self.read.take()
    }

    fn read(&self, bytes: usize) {
        self.read.set(self.read.get() + bytes as u32);
    }

    fn add(&self, stream: u32) {
        let mut streams = self.streams.borrow_mut();
        if streams.last() != Some(&stream) {
            streams.push(stream);
        }
        if !self.in_turn.get() {
            self.wake();
        }
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Notices").field("streams", &self.streams).finish_non_exhaustive()
    }
}

impl Inbox {
    /// The body of the request on `stream`, whose head states `length` bytes. `expects`: the client waits for `100
    /// Continue`.
    pub fn new(stream: u32, length: Option<u64>, expects: bool, notices: &Rc<Notices>) -> Rc<Self> {
        let state = State {
            data: BytesMut::new(),
            trailers: None,
            left: length,
            end: End::Open,
            reader: None,
            read: 0,
            is_dropped: false,
            expects: if expects { Expects::Continue } else { Expects::No },
        };
        Rc::new(Self { stream, state: RefCell::new(state), notices: Rc::clone(notices) })
    }

    /// Adds data; `more` bytes of its frame follow. Returns `Break` without taking data if the body was dropped.
    pub fn push(&self, data: &[u8], more: usize) -> ControlFlow<()> {
        let mut state = self.state.borrow_mut();
        if state.is_dropped {
            return ControlFlow::Break(());
        }
        state.expects = Expects::No;
        let free = state.data.capacity() - state.data.len();
        if free < data.len() {
            state.data.reserve((data.len() + more).max(STEP.min(data.len() * 2)));
        }
        state.data.extend_from_slice(data);
        state.wake();
        ControlFlow::Continue(())
    }

    /// Ends the body, with trailers if given.
    pub fn end(&self, trailers: Option<HeaderMap>) {
        let mut state = self.state.borrow_mut();
        state.trailers = trailers;
        state.end = End::Ended;
        state.wake();
    }

    /// Fails the body: the rest will not arrive.
    pub fn fail(&self) {
        let mut state = self.state.borrow_mut();
        if state.end == End::Open {
            state.end = End::Failed;
            self.notices.read(state.data.len());
            state.data = BytesMut::new();
            state.wake();
        }
    }

    /// Whether the reader was dropped.
    pub fn is_dropped(&self) -> bool {
        self.state.borrow().is_dropped
    }

    /// Actions of the reader since the last call.
    pub fn notice(&self) -> Notice {
        let mut state = self.state.borrow_mut();
        let asks = state.expects == Expects::Asked;
        if asks {
            state.expects = Expects::No;
        }
        Notice { read: mem::take(&mut state.read), is_dropped: state.is_dropped, asks }
    }

    /// The next frame, as for [`http_body::Body::poll_frame`]. Fails, repeatedly, if the client has reset the stream or
    /// the connection has ended.
    pub(crate) fn poll_frame(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.state.borrow_mut();
        if !state.data.is_empty() {
            let data = state.data.split().freeze();
            state.read += data.len() as u32;
            state.left = state.left.map(|left| left.saturating_sub(data.len() as u64));
            drop(state);
            self.notices.read(data.len());
            self.notices.add(self.stream);
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match state.end {
            End::Ended => Poll::Ready(state.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))),
            End::Failed => Poll::Ready(Some(Err(BodyError::ClientReset))),
            End::Open => {
                if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(context.waker())) {
                    state.reader = Some(context.waker().clone());
                }
                if state.expects == Expects::Continue {
                    state.expects = Expects::Asked;
                    drop(state);
                    self.notices.add(self.stream);
                }
                Poll::Pending
            }
        }
    }

    /// Whether more of the body may arrive.
    pub(crate) fn is_open(&self) -> bool {
        self.state.borrow().end == End::Open
    }

    /// Whether the body is read to its end.
    pub(crate) fn is_end_stream(&self) -> bool {
        let state = self.state.borrow();
        state.end == End::Ended && state.data.is_empty() && state.trailers.is_none()
    }

    /// Number of remaining bytes, if the head states a length.
    pub(crate) fn left(&self) -> Option<u64> {
        self.state.borrow().left
    }

    /// Releases the stream: the rest of the body is not needed.
    pub(crate) fn let_go(&self) {
        let mut state = self.state.borrow_mut();
        state.is_dropped = true;
        self.notices.read(state.data.len());
        state.data = BytesMut::new();
        drop(state);
        self.notices.add(self.stream);
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(inbox: &Inbox) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        inbox.poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    fn inbox(expects: bool) -> (Rc<Inbox>, Rc<Notices>) {
        let notices = Rc::new(Notices::default());
        (Inbox::new(7, Some(10), expects, &notices), notices)
    }

    #[test]
    fn what_is_read_is_reported_to_the_connection() {
        let (inbox, notices) = inbox(false);
        assert!(poll(&inbox).is_pending());
        assert!(inbox.push(b"hello", 5).is_continue());
        assert!(inbox.push(b"world", 0).is_continue());
        assert_eq!(inbox.left(), Some(10));
        let Poll::Ready(Some(Ok(frame))) = poll(&inbox) else { panic!("no frame") };
        assert_eq!(frame.into_data().expect("data"), "helloworld");
        assert_eq!((inbox.left(), inbox.is_end_stream()), (Some(0), false));
        assert_eq!(notices.take(), [7]);
        assert_eq!(inbox.notice(), Notice { read: 10, is_dropped: false, asks: false });
        inbox.end(None);
        assert!(inbox.is_end_stream() && matches!(poll(&inbox), Poll::Ready(None)));
    }

    #[test]
    fn a_body_that_is_dropped_gives_back_what_was_not_read() {
        let (inbox, notices) = inbox(false);
        assert!(inbox.push(b"hello", 0).is_continue());
        inbox.let_go();
        assert!(inbox.push(b"more", 0).is_break());
        assert_eq!(notices.take(), [7]);
        assert_eq!(inbox.notice(), Notice { read: 0, is_dropped: true, asks: false });
        assert_eq!((notices.take_read(), notices.take_read()), (5, 0));
    }

    #[test]
    fn what_is_read_late_in_a_turn_makes_another_turn() {
        let (inbox, notices) = inbox(false);
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        for (late, expected) in [(false, 0), (true, 1)] {
            assert!(inbox.push(b"hello", 0).is_continue());
            notices.begin_turn(&Context::from_waker(&waker));
            assert!(poll(&inbox).is_ready());
            if !late {
                assert_eq!((notices.take_read(), notices.take()), (5, vec![7]));
            }
            notices.end_turn();
            assert_eq!(wakes.0.load(Ordering::Relaxed), expected);
        }
    }

    #[test]
    fn a_reset_is_an_error_of_every_read() {
        let (inbox, _) = inbox(false);
        assert!(inbox.push(b"hello", 0).is_continue());
        inbox.fail();
        for _ in 0..2 {
            assert!(matches!(poll(&inbox), Poll::Ready(Some(Err(BodyError::ClientReset)))));
            assert!(!inbox.is_end_stream());
        }
    }

    #[test]
    fn the_client_is_asked_once_for_a_body_that_it_holds_back() {
        let (inbox, notices) = inbox(true);
        assert!(notices.take().is_empty());
        for asks in [true, false] {
            assert!(poll(&inbox).is_pending());
            assert_eq!(inbox.notice().asks, asks);
        }
    }
}
