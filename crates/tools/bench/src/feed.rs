//! Starts operations: applies the schedule to the clock.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use brisk_net::Timer;

use crate::measure::Recorder;
use crate::schedule::{Pace, Schedule};

/// Number of arrivals after which the task yields.
const BATCH: u64 = 256;

/// Time after the end of a run in which due operations are still started.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// Interval at which the end of the last operations is checked.
const POLL: Duration = Duration::from_millis(1);

/// An operation to perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    /// Number of the operation in the run, unique; [`Weighted::pick`](crate::choice::Weighted::pick) uses it.
    pub(crate) number: u64,
    /// Start of its latency.
    pub(crate) start: Instant,
    /// Whether it is measured if it ends in the measured time.
    pub(crate) counted: bool,
}

/// State shared by all threads of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) schedule: Schedule,
    pub(crate) threads: u64,
    /// Number of measured operations started in a closed loop.
    pub(crate) taken: AtomicU64,
}

/// The operations of one thread.
#[derive(Debug)]
pub(crate) struct Feed {
    plan: Arc<Plan>,
    thread: u64,
    begin: Instant,
    /// Operations started in a closed loop.
    given: Cell<u64>,
    stopped: Cell<bool>,
    queue: RefCell<Queue>,
    room: usize,
    recorder: Rc<Recorder>,
}

#[derive(Debug, Default)]
struct Queue {
    due: VecDeque<Operation>,
    waiting: VecDeque<Waker>,
    /// Whether nothing will be added.
    over: bool,
}

impl Feed {
    /// The feed of thread number `thread` in a run that begins at `begin`; up to `room` operations wait.
    pub(crate) fn new(
        plan: Arc<Plan>,
        thread: usize,
        begin: Instant,
        room: usize,
        recorder: Rc<Recorder>,
    ) -> Self {
        Self {
            plan,
            thread: thread as u64,
            begin,
            given: Cell::new(0),
            stopped: Cell::new(false),
            queue: RefCell::default(),
            room,
            recorder,
        }
    }

    /// The next operation; `None` when the run is over.
    pub(crate) async fn next(&self) -> Option<Operation> {
        match self.plan.schedule.pace() {
            Pace::Closed(_) => self.next_closed(),
            Pace::Fixed { .. } => self.next_due().await,
        }
    }

    /// Stops starting operations.
    pub(crate) fn stop(&self) {
        self.stopped.set(true);
        self.discard();
    }

    fn next_closed(&self) -> Option<Operation> {
        let schedule = &self.plan.schedule;
        let start = Instant::now();
        let at = start.saturating_duration_since(self.begin);
        // Only the begin of an operation matters here; `worker::deadline` cuts the running ones.
        if self.stopped.get() || schedule.end().is_some_and(|end| at >= end) {
            return None;
        }
        let mut counted = true;
        if let Some(count) = schedule.count() {
            // With a number of operations, only those after the warm-up count, so that exactly this number is
            // measured.
            counted = at >= schedule.warmup();
            // Relaxed: the counter publishes no other data.
            if counted && self.plan.taken.fetch_add(1, Ordering::Relaxed) >= count {
                return None;
            }
        }
        let given = self.given.get();
        self.given.set(given + 1);
        // Numbers of the threads interleave: together the threads take the numbers of `Weighted::pick` from
        // the begin on, and short runs match the weights.
        Some(Operation { number: given * self.plan.threads + self.thread, start, counted })
    }

