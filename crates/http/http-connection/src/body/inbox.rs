//! The body of a request on a stream of HTTP/2 or HTTP/3, between its connection and its reader.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::mem;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use brisk_budget::{Budgets, Reservation, Resource};
use brisk_http::error::BodyError;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;

/// Minimum step in bytes by which the buffer of an [`Inbox`] grows.
const STEP: usize = 16 << 10;

/// Bytes of bodies that each connection may hold without a reservation, and maximum number of bytes that it receives at once.
const FREE: usize = 64 << 10;

/// Received and unread part of a body, shared by the reader ([`ClientBody`](super::client::ClientBody)) and the connection.
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
    /// Length of the last frame, which the reader holds until it polls again.
    lent: usize,
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

/// Bodies of a connection whose readers have acted, by stream.
#[derive(Default)]
pub struct Notices {
    streams: RefCell<Vec<u32>>,
    connection: RefCell<Option<Waker>>,
    in_turn: Cell<bool>,
    /// Bytes of all bodies read or discarded since the connection's last check.
    read: Cell<u32>,
    /// Bytes of all bodies that were received and that readers still hold or have not read.
    held: Cell<usize>,
    /// The client's reservation for bytes above [`FREE`].
    reserved: RefCell<Option<Reservation>>,
    /// Whether the connection receives nothing more until readers release bytes.
    is_full: Cell<bool>,
    /// Bytes released since the last call of [`Self::take_released`].
    released: Cell<u64>,
}

