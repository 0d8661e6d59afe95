//! The measurements of one thread: counted without locks, reported once a second and at the end.

use std::cell::{Cell, RefCell};
use std::mem;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use brisk_telemetry::Resumption;
use brisk_tls_client::ClientFacts;
use hdrhistogram::Histogram;

use crate::error::Failure;
use crate::records::{ConnectionTimes, Records};
use crate::result::histogram;
use crate::totals::{Totals, record};

/// A report of a thread to the thread that started it.
#[derive(Debug)]
pub(crate) enum Report {
    /// The thread is ready to start.
    Ready,
    /// The thread cannot start.
    Failed(Failure),
    /// The measurements of one second.
    Second(Box<Second>),
    /// All measurements, after the last operation.
    Done {
        totals: Box<Totals>,
        /// Number of seconds that were reported.
        seconds: u64,
        /// Time of its end.
        ended: Instant,
    },
}

/// One second of one thread.
#[derive(Debug)]
pub(crate) struct Second {
    /// Number of the second, 0 at the start of the measured time.
    pub(crate) index: u64,
    /// Whether the run ended within it.
    pub(crate) is_cut: bool,
    pub(crate) operations: u64,
    pub(crate) requests: u64,
    pub(crate) handshakes: u64,
    pub(crate) errors: u64,
    pub(crate) in_flight: usize,
    pub(crate) backlog: usize,
    pub(crate) latency: Histogram<u64>,
}

/// Collects the measurements of one thread. Events before the measured time are ignored.
#[derive(Debug)]
pub(crate) struct Recorder {
    // `Cell` and `RefCell`: each thread has its own recorder, so that counting needs neither locks nor
    // atomics.
    begin: Cell<Option<Instant>>,
    in_flight: Cell<usize>,
    backlog: Cell<usize>,
    second: RefCell<Second>,
    totals: RefCell<Totals>,
    records: RefCell<Records>,
    reports: Sender<Report>,
}

/// A completed handshake.
#[derive(Debug)]
pub(crate) struct Handshake<'a> {
    pub(crate) asked: Resumption,
    /// Duration of the TCP connect; `None` over QUIC.
    pub(crate) connect: Option<Duration>,
    pub(crate) tls: Duration,
    /// Segments sent and received.
    pub(crate) segments: (u32, u32),
    /// Whether the `SYN` of the connection carried data that the server accepted.
    pub(crate) syn_data: bool,
    pub(crate) facts: &'a ClientFacts,
}

/// A completed response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) status: u16,
    pub(crate) body: u64,
    pub(crate) sent: Instant,
    pub(crate) first_byte: Instant,
    pub(crate) ended: Instant,
}

impl Recorder {
    pub(crate) fn new(reports: Sender<Report>) -> Self {
        Self {
            begin: Cell::new(None),
            in_flight: Cell::new(0),
            backlog: Cell::new(0),
            second: RefCell::new(Second::new(0)),
            totals: RefCell::new(Totals::new()),
            records: RefCell::default(),
            reports,
        }
    }

    /// Starts the measured time at `begin`.
    pub(crate) fn begin_at(&self, begin: Instant) {
        self.begin.set(Some(begin));
    }

    /// Whether `now` is in the measured time.
    pub(crate) fn is_measured(&self, now: Instant) -> bool {
        self.begin.get().is_some_and(|begin| now >= begin)
    }

    /// Keeps a record of each connection from now on.
    pub(crate) fn keep_records(&self) {
        self.records.borrow_mut().is_wanted = true;
    }

    /// Whether records of connections are kept.
    pub(crate) fn keeps_records(&self) -> bool {
        self.records.borrow().is_wanted
    }

    /// Keeps the record of a connection that has ended.
    pub(crate) fn ended(&self, connection: ConnectionTimes) {
        self.records.borrow_mut().add(connection);
    }

    /// Counts a session fetched before the run.
    pub(crate) fn primed(&self) {
        self.totals.borrow_mut().primed += 1;
    }

