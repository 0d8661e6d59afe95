//! Limits of memory and pace: `[server.limits]`.

use std::fs;
use std::path::{Path, PathBuf};

use brisk_config_file::{Findings, KeyPath, Size};
use brisk_http_server::HttpSettings;

use crate::raw::ServerLimits;

/// The share of the machine's memory that responses may take unless another limit is written.
const PART: u64 = 4;

/// Resolves the limits in `[server.limits]` of buffered responses and slow request bodies.
pub(super) fn memory_and_pace(
    raw: &ServerLimits,
    path: &KeyPath,
    findings: &mut Findings<'_>,
    settings: &mut HttpSettings,
) {
    let sizes = Size(64 << 10)..=Size(1 << 30);
    let usual = Size(settings.buffered as u64);
    settings.buffered = findings.within(&path.key("buffered"), raw.buffered, usual, &sizes).0 as usize;
    let sizes = Size(1 << 20)..=Size(1 << 50);
    // At least the lower end of the range, so that the default is valid on a small machine too.
    let usual = memory().map_or(settings.buffered_total as u64, |memory| memory / PART).max(1 << 20);
    let total = path.key("buffered_total");
    settings.buffered_total = findings.within(&total, raw.buffered_total, Size(usual), &sizes).0 as usize;
    let (requests, usual) = (path.key("buffered_requests"), Size(settings.gathered_total));
    settings.gathered_total = findings.within(&requests, raw.buffered_requests, usual, &sizes).0;
    let (files, usual) = (path.key("compressed_files"), Size(settings.compressed_files as u64));
    let sizes = Size(0)..=Size(1 << 40);
    settings.compressed_files = findings.within(&files, raw.compressed_files, usual, &sizes).0 as usize;
    let (dictionaries, usual) = (path.key("dictionaries"), Size(settings.dictionaries as u64));
    settings.dictionaries = findings.within(&dictionaries, raw.dictionaries, usual, &sizes).0 as usize;
    let (path, usual) = (path.key("compression_memory"), Size(settings.compression_memory as u64));
    let sizes = Size(4 << 20)..=Size(1 << 40);
    settings.compression_memory = findings.within(&path, raw.compression_memory, usual, &sizes).0 as usize;
    if let Some(rate) = raw.body_rate {
        settings.body_rate = rate.0.unwrap_or(0);
    }
    if let Some(rate) = raw.read_rate {
        settings.read_rate = rate.0.unwrap_or(0);
    }
}

/// Memory that this process may use: the machine's, or that of its control group.
fn memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine_memory(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // A container sees the memory of its host in `/proc/meminfo`, so the smallest of all limits counts.
    machine.into_iter().chain(group_memory(&groups, Path::new("/sys/fs/cgroup"))).min()
}

/// The smallest limit of the control groups in `groups` (`/proc/self/cgroup`), which are folders below `root`, and of the
/// groups around them; `None` without a limit. Groups of version 2 have a limit above which the system takes memory
/// back (`memory.high`), and one above which it ends processes.
fn group_memory(groups: &str, root: &Path) -> Option<u64> {
    let limits = |folder: PathBuf, files: &'static [&'static str]| {
        // The groups around count too: the limit of a pod or slice is in the group above that of the process.
        let folders: Vec<_> =
            folder.ancestors().take_while(|above| above.starts_with(root)).map(Path::to_owned).collect();
        folders.into_iter().flat_map(move |folder| {
            files
                .iter()
                // `max`, the word for no limit, is no number and is left out here.
                .filter_map(move |file| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok())
        })
    };
    let limits = groups.lines().flat_map(|line| {
        let (controllers, group) =
            line.split_once(':').and_then(|(_, rest)| rest.split_once(":/")).unwrap_or_default();
        let (folder, files): (_, &'static [&'static str]) = match controllers {
            // Version 2 has one hierarchy, and an empty list of controllers. Version 1 has a hierarchy for
            // each controller.
            "" => (root.join(group), &["memory.max", "memory.high"]),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (root.join("memory").join(group), &["memory.limit_in_bytes"])
            }
            _ => (root.to_owned(), &[]),
        };
        limits(folder, files)
    });
    limits.min()
}

fn machine_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_machine_is_its_total() {
        assert_eq!(machine_memory("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(machine_memory("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn the_smallest_limit_of_the_control_groups_counts() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |file: &str, limit: &str| {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(file, format!("{limit}\n")).expect("a file");
        };
        write("pod/memory.max", "300000");
        write("pod/brisk/memory.max", "max");
        write("memory/pod/memory.limit_in_bytes", "9223372036854771712");
        let limit = |groups| group_memory(groups, root.path());
        assert_eq!(limit("0::/pod/brisk\n"), Some(300_000));
        write("pod/brisk/memory.high", "200000");
        assert_eq!(limit("0::/pod/brisk\n"), Some(200_000));
        assert_eq!(limit("0::/other\n"), None);
        // Version 1, where each controller has folders of its own.
        write("memory/pod/brisk/memory.limit_in_bytes", "100000");
        assert_eq!(limit("5:cpu,memory:/pod/brisk\n4:pids:/pod\n0::/pod\n"), Some(100_000));
        assert_eq!(limit(""), None);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(memory().is_some_and(|memory| memory > 1 << 20));
    }
}
