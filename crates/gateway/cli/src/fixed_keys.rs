//! `[keys]` as a [`Part`] of the process: a change requires a restart.

use std::cell::RefCell;

use brisk_config::KeySettings;
use brisk_server::{Part, PartError};

/// Settings of the engines, which are started once in a process.
pub(crate) struct FixedKeys {
    started: KeySettings,
    /// Settings of the configuration in force, which may differ from `started` after a reload.
    last: RefCell<KeySettings>,
}

impl FixedKeys {
    /// Creates the [`Part`] for engines that were started with `started`.
    pub(crate) fn new(started: &KeySettings) -> Self {
        Self { started: started.clone(), last: RefCell::new(started.clone()) }
    }
}

impl Part for FixedKeys {
    type Settings = KeySettings;
    type Prepared = KeySettings;

    fn prepare(&self, settings: &KeySettings) -> Result<KeySettings, PartError> {
        Ok(settings.clone())
    }

    /// Warns if the settings differ from those of the start, once for each change.
    fn commit(&self, settings: KeySettings) {
        // The return to the settings of the start needs no restart, and the same change is reported once.
        if settings != self.started && settings != *self.last.borrow() {
            tracing::warn!(key = "keys", "changed, but takes full effect only after a restart");
        }
        self.last.replace(settings);
    }
}
