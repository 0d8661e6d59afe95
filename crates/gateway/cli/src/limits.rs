//! Resource limits of the process.

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files (`RLIMIT_NOFILE`) to the hard limit, because each connection uses a descriptor and a
/// proxied one two. A refusal is logged as a warning.
pub(crate) fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit).map_err(io::Error::from) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}
