//! The future that sends and receives for a connection.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use brisk_quic_socket::Batch;
use tokio::time::{Sleep, sleep_until};

use super::error::Http3Error;
use super::shared::Shared;

/// [`Batch`]es of datagrams before other tasks of the thread get a turn.
const ROUNDS: usize = 4;

/// Sends and receives for a connection. Completes when the connection has ended and its last packet was sent. Dropping a
/// `Driver` cuts the connection without a `CONNECTION_CLOSE`.
#[must_use = "the connection does nothing unless the driver is polled"]
pub struct Driver {
    shared: Rc<RefCell<Shared>>,
    batch: Rc<RefCell<Batch>>,
    /// Wakes the driver not later than the next timer of the connection.
    sleep: Pin<Box<Sleep>>,
    /// The time of `sleep`, until it has elapsed.
    armed: Option<Instant>,
}

impl Driver {
    pub(super) fn new(shared: Rc<RefCell<Shared>>, batch: Rc<RefCell<Batch>>) -> Self {
        let sleep = Box::pin(sleep_until(Instant::now().into()));
        Self { shared, batch, sleep, armed: None }
    }

    /// Receives all datagrams that have arrived, at most [`ROUNDS`] batches; the rest waits for the next turn.
    fn receive(&self, shared: &mut Shared, cx: &mut Context<'_>) {
        let mut batch = self.batch.borrow_mut();
        for _ in 0..ROUNDS {
            match shared.socket.poll_receive(cx, &mut batch) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => {
                    let now = Instant::now();
                    batch.datagrams(now).for_each(|datagram| shared.receive(datagram));
                }
                Poll::Ready(Err(error)) => return shared.lose(&Http3Error::Unreachable(Arc::new(error))),
            }
        }
        cx.waker().wake_by_ref();
    }

    /// Sets the timer. One that is earlier than necessary stays: to replace it would cost more than to ignore it.
    fn arm(&mut self, next: Option<Instant>, cx: &mut Context<'_>) {
        let Some(next) = next else { return };
        if self.armed.is_none_or(|armed| next < armed) {
            self.sleep.as_mut().reset(next.into());
            self.armed = Some(next);
        }
        if self.sleep.as_mut().poll(cx).is_ready() {
            self.armed = None;
            cx.waker().wake_by_ref();
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        let shared = Rc::clone(&driver.shared);
        let mut shared = shared.borrow_mut();
        // A clone at each poll would cost an atomic operation.
        if shared.driver.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            shared.driver = Some(cx.waker().clone());
        }
        // Before the timers: an acknowledgement that has arrived must not be preceded by the timer for its
        // loss.
        driver.receive(&mut shared, cx);
        let now = Instant::now();
        if shared.connection.poll_timeout().is_some_and(|at| at <= now) {
            shared.connection.handle_timeout(now);
        }
        if let Poll::Ready(Err(error)) = shared.socket.poll_unblock(cx) {
            shared.lose(&Http3Error::Unreachable(Arc::new(error)));
        }
        // Events first, since reading the streams gives back windows, which `transmit` announces.
        shared.process();
        shared.transmit(now);
        // The system reports an unused port as an error of the next send.
        if let Some(error) = shared.socket.take_error().filter(is_final) {
            shared.lose(&Http3Error::Unreachable(Arc::new(error)));
        }
        shared.wake_waiters();
        let is_over = shared.lost.is_some() || shared.connection.is_closed();
        if is_over && !shared.socket.is_blocked() {
            return Poll::Ready(());
        }
        // A new socket is blocked until the runtime knows that it is writable.
        if shared.socket.is_blocked() && shared.socket.poll_unblock(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        let next = shared.connection.poll_timeout();
        drop(shared);
        driver.arm(next, cx);
        Poll::Pending
    }
}

/// Whether an error of sending concerns the way to the server, and not one datagram.
fn is_final(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    let kinds =
        [Kind::ConnectionRefused, Kind::HostUnreachable, Kind::NetworkUnreachable, Kind::PermissionDenied];
    kinds.contains(&error.kind())
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("armed", &self.armed).finish_non_exhaustive()
    }
}
