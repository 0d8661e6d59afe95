//! Timers of a connection: [`Pulse`] sends `PING` to a silent server, [`Linger`] ends streams without requests.

use std::mem;
use std::task::Context;
use std::time::Duration;

use brisk_http::error::Http2Error;
use brisk_net::{Deadline, DeadlineWheel};
use brisk_wire::h2::frame::{WriteFrames, kind};

use super::Http2Limits;
use super::state::State;

/// Minimum lifetime of a stream after its request has ended; the maximum is twice as long.
const LINGER: Duration = Duration::from_secs(10);

/// Liveness check of the server: sends `PING` when the server was silent for `timeouts.ping` while requests are open. Without
/// any frame within [`Http2Limits::pong`], the connection fails with [`Http2Error::Silent`].
#[derive(Debug)]
pub(super) struct Pulse {
    limits: Http2Limits,
    deadline: Deadline,
    is_set: bool,
    is_asked: bool,
}

/// Timer for streams whose requests have ended.
#[derive(Debug)]
pub(super) struct Linger {
    deadline: Deadline,
    is_set: bool,
}

impl Pulse {
    pub(super) fn new(wheel: &DeadlineWheel, limits: Http2Limits) -> Self {
        Self { limits, deadline: wheel.register(), is_set: false, is_asked: false }
    }

    pub(super) fn check(&mut self, state: &mut State, context: &mut Context<'_>) {
        let now = self.deadline.now();
        state.allowance.tick(now);
        state.resets.tick(now);
        let Some(ping) = self.limits.ping else { return };
        if mem::take(&mut state.recv.is_heard) || state.numbers.is_empty() {
            (self.is_set, self.is_asked) = (false, false);
        }
        if state.numbers.is_empty() {
            return self.deadline.clear();
        }
        if !self.is_set {
            self.is_set = true;
            self.deadline.set(ping);
        }
        if self.deadline.poll_expired(context).is_pending() {
            return;
        }
        if self.is_asked {
            // Without `GOAWAY`, because a silent server reads nothing.
            return state.fail(Http2Error::Silent, None);
        }
        self.is_asked = true;
        self.deadline.set(self.limits.pong);
        state.send.out.frame(kind::PING, 0, 0, b"brisk:up");
        // This turn has written already. The next one writes the frame and registers the timer.
        context.waker().wake_by_ref();
    }
}

impl Linger {
    pub(super) fn new(wheel: &DeadlineWheel) -> Self {
        Self { deadline: wheel.register(), is_set: false }
    }

    pub(super) fn check(&mut self, state: &mut State, context: &mut Context<'_>) {
        if state.leftovers == 0 {
            if mem::take(&mut self.is_set) {
                self.deadline.clear();
            }
            return;
        }
        if self.is_set {
            if self.deadline.poll_expired(context).is_pending() {
                return;
            }
            state.end_leftovers();
        }
        self.is_set = true;
        self.deadline.set(LINGER);
        // Poll again, to register the timer.
        context.waker().wake_by_ref();
    }
}
