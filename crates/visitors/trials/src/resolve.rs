//! Resolution of `[experiment.NAME]`: the setting that varies, and the metric that decides.

mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

use brisk_coding::Coding;
use brisk_config_file::{Findings, KeyPath};
use brisk_tls::settings::Records;
use brisk_visits::{ARMS_OF_A_VISIT, Experiment, Metric};

use self::values::Setting;
use crate::experiments::{ExperimentSettings, Experiments};
use crate::keys::ExperimentKeys;

/// Maximum bytes of the name of an [`Experiment`].
const LONGEST_NAME: usize = 64;

/// Settings outside of the experiments, as far as experiments depend on them.
#[derive(Debug)]
pub struct Surroundings {
    /// The hosts, in the order of `ServiceSettings::hosts`.
    pub hosts: Vec<HostFacts>,
    /// Whether the store of visits is enabled.
    pub has_store: bool,
    /// Configured size of TLS records.
    pub records: Records,
    /// Configured number of tickets after a handshake; eight at most.
    pub tickets_per_handshake: usize,
    /// Highest level of each coding that a configuration may have, by [`Coding::index`].
    pub highest_levels: [u8; 3],
    /// Normalizes the name of a host; `None` if it is invalid.
    pub host_name: fn(&str) -> Option<String>,
}

/// Settings of one host, as far as experiments depend on them.
#[derive(Debug)]
pub struct HostFacts {
    /// Normalized names.
    pub names: Vec<String>,
    /// Whether the host has `visits`.
    pub has_visits: bool,
    /// Whether any page view is measured.
    pub is_measured: bool,
    /// Whether any route has pages: documents that can have the script.
    pub has_pages: bool,
    /// Whether early hints are configured, for each route to an upstream.
    pub early_hints: Vec<bool>,
    /// The codings of all routes, each with its level.
    pub levels: Vec<(Coding, u8)>,
}

