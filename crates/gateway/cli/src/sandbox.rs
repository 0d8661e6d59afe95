//! `server.user` and `server.sandbox`: the process gives up the rights that the gateway does not need.

use std::fmt;
use std::rc::Rc;

use anyhow::anyhow;
use brisk_config::{EarlyKeys, Running, SandboxSettings};
use brisk_sandbox::{Calls, Confinement, Privileges, confine, outside};
use brisk_server::{Part, PartError};
use brisk_telemetry::metrics::{Collector, Encoder};
use rustix::process::geteuid;

/// First step, before the process has a second thread: changes the user and gives up capabilities.
pub(crate) fn drop_privileges(early: &EarlyKeys) -> anyhow::Result<Privileges> {
    let is_confined = !early.is_sandbox_off && !early.runs_programs;
    brisk_sandbox::drop_privileges(early.user.as_deref(), is_confined)
        .map_err(|error| anyhow!("server.user: {error}"))
}

/// The rights of the process, as a [`Part`]: refuses configurations that need others.
pub(crate) struct Sandbox {
    running: Rc<Running>,
    user: Option<String>,
    is_on: bool,
    limits: Limits,
}

impl Sandbox {
    /// Second step, after the sockets are bound: limits file access and system calls of all threads, and logs the rights of the
    /// process.
    pub(crate) fn start(settings: &SandboxSettings, running: &Rc<Running>) -> Self {
        let confinement = if settings.is_on && !settings.runs_programs {
            // Libraries that drive hardware open files that only they know.
            let (folders, calls) = if settings.hardware.is_empty() {
                (Some(&settings.folders), Calls::Server)
            } else {
                (None, Calls::Hardware)
            };
            confine(folders, calls)
        } else {
            Confinement::default()
        };
        let privileges = running.rights.privileges.get();
        log(settings, privileges, &confinement);
        let limits = Limits {
            user: !geteuid().is_root(),
            files: confinement.granted.is_some(),
            calls: confinement.limits_calls,
        };
        if let Some(granted) = confinement.granted {
            // Set once: the process has one configuration at its start.
            let _ = running.rights.granted.set(granted);
        }
        let (user, is_on) = (settings.user.clone(), settings.is_on);
        Self { running: Rc::clone(running), user, is_on, limits }
    }

    /// [`Collector`] of the limits in force.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }
}

/// Logs limits that are not in force with their reasons, and the rights of the process in one line.
fn log(settings: &SandboxSettings, privileges: Option<&Privileges>, confinement: &Confinement) {
    if !settings.is_on {
        tracing::warn!("server.sandbox is \"off\": the process keeps rights that the gateway does not need");
    } else if settings.runs_programs {
        tracing::warn!(
            "the sandbox is off, because acme.dns.hook runs programs, which would have its limits: acme.dns.server (RFC 2136) and \
             acme.dns.acme_dns need no program"
        );
    } else if !settings.hardware.is_empty() {
        let keys = settings.hardware.join(", ");
        tracing::warn!(
            keys,
            "file access is not limited, and system calls in part, since libraries drive hardware"
        );
    }
    let of_privileges = privileges.map_or(&[][..], |privileges| &privileges.missing);
    for missing in of_privileges.iter().chain(&confinement.missing) {
        tracing::warn!("the sandbox is incomplete: {missing}");
    }
    // A key server keeps the user and the capabilities of its start.
    let Some(privileges) = privileges else {
        return tracing::info!("rights of the process: files: {confinement}");
    };
    if let Some(user) = &privileges.ignored {
        tracing::warn!(
            user,
            "server.user has no effect: only root can change the user, and another user started brisk"
        );
    }
    if privileges.is_root() {
        tracing::warn!(
            "brisk runs as root: with server.user, a defect in it reaches only the files that this user may read"
        );
    }
    tracing::info!("rights of the process: {privileges}, files: {confinement}");
}

impl Part for Sandbox {
    type Settings = SandboxSettings;
    /// User and mode of the new configuration.
    type Prepared = (Option<String>, bool);

    fn prepare(&self, settings: &SandboxSettings) -> Result<Self::Prepared, PartError> {
        let granted = self.running.rights.granted.get();
        match granted.and_then(|granted| granted.first_outside(&settings.folders)) {
            Some(path) => Err(PartError::new(outside(path))),
            None => Ok((settings.user.clone(), settings.is_on)),
        }
    }

    fn commit(&self, (user, is_on): Self::Prepared) {
        for (key, is_changed) in [("server.user", user != self.user), ("server.sandbox", is_on != self.is_on)]
        {
            if is_changed {
                tracing::warn!(key, "changed, but takes effect only after a restart");
            }
        }
    }
}

/// Limits of the process that are in force, for the metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    user: bool,
    files: bool,
    calls: bool,
}

impl Collector for Limits {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let mut family =
            page.gauge("sandbox_limits", "Limits of the rights of the process: 1 if in force, otherwise 0.")?;
        let limits = [("user", self.user), ("files", self.files), ("system_calls", self.calls)];
        for (limit, is_in_force) in limits {
            family.gauge(&[("limit", limit)], u64::from(is_in_force))?;
        }
        Ok(())
    }
}
