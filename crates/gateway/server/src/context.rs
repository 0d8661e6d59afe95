//! State that a server provides to a worker, and state shared by all workers.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use brisk_net::{ConnectionLimit, DeadlineWheel, Drain};
use brisk_pressure::{Pressure, Work};
use tokio::sync::watch;

use crate::descriptors;
use crate::service::{NoService, Place};
use crate::settings::{Program, ServerSettings};
use crate::watchdog::Pulse;

/// State that a server provides to a worker.
#[derive(Clone)]
pub struct WorkerContext {
    /// The number of the worker, from 0.
    pub number: usize,
    /// Deadlines of this thread. Connections that are registered as idle in `wheel` give up their [`Place`] in a shortage.
    pub wheel: DeadlineWheel,
    /// The drain of the server.
    pub drain: Drain,
    pub(crate) shared: Arc<Shared>,
    /// Number of connections that wait for a [`Place`].
    pub(crate) waiting: Rc<Cell<usize>>,
}

impl WorkerContext {
    /// A [`Place`] for a connection that has no socket of its own, as with QUIC. If none is free, connections that are idle longest
    /// are closed, so that a later attempt succeeds.
    ///
    /// # Errors
    ///
    /// [`NoService`] if no place is free, or in an overload.
    pub fn place(&self) -> Result<Place, NoService> {
        if self.shared.pressure.refuses(Work::Connection) {
            return Err(NoService::Overloaded);
        }
        let place = Place::take(self);
        if place.is_none() {
            self.make_room();
        }
        place.ok_or(NoService::Full)
    }

    /// Closes the connections that are idle longest: of this worker or, if it has none, of others.
    pub(crate) fn make_room(&self) {
        // Those of this worker first: they close on this thread, in its next turn.
        if self.wheel.evict_idle() == 0 {
            // `send_replace` notifies although the value is the same, and also without
            // receivers, for which `send` fails.
            self.shared.shortages.send_replace(());
        }
    }
}

impl fmt::Debug for WorkerContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerContext").field("number", &self.number).finish_non_exhaustive()
    }
}

/// State shared by all threads of a server.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) connections: ConnectionLimit,
    /// Maximum number of open files, as read at the start.
    pub(crate) open_files: Option<u64>,
    pub(crate) program: Program,
    /// Notifies the workers that one of them has no [`Place`] for a connection, and no idle connection to close.
    pub(crate) shortages: watch::Sender<()>,
}

impl Shared {
    pub(crate) fn new(settings: &ServerSettings, listeners: usize, program: Program) -> Self {
        Self {
            pulse: Pulse::new(settings.workers.get()),
            pressure: Pressure::new(),
            connections: ConnectionLimit::new(descriptors::connections(settings, listeners)),
            open_files: descriptors::limit(),
            program,
            shortages: watch::Sender::new(()),
        }
    }
}
