//! [`RecentConnections`], the connections that ended last: a fixed number per worker, merged on reading.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::metrics::{Listening, PerWorker};
use crate::outcome::ResumptionFailure;
use crate::record::{ConnectionEnd, ConnectionRecord, QuicPath, TlsFacts};
use crate::timeline::{Milestone, Timeline};

/// Number of connections kept per worker, and shown in total. Each [`RecentConnection`] takes about 400 bytes.
const KEPT: usize = 256;

/// Number of slow connections kept per worker, and shown in total.
const SLOW: usize = 32;

/// Time for which a connection of [`Shelf::keep_slow`] is kept.
const SLOW_FOR: Duration = Duration::from_mins(10);

/// The longest subject of a client certificate that is kept, in bytes; clients choose its length.
const LONGEST_SUBJECT: usize = 256;

/// A connection that has ended, as far as the access log would know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentConnection {
    /// Number of the connection.
    pub id: u64,
    /// The kind of listener that accepted it.
    pub listener: Listening,
    /// The client.
    pub client: SocketAddr,
    /// Milestones of the connection.
    pub timeline: Timeline,
    /// Duration from start to end.
    pub duration: Duration,
    /// Parameters negotiated in the handshake, without [`TlsFacts::client_chain`] and [`TlsFacts::fingerprints`], and with
    /// a shortened subject.
    pub tls: Option<TlsFacts>,
    /// Reason for which no offered session was resumed, if the handshake failed afterwards.
    pub resumption_failure: Option<ResumptionFailure>,
    /// Smoothed round-trip time that the kernel measured.
    pub rtt: Option<Duration>,
    /// Bytes received on the connection, TLS included.
    pub bytes_received: u64,
    /// Bytes sent on the connection, TLS included.
    pub bytes_sent: u64,
    /// Bytes of early data that were accepted, as plaintext.
    pub early_bytes: u64,
    /// Path of a QUIC connection; `None` over TCP.
    pub path: Option<QuicPath>,
    /// Requests answered.
    pub requests: u32,
    /// Outcome of the connection.
    pub end: ConnectionEnd,
}

impl RecentConnection {
    pub(crate) fn new(record: &ConnectionRecord, end: ConnectionEnd) -> Self {
        Self {
            id: record.id,
            listener: record.listener(),
            client: record.client,
            timeline: record.timeline.clone(),
            duration: record.timeline.started().elapsed(),
            tls: record.tls.as_deref().map(without_certificates),
            resumption_failure: record.resumption_failure,
            rtt: record.rtt,
            bytes_received: record.bytes_received,
            bytes_sent: record.bytes_sent,
            early_bytes: record.early_bytes,
            path: record.path.as_deref().copied(),
            requests: record.requests,
            end,
        }
    }

    fn ended_at(&self) -> SystemTime {
        self.timeline.time_of_day() + self.duration
    }

    /// Time for which the client waited: the handshake, and the head of the first response; not the time until the
    /// first request. `None` without a completed handshake, since the time until an unknown client gives up is
    /// meaningless.
    pub fn waited(&self) -> Option<Duration> {
        let handshake = self.timeline.offset(Milestone::HandshakeFinished)?;
        Some(handshake + self.timeline.first_byte().unwrap_or_default())
    }
}

fn without_certificates(facts: &TlsFacts) -> TlsFacts {
    let subject = facts.client_subject.as_deref();
    TlsFacts {
        server_name: facts.server_name.clone(),
        client_subject: subject.map(|subject| subject[..subject.floor_char_boundary(LONGEST_SUBJECT)].into()),
        // A chain may have many KiB, and each worker keeps 256 records until later ones replace them.
        client_chain: Box::default(),
        fingerprints: None,
        ..*facts
    }
}

/// Connections that ended last on each worker, and slow connections of the last minutes.
#[derive(Debug)]
pub(crate) struct RecentConnections(PerWorker<Mutex<Shelf>>);