impl HostFacts {
    /// The name that visits of the host have.
    fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

/// A resolved experiment, with the values of its setting.
struct Found {
    setting: Setting,
    settings: ExperimentSettings,
}

/// Resolves the tables `[experiment.NAME]` by name into [`Experiments`]. Adds all mistakes to `findings`.
pub fn resolve(
    tables: &BTreeMap<String, ExperimentKeys>,
    surroundings: &Surroundings,
    findings: &mut Findings<'_>,
) -> Experiments {
    let mut all: Vec<Found> = Vec::new();
    for (name, table) in tables {
        let path = KeyPath::of("experiment").key(name);
        if !surroundings.has_store {
            let message = "needs the store of visits, which compares: write [visits] with enabled = true";
            findings.incomplete(&path, message);
        }
        if let Some(found) = experiment(name, table, surroundings, &path, findings) {
            clash(&found, &all, surroundings, &path, findings);
            all.push(found);
        }
    }
    Experiments::new(all.into_iter().map(|found| found.settings).collect())
}

fn experiment(
    name: &str,
    table: &ExperimentKeys,
    surroundings: &Surroundings,
    path: &KeyPath,
    findings: &mut Findings<'_>,
) -> Option<Found> {
    let is_plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if name.is_empty() || name.len() > LONGEST_NAME || !is_plain(name) {
        let message = format!("{name:?} is no name: write letters, digits, - and _, {LONGEST_NAME} at most");
        findings.incomplete(path, message);
    }
    let setting = Setting::named(&table.setting);
    if setting.is_none() {
        let known = Setting::ALL.map(|setting| setting.name().to_owned()).to_vec();
        findings.unknown(&path.key("setting"), &table.setting, known);
    }
    let hosts = hosts(table, surroundings, path, findings);
    let share = findings.within(&path.key("share"), table.share, 1.0, &(0.001..=1.0));
    let margin = findings.within(&path.key("margin"), table.margin, 0.02, &(0.0..=1.0));
    let metric = metric(table, setting, path, findings);
    // Only now, so that one run reports all mistakes of the table.
    let (setting, hosts) = (setting?, hosts?);
    if !hosts.iter().any(|place| surroundings.hosts[*place].has_pages) {
        let message =
            "no route of its hosts answers with a page, and pages measure: name hosts that have some";
        findings.incomplete(path, message);
    }
    let drawn = values::values(setting, table, surroundings, &hosts, path, findings)?;
    let experiment = Experiment {
        name: name.into(),
        arms: drawn.arms.into_iter().map(Into::into).collect(),
        advice: drawn.advice.into_iter().map(Into::into).collect(),
        metric: metric?,
        margin,
        hosts: hosts.iter().map(|place| Arc::from(surroundings.hosts[*place].name())).collect(),
        share,
    };
    let settings = ExperimentSettings { experiment, hosts, values: drawn.values };
    Some(Found { setting, settings })
}

/// Indices of the experiment's hosts: the configured ones, or all with `visits`. `None` if none of them is valid.
fn hosts(
    table: &ExperimentKeys,
    surroundings: &Surroundings,
    path: &KeyPath,
    findings: &mut Findings<'_>,
) -> Option<Vec<usize>> {
    let all = &surroundings.hosts;
    let Some(written) = &table.hosts else {
        let measured: Vec<_> = (0..all.len()).filter(|place| all[*place].is_measured).collect();
        if measured.is_empty() {
            let message = if all.iter().any(|host| host.has_visits) {
                "no page view is measured, as `share` of all hosts with `visits` is 0: write a greater one"
            } else {
                "no host has its visits measured: write `visits = true` under a [[host]]"
            };
            findings.incomplete(path, message);
        }
        return (!measured.is_empty()).then_some(measured);
    };
    let path = path.key("hosts");
    if written.is_empty() {
        findings.wrong(&path, "no host: write names of hosts, or leave it out for all with `visits`");
    }
    let mut places = Vec::new();
    for (index, text) in written.iter().enumerate() {
        let path = path.index(index);
        let name = (surroundings.host_name)(text).unwrap_or_default();
        let Some(place) = all.iter().position(|host| host.names.contains(&name)) else {
            let known = all.iter().flat_map(|host| host.names.iter().cloned()).collect();
            findings.unknown(&path, text, known);
            continue;
        };
        if !all[place].has_visits {
            let message = format!("\"{name}\" is not measured: write `visits = true` under its [[host]]");
            findings.wrong(&path, message);
        } else if !all[place].is_measured {
            let message = format!(
                "no page view of \"{name}\" is measured, as `share` of its visits is 0: write a greater one"
            );
            findings.wrong(&path, message);
        } else if places.contains(&place) {
            findings.wrong(&path, "is a name of a host in the list already");
        } else {
            places.push(place);
        }
    }
    (!places.is_empty()).then_some(places)
}

fn metric(
    table: &ExperimentKeys,
    setting: Option<Setting>,
    path: &KeyPath,
    findings: &mut Findings<'_>,
) -> Option<Metric> {
    let Some(name) = &table.metric else { return setting.map(Setting::usual_metric) };
    let path = path.key("metric");
    let is_right = |metric: &Metric| metric.is_compared() && setting.is_none_or(|one| one.shows_in(*metric));
    let known: Vec<_> =
        Metric::ALL.iter().filter(|metric| is_right(metric)).map(ToString::to_string).collect();
    let found = Metric::named(name).filter(|metric| metric.is_compared());
    match (found, setting) {
        (None, _) => findings.unknown(&path, name, known),
        (Some(metric), Some(setting)) if !setting.shows_in(metric) => {
            let known = known.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
            let message = format!(
                "\"{name}\" is over when {} takes effect, and is the same in all arms: write one of {known}",
                setting.name()
            );
            findings.wrong(&path, message);
        }
        (Some(_), _) => {}
    }
    found.filter(is_right)
}

/// Two experiments cannot have the same setting of a host, nor a visit more arms than it has room for.
fn clash(
    found: &Found,
    others: &[Found],
    surroundings: &Surroundings,
    path: &KeyPath,
    findings: &mut Findings<'_>,
) {
    for place in &found.settings.hosts {
        let of_host: Vec<_> = others.iter().filter(|other| other.settings.hosts.contains(place)).collect();
        let host = surroundings.hosts[*place].name();
        if let Some(other) = of_host.iter().find(|other| other.setting == found.setting) {
            let message = format!(
                "[experiment.{}] has {} of \"{host}\" already: let one end, or write other `hosts`",
                other.settings.experiment.name,
                found.setting.name()
            );
            return findings.wrong(&path.key("setting"), message);
        }
        if of_host.len() >= ARMS_OF_A_VISIT {
            let message = format!(
                "\"{host}\" takes part in {ARMS_OF_A_VISIT} already: a visit has no more; let one end"
            );
            return findings.incomplete(path, message);
        }
    }
}
