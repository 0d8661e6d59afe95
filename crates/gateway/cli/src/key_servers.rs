//! Key servers as a [`Part`] of the process: connected before certificates use them, kept across reloads.

use std::sync::Arc;

use brisk_keyless::{RemoteEngine, RemoteEngines};
use brisk_server::{Part, PartError};

/// Key servers of the configuration in force.
pub(crate) struct KeyServers(RemoteEngines);

impl KeyServers {
    /// Connects the key servers of the first configuration.
    pub(crate) fn start(engines: &RemoteEngines, first: &Vec<Arc<RemoteEngine>>) -> Result<Self, PartError> {
        let part = Self(engines.clone());
        // As a reload does, so that the start has no path of its own.
        part.commit(part.prepare(first)?);
        Ok(part)
    }
}

impl Part for KeyServers {
    type Settings = Vec<Arc<RemoteEngine>>;
    type Prepared = Vec<Arc<RemoteEngine>>;

    /// Connects new key servers. The connections of an engine end when it is dropped, so a refused configuration leaves
    /// none.
    fn prepare(&self, wanted: &Self::Settings) -> Result<Self::Prepared, PartError> {
        for engine in wanted {
            connect(engine)?;
        }
        Ok(wanted.clone())
    }

    fn commit(&self, wanted: Self::Prepared) {
        self.0.keep(wanted);
    }
}

/// Starts the connections of `engine` ([`RemoteEngine::start`]); does nothing if they are started.
pub(crate) fn connect(engine: &RemoteEngine) -> Result<(), PartError> {
    engine.start().map_err(|error| PartError::new(format!("keyserver.{}: {error}", engine.settings().name)))
}
