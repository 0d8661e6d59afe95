//! Samples of the server's load: [`Sampling`], on the main thread.

use std::sync::Arc;

use brisk_pressure::{Sample, Sampler, Source};

use crate::context::Shared;
use crate::descriptors;
use crate::settings::ServerSettings;
use crate::watchdog::Watchdog;

/// Number of connections from which a limit has a share that means anything: one of two connections is half of them.
const LEAST: usize = 16;

/// Measures the sources of overload that every service has.
#[derive(Debug)]
pub(crate) struct Sampling {
    shared: Arc<Shared>,
    sampler: Sampler,
}

impl Sampling {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let sampler = Sampler::new(Arc::clone(&shared.pressure));
        Self { shared, sampler }
    }

    /// Takes a sample, with the sources of the service by `measure`. To be called at every
    /// [`INTERVAL`](brisk_pressure::INTERVAL).
    pub(crate) fn take(
        &mut self,
        settings: &ServerSettings,
        watchdog: &Watchdog,
        measure: impl FnOnce(&mut Sample),
    ) {
        let mut sample = Sample::default();
        let delay = self.shared.pulse.take_own_delay();
        sample.set(Source::LoopDelay, delay.as_secs_f64());
        sample.set(Source::AcceptQueue, watchdog.accept_queue());
        sample.set(Source::Descriptors, self.descriptors());
        measure(&mut sample);
        self.sampler.tick(sample, settings.overload);
    }

    /// The larger one of two shares: that of connections, and that of open files, which connections to upstreams have too.
    fn descriptors(&self) -> f64 {
        let connections = &self.shared.connections;
        let taken = if connections.limit() < LEAST {
            0.0
        } else {
            connections.open() as f64 / connections.limit() as f64
        };
        let open = |limit: u64| descriptors::open() as f64 / limit.max(1) as f64;
        taken.max(self.shared.open_files.map_or(0.0, open))
    }
}
