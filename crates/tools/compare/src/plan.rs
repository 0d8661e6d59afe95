//! Plan files (TOML): the servers to start, the modes to measure, the baseline, and the limits.
//!
//! Modes and targets have options for the measuring tool; this crate does not interpret them.

mod raw;
mod words;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

pub use words::Variables;

use crate::Measure;

/// A plan file that was read and checked: every name in it refers to something in it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The title of the reports.
    pub title: String,
    /// A paragraph for the reports: purpose and method. May be empty.
    pub about: String,
    /// The source and the figures of a published table that this plan reproduces. May be empty.
    pub published: String,
    /// The folder of the plan file; its commands run there.
    pub folder: PathBuf,
    /// A command that runs first. Each line `NAME=VALUE` on its standard output sets a variable.
    pub prepare: Option<String>,
    /// Options of every mode.
    pub options: String,
    /// Numbers of the cores that the measuring tool may run on. Empty: all cores.
    pub cores: Vec<usize>,
    /// The cells that others are compared with.
    pub baseline: Baseline,
    /// The measures to report. [`Limits::precision`] applies to the first one.
    pub measures: Vec<Measure>,
    /// When to stop.
    pub limits: Limits,
    /// Processes that run beside the servers, for example an upstream.
    pub services: Vec<Service>,
    /// The servers.
    pub targets: Vec<Target>,
    /// The modes in which servers are measured.
    pub modes: Vec<Mode>,
}

/// The cell that a cell is compared with: that of `target` in the same mode, of the same target in `mode`, or one
/// cell for all. With neither there are no ratios.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Baseline {
    /// Index of the target.
    pub target: Option<usize>,
    /// Index of the mode.
    pub mode: Option<usize>,
}

/// When a comparison stops: when every ratio has the wanted precision, or at one of the other limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Wanted precision: half the width of the confidence interval, relative to the ratio.
    pub precision: f64,
    /// Minimum and maximum number of rounds.
    pub rounds: (usize, usize),
    /// No run starts after this time.
    pub time: Duration,
}

/// A process beside the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Name in messages.
    pub name: String,
    /// The command that starts it.
    pub start: String,
    /// Names of [`Variables`] that are set to free ports. All commands and options of the plan may use them.
    pub ports: Vec<String>,
    /// The address that accepts connections once the service is ready.
    pub ready: String,
}

/// A server to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Name in tables.
    pub name: String,
    /// Source of its process.
    pub process: ProcessSource,
    /// A command that prints its version in one line.
    pub version: Option<String>,
    /// Names of [`Variables`] that are set to free ports, for this target only.
    pub ports: Vec<String>,
    /// Further variables of this target. Their values may use `ports`.
    pub variables: Vec<(String, String)>,
    /// The address that accepts connections once the server is ready.
    pub ready: Option<String>,
    /// Options of every mode at this target.
    pub options: String,
}

/// Source of the process of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessSource {
    /// This command starts it, and is or becomes the server's process.
    Start {
        /// The command.
        command: String,
        /// Whether the comparison omits the target if the command exits with code 69 (`EX_UNAVAILABLE`). The last line
        /// on its standard error is then reported as the reason.
        optional: bool,
    },
    /// The server is running with this process ID.
    Pid(u32),
    /// The server is running, and this file contains its process ID.
    PidFile(PathBuf),
    /// The server is running and its process is unknown: no [`Measure`] of the process exists.
    Unknown,
}

/// One way to measure the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mode {
    /// Name in tables.
    pub name: String,
    /// Options of the measuring tool.
    pub options: String,
    /// Indices of the targets that are measured in this mode.
    pub targets: Vec<usize>,
}

/// An error in a plan file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        reason: std::io::Error,
    },
    /// The file is not TOML, or it has an unknown key.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// The error with line and column.
        reason: toml::de::Error,
    },
    /// A value is invalid.
    #[error("{}: {problem}", path.display())]
    Wrong {
        /// Path of the file.
        path: PathBuf,
        /// The fault and the correction.
        problem: String,
    },
}

impl Plan {
    /// Reads the plan file at `path`.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        let text = fs::read_to_string(path)
            .map_err(|reason| PlanError::Unreadable { path: path.to_owned(), reason })?;
        Self::parse(&text, path)
    }

    /// Parses `text`, the content of the plan file at `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, PlanError> {
        let raw: raw::Plan =
            toml::from_str(text).map_err(|reason| PlanError::Malformed { path: path.to_owned(), reason })?;
        // `parent` of a bare file name is the empty path, which is not valid as a working directory.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        raw.resolve(folder).map_err(|problem| PlanError::Wrong { path: path.to_owned(), problem })
    }

    /// All cells as (target, mode), ordered by mode, then by target.
    pub fn cells(&self) -> impl Iterator<Item = (usize, usize)> {
        let modes = self.modes.iter().enumerate();
        modes.flat_map(|(mode, one)| one.targets.iter().map(move |target| (*target, mode)))
    }

    /// Removes all targets and modes that are not named; an empty list keeps all. [`baseline`](Self::baseline) always
    /// stays. An unknown name is an `Err`.
    pub fn keep(&mut self, targets: &[String], modes: &[String]) -> Result<(), String> {
        let names = self.targets.iter().map(|target| target.name.as_str());
        let targets = kept("target", names, targets, self.baseline.target)?;
        let names = self.modes.iter().map(|mode| mode.name.as_str());
        let modes = kept("mode", names, modes, self.baseline.mode)?;
        // Indices change with the removed elements, also in `Mode::targets` and in the baseline.
        let place = |kept: &[usize], old: usize| kept.iter().position(|index| *index == old);
        self.baseline.target = self.baseline.target.and_then(|old| place(&targets, old));
        self.baseline.mode = self.baseline.mode.and_then(|old| place(&modes, old));
        self.targets = targets.iter().map(|index| self.targets[*index].clone()).collect();
        self.modes = modes.iter().map(|index| self.modes[*index].clone()).collect();
        for mode in &mut self.modes {
            mode.targets = mode.targets.iter().filter_map(|old| place(&targets, *old)).collect();
        }
        if self.cells().next().is_none() {
            return Err("there is nothing left to measure".to_owned());
        }
        Ok(())
    }

    /// The options of the plan, the target and the mode as command-line arguments.
    pub fn options(&self, target: usize, mode: usize, variables: &Variables) -> Result<Vec<String>, String> {
        let parts = [&self.options, &self.targets[target].options, &self.modes[mode].options];
        // Each part is split by itself, so that an open quote cannot swallow the next one.
        let words = parts.into_iter().map(|part| variables.words(part)).collect::<Result<Vec<_>, _>>()?;
        Ok(words.concat())
    }
}

/// Indices of the `wanted` names and of the baseline.
fn kept<'a>(
    kind: &str,
    names: impl Iterator<Item = &'a str>,
    wanted: &[String],
    baseline: Option<usize>,
) -> Result<Vec<usize>, String> {
    let names: Vec<_> = names.collect();
    if let Some(unknown) = wanted.iter().find(|wanted| !names.contains(&wanted.as_str())) {
        return Err(format!("no {kind} is called {unknown:?}: there are {}", names.join(", ")));
    }
    let is_wanted = |index: &usize| {
        wanted.is_empty() || baseline == Some(*index) || wanted.iter().any(|wanted| wanted == names[*index])
    };
    Ok((0..names.len()).filter(is_wanted).collect())
}

#[cfg(test)]
mod tests;
