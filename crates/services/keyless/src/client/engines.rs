//! The engines that a process uses: one for each set of settings. A reload reuses the engines of unchanged settings.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{RemoteEngine, RemoteMetrics, RemoteSettings};

/// The engines in use by a process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RemoteEngines {
    engines: Arc<Mutex<Vec<Arc<RemoteEngine>>>>,
    metrics: RemoteMetrics,
}

impl RemoteEngines {
    /// The engine with these settings: one that is in use, or a new one, which is not started.
    pub fn engine(&self, settings: RemoteSettings) -> Arc<RemoteEngine> {
        // The settings contain a stamp of the files, so that equal settings mean equal certificates and
        // authorities.
        let same = self.engines().iter().find(|engine| *engine.settings() == settings).cloned();
        same.unwrap_or_else(|| Arc::new(RemoteEngine::new(settings)))
    }

    /// Uses the engines `used` from now on. The others are forgotten: they end when no certificate uses them any more.
    pub fn keep(&self, used: Vec<Arc<RemoteEngine>>) {
        for engine in &used {
            self.metrics.show(engine);
        }
        *self.engines() = used;
    }

    /// Why no key server of a set answers, for each set that has such trouble.
    pub fn troubles(&self) -> Vec<String> {
        self.engines().iter().filter_map(|engine| engine.trouble()).collect()
    }

    /// The [`RemoteMetrics`] of all engines.
    pub fn metrics(&self) -> &RemoteMetrics {
        &self.metrics
    }

    fn engines(&self) -> MutexGuard<'_, Vec<Arc<RemoteEngine>>> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
