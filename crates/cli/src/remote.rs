//! The key servers that this process asks: one engine for each set of settings, whatever reloads come.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use brisk_keyless::{RemoteEngine, RemoteMetrics, RemoteSettings};

use crate::isolated;

static REMOTE: LazyLock<Remote> = LazyLock::new(Remote::default);

/// The engines in use.
#[derive(Default)]
struct Remote {
    engines: Mutex<Vec<Arc<RemoteEngine>>>,
    metrics: RemoteMetrics,
}

fn engines() -> MutexGuard<'static, Vec<Arc<RemoteEngine>>> {
    REMOTE.engines.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The engine with these settings: one that is in use, or a new one, which is not connected.
pub(crate) fn engine(settings: RemoteSettings) -> Arc<RemoteEngine> {
    let same = engines().iter().find(|engine| *engine.settings() == settings).cloned();
    same.unwrap_or_else(|| Arc::new(RemoteEngine::new(settings)))
}

/// Connects these engines, if they are not. They are to be connected before anything asks them.
pub(crate) fn connect(wanted: &[Arc<RemoteEngine>]) {
    for engine in wanted {
        if let Err(error) = engine.start(&REMOTE.metrics) {
            tracing::error!(keyserver = engine.settings().name, %error, "no connections to key servers");
        }
    }
}

/// These engines are in use now. The others are forgotten: they end when nothing uses them any more.
pub(crate) fn keep(used: Vec<Arc<RemoteEngine>>) {
    *engines() = used;
}

/// Why no key server of a set answers, if so.
pub(crate) fn trouble() -> Option<String> {
    let troubles: Vec<_> =
        engines().iter().filter_map(|engine| engine.trouble()).chain(isolated::trouble()).collect();
    (!troubles.is_empty()).then(|| troubles.join("; "))
}

/// The metrics of all engines.
pub(crate) fn metrics() -> RemoteMetrics {
    REMOTE.metrics.clone()
}
