//! Limits of the system for this process.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Each connection takes a file, and a proxied one two: the limit is raised as far as the system lets us.
pub(crate) fn raise_open_files() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Keeps the private keys of a process that has nothing else out of core dumps, and its memory from other processes of its user.
/// Where the system refuses, that is a warning.
pub(crate) fn keep_memory_private() {
    let no_cores = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, no_cores) {
        tracing::warn!(%error, "core dumps stay allowed: they would hold private keys");
    }
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "other processes of this user may read the memory, with private keys in it");
    }
}
