//! A service and settings for tests of servers.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use brisk_pressure::Mode;
use tokio::task::JoinSet;

use crate::context::WorkerContext;
use crate::service::{Accepted, NoService, Service};
use crate::settings::{Program, ServerSettings};

/// Any free port on loopback.
pub(crate) const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

pub(crate) const PROGRAM: Program = Program { give_back_memory: || (), dropped_log_lines: || 0 };

pub(crate) fn settings(workers: usize, max_connections: usize) -> ServerSettings {
    ServerSettings {
        workers: NonZeroUsize::new(workers).expect("a worker"),
        max_connections,
        descriptors_per_connection: 1,
        admin: None,
        drain_timeout: Duration::from_secs(1),
        drain_delay: Duration::ZERO,
        overload: Mode::Shed,
        files: Vec::new(),
    }
}

/// Closes every connection, and counts them.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// The worker that cannot start.
    pub(crate) broken: Option<usize>,
}

/// Observations of a worker of [`Closing`].
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) served: Cell<usize>,
    pub(crate) refused: Cell<usize>,
}

impl Service for Closing {
    type Listener = ();
    type Worker = Counts;

    fn start_worker(
        self: Arc<Self>,
        context: &WorkerContext,
        _tasks: &mut JoinSet<()>,
    ) -> io::Result<Rc<Counts>> {
        if self.broken == Some(context.number) {
            return Err(io::Error::other("it cannot start"));
        }
        Ok(Rc::default())
    }

    fn serve(worker: &Rc<Counts>, _connection: Accepted<()>) {
        worker.served.update(|served| served + 1);
    }

    fn refused(worker: &Counts, _reason: NoService) {
        worker.refused.update(|refused| refused + 1);
    }
}