#[derive(Debug, Default)]
struct Shelf {
    latest: VecDeque<Arc<RecentConnection>>,
    slow: Vec<Slow>,
    /// Minimum [`RecentConnection::waited`] of a slow connection; zero while there are fewer than [`SLOW`].
    threshold: Duration,
    /// Time at which the first slow connection expires, if there is no room.
    fades: Option<Instant>,
}

#[derive(Debug)]
struct Slow {
    waited: Duration,
    until: Instant,
    connection: Arc<RecentConnection>,
}

impl Shelf {
    /// Keeps `connection` if it is among the slowest of the last minutes. For all others two comparisons.
    fn keep_slow(&mut self, connection: &Arc<RecentConnection>) {
        let now = connection.timeline.started() + connection.duration;
        // Only when the list is full: until then an expired entry takes no slot from another one.
        if self.fades.is_some_and(|fades| fades <= now) {
            self.forget_slow(now);
        }
        let Some(waited) = connection.waited().filter(|waited| *waited >= self.threshold) else { return };
        if self.slow.len() == SLOW {
            let least = self.slow.iter().enumerate().min_by_key(|(_, slow)| slow.waited);
            // `<=`: of two equal waits the later one is kept, so that the page shows the present.
            if let Some((place, _)) = least.filter(|(_, slow)| slow.waited <= waited) {
                self.slow.swap_remove(place);
            }
        }
        if self.slow.len() < SLOW {
            self.slow.push(Slow { waited, until: now + SLOW_FOR, connection: Arc::clone(connection) });
        }
        self.set_threshold();
    }

    /// Removes connections older than [`SLOW_FOR`], which lowers `threshold`.
    fn forget_slow(&mut self, now: Instant) {
        self.slow.retain(|slow| slow.until > now);
        self.set_threshold();
    }

    fn set_threshold(&mut self) {
        let is_full = self.slow.len() == SLOW;
        let least = self.slow.iter().map(|slow| slow.waited).min();
        self.threshold = least.filter(|_| is_full).unwrap_or_default();
        self.fades = self.slow.iter().map(|slow| slow.until).min().filter(|_| is_full);
    }
}

impl RecentConnections {
    pub(crate) fn new() -> Self {
        Self(PerWorker::new(Mutex::default))
    }

    /// Adds a connection in place of the oldest one of this worker. One allocation, and a lock that is free unless
    /// the connections are read now.
    pub(crate) fn push(&self, connection: RecentConnection) {
        // Allocated before the lock, and shared, so that a reader copies references under the
        // lock instead of records.
        let new = Arc::new(connection);
        let mut shelf = lock(self.0.mine());
        shelf.keep_slow(&new);
        let oldest = if shelf.latest.len() < KEPT { None } else { shelf.latest.pop_front() };
        shelf.latest.push_back(new);
        // The lock is released first: dropping the oldest record may free memory, which need not delay other threads.
        drop(shelf);
        drop(oldest);
    }

    /// The last [`KEPT`] connections of all workers, the latest first.
    pub(crate) fn latest(&self) -> Vec<Arc<RecentConnection>> {
        let mut all: Vec<_> =
            self.0.all().flat_map(|shelf| lock(shelf).latest.iter().cloned().collect::<Vec<_>>()).collect();
        // By the end and not by the number: a long connection has a low number and may be the latest to end.
        all.sort_by_key(|connection| Reverse(connection.ended_at()));
        all.truncate(KEPT);
        all
    }

    /// The [`SLOW`] slowest connections of all workers within [`SLOW_FOR`], the slowest first.
    pub(crate) fn slowest(&self) -> Vec<Arc<RecentConnection>> {
        let now = Instant::now();
        let of_shelf = |shelf: &Mutex<Shelf>| {
            let mut shelf = lock(shelf);
            // Here too: a worker without new connections would never remove its old ones.
            shelf.forget_slow(now);
            shelf.slow.iter().map(|slow| Arc::clone(&slow.connection)).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.0.all().flat_map(of_shelf).collect();
        all.sort_by_key(|connection| Reverse(connection.waited()));
        all.truncate(SLOW);
        all
    }
}

fn lock<T>(ring: &Mutex<T>) -> MutexGuard<'_, T> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::metrics::Metrics;
    use crate::outcome::HandshakeOutcome;
    use crate::sink::Sink;

