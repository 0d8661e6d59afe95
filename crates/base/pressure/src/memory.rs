//! Memory of the process's control group: its limit, its use, and the time lost for lack of it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Folder of control groups.
const ROOT: &str = "/sys/fs/cgroup";

/// Share of the limit from which the page cache is subtracted, which takes a read of a longer file.
const NEAR: f64 = 0.8;

/// Largest value of a group around that of the process, in proportion to the part of the latter.
const OWN: f64 = 2.0;

/// Longest text that is read, in bytes: `memory.stat` has about 2 KiB.
const LONGEST: usize = 16 << 10;

/// Memory that this process may use, in bytes: the machine's, or that of its control group. `None` if neither is known.
pub fn memory_limit() -> Option<u64> {
    let machine = machine_memory();
    let groups = group_limits(&groups_of_process(), Path::new(ROOT));
    // A container sees the memory of its host in `/proc/meminfo`, so the smallest of all limits counts.
    machine.into_iter().chain(groups.into_iter().map(|group| group.limit)).min()
}

fn groups_of_process() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// A limit of memory of one control group.
#[derive(Debug, PartialEq, Eq)]
struct GroupLimit {
    folder: PathBuf,
    /// Folder of the group of the process, which is the same one or below it.
    own: PathBuf,
    limit: u64,
    version: Version,
}

/// Version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// A hierarchy for each controller.
    One,
    /// One hierarchy.
    Two,
}

impl Version {
    /// Files with limits. Groups of version 2 have a limit above which the system takes memory back (`memory.high`), and one above
    /// which it ends processes.
    const fn limits(self) -> &'static [&'static str] {
        match self {
            Self::One => &["memory.limit_in_bytes"],
            Self::Two => &["memory.max", "memory.high"],
        }
    }

    const fn usage(self) -> &'static str {
        match self {
            Self::One => "memory.usage_in_bytes",
            Self::Two => "memory.current",
        }
    }

    /// Names of the page cache in `memory.stat`, including the groups below.
    const fn cache(self) -> [&'static str; 2] {
        match self {
            Self::One => ["total_inactive_file ", "total_active_file "],
            Self::Two => ["inactive_file ", "active_file "],
        }
    }
}

/// The limits of the control groups in `groups` (`/proc/self/cgroup`), which are folders below `root`, and of the groups around
/// them.
fn group_limits(groups: &str, root: &Path) -> Vec<GroupLimit> {
    let folder_of = |line: &str| {
        let (controllers, group) =
            line.split_once(':').and_then(|(_, rest)| rest.split_once(":/")).unwrap_or_default();
        match controllers {
            // Version 2 has an empty list of controllers.
            "" => Some((root.join(group), Version::Two)),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                Some((root.join("memory").join(group), Version::One))
            }
            _ => None,
        }
    };
    let mut limits = Vec::new();
    for (own, version) in groups.lines().filter_map(folder_of) {
        // The groups around count too: the limit of a pod or slice is in the group above that of the process.
        for folder in own.ancestors().take_while(|above| above.starts_with(root)) {
            let limit = |file: &&str| -> Option<u64> {
                // `max`, the word for no limit, is no number and is left out here.
                fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()
            };
            let group = |limit| GroupLimit { folder: folder.to_owned(), own: own.clone(), limit, version };
            limits.extend(version.limits().iter().filter_map(limit).map(group));
        }
    }
    limits
}

