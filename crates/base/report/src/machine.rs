//! Facts about the machine that results depend on.

use std::fs;
use std::thread;

/// Processor and system, without host and user names.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Machine {
    /// Model name of the processor.
    pub processor: String,
    /// Number of logical cores of the machine, including those that this process may not use.
    pub cores: usize,
    /// Operating system: `Debian GNU/Linux 12 (bookworm)`.
    pub system: String,
    /// Kernel: `Linux 6.1.0`.
    pub kernel: String,
}

impl Machine {
    /// Facts about this machine; `unknown` if the system does not provide them.
    pub fn this() -> Self {
        let kernel = rustix::system::uname();
        let release = kernel.release().to_string_lossy();
        // Without the suffix of a distribution or provider, which is meaningless to others.
        let version = release.split('-').next().unwrap_or_default();
        Self {
            processor: entry("/proc/cpuinfo", "model name", ':'),
            cores: cores(),
            system: entry("/etc/os-release", "PRETTY_NAME", '='),
            kernel: format!("{} {version}", kernel.sysname().to_string_lossy()),
        }
    }

    /// All facts in one line.
    pub fn line(&self) -> String {
        let cores = if self.cores == 1 { "core" } else { "cores" };
        format!("{}, {} {cores}, {}, {}", self.processor, self.cores, self.kernel, self.system)
    }
}

fn cores() -> usize {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let listed = text.lines().filter(|line| line.starts_with("processor")).count();
    // `available_parallelism` counts the cores of this process only, for example those of its container.
    if listed > 0 { listed } else { thread::available_parallelism().map_or(1, usize::from) }
}

/// The value of the first line with this name.
fn entry(file: &str, name: &str, separator: char) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(separator));
    let found = lines.map(|(key, value)| (key.trim(), value)).find(|(key, _)| *key == name);
    found.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known() {
        let machine = Machine::this();
        assert!(machine.cores >= thread::available_parallelism().unwrap().get());
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
        assert!(machine.line().contains(&machine.processor));
    }

    #[test]
    fn missing_facts_are_unknown() {
        assert_eq!(entry("/nonexistent", "model name", ':'), "unknown");
    }
}
