//! Processor time and memory of a process with its threads and descendants, from `/proc`.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// A process and all that it started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family {
    root: u32,
}

impl Family {
    pub(crate) fn of(root: u32) -> Self {
        Self { root }
    }

    /// This process.
    pub(crate) fn own() -> Self {
        Self { root: std::process::id() }
    }

    /// Its id.
    pub(crate) fn id(self) -> u32 {
        self.root
    }

    /// Whether the process exists and may be looked at.
    pub(crate) fn exists(self) -> bool {
        stat(self.root).is_some()
    }

    /// User and system time so far, that of ended children included. Exact to the kernel's tick, mostly 10 ms.
    pub(crate) fn cpu(self) -> Duration {
        let members = self.members();
        // utime, stime, cutime, cstime of proc(5), which count from 1, and the first field here is the third there.
        let ticks = |fields: Vec<String>| {
            fields[11..15].iter().filter_map(|field| field.parse::<u64>().ok()).sum::<u64>()
        };
        let total: u64 = members.into_iter().filter_map(stat).map(ticks).sum();
        Duration::from_secs_f64(total as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Memory in bytes: proportional set size, so that what is shared counts once; resident set size where the former
    /// may not be read.
    pub(crate) fn memory(self) -> u64 {
        self.members()
            .into_iter()
            .map(|process| proportional(process).or_else(|| resident(process)).unwrap_or(0))
            .sum()
    }

    fn members(self) -> Vec<u32> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            if let Some(parent) = stat(process).and_then(|fields| fields[1].parse().ok()) {
                children.entry(parent).or_default().push(process);
            }
        }
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

/// The fields after the name, which may have spaces in it.
fn stat(process: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_ascii_whitespace().map(str::to_owned).collect();
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
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;

    #[test]
    fn work_done_here_is_seen() {
        let own = Family::own();
        let before = own.cpu();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) && own.cpu() < before + Duration::from_millis(50) {
            std::hint::black_box((0..10_000_u64).sum::<u64>());
        }
        assert!(own.cpu() >= before + Duration::from_millis(50));
        assert!(own.memory() > 100_000, "{}", own.memory());
    }

    #[test]
    fn children_belong_to_it() {
        let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().expect("sleep");
        let members = Family::own().members();
        child.kill().expect("a child");
        child.wait().expect("a child");
        assert!(members.contains(&child.id()), "{members:?}");
        assert!(Family::own().exists());
        assert!(!Family::of(u32::MAX).exists());
    }
}