    async fn next_due(&self) -> Option<Operation> {
        poll_fn(|cx| {
            let mut queue = self.queue.borrow_mut();
            if let Some(operation) = queue.due.pop_front() {
                self.recorder.backlog(queue.due.len());
                return Poll::Ready(Some(operation));
            }
            if queue.over {
                return Poll::Ready(None);
            }
            // The queue of wakers keeps the order of the slots, so that all slots are used equally.
            queue.waiting.push_back(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// With [`Pace`] at a fixed rate: queues operations at their start times. Ends [`GRACE`] after the schedule; operations
    /// that still wait then are not started. In a closed loop, completes at once.
    pub(crate) async fn pace(&self) -> io::Result<()> {
        let schedule = &self.plan.schedule;
        // Slots start their operations themselves. To poll for their end would take processor time of the client, which is
        // part of the result.
        if matches!(schedule.pace(), Pace::Closed(_)) {
            return Ok(());
        }
        let mut timer = Timer::new()?;
        // Each thread computes the start of its own operations from the schedule, so that threads share no
        // queue.
        let mut number = self.thread;
        while let Some(start) = schedule.start_of(number).filter(|_| !self.stopped.get()) {
            let counted = start >= schedule.warmup();
            let start = self.begin + start;
            timer.until(start).await?;
            // The latency counts from the scheduled start: a stalled server must not hide its stall by delaying later starts.
            self.add(Operation { number, start, counted });
            number += self.plan.threads;
            // Without yielding, a pacer that lags behind would keep connections from making progress.
            // Numbers advance by `threads`, so the condition holds once in each `BATCH` arrivals.
            if number % BATCH < self.plan.threads {
                tokio::task::yield_now().await;
            }
        }
        let last = schedule.end().map(|end| self.begin + end + GRACE);
        // Thousands of slots that end at once would delay the responses to the last operations.
        // The end of an operation has no notification for the pacer.
        while self.is_busy() && last.is_none_or(|last| Instant::now() < last) {
            timer.until(Instant::now() + POLL).await?;
        }
        self.end_queue();
        if let Some(last) = last.filter(|_| !self.stopped.get()) {
            timer.until(last).await?;
            self.discard();
        }
        Ok(())
    }

    /// Whether operations wait or are in flight.
    fn is_busy(&self) -> bool {
        let is_idle = self.queue.borrow().due.is_empty() && self.recorder.number_in_flight() == 0;
        !self.stopped.get() && !is_idle
    }

    fn add(&self, operation: Operation) {
        let mut queue = self.queue.borrow_mut();
        // Dropped and counted: a server that has stopped would otherwise fill the memory of the client.
        if queue.due.len() >= self.room {
            if operation.counted {
                self.recorder.unstarted(1);
            }
            return;
        }
        queue.due.push_back(operation);
        self.recorder.backlog(queue.due.len());
        if let Some(waker) = queue.waiting.pop_front() {
            waker.wake();
        }
    }

    fn discard(&self) {
        self.end_queue();
        let left = std::mem::take(&mut self.queue.borrow_mut().due);
        self.recorder.unstarted(left.iter().filter(|operation| operation.counted).count());
        self.recorder.backlog(0);
    }

    fn end_queue(&self) {
        let mut queue = self.queue.borrow_mut();
        queue.over = true;
        queue.waiting.drain(..).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Report;
    use crate::schedule::Steps;
    use std::sync::mpsc::{Receiver, channel};

    fn feed(schedule: Schedule, room: usize) -> (Feed, Rc<Recorder>, Receiver<Report>) {
        let (sender, reports) = channel();
        let recorder = Rc::new(Recorder::new(sender));
        let plan = Plan { schedule, threads: 1, taken: AtomicU64::new(0) };
        let feed = Feed::new(Arc::new(plan), 0, Instant::now(), room, Rc::clone(&recorder));
        (feed, recorder, reports)
    }

    fn fixed(rate: f64, time: Duration) -> Schedule {
        let pace = Pace::Fixed { rate: Steps::constant(rate), concurrency: 1 };
        Schedule::new(pace, Duration::ZERO, Some(time), None)
    }

    fn unstarted(recorder: &Recorder, reports: &Receiver<Report>) -> u64 {
        recorder.finish(Instant::now());
        match reports.try_iter().last() {
            Some(Report::Done { totals, .. }) => totals.unstarted,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn slots_end_when_no_operation_is_in_flight() {
        let (feed, recorder, _reports) = feed(fixed(1000.0, Duration::from_millis(2)), 1000);
        let take = async {
            while feed.next().await.is_some() {}
            assert_eq!(recorder.number_in_flight(), 0);
        };
        let operate = async {
            let operation = recorder.in_flight();
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(operation);
        };
        let (paced, ..) = tokio::join!(feed.pace(), take, operate);
        paced.expect("a timer");
    }

    #[tokio::test]
    async fn a_closed_loop_has_no_pacer_that_polls() {
        let pace = Pace::Closed(Steps::constant(1.0));
        let (feed, recorder, _reports) = feed(Schedule::new(pace, Duration::ZERO, None, Some(9)), 0);
        let _running = recorder.in_flight();
        let mut pacing = std::pin::pin!(feed.pace());
        let polled = poll_fn(|cx| Poll::Ready(pacing.as_mut().poll(cx))).await;
        assert!(matches!(polled, Poll::Ready(Ok(()))));
    }

    #[tokio::test]
    async fn at_a_fixed_rate_every_operation_has_its_own_start() {
        let (feed, ..) = feed(fixed(1000.0, Duration::from_millis(100)), 1000);
        let take = async {
            let mut taken = Vec::new();
            while let Some(operation) = feed.next().await {
                assert!(Instant::now() >= operation.start);
                taken.push(operation);
            }
            taken
        };
        let (paced, taken) = tokio::join!(feed.pace(), take);
        paced.expect("a timer");
        assert_eq!(taken.len(), 100);
        for (number, operation) in taken.iter().enumerate() {
            assert_eq!(operation.number, number as u64);
            assert_eq!(operation.start, feed.begin + Duration::from_millis(number as u64));
        }
    }

    #[tokio::test]
    async fn operations_that_no_slot_could_start_are_counted() {
        let (feed, recorder, reports) = feed(fixed(1000.0, Duration::from_millis(100)), 10);
        let (paced, ()) = tokio::join!(feed.pace(), async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            // Late, but started.
            assert!(feed.next().await.is_some());
        });
        paced.expect("a timer");
        assert_eq!(feed.next().await, None);
        assert_eq!(unstarted(&recorder, &reports), 99);
    }

    #[tokio::test]
    async fn a_count_is_shared_by_all_and_the_warm_up_is_none_of_it() {
        let pace = Pace::Closed(Steps::constant(1.0));
        let (feed, ..) = feed(Schedule::new(pace, Duration::from_millis(20), None, Some(5)), 0);
        let mut counted = 0;
        while let Some(operation) = feed.next().await {
            counted += u32::from(operation.counted);
        }
        assert_eq!(counted, 5);
    }

    #[tokio::test]
    async fn a_stopped_feed_gives_nothing_more() {
        let (closed, ..) =
            feed(Schedule::new(Pace::Closed(Steps::constant(1.0)), Duration::ZERO, None, Some(9)), 0);
        assert!(closed.next().await.is_some());
        closed.stop();
        assert_eq!(closed.next().await, None);
        let (paced, ..) = feed(fixed(10.0, Duration::from_mins(1)), 10);
        paced.stop();
        assert_eq!(paced.next().await, None);
        paced.pace().await.expect("a timer");
    }
}