    fn record(id: u64, second: u64) -> ConnectionRecord {
        let address = SocketAddr::from(([192, 0, 2, 1], 40000));
        let timeline = Timeline::start_at(Instant::now(), UNIX_EPOCH + Duration::from_secs(second));
        ConnectionRecord::new(id, address, address, timeline)
    }

    fn finished(sink: &Arc<Sink>, id: u64, end: ConnectionEnd) {
        let mut record = record(id, 1_700_000_000 + 1000 * id);
        record.report_to(sink, Listening::Https);
        record.finish(end);
    }

    #[test]
    fn the_latest_connections_are_kept_and_no_more() {
        let sink = Sink::new(Metrics::new());
        for id in 0..2 * KEPT as u64 {
            finished(&sink, id, ConnectionEnd::Served("idle"));
        }
        let ids: Vec<_> = sink.recent().iter().map(|connection| connection.id).collect();
        assert_eq!(ids, (KEPT as u64..2 * KEPT as u64).rev().collect::<Vec<_>>());
    }

    #[test]
    fn the_slowest_ones_are_kept_however_many_come_after_them() {
        let sink = Sink::new(Metrics::new());
        let waits = |id: u64| Duration::from_millis(if id == 7 { 900 } else { id % 5 });
        for id in 0..3 * KEPT as u64 {
            let mut record = record(id, 1_700_000_000);
            record.report_to(&sink, Listening::Https);
            record.timeline.mark_after(Milestone::HandshakeFinished, waits(id));
            // A client that rests before it asks waits for nothing.
            record.timeline.mark_after(Milestone::FirstRequest, Duration::from_mins(1));
            record.timeline.mark_after(Milestone::FirstResponse, Duration::from_mins(1) + waits(id));
            record.finish(ConnectionEnd::Served("idle"));
        }
        finished(&sink, 10_000, ConnectionEnd::HandshakeFailed(HandshakeOutcome::TimedOut));
        let slowest = sink.slowest();
        assert_eq!(slowest.len(), SLOW);
        assert_eq!((slowest[0].id, slowest[0].waited()), (7, Some(Duration::from_millis(1800))));
        assert!(slowest[1..].iter().all(|slow| slow.waited() == Some(Duration::from_millis(8))));
    }

    #[test]
    fn a_slow_connection_is_forgotten_and_faster_ones_count_again() {
        let mut shelf = Shelf::default();
        let slow = |id: u64, millis: u64| {
            let mut record = record(id, 1_700_000_000);
            record.timeline.mark_after(Milestone::HandshakeFinished, Duration::from_millis(millis));
            Arc::new(RecentConnection::new(&record, ConnectionEnd::Served("idle")))
        };
        (0..SLOW as u64).for_each(|id| shelf.keep_slow(&slow(id, 500)));
        shelf.keep_slow(&slow(100, 20));
        assert!(shelf.slow.iter().all(|slow| slow.waited == Duration::from_millis(500)));
        shelf.forget_slow(Instant::now() + 2 * SLOW_FOR);
        assert!(shelf.slow.is_empty());
        shelf.keep_slow(&slow(101, 20));
        assert_eq!(shelf.slow.len(), 1);
    }

