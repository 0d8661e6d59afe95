//! Threads of this process, read from `/proc/self/task`.

use std::fs;
use std::io;

/// IDs of all threads.
pub(crate) fn all() -> io::Result<Vec<i32>> {
    let entries = fs::read_dir("/proc/self/task")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Name of a thread from `comm`; `None` if it has ended.
pub(crate) fn name(thread: i32) -> Option<String> {
    let name = fs::read(format!("/proc/self/task/{thread}/comm")).ok()?;
    let name = String::from_utf8_lossy(&name).trim().to_owned();
    (!name.is_empty()).then_some(name)
}
