//! A [`Timer`] with a precision of some microseconds, for waits that are short beside Tokio's ticks of a millisecond.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A timer of the kernel (`timerfd`). One wait at a time.
#[derive(Debug)]
pub struct Timer {
    fd: AsyncFd<OwnedFd>,
}

impl Timer {
    /// Creates a timer. Fails if the process has no file descriptor left.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe, against files that change; this one is ours and stays"
        )]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
        Ok(Self { fd })
    }

    /// Waits until `time`; returns at once if it has passed. Costs three system calls. The future may be dropped.
    pub async fn until(&mut self, time: Instant) -> io::Result<()> {
        let left = time.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::empty(), &once(left))?;
        loop {
            let mut ready = self.fd.readable().await?;
            let read = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut [0_u8; 8])?));
            match read {
                Ok(result) => return result.map(drop),
                // The readiness is that of an earlier wait that was dropped;
                // `timerfd_settime` has reset its expiry.
                Err(_would_block) => {}
            }
        }
    }
}

fn once(left: Duration) -> Itimerspec {
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let value = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
    Itimerspec { it_interval: zero, it_value: value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_in_time_and_never_early() {
        let mut timer = Timer::new().expect("a timer");
        let (mut best, mut waits, started) = (Duration::MAX, 0, Instant::now());
        // On a busy machine, most waits end when the thread has its turn.
        let is_late =
            |best: Duration| best >= Duration::from_micros(500) && started.elapsed() < Duration::from_mins(3);
        while waits < 20 || is_late(best) {
            waits += 1;
            let time = Instant::now() + Duration::from_micros(300);
            timer.until(time).await.expect("a wait");
            let now = Instant::now();
            assert!(now >= time, "early by {:?}", time - now);
            best = best.min(now - time);
        }
        assert!(best < Duration::from_micros(500), "late by {best:?} at best");
        timer.until(Instant::now()).await.expect("nothing to wait for");
    }
}
