//! `[keys]` as a part of the process: only a restart applies it.

use std::cell::RefCell;

use brisk_config::KeySettings;
use brisk_server::{Part, PartError};

/// The settings of the engines, which were started once.
pub(crate) struct FixedKeys {
    started: KeySettings,
    /// Those of the configuration in force.
    last: RefCell<KeySettings>,
}

impl FixedKeys {
    /// Engines that were started with these settings.
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

    /// Warns of changed settings, once for each change.
    fn commit(&self, settings: KeySettings) {
        if settings != self.started && settings != *self.last.borrow() {
            tracing::warn!(key = "keys", "changed, but takes full effect only after a restart");
        }
        self.last.replace(settings);
    }
}