    /// Counts an operation as in flight until the [`InFlight`] is dropped.
    pub(crate) fn in_flight(&self) -> InFlight<'_> {
        self.in_flight.set(self.in_flight.get() + 1);
        InFlight(self)
    }

    /// Number of operations in flight.
    pub(crate) fn number_in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Sets the number of waiting operations.
    pub(crate) fn backlog(&self, waiting: usize) {
        self.backlog.set(waiting);
    }

    /// Counts operations that were not started.
    pub(crate) fn unstarted(&self, number: usize) {
        self.totals.borrow_mut().unstarted += number as u64;
    }

    /// Records a connection without TLS, made at `now` in the time `connect`.
    pub(crate) fn connection(&self, now: Instant, connect: Duration) {
        if self.roll(now) {
            self.totals.borrow_mut().connection(connect);
        }
    }

    /// Records a [`Handshake`] completed at `now`.
    pub(crate) fn handshake(&self, now: Instant, handshake: &Handshake<'_>) {
        if self.roll(now) {
            self.second.borrow_mut().handshakes += 1;
            self.totals.borrow_mut().handshake(handshake);
        }
    }

    /// Records a response that ended at `exchange.ended`, for an operation whose latency counts from `start`.
    pub(crate) fn response(&self, start: Instant, exchange: &Exchange) {
        if self.roll(exchange.ended) {
            self.second.borrow_mut().requests += 1;
            self.totals.borrow_mut().response(start, exchange);
        }
    }

    /// Records an operation that succeeded at `now` and whose latency counts from `start`.
    pub(crate) fn operation(&self, start: Instant, now: Instant) {
        if self.roll(now) {
            let taken = now.saturating_duration_since(start);
            let mut second = self.second.borrow_mut();
            second.operations += 1;
            record(&mut second.latency, taken);
            self.totals.borrow_mut().operation(now, taken);
        }
    }

    /// Records a [`Failure`] at `now`.
    pub(crate) fn failure(&self, now: Instant, failure: &Failure) {
        if self.roll(now) {
            self.second.borrow_mut().errors += 1;
            self.totals.borrow_mut().failure(now, failure);
        }
    }

    /// Counts bytes of a connection within the measured time.
    pub(crate) fn bytes(&self, sent: u64, received: u64) {
        let traffic = &mut self.totals.borrow_mut().traffic;
        traffic.sent += sent;
        traffic.received += received;
    }

    /// Counts a kept connection that the server had closed before the next request.
    pub(crate) fn reconnected(&self, now: Instant) {
        if self.is_measured(now) {
            self.totals.borrow_mut().traffic.reconnects += 1;
        }
    }

    /// Counts segments of a connection within the measured time.
    pub(crate) fn segments(&self, sent: u32, received: u32) {
        let traffic = &mut self.totals.borrow_mut().traffic;
        traffic.segments_sent += u64::from(sent);
        traffic.segments_received += u64::from(received);
    }

    /// Reports all seconds that are over at `now`. Returns whether `now` is in the measured time.
    pub(crate) fn roll(&self, now: Instant) -> bool {
        let Some(begin) = self.begin.get().filter(|begin| now >= *begin) else { return false };
        let index = (now - begin).as_secs();
        // Seconds without events are reported too: the gathering waits for each second of each running
        // thread.
        while self.second.borrow().index < index {
            self.report_second();
        }
        true
    }

    /// Reports the totals. The measured time ended at `end`.
    pub(crate) fn finish(&self, end: Instant) {
        self.roll(end);
        self.second.borrow_mut().is_cut = true;
        self.report_second();
        let mut totals = mem::replace(&mut *self.totals.borrow_mut(), Totals::new());
        totals.connections = mem::take(&mut self.records.borrow_mut().connections);
        let seconds = self.second.borrow().index;
        self.report(Report::Done { totals: Box::new(totals), seconds, ended: end });
    }

    pub(crate) fn report(&self, report: Report) {
        // An error means that the run was aborted and the report is not needed.
        let _ = self.reports.send(report);
    }

    fn report_second(&self) {
        let next = Second::new(self.second.borrow().index + 1);
        let mut second = self.second.replace(next);
        // Sampled at the end of the second: both are states and no sums.
        second.in_flight = self.in_flight.get();
        second.backlog = self.backlog.get();
        self.report(Report::Second(Box::new(second)));
    }
}

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a Recorder);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.set(self.0.in_flight.get() - 1);
    }
}

impl Second {
    fn new(index: u64) -> Self {
        Self {
            index,
            is_cut: false,
            operations: 0,
            requests: 0,
            handshakes: 0,
            errors: 0,
            in_flight: 0,
            backlog: 0,
            latency: histogram(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::result::Cause;

    const S: Duration = Duration::from_secs(1);

    fn recorder() -> (Recorder, Receiver<Report>, Instant) {
        let (sender, reports) = channel();
        let begin = Instant::now();
        let recorder = Recorder::new(sender);
        recorder.begin_at(begin);
        (recorder, reports, begin)
    }

    #[test]
    fn each_second_is_reported_once_even_when_nothing_happened() {
        let (recorder, reports, begin) = recorder();
        recorder.operation(begin, begin + S / 2);
        recorder.operation(begin + S, begin + S * 3 + S / 2);
        recorder.finish(begin + S * 4);
        let mut seconds = Vec::new();
        let mut totals = None;
        for report in reports.try_iter() {
            match report {
                Report::Second(second) => seconds.push((second.index, second.operations)),
                Report::Done { totals: done, .. } => totals = Some(done),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seconds, [(0, 1), (1, 0), (2, 0), (3, 1), (4, 0)]);
        let totals = totals.expect("totals");
        assert_eq!(totals.operations, 2);
        assert!(totals.phases.total.max() >= 2_499_000, "{}", totals.phases.total.max());
    }

    #[test]
    fn the_warm_up_is_not_measured() {
        let (sender, reports) = channel();
        let recorder = Recorder::new(sender);
        let now = Instant::now();
        recorder.operation(now, now);
        recorder.begin_at(now + S);
        recorder.failure(now, &Failure::new(Cause::Reset, "early"));
        recorder.finish(now + S * 2);
        let Some(Report::Done { totals, .. }) = reports.try_iter().last() else { panic!("no totals") };
        assert_eq!((totals.operations, totals.errors.len()), (0, 0));
    }

    #[test]
    fn failures_are_counted_by_cause_with_one_example() {
        let (recorder, reports, begin) = recorder();
        for text in ["first", "second"] {
            recorder.failure(begin, &Failure::new(Cause::Reset, text));
        }
        let alert =
            Failure { alert: Some("unrecognized_name".to_owned()), ..Failure::new(Cause::Alert, "third") };
        recorder.failure(begin, &alert);
        recorder.finish(begin);
        let Some(Report::Done { totals, .. }) = reports.try_iter().last() else { panic!("no totals") };
        let errors: Vec<_> =
            totals.errors.iter().map(|(cause, (count, text))| (*cause, *count, text.as_str())).collect();
        assert_eq!(errors, [(Cause::Reset, 2, "first"), (Cause::Alert, 1, "third")]);
        assert_eq!(totals.alerts["unrecognized_name"], 1);
    }
}