/// Actions of a reader, from [`Inbox::notice`].
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

    /// Whether more of the bodies may be received. Reserves memory for the next bytes above 64 KiB for `client` from `budgets`.
    /// After `false`, the connection is woken when readers release bytes.
    pub fn has_room(&self, budgets: Option<&Budgets>, client: Option<IpAddr>) -> bool {
        let held = self.held.get();
        let has_room = held < FREE || budgets.is_none_or(|budgets| self.reserve(held, budgets, client));
        self.is_full.set(!has_room);
        has_room
    }

    fn reserve(&self, held: usize, budgets: &Budgets, client: Option<IpAddr>) -> bool {
        let mut reserved = self.reserved.borrow_mut();
        // In steps, so that few turns take the lock of the budget.
        let needed = (held.div_ceil(FREE) * FREE) as u64;
        if let Some(reserved) = &mut *reserved {
            let missing = needed.saturating_sub(reserved.bytes());
            return missing == 0 || reserved.grow(missing).is_ok();
        }
        *reserved = budgets.of(Resource::Bodies).reserve(client, needed).ok();
        reserved.is_some()
    }

    /// Whether memory is reserved, because the bodies exceed the share of each connection.
    pub(crate) fn exceed_share(&self) -> bool {
        self.reserved.borrow().is_some()
    }

    /// Whether the connection receives nothing more until readers release bytes.
    pub fn is_full(&self) -> bool {
        self.is_full.get()
    }

    /// Number of bytes that readers have released since the last call.
    pub fn take_released(&self) -> u64 {
        self.released.take()
    }

    fn release(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.held.set(self.held.get() - bytes);
        self.released.set(self.released.get() + bytes as u64);
        if self.held.get() < FREE {
            self.reserved.take();
        }
        if self.is_full.take() {
            self.wake();
        }
    }

    fn read(&self, bytes: usize) {
        self.read.set(self.read.get() + bytes as u32);
    }

    fn add(&self, stream: u32) {
        let mut streams = self.streams.borrow_mut();
        // Only the last entry is compared: duplicates are harmless, and a search would cost time for each
        // frame.
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
            lent: 0,
            is_dropped: false,
            expects: if expects { Expects::Continue } else { Expects::No },
        };
        Rc::new(Self { stream, state: RefCell::new(state), notices: Rc::clone(notices) })
    }

    /// Adds `data`; `more` bytes of its frame follow. Returns [`ControlFlow::Break`] without taking `data` if the body was
    /// dropped.
    pub fn push(&self, data: &[u8], more: usize) -> ControlFlow<()> {
        let mut state = self.state.borrow_mut();
        if state.is_dropped {
            return ControlFlow::Break(());
        }
        state.expects = Expects::No;
        let free = state.data.capacity() - state.data.len();
        if free < data.len() {
            // Memory for the whole frame at once, so that its later parts are not moved. A short frame gets
            // twice its length instead of `STEP`, so that an upload of few bytes holds few.
            state.data.reserve((data.len() + more).max(STEP.min(data.len() * 2)));
        }
        state.data.extend_from_slice(data);
        self.notices.held.set(self.notices.held.get() + data.len());
        state.wake();
        ControlFlow::Continue(())
    }

    /// Ends the body, with `trailers` if given.
    pub fn end(&self, trailers: Option<HeaderMap>) {
        let mut state = self.state.borrow_mut();
        state.trailers = trailers;
        state.end = End::Ended;
        state.wake();
    }

    /// Fails the body with [`BodyError::ClientReset`]: the rest will not arrive.
    pub fn fail(&self) {
        let mut state = self.state.borrow_mut();
        if state.end == End::Open {
            state.end = End::Failed;
            self.discard(&mut state);
            state.wake();
        }
    }

    /// Discards the data that was not read.
    fn discard(&self, state: &mut State) {
        // Discarded bytes count as read, or each abandoned upload would shrink the window of the connection.
        self.notices.read(state.data.len());
        self.notices.release(state.data.len());
        state.data = BytesMut::new();
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
        self.notices.release(mem::take(&mut state.lent));
        if !state.data.is_empty() {
            // The whole buffer, so that the memory is free when the reader drops the frame.
            let data = mem::take(&mut state.data).freeze();
            state.lent = data.len();
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
        self.discard(&mut state);
        drop(state);
        self.notices.add(self.stream);
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.notices.release(state.data.len() + state.lent);
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
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::settings::HttpSettings;

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

    const CLIENT: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));

    /// Budgets with `limit` bytes for bodies.
    fn budgets(limit: u64) -> Budgets {
        let budgets = Budgets::new(&HttpSettings::default().limits());
        budgets.of(Resource::Bodies).set_limit(limit);
        budgets
    }

    #[test]
    fn bytes_count_until_the_reader_polls_again_and_a_full_connection_is_woken() {
        let (inbox, notices) = inbox(false);
        let (none, some) = (budgets(0), budgets(4 * FREE as u64));
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        notices.begin_turn(&Context::from_waker(&waker));
        assert!(inbox.push(&vec![0; FREE - 1], 0).is_continue());
        assert!(notices.has_room(Some(&none), CLIENT));
        assert!(inbox.push(&[0], 0).is_continue());
        assert!(!notices.has_room(Some(&none), CLIENT) && notices.is_full());
        assert!(notices.has_room(Some(&some), CLIENT) && !notices.is_full());
        let budget = some.of(Resource::Bodies);
        assert_eq!(budget.held(), FREE as u64);
        // Half of the limit is the client's share.
        assert!(inbox.push(&vec![0; FREE], 0).is_continue() && notices.has_room(Some(&some), CLIENT));
        assert!(inbox.push(&vec![0; FREE], 0).is_continue() && !notices.has_room(Some(&some), CLIENT));
        let Poll::Ready(Some(Ok(frame))) = poll(&inbox) else { panic!("no frame") };
        assert!(notices.is_full(), "the reader holds the frame");
        assert_eq!((wakes.0.load(Ordering::Relaxed), notices.take_released()), (0, 0));
        drop(frame);
        assert!(poll(&inbox).is_pending());
        assert_eq!((wakes.0.load(Ordering::Relaxed), notices.take_released()), (1, 3 * FREE as u64));
        assert_eq!((budget.held(), notices.is_full()), (0, false));
    }

    #[test]
    fn bodies_that_are_dropped_hold_nothing() {
        let some = budgets(4 * FREE as u64);
        for is_read in [false, true] {
            let (inbox, notices) = inbox(false);
            assert!(inbox.push(&vec![0; FREE], 0).is_continue() && notices.has_room(Some(&some), CLIENT));
            assert!(!is_read || poll(&inbox).is_ready());
            drop(inbox);
            assert_eq!(notices.held.get(), 0);
            assert_eq!(some.of(Resource::Bodies).held(), 0);
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
