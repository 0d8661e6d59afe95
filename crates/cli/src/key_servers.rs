//! Key servers as a part of the process: connected before certificates ask them, and kept by reloads.

use std::sync::Arc;

use brisk_keyless::{RemoteEngine, RemoteEngines};
use brisk_server::{Part, PartError};

/// The key servers that the configuration in force uses.
pub(crate) struct KeyServers(RemoteEngines);

impl KeyServers {
    /// Connects the key servers of the first configuration.
    pub(crate) fn start(engines: &RemoteEngines, first: &Vec<Arc<RemoteEngine>>) -> Result<Self, PartError> {
        let part = Self(engines.clone());
        part.commit(part.prepare(first)?);
        Ok(part)
    }
}

impl Part for KeyServers {
    type Settings = Vec<Arc<RemoteEngine>>;
    type Prepared = Vec<Arc<RemoteEngine>>;

    /// Connects those that are not in use yet. Their connections end with them.
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

/// Starts the connections of an engine, unless they are started.
pub(crate) fn connect(engine: &RemoteEngine) -> Result<(), PartError> {
    engine.start().map_err(|error| PartError::new(format!("keyserver.{}: {error}", engine.settings().name)))
}
