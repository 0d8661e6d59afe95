//! Load of workers: used processor time and delay of the event loop, measured by each worker once a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// Load of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerLoad {
    /// The share of the last second in which the worker's thread used a processor, 0 to 1.
    pub busy: f64,
    /// Time for which the worker's thread has used a processor since its start (`CLOCK_THREAD_CPUTIME_ID`).
    pub busy_time: Duration,
    /// Maximum delay of the event loop within the last minute.
    pub delay: Duration,
    /// Whether the worker's event loop is blocked.
    pub is_stuck: bool,
}

/// Last measurement of a worker.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Used share of a processor, in thousandths.
    share: AtomicU64,
    busy_nanos: AtomicU64,
    delay_nanos: AtomicU64,
    /// Maximum of [`OwnDelay`] since it was taken last.
    own_delay_nanos: AtomicU64,
}

impl Measured {
    /// The maximum of [`OwnDelay`] since the last call.
    pub(crate) fn take_own_delay(&self) -> Duration {
        Duration::from_nanos(self.own_delay_nanos.swap(0, Ordering::Relaxed))
    }

    pub(crate) fn load(&self, is_stuck: bool) -> WorkerLoad {
        WorkerLoad {
            busy: self.share.load(Ordering::Relaxed) as f64 / 1000.0,
            busy_time: Duration::from_nanos(self.busy_nanos.load(Ordering::Relaxed)),
            delay: Duration::from_nanos(self.delay_nanos.load(Ordering::Relaxed)),
            is_stuck,
        }
    }
}

/// Number of beats whose maximum delay is reported: a reader that polls once a minute must see every stall.
const BEATS: usize = 60;

/// Measures the thread that calls [`Meter::note`].
#[derive(Debug)]
pub(crate) struct Meter {
    at: Instant,
    busy: Duration,
    /// Delays of the last [`BEATS`] in nanoseconds.
    late: [u64; BEATS],
    /// The index of the next delay in `late`.
    next: usize,
}

impl Meter {
    pub(crate) fn start() -> Self {
        Self { at: Instant::now(), busy: used(), late: [0; BEATS], next: 0 }
    }

    /// Records the load since the last call in `measured`. This call was due at `due`.
    pub(crate) fn note(&mut self, due: Instant, measured: &Measured) {
        let (now, busy) = (Instant::now(), used());
        // At least a millisecond: two calls in quick succession must not divide by zero.
        let passed = now.duration_since(self.at).as_secs_f64().max(1e-3);
        let share = busy.saturating_sub(self.busy).as_secs_f64() / passed;
        // Above 1 only by the resolution of the two clocks.
        measured.share.store((share.min(1.0) * 1000.0).round() as u64, Ordering::Relaxed);
        measured.busy_nanos.store(nanos(busy), Ordering::Relaxed);
        self.late[self.next] = nanos(now.saturating_duration_since(due));
        self.next = (self.next + 1) % BEATS;
        let worst = self.late.iter().copied().max().unwrap_or_default();
        measured.delay_nanos.store(worst, Ordering::Relaxed);
        (self.at, self.busy) = (now, busy);
    }
}

/// Delay of the event loop by the work of the thread itself, measured by the thread that calls [`OwnDelay::note`].
#[derive(Debug)]
pub(crate) struct OwnDelay {
    busy: Duration,
}

impl OwnDelay {
    pub(crate) fn start() -> Self {
        Self { busy: used() }
    }

    /// Records the delay of this call, which was due at `due`, as far as the thread has used a processor since the last call: a
    /// pause of the machine, or a processor that others use, is no overload of this process.
    pub(crate) fn note(&mut self, due: Instant, measured: &Measured) {
        let (late, busy) = (Instant::now().saturating_duration_since(due), used());
        let own = late.min(busy.saturating_sub(self.busy));
        measured.own_delay_nanos.fetch_max(nanos(own), Ordering::Relaxed);
        self.busy = busy;
    }
}

/// Time for which the calling thread has used a processor ([`ClockId::ThreadCPUTime`]).
fn used() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(used.tv_sec).unwrap_or(0), u32::try_from(used.tv_nsec).unwrap_or(0))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_counts_as_far_as_the_thread_has_worked() {
        let (measured, mut delay) = (Measured::default(), OwnDelay::start());
        let due = || Instant::now() - Duration::from_secs(7);
        delay.note(due(), &measured);
        let begun = measured.take_own_delay();
        assert!(begun < Duration::from_secs(7), "a pause: {begun:?}");
        assert_eq!(measured.take_own_delay(), Duration::ZERO);
        let before = delay.busy;
        while used().saturating_sub(before) < Duration::from_millis(20) {
            std::hint::black_box(());
        }
        delay.note(due(), &measured);
        let worked = measured.take_own_delay();
        assert!(worked >= Duration::from_millis(20) && worked < Duration::from_secs(7), "{worked:?}");
    }

    #[test]
    fn a_thread_that_works_is_busy_and_one_that_waits_is_late() {
        let (measured, mut meter) = (Measured::default(), Meter::start());
        let begun = std::time::Instant::now();
        let mut turns = 0_u64;
        while used().saturating_sub(meter.busy) < Duration::from_millis(20)
            && begun.elapsed() < Duration::from_secs(30)
        {
            turns = std::hint::black_box(turns + 1);
        }
        let due = Instant::now() - Duration::from_secs(7);
        meter.note(due, &measured);
        let load = measured.load(false);
        assert!(load.busy > 0.0 && load.busy <= 1.0, "{load:?}");
        assert!(
            load.busy_time >= Duration::from_millis(20) && load.delay >= Duration::from_secs(7),
            "{load:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
        meter.note(Instant::now(), &measured);
        assert!(measured.load(false).busy < 0.9, "{:?}", measured.load(false));
        (1..BEATS).for_each(|_| meter.note(Instant::now(), &measured));
        assert!(measured.load(false).delay < load.delay, "{:?}", measured.load(false));
    }
}
