//! The serialised form of a plan, and its conversion into a [`super::Plan`].

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::{Baseline, Limits, Mode, ProcessSource, Service, Target};
use crate::{Measure, duration};

// Unknown keys are errors in all tables: a misspelt limit would silently be the default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    title: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    published: String,
    prepare: Option<String>,
    #[serde(default)]
    options: String,
    #[serde(default)]
    cores: Vec<usize>,
    #[serde(default)]
    compare: Compare,
    #[serde(default)]
    service: Vec<RawService>,
    target: Vec<RawTarget>,
    mode: Vec<RawMode>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Compare {
    target: Option<String>,
    mode: Option<String>,
    measures: Vec<String>,
    precision: f64,
    rounds: [usize; 2],
    time: String,
}

impl Default for Compare {
    fn default() -> Self {
        let measures = ["rate", "server-cpu", "p99"].map(str::to_owned).to_vec();
        // Six rounds are the fewest for an interval of 95 %.
        Self { target: None, mode: None, measures, precision: 0.03, rounds: [6, 30], time: "10m".to_owned() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawService {
    name: String,
    start: String,
    #[serde(default)]
    ports: Vec<String>,
    ready: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTarget {
    name: String,
    start: Option<String>,
    #[serde(default)]
    optional: bool,
    pid: Option<u32>,
    pid_file: Option<String>,
    version: Option<String>,
    #[serde(default)]
    ports: Vec<String>,
    #[serde(default)]
    variables: BTreeMap<String, String>,
    ready: Option<String>,
    #[serde(default)]
    options: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMode {
    name: String,
    #[serde(default)]
    options: String,
    targets: Option<Vec<String>>,
    #[serde(default)]
    without: Vec<String>,
}

impl Plan {
    pub(super) fn resolve(self, folder: &Path) -> Result<super::Plan, String> {
        distinct("target", self.target.iter().map(|target| target.name.as_str()))?;
        distinct("mode", self.mode.iter().map(|mode| mode.name.as_str()))?;
        let names: Vec<_> = self.target.iter().map(|target| target.name.clone()).collect();
        let modes: Vec<_> = self.mode.iter().map(|mode| mode.name.clone()).collect();
        let baseline = Baseline {
            target: self.compare.target.as_deref().map(|name| find("target", name, &names)).transpose()?,
            mode: self.compare.mode.as_deref().map(|name| find("mode", name, &modes)).transpose()?,
        };
        let modes = self.mode.into_iter().map(|mode| mode.resolve(&names)).collect::<Result<Vec<_>, _>>()?;
        let plan = super::Plan {
            title: self.title,
            about: one_line(&self.about),
            published: one_line(&self.published),
            folder: folder.to_owned(),
            prepare: self.prepare,
            options: self.options,
            cores: self.cores,
            baseline,
            measures: self.compare.measures()?,
            limits: self.compare.limits()?,
            services: self.service.into_iter().map(RawService::resolve).collect(),
            targets: self
                .target
                .into_iter()
                .map(|target| target.resolve(folder))
                .collect::<Result<_, _>>()?,
            modes,
        };
        if plan.cells().next().is_none() {
            return Err(
                "there is nothing to measure: write at least one [[target]] and one [[mode]]".to_owned()
            );
        }
        Ok(plan)
    }
}

impl Compare {
    fn measures(&self) -> Result<Vec<Measure>, String> {
        if self.measures.is_empty() {
            return Err("compare.measures is empty: write at least one, as [\"rate\"]".to_owned());
        }
        self.measures.iter().map(|name| name.parse()).collect()
    }

    fn limits(&self) -> Result<Limits, String> {
        let [least, most] = self.rounds;
        if least == 0 || least > most {
            return Err(format!(
                "compare.rounds is [{least}, {most}]: write the least and the most, as [6, 30]"
            ));
        }
        // Negated, because TOML has `nan`, for which both comparisons are false.
        if !(self.precision > 0.0 && self.precision < 1.0) {
            return Err(format!(
                "compare.precision is {}: write a part of one, as 0.03 for 3 %",
                self.precision
            ));
        }
        let time: Duration = duration(&self.time)
            .ok_or_else(|| format!("compare.time is {:?}: write a time, as \"90s\" or \"10m\"", self.time))?;
        Ok(Limits { precision: self.precision, rounds: (least, most), time })
    }
}

impl RawService {
    fn resolve(self) -> Service {
        Service { name: self.name, start: self.start, ports: self.ports, ready: self.ready }
    }
}

impl RawTarget {
    fn resolve(self, folder: &Path) -> Result<Target, String> {
        let process = match (self.start, self.pid, self.pid_file) {
            (Some(command), None, None) => ProcessSource::Start { command, optional: self.optional },
            (None, Some(pid), None) => ProcessSource::Pid(pid),
            (None, None, Some(file)) => ProcessSource::PidFile(folder.join(file)),
            (None, None, None) => ProcessSource::Unknown,
            _ => {
                return Err(format!(
                    "target {:?} has several of start, pid and pid_file: write one",
                    self.name
                ));
            }
        };
        if matches!(process, ProcessSource::Start { .. }) && self.ready.is_none() {
            let hint =
                "write the address that accepts connections when it is, as ready = \"127.0.0.1:{port}\"";
            return Err(format!("target {:?} does not say when it is ready: {hint}", self.name));
        }
        Ok(Target {
            name: self.name,
            process,
            version: self.version,
            ports: self.ports,
            variables: self.variables.into_iter().collect(),
            ready: self.ready,
            options: self.options,
        })
    }
}

impl RawMode {
    fn resolve(self, names: &[String]) -> Result<Mode, String> {
        let places = |wanted: &[String]| -> Result<Vec<usize>, String> {
            wanted.iter().map(|name| find("target", name, names)).collect()
        };
        let without = places(&self.without)?;
        let all = self.targets.as_deref().map_or_else(|| Ok((0..names.len()).collect()), places)?;
        let targets = all.into_iter().filter(|target| !without.contains(target)).collect();
        Ok(Mode { name: self.name, options: self.options, targets })
    }
}

fn find(kind: &str, name: &str, names: &[String]) -> Result<usize, String> {
    let found = names.iter().position(|other| other == name);
    found.ok_or_else(|| format!("no {kind} is called {name:?}: there are {}", names.join(", ")))
}

fn distinct<'a>(kind: &str, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = Vec::new();
    for name in names {
        if seen.contains(&name) {
            return Err(format!("two {kind}s are called {name:?}: give each a name of its own"));
        }
        seen.push(name);
    }
    Ok(())
}

/// Joins the lines of a text.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
