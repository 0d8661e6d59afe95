//! What `brisk bench compare` is to compare, as written in a plan file (TOML): servers, modes, and when to stop.
//!
//! Modes are written in the options of `brisk bench`; this file does not know what they mean.

mod raw;
mod words;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

pub use words::Variables;

use crate::compare::Measure;

/// A plan that is right: every name it uses exists.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is compared, in a few words.
    pub title: String,
    /// Why and how, in a paragraph; may be empty.
    pub about: String,
    /// Where a table that this plan reproduces was published, and what it said; may be empty.
    pub published: String,
    /// The folder of the plan file, in which its commands run.
    pub folder: PathBuf,
    /// Runs before everything else; each line `NAME=VALUE` that it writes sets a variable.
    pub prepare: Option<String>,
    /// Options of every mode.
    pub options: String,
    /// Cores that the client runs on; empty for all.
    pub cores: Vec<usize>,
    /// What each cell is compared with.
    pub baseline: Baseline,
    /// What is compared; the first one decides when it is known well enough.
    pub measures: Vec<Measure>,
    /// When to stop.
    pub limits: Limits,
    /// What runs beside the servers, such as an upstream.
    pub services: Vec<Service>,
    /// The servers.
    pub targets: Vec<Target>,
    /// What is done to them.
    pub modes: Vec<Mode>,
}

/// What each cell is compared with: the one with this target, this mode, or both. With neither there are no ratios.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Baseline {
    /// Index of the target.
    pub target: Option<usize>,
    /// Index of the mode.
    pub mode: Option<usize>,
}

/// When a comparison ends: as soon as every ratio is known well enough, and at the latest after this.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Half the width of the interval of a ratio, as part of the ratio, that is well enough.
    pub precision: f64,
    /// Rounds at least and at most.
    pub rounds: (usize, usize),
    /// No cell starts after this.
    pub time: Duration,
}

/// A process beside the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name in messages.
    pub name: String,
    /// What starts it.
    pub start: String,
    /// Names of free ports; all commands and options of the plan may use them.
    pub ports: Vec<String>,
    /// The address that accepts connections when it is ready.
    pub ready: String,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name in tables.
    pub name: String,
    /// How its process is found.
    pub process: ProcessSource,
    /// Writes its version in one line.
    pub version: Option<String>,
    /// Names of free ports for it.
    pub ports: Vec<String>,
    /// More variables of its own, which may use its ports.
    pub variables: Vec<(String, String)>,
    /// The address that accepts connections when it is ready.
    pub ready: Option<String>,
    /// Options of every mode at this target.
    pub options: String,
}

/// How the process of a target is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessSource {
    /// It is started by this command, which is the process or becomes it. It is left out if the command ends with exit
    /// code 69 and `optional` says so; its last line on standard error then says why.
    Start {
        /// The command.
        command: String,
        /// Whether the comparison goes on without it.
        optional: bool,
    },
    /// It runs already, with this process id.
    Pid(u32),
    /// It runs already, and this file holds its process id.
    PidFile(PathBuf),
    /// It runs already, and nothing is known of it: no processor time is measured.
    Unknown,
}

/// What is done to the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mode {
    /// Its name in tables.
    pub name: String,
    /// Options of `brisk bench`.
    pub options: String,
    /// Indices of the targets that it is for.
    pub targets: Vec<usize>,
}

/// Why a plan cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: std::io::Error,
    },
    /// It is not TOML, or has keys that no plan has.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the place.
        reason: toml::de::Error,
    },
    /// A value makes no sense.
    #[error("{}: {problem}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

impl Plan {
    /// Reads a plan file.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        let text = fs::read_to_string(path)
            .map_err(|reason| PlanError::Unreadable { path: path.to_owned(), reason })?;
        Self::parse(&text, path)
    }

    /// Reads the text of the plan file at `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, PlanError> {
        let raw: raw::Plan =
            toml::from_str(text).map_err(|reason| PlanError::Malformed { path: path.to_owned(), reason })?;
        // `parent` of a bare file name is the empty path, which no process can be started in.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        raw.resolve(folder).map_err(|problem| PlanError::Wrong { path: path.to_owned(), problem })
    }

    /// The cells in the order of modes and then targets.
    pub fn cells(&self) -> impl Iterator<Item = (usize, usize)> {
        let modes = self.modes.iter().enumerate();
        modes.flat_map(|(mode, one)| one.targets.iter().map(move |target| (*target, mode)))
    }

    /// Leaves out all targets and modes but these; an empty list stands for all. What the others are compared with stays.
    pub fn keep(&mut self, targets: &[String], modes: &[String]) -> Result<(), String> {
        let names = self.targets.iter().map(|target| target.name.as_str());
        let targets = kept("target", names, targets, self.baseline.target)?;
        let names = self.modes.iter().map(|mode| mode.name.as_str());
        let modes = kept("mode", names, modes, self.baseline.mode)?;
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

    /// The words of a command line for `brisk bench` that measures this cell.
    pub fn options(&self, target: usize, mode: usize, variables: &Variables) -> Result<Vec<String>, String> {
        let parts = [&self.options, &self.targets[target].options, &self.modes[mode].options];
        let words = parts.into_iter().map(|part| variables.words(part)).collect::<Result<Vec<_>, _>>()?;
        Ok(words.concat())
    }
}

/// Indices of the names that are wanted, and of the baseline.
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
