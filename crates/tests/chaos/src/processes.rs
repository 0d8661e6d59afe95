//! Facts of processes from `/proc`, and signals to them.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Number of open descriptors; 0 for a process that has ended.
pub(crate) fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count)
}

/// Resident memory in kB; 0 for a process that has ended.
pub(crate) fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

/// The running children of a process.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter(|process| parent_of(*process) == Some(parent)).collect()
}

/// A running descendant of `ancestor` with this argument.
pub(crate) fn descendant(ancestor: u32, argument: &str) -> Option<u32> {
    children(ancestor).into_iter().find_map(|child| {
        let line = fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
        if line.split('\0').any(|word| word == argument) { Some(child) } else { descendant(child, argument) }
    })
}

/// Sends a signal to a process, unless it has ended.
pub(crate) fn signal(process: u32, signal: Signal) {
    if let Some(id) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        // An error means that it has ended.
        let _ = kill_process(id, signal);
    }
}

/// The parent of a process; `None` if the process has ended.
fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The last bracket, because a name may contain brackets and spaces.
    let mut words = stat.rsplit_once(") ")?.1.split(' ');
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(parent)
}

#[cfg(test)]
mod tests {
    use brisk_testkit::process::{Process, command};

    use super::*;

    #[test]
    fn a_child_is_found_by_its_parent_and_its_arguments() {
        let own = std::process::id();
        let child = Process::start(command("sleep").arg("61"));
        assert!(children(own).contains(&child.id()));
        assert_eq!(descendant(own, "61"), Some(child.id()));
        assert!(descriptors(own) > 2 && resident(own) > 100);
        let id = child.id();
        drop(child);
        assert_eq!((descendant(own, "61"), descriptors(id)), (None, 0));
    }
}