fn machine_memory() -> Option<u64> {
    memory_in(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn memory_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The use of the smallest limit of memory.
#[derive(Debug)]
pub(crate) struct MemoryProbe {
    limit: u64,
    version: Version,
    usage: File,
    /// Use of the group of the process, if the limit is that of a group around it.
    own_usage: Option<File>,
    statistics: Option<File>,
    /// Pressure Stall Information, where the kernel has it.
    stalls: Option<File>,
    /// Total time lost at the last sample.
    stalled: Option<Duration>,
}

impl MemoryProbe {
    /// The probe of this process; `None` if no control group limits its memory.
    pub(crate) fn of_process() -> Option<Self> {
        let machine = machine_memory().unwrap_or(u64::MAX);
        Self::smallest(group_limits(&groups_of_process(), Path::new(ROOT)), machine)
    }

    fn smallest(limits: Vec<GroupLimit>, machine: u64) -> Option<Self> {
        // A group of version 1 without a limit has one that no machine reaches.
        let limits = limits.into_iter().filter(|group| group.limit > 0 && group.limit < machine);
        let GroupLimit { folder, own, limit, version } = limits.min_by_key(|group| group.limit)?;
        Some(Self {
            limit,
            version,
            usage: File::open(folder.join(version.usage())).ok()?,
            own_usage: File::open(own.join(version.usage())).ok().filter(|_| own != folder),
            statistics: File::open(folder.join("memory.stat")).ok(),
            // Stalls of other groups are no reason to do less.
            stalls: [own, folder].iter().find_map(|folder| File::open(folder.join("memory.pressure")).ok()),
            stalled: None,
        })
    }

    /// Used part of the limit, without the page cache, which the system gives up for other uses. At most twice the part of the
    /// group of the process, because less work frees no memory of other programs.
    pub(crate) fn used(&self) -> f64 {
        let own = self.own_usage.as_ref().and_then(bytes_in);
        let most = own.map_or(f64::INFINITY, |own| OWN * own as f64 / self.limit as f64);
        self.used_of_group().min(most)
    }

    fn used_of_group(&self) -> f64 {
        let used = |bytes: u64| bytes as f64 / self.limit as f64;
        let usage = bytes_in(&self.usage).unwrap_or(0);
        if used(usage) < NEAR {
            return used(usage);
        }
        let statistics = self.statistics.as_ref().and_then(|file| read(file).ok()).unwrap_or_default();
        let names = self.version.cache();
        let cache = statistics.lines().filter_map(|line| {
            names.iter().find_map(|name| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        });
        used(usage.saturating_sub(cache.sum()))
    }

    /// Part of the time since the last call in which all tasks of the group waited for memory; `interval` is the time between two
    /// calls.
    pub(crate) fn stalled(&mut self, interval: Duration) -> f64 {
        let total = self.stalls.as_ref().and_then(|file| read(file).ok()).and_then(|text| lost(&text));
        let before = std::mem::replace(&mut self.stalled, total);
        let lost = total.zip(before).map_or(Duration::ZERO, |(total, before)| total.saturating_sub(before));
        // The clock of the kernel and that of the process differ a little.
        (lost.as_secs_f64() / interval.as_secs_f64()).min(1.0)
    }
}

/// The number in a file of the kernel.
fn bytes_in(file: &File) -> Option<u64> {
    read(file).ok()?.trim().parse().ok()
}

/// The beginning of a file of the kernel, which forms the text anew at each read.
fn read(file: &File) -> io::Result<String> {
    let mut text = vec![0; LONGEST];
    let length = file.read_at(&mut text, 0)?;
    text.truncate(length);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Total time in which all tasks waited: the line `full avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS`.
fn lost(pressure: &str) -> Option<Duration> {
    let line = pressure.lines().find(|line| line.starts_with("full "))?;
    line.rsplit_once("total=")?.1.trim().parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let file = root.join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, format!("{text}\n")).expect("a file");
    }

    #[test]
    fn the_memory_of_a_machine_is_its_total() {
        assert_eq!(memory_in("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(memory_in("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn the_smallest_limit_of_the_control_groups_counts() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        write(root, "pod/memory.max", "300000");
        write(root, "pod/brisk/memory.max", "max");
        write(root, "memory/pod/memory.limit_in_bytes", "9223372036854771712");
        let limit = |groups| group_limits(groups, root).into_iter().map(|group| group.limit).min();
        assert_eq!(limit("0::/pod/brisk\n"), Some(300_000));
        write(root, "pod/brisk/memory.high", "200000");
        assert_eq!(limit("0::/pod/brisk\n"), Some(200_000));
        assert_eq!(limit("0::/other\n"), None);
        // Version 1, where each controller has folders of its own.
        write(root, "memory/pod/brisk/memory.limit_in_bytes", "100000");
        assert_eq!(limit("5:cpu,memory:/pod/brisk\n4:pids:/pod\n0::/pod\n"), Some(100_000));
        assert_eq!(limit(""), None);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(memory_limit().is_some_and(|memory| memory > 1 << 20));
    }

    /// Percent of the limit in use, as the probe of a group reports it.
    fn used(root: &Path, groups: &str) -> Option<u32> {
        let probe = MemoryProbe::smallest(group_limits(groups, root), 1 << 30)?;
        Some((100.0 * probe.used()).round() as u32)
    }

    #[test]
    fn the_page_cache_is_no_use_of_memory() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        write(root, "brisk/memory.max", "1000");
        write(root, "brisk/memory.current", "700");
        assert_eq!(used(root, "0::/brisk\n"), Some(70));
        write(root, "brisk/memory.current", "1000");
        assert_eq!(used(root, "0::/brisk\n"), Some(100), "without statistics, all of it counts");
        write(
            root,
            "brisk/memory.stat",
            "anon 450\nfile 500\ninactive_file 300\nactive_file 200\ninactive_anon 7",
        );
        assert_eq!(used(root, "0::/brisk\n"), Some(50));
        write(root, "memory/brisk/memory.limit_in_bytes", "500");
        write(root, "memory/brisk/memory.usage_in_bytes", "500");
        write(
            root,
            "memory/brisk/memory.stat",
            "inactive_file 1\ntotal_inactive_file 50\ntotal_active_file 50",
        );
        assert_eq!(used(root, "3:memory:/brisk\n0::/brisk\n"), Some(80));
        // No limit, in both versions.
        write(root, "free/memory.max", "max");
        write(root, "memory/free/memory.limit_in_bytes", "9223372036854771712");
        assert_eq!(used(root, "3:memory:/free\n0::/free\n"), None);
    }

    #[test]
    fn memory_of_other_groups_counts_up_to_twice_the_own() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        write(root, "pod/memory.max", "1000");
        write(root, "pod/memory.current", "980");
        assert_eq!(used(root, "0::/pod/brisk\n"), Some(98), "without a use of its own");
        write(root, "pod/brisk/memory.current", "50");
        assert_eq!(used(root, "0::/pod/brisk\n"), Some(10));
        write(root, "pod/brisk/memory.current", "700");
        assert_eq!(used(root, "0::/pod/brisk\n"), Some(98));
    }

    #[test]
    fn stalls_are_the_growth_of_the_lost_time() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        write(root, "brisk/memory.max", "1000");
        write(root, "brisk/memory.current", "700");
        let pressure = |full: u32| {
            let line = |kind, total| format!("{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={total}");
            write(
                root,
                "brisk/memory.pressure",
                &format!("{}\n{}", line("some", 9_999_999), line("full", full)),
            );
        };
        pressure(5000);
        let mut probe = MemoryProbe::smallest(group_limits("0::/brisk\n", root), 1 << 30).expect("a limit");
        let mut stalled = || (100.0 * probe.stalled(Duration::from_millis(100))).round() as u32;
        assert_eq!(stalled(), 0, "the first sample has no predecessor");
        pressure(25_000);
        assert_eq!(stalled(), 20);
        assert_eq!(stalled(), 0);
        pressure(900_000);
        assert_eq!(stalled(), 100);
    }
}
