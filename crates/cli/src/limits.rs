//! Limits of the system for this process.

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Each connection takes a file, and a proxied one two: the limit is raised as far as the system lets us.
pub(crate) fn raise_open_files() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