    #[test]
    fn slow_connections_are_forgotten_though_no_reader_asks() {
        let mut shelf = Shelf::default();
        let ended = |id: u64, millis: u64, later: Duration| {
            let mut record = record(id, 1_700_000_000);
            record.timeline = Timeline::start_at(Instant::now() + later, UNIX_EPOCH);
            record.timeline.mark_after(Milestone::HandshakeFinished, Duration::from_millis(millis));
            Arc::new(RecentConnection::new(&record, ConnectionEnd::Served("idle")))
        };
        (0..SLOW as u64).for_each(|id| shelf.keep_slow(&ended(id, 2000, Duration::ZERO)));
        shelf.keep_slow(&ended(100, 1900, Duration::ZERO));
        assert!(shelf.slow.iter().all(|slow| slow.connection.id != 100));
        shelf.keep_slow(&ended(101, 1900, 2 * SLOW_FOR));
        assert_eq!(shelf.slow.iter().map(|slow| slow.connection.id).collect::<Vec<_>>(), [101]);
    }

    #[test]
    fn a_response_to_early_data_is_not_waited_for_twice() {
        let waited = |of: [(Milestone, u64); 3]| {
            let mut record = record(1, 1_700_000_000);
            for (milestone, millis) in of {
                record.timeline.mark_after(milestone, Duration::from_millis(millis));
            }
            RecentConnection::new(&record, ConnectionEnd::Served("idle")).waited()
        };
        let (finished, request, response) =
            (Milestone::HandshakeFinished, Milestone::FirstRequest, Milestone::FirstResponse);
        // The whole response within the handshake, and one that ends after it.
        assert_eq!(waited([(request, 1), (response, 4), (finished, 30)]), Some(Duration::from_millis(30)));
        assert_eq!(waited([(request, 1), (finished, 30), (response, 34)]), Some(Duration::from_millis(34)));
        assert_eq!(
            waited([(finished, 30), (request, 5000), (response, 5004)]),
            Some(Duration::from_millis(34))
        );
    }

    #[test]
    fn connections_of_all_threads_are_merged_by_their_end() {
        let sink = Sink::new(Metrics::new());
        for id in [3, 1, 2] {
            std::thread::scope(|scope| {
                scope.spawn(|| finished(&sink, id, ConnectionEnd::Served("idle")));
            });
        }
        let ids: Vec<_> = sink.recent().iter().map(|connection| connection.id).collect();
        assert_eq!(ids, [3, 2, 1]);
    }

    #[test]
    fn a_record_goes_to_the_sink_once_on_every_path() {
        let sink = Sink::new(Metrics::new());
        finished(&sink, 1, ConnectionEnd::HandshakeFailed(HandshakeOutcome::TimedOut));
        let mut dropped = record(2, 1_800_000_000);
        dropped.report_to(&sink, Listening::Http);
        drop(dropped);
        // One that reports to no sink.
        drop(record(3, 1_800_000_000));
        let ends: Vec<_> =
            sink.recent().iter().map(|connection| (connection.listener, connection.end)).collect();
        let failed = ConnectionEnd::HandshakeFailed(HandshakeOutcome::TimedOut);
        assert_eq!(ends, [(Listening::Http, ConnectionEnd::Dropped), (Listening::Https, failed)]);
        let page = sink.metrics.render();
        for line in [
            "brisk_handshakes_failed_total{outcome=\"timed-out\"} 1",
            "brisk_connections_open{listener=\"https\"} 0",
        ] {
            assert!(page.lines().any(|shown| shown == line), "{line} is not in {page}");
        }
    }

    #[test]
    fn certificates_of_clients_are_not_kept_and_their_names_are_cut() {
        let facts = TlsFacts {
            client_subject: Some(format!("CN={}", "\u{e9}".repeat(4000)).into()),
            client_chain: Box::new([Box::new([0; 4000])]),
            ..crate::metrics::tests::facts()
        };
        let kept = without_certificates(&facts);
        assert!(kept.client_chain.is_empty());
        let subject = kept.client_subject.expect("a subject");
        assert!(subject.len() <= LONGEST_SUBJECT && subject.starts_with("CN=\u{e9}"));
        assert_eq!(TlsFacts { client_subject: None, ..kept }, crate::metrics::tests::facts());
    }
}
