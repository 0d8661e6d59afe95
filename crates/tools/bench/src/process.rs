//! Processor time and memory of a process with its threads and descendants, from `/proc`.

use std::collections::HashMap;
use std::fs;
use std::ops::RangeInclusive;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A process and its descendants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family {
    root: u32,
}

impl Family {
    pub(crate) fn of(root: u32) -> Self {
        Self { root }
    }

    /// Process ID of the root, as given by `--server-pid`.
    pub(crate) fn id(self) -> u32 {
        self.root
    }

    /// Whether the process exists and may be inspected.
    pub(crate) fn exists(self) -> bool {
        stat(self.root).is_some()
    }

    /// Processor time so far, including ended children. In nanoseconds for running threads if the kernel provides that;
    /// otherwise, and for ended children, in clock ticks, usually of 10 ms.
    pub(crate) fn cpu(self) -> Duration {
        self.members().into_iter().map(|member| running(member) + ended_children(member)).sum()
    }

    /// Memory in bytes: proportional set size (`Pss`), so that shared pages count once; resident set size if the former may
    /// not be read.
    pub(crate) fn memory(self) -> u64 {
        self.members()
            .into_iter()
            .map(|process| proportional(process).or_else(|| resident(process)).unwrap_or(0))
            .sum()
    }

    fn members(self) -> Vec<u32> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        // The kernel keeps no list of descendants, only the parent of each process.
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            if let Some(parent) = stat(process).and_then(|fields| fields[1].parse().ok()) {
                children.entry(parent).or_default().push(process);
            }
        }
        // A process that starts or ends during the walk is missing, which is no error.
        let mut members = vec![self.root];
        let mut next = 0;
        while let Some(member) = members.get(next) {
            let more = children.remove(member).unwrap_or_default();
            members.extend(more);
            next += 1;
        }
        members
    }
}

/// Processor time of this process, exact, without its children.
pub(crate) fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("processor time is not negative")
}

/// The times of the threads are exact, but lack those of threads which have ended; `utime` and `stime` of proc(5) include
/// them, in whole ticks.
fn running(process: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let nanoseconds = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum()).max(ticks(process, 14..=15))
}

/// `cutime` and `cstime` of proc(5).
fn ended_children(process: u32) -> Duration {
    ticks(process, 16..=17)
}

/// Sum of fields of proc(5), which counts them from 1.
fn ticks(process: u32, fields: RangeInclusive<usize>) -> Duration {
    let total: u64 = stat(process)
        // `stat` begins with field 3 of proc(5).
        .map(|stat| fields.filter_map(|field| stat[field - 3].parse::<u64>().ok()).sum())
        .unwrap_or_default();
    Duration::from_secs_f64(total as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The fields after the name, which may contain spaces.
fn stat(process: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // From the last parenthesis: the name may contain parentheses too.
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_ascii_whitespace().map(str::to_owned).collect();
    // Field 17 of proc(5) is the last one in use.
    (fields.len() > 15).then_some(fields)
}

fn proportional(process: u32) -> Option<u64> {
    kilobytes(&format!("/proc/{process}/smaps_rollup"), "Pss:")
}

fn resident(process: u32) -> Option<u64> {
    kilobytes(&format!("/proc/{process}/status"), "VmRSS:")
}

fn kilobytes(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::time::Instant;

    use brisk_testkit::process::command;

    use super::*;

    #[test]
    fn work_done_here_is_seen() {
        let own = Family::of(std::process::id());
        let (before, exact) = (own.cpu(), own_cpu());
        work_until(Duration::from_secs(5), || own.cpu() >= before + Duration::from_millis(50));
        assert!(own_cpu() > exact);
        assert!(own.memory() > 100_000, "{}", own.memory());
    }

    #[test]
    fn work_of_an_ended_thread_is_seen() {
        let own = Family::of(std::process::id());
        let start = own_cpu();
        let worked = std::thread::spawn(move || {
            work_until(Duration::from_mins(1), || own_cpu() >= start + Duration::from_secs(1));
        });
        worked.join().expect("a thread that works");
        // Whole ticks of two fields are cut off.
        let ticks = Duration::from_millis(20);
        assert!(own.cpu() + ticks >= start + Duration::from_secs(1), "{:?} after {start:?}", own.cpu());
    }

    /// Panics if `enough` is still false after `limit`.
    fn work_until(limit: Duration, enough: impl Fn() -> bool) {
        let start = Instant::now();
        while !enough() {
            assert!(start.elapsed() < limit, "too little processor time in {limit:?}");
            std::hint::black_box((0..10_000_u64).sum::<u64>());
        }
    }

    #[test]
    fn children_belong_to_it() {
        let mut child = command("sleep").arg("60").stdout(Stdio::null()).spawn().expect("sleep");
        let members = Family::of(std::process::id()).members();
        child.kill().expect("a child");
        child.wait().expect("a child");
        assert!(members.contains(&child.id()), "{members:?}");
        assert!(Family::of(std::process::id()).exists());
        assert!(!Family::of(u32::MAX).exists());
    }
}
