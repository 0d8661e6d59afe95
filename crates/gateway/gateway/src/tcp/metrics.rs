//! Metrics of `[[tcp]]`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use brisk_telemetry::StreamEnd;
use brisk_telemetry::metrics::{Collector, Encoder};

/// The figures of one `[[tcp]]`. The page of metrics contains them while an [`Arc`] of them exists.
#[derive(Debug)]
pub(crate) struct ServiceMetrics {
    name: Box<str>,
    begun: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    ended: [AtomicU64; StreamEnd::ALL.len()],
}

impl ServiceMetrics {
    fn new(name: &str) -> Self {
        let [begun, received, sent] = [const { AtomicU64::new(0) }; 3];
        let ended = [const { AtomicU64::new(0) }; StreamEnd::ALL.len()];
        Self { name: name.into(), begun, received, sent, ended }
    }

    /// Counts a connection.
    pub(crate) fn begun(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a connection, with the bytes from the client and to it.
    pub(crate) fn ended(&self, end: StreamEnd, received: u64, sent: u64) {
        self.received.fetch_add(received, Ordering::Relaxed);
        self.sent.fetch_add(sent, Ordering::Relaxed);
        self.ended[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn of(&self, end: StreamEnd) -> u64 {
        self.ended[end as usize].load(Ordering::Relaxed)
    }

    fn open(&self) -> u64 {
        // Read before `begun`: a connection in between must not make the difference negative.
        let ended: u64 = StreamEnd::ALL.iter().map(|end| self.of(*end)).sum();
        self.begun.load(Ordering::Relaxed).saturating_sub(ended)
    }
}

/// The metrics of all `[[tcp]]` in use.
#[derive(Debug, Default)]
pub(crate) struct TcpMetrics(Mutex<Vec<Weak<ServiceMetrics>>>);

impl TcpMetrics {
    /// The metrics of the service called `name`: existing ones if they are still held, otherwise new ones.
    pub(crate) fn get(&self, name: &str) -> Arc<ServiceMetrics> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Series of removed services end here, so reloads do not accumulate them.
        all.retain(|service| service.strong_count() > 0);
        if let Some(known) = all.iter().filter_map(Weak::upgrade).find(|service| *service.name == *name) {
            return known;
        }
        let service = Arc::new(ServiceMetrics::new(name));
        all.push(Arc::downgrade(&service));
        service
    }

    fn all(&self) -> Vec<Arc<ServiceMetrics>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Collector for TcpMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let all = self.all();
        let mut family = page.gauge("tcp_open", "Open connections of a [[tcp]].")?;
        for service in &all {
            family.gauge(&[("tcp", &service.name)], service.open())?;
        }
        let mut family =
            page.counter("tcp_connections", "Connections of a [[tcp]] that have ended, by outcome.")?;
        for service in &all {
            for end in StreamEnd::ALL {
                family.counter(&[("tcp", &service.name), ("outcome", end.name())], service.of(*end))?;
            }
        }
        let mut family = page.bytes_counter(
            "tcp_forwarded",
            "Bytes forwarded for a [[tcp]] in connections that have ended, by direction.",
        )?;
        for service in &all {
            for (direction, bytes) in [("from-client", &service.received), ("to-client", &service.sent)] {
                let labels = [("tcp", &*service.name), ("direction", direction)];
                family.counter(&labels, bytes.load(Ordering::Relaxed))?;
            }
        }
        Ok(())
    }
}
