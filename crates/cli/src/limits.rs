//! Limits of the system for this process.

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Each connection takes a file, and a proxied one two: the limit is raised as far as the system lets us.
/// A refusal is a warning.
pub(crate) fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit).map_err(io::Error::from) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}
