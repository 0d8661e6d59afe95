//! The gateway as a part of the process: its reloads, on the main thread.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_pressure::{Mode, Source};
use brisk_server::{Part, PartError};

use crate::configuration::restart::Fixed;
use crate::configuration::upstreams::HealthChecks;
use crate::pages::dashboard::{Next, Served};
use crate::settings::GatewaySettings;
use crate::shared::{self, Shared};

/// The gateway as a part of the process: hosts, TLS, sessions, upstreams, access log and dashboard.
pub struct GatewayPart {
    pub(crate) shared: Arc<Shared>,
    dashboard: RefCell<Served>,
    checks: RefCell<HealthChecks>,
    fixed: RefCell<Fixed>,
    /// Time of the last call of [`Self::adapt_limits`].
    adapted: Cell<Instant>,
}

/// The gateway, prepared for another configuration.
pub struct PreparedGateway {
    shared: shared::Prepared,
    dashboard: Next,
    fixed: Fixed,
}

impl GatewayPart {
    pub(crate) fn new(shared: &Arc<Shared>, settings: &GatewaySettings, dashboard: Served) -> Self {
        Self {
            shared: Arc::clone(shared),
            dashboard: RefCell::new(dashboard),
            checks: RefCell::default(),
            fixed: RefCell::new(Fixed::of(settings)),
            adapted: Cell::new(Instant::now()),
        }
    }

    /// Starts [`HealthChecks`] of the upstreams in force. Must be called inside the runtime of the main thread.
    pub(crate) fn check_health(&self) {
        self.checks.borrow_mut().follow(self.shared.live.load().groups());
    }

    /// Adapts the limits of concurrent requests of upstream servers; ends them with [`Mode::Observe`].
    pub(crate) fn adapt_limits(&self, mode: Mode) {
        // Measured, because a call may be late.
        let passed = self.adapted.replace(Instant::now()).elapsed();
        let delay = Duration::from_secs_f64(self.shared.pressure.value(Source::LoopDelay));
        self.shared.live.load().adapt_limits(passed, (mode == Mode::Shed).then_some(delay));
    }

    /// Ends dashboard and health checks.
    pub(crate) fn end(&self) {
        self.dashboard.borrow_mut().take_over(Next::None);
        self.checks.take();
    }
}

impl Part for GatewayPart {
    type Settings = GatewaySettings;
    type Prepared = PreparedGateway;

    fn prepare(&self, settings: &GatewaySettings) -> Result<PreparedGateway, PartError> {
        Ok(PreparedGateway {
            dashboard: self.dashboard.borrow().prepare(settings.dashboard.as_ref())?,
            shared: self.shared.prepare(settings)?,
            fixed: Fixed::of(settings),
        })
    }

    /// Applies the settings to new connections and requests. Waits for the first staples of new certificates, by
    /// default up to two seconds.
    fn commit(&self, PreparedGateway { shared, dashboard, fixed }: PreparedGateway) {
        self.dashboard.borrow_mut().take_over(dashboard);
        self.shared.commit(shared);
        // After `shared`, whose configuration in force has the groups to check.
        self.check_health();
        self.fixed.borrow().warn_of_changes(&fixed);
        self.fixed.replace(fixed);
    }
}

impl fmt::Debug for GatewayPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayPart").finish_non_exhaustive()
    }
}
