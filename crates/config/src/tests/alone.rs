//! The process for which tests read configurations.

use std::sync::Arc;

use brisk_keyless::{RemoteEngine, RemoteSettings};

use crate::{KeyProcess, Process};

/// A process without connections to key servers, and without a key process.
pub(super) struct Alone;

impl Process for Alone {
    fn engine(&self, settings: RemoteSettings) -> Arc<RemoteEngine> {
        Arc::new(RemoteEngine::new(settings))
    }

    fn key_process(&self) -> Option<&dyn KeyProcess> {
        None
    }

    fn trouble_with_user(&self, _: &str) -> Option<String> {
        None
    }
}
