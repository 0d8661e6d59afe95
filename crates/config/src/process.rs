//! The process for which a configuration is read: its connections to key servers stay across reloads, and a process beside it may
//! hold the keys.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use brisk_keyless::{RemoteEngine, RemoteSettings};

/// The running process.
pub trait Process {
    /// The engine with these settings: one that is in use, or a new one, which is not connected.
    fn engine(&self, settings: RemoteSettings) -> Arc<RemoteEngine>;

    /// The key process of `[keys] isolate`, if one was started.
    fn key_process(&self) -> Option<&dyn KeyProcess>;

    /// The reason why a key process could not run as this user, if there is one.
    fn trouble_with_user(&self, name: &str) -> Option<String>;
}

/// A process beside the gateway which reads the files of keys and performs all operations with them.
pub trait KeyProcess {
    /// The engine whose keys are in the process. The first call determines the number of its connections, and of operations at a
    /// time.
    fn engine(&self, connections: NonZeroUsize, operations: NonZeroUsize) -> Arc<RemoteEngine>;

    /// Has the process read these files beside those in use: for each file the name of its key, or the reason why it has none. The
    /// error is that the process does not answer.
    fn load(&self, files: &[PathBuf]) -> Result<Vec<Result<String, String>>, String>;
}
