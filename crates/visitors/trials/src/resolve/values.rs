//! Settings that experiments can vary, their values, and the parsing of arms.

use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;

use brisk_coding::Coding;
use brisk_config_file::{Findings, KeyPath};
use brisk_net::Congestion;
use brisk_tls::settings::Records;
use brisk_visits::{MOST_ARMS, Metric};

use super::{HostFacts, Surroundings};
use crate::experiments::Values;
use crate::keys::{ExperimentKeys, ExperimentValue};

/// A setting that can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Records,
    Tickets,
    EarlyHints,
    Zstd,
    Brotli,
    Gzip,
    Congestion,
}

/// Arms of an experiment as text, and the values of all arms except the control.
pub(super) struct Drawn {
    pub(super) arms: Vec<String>,
    /// Instructions for serving each arm permanently.
    pub(super) advice: Vec<String>,
    pub(super) values: Values,
}

impl Setting {
    pub(super) const ALL: [Self; 7] = [
        Self::Records,
        Self::Tickets,
        Self::EarlyHints,
        Self::Zstd,
        Self::Brotli,
        Self::Gzip,
        Self::Congestion,
    ];

    /// The setting with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.name() == name)
    }

    /// Key of the setting, or its name in the kernel.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Records => "tls.growing_records",
            Self::Tickets => "tls.tickets_per_handshake",
            Self::EarlyHints => "early_hints",
            Self::Zstd => "compression.zstd_level",
            Self::Brotli => "compression.br_quality",
            Self::Gzip => "compression.gzip_level",
            Self::Congestion => "net.ipv4.tcp_congestion_control",
        }
    }

    /// The type of a valid value.
    fn values(self, highest_levels: [u8; 3]) -> Kind {
        let levels = |coding: Coding| {
            let highest = highest_levels[coding.index()];
            Kind::Number(i64::from(*coding.levels().start())..=i64::from(highest))
        };
        match self {
            Self::Records | Self::EarlyHints => Kind::Switch,
            // At least 1: without tickets no visitor would resume, and the cost would appear on later connections
            // outside the experiment.
            Self::Tickets => Kind::Number(1..=8),
            Self::Zstd => levels(Coding::Zstd),
            Self::Brotli => levels(Coding::Brotli),
            Self::Gzip => levels(Coding::Gzip),
            Self::Congestion => Kind::Text,
        }
    }

    /// Default metric: one that the setting can change.
    pub(super) const fn usual_metric(self) -> Metric {
        match self {
            Self::Records | Self::Tickets => Metric::FirstByte,
            Self::Zstd | Self::Brotli | Self::Gzip => Metric::Load,
            Self::EarlyHints | Self::Congestion => Metric::LargestPaint,
        }
    }

    /// Whether a metric shows the effect of the setting on visitors. All settings take effect after the handshake.
    /// Some browsers count hints as the first byte, although hints do not make the response arrive sooner.
    pub(super) const fn shows_in(self, metric: Metric) -> bool {
        match metric {
            Metric::Handshake => false,
            Metric::FirstByte | Metric::Wait => !matches!(self, Self::EarlyHints),
            _ => true,
        }
    }

    /// An arm with this value.
    fn with(self, value: &ExperimentValue) -> String {
        format!("{} = {value}", self.name())
    }

    /// Instruction for serving the arm with this value permanently.
    fn advice(self, value: &ExperimentValue) -> String {
        let arm = self.with(value);
        match self {
            Self::Records => format!("Write {arm} into the configuration, for all hosts, and remove the experiment."),
            Self::Tickets => TICKETS.to_owned(),
            Self::EarlyHints if *value == ExperimentValue::Switch(true) => {
                "Write early_hints = true to the routes of its hosts that have none, and remove the experiment. Those with links keep \
                 them."
                    .to_owned()
            }
            Self::EarlyHints | Self::Zstd | Self::Brotli | Self::Gzip => {
                format!("Write {arm} to the routes of its hosts and remove the experiment.")
            }
            Self::Congestion => {
                let ExperimentValue::Text(name) = value else { return arm };
                format!(
                    "Set it with sysctl -w {}={name}, for all programs of the machine, and remove the experiment.",
                    self.name()
                )
            }
        }
    }
}

/// Tickets are sent at the cost of the connection that gets them, and of use to the next.
const TICKETS: &str = "That is what sending the tickets costs; what visitors save by them on their next connections is not in it. \
                       Weigh both, and remove the experiment.";

#[derive(Clone, Debug)]
enum Kind {
    Switch,
    Number(RangeInclusive<i64>),
    Text,
}

/// The arms of the experiment at `path` on the hosts at these places; `None` if something is wrong with them.
pub(super) fn values(
    setting: Setting,
    table: &ExperimentKeys,
    surroundings: &Surroundings,
    hosts: &[usize],
    path: &KeyPath,
    findings: &mut Findings<'_>,
) -> Option<Drawn> {
    let control = control(setting, surroundings, hosts, path, findings)?;
    let path = path.key("values");
    if table.values.is_empty() && !findings.written(&path.index(0)) {
        findings.wrong(&path, "no value: write what is to be tried beside what is configured");
    }
    if table.values.len() >= MOST_ARMS {
        let message = format!("{} values: write at most {}", table.values.len(), MOST_ARMS - 1);
        findings.wrong(&path, message);
    }
    // Counted apart from the findings, so that all values are checked before the arms are refused.
    let mut is_right = !table.values.is_empty();
    let mut controls = control.congestion.iter().cloned().collect::<Vec<_>>();
    for (index, value) in table.values.iter().enumerate() {
        let reason = wrong(setting, value, surroundings.highest_levels).or_else(|| {
            let is_twice = table.values[..index].contains(value);
            // Two arms with one value would never differ, and the experiment would need more visits for
            // each.
            is_twice.then(|| format!("{value} is in the list already")).or_else(|| control.equal(value))
        });
        let reason = reason.or_else(|| match value {
            ExperimentValue::Text(name) => controlled(name).map(|one| controls.push(one)).err(),
            ExperimentValue::Switch(_) | ExperimentValue::Number(_) => None,
        });
        if let Some(reason) = reason {
            findings.wrong(&path.index(index), reason);
            is_right = false;
        }
    }
    if !is_right {
        return None;
    }
    let arms = table.values.iter().map(|value| setting.with(value));
    let arms = [control.text].into_iter().chain(arms).collect();
    let advice = table.values.iter().map(|value| setting.advice(value));
    let advice = [control.advice].into_iter().chain(advice).collect();
    Some(Drawn { arms, advice, values: typed(setting, &table.values, controls) })
}

/// Reason for which a value is invalid for this setting.
fn wrong(setting: Setting, value: &ExperimentValue, highest_levels: [u8; 3]) -> Option<String> {
    match (setting.values(highest_levels), value) {
        (Kind::Switch, ExperimentValue::Switch(_)) | (Kind::Text, ExperimentValue::Text(_)) => None,
        (Kind::Switch, _) => Some(format!("{value} is no value of {}: write true or false", setting.name())),
        (Kind::Number(range), ExperimentValue::Number(number)) => (!range.contains(number))
            .then(|| format!("{number} is out of range: write {} to {}", range.start(), range.end())),
        (Kind::Number(range), _) => Some(format!(
            "{value} is no value of {}: write a number from {} to {}",
            setting.name(),
            range.start(),
            range.end()
        )),
        (Kind::Text, _) => Some(format!("{value} is no value of {}: write \"bbr\"", setting.name())),
    }
}

/// The congestion control with this name, or why connections cannot have it.
fn controlled(name: &str) -> Result<Congestion, String> {
    Congestion::named(name).map_err(|error| not_controlled(name, &error))
}

fn not_controlled(name: &str, error: &io::Error) -> String {
    let listed = |file: &str| {
        let listed = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{file}")).unwrap_or_default();
        listed.split_whitespace().collect::<Vec<_>>().join(", ")
    };
    match error.kind() {
        ErrorKind::NotFound => {
            let known = listed("tcp_available_congestion_control");
            format!(
                "the kernel has no congestion control {name:?}: it has {known}; `modprobe tcp_{name}` may add it"
            )
        }
        ErrorKind::PermissionDenied => {
            let known = listed("tcp_allowed_congestion_control");
            format!(
                "brisk may not use {name:?}, but {known}: add it to net.ipv4.tcp_allowed_congestion_control"
            )
        }
        _ => format!("the kernel does not say whether it has {name:?}: {error}"),
    }
}

/// Settings of the hosts without the experiment.
struct Control {
    text: String,
    advice: String,
    values: Vec<ExperimentValue>,
    /// The kernel's congestion control, set explicitly for the control as for the other arms.
    congestion: Option<Congestion>,
}

impl Control {
    /// Message for a value that equals the control.
    fn equal(&self, value: &ExperimentValue) -> Option<String> {
        // Routes may have several values; one that differs from any of them changes something.
        let is_equal = self.values.iter().all(|own| own == value);
        is_equal.then(|| format!("{value} is what is configured, which the control has: write another value"))
    }
}

fn control(
    setting: Setting,
    surroundings: &Surroundings,
    hosts: &[usize],
    path: &KeyPath,
    findings: &mut Findings<'_>,
) -> Option<Control> {
    let of_hosts = || hosts.iter().map(|place| &surroundings.hosts[*place]);
    let (none, mut values): (_, Vec<_>) = match setting {
        Setting::Records => ("", vec![ExperimentValue::Switch(surroundings.records == Records::Growing)]),
        Setting::Tickets => {
            // Eight at most.
            let tickets = i64::try_from(surroundings.tickets_per_handshake).unwrap_or_default();
            ("", vec![ExperimentValue::Number(tickets)])
        }
        Setting::EarlyHints => {
            let values =
                of_hosts().flat_map(|host| &host.early_hints).map(|hints| ExperimentValue::Switch(*hints));
            ("no route of its hosts has an `upstream`, and other answers come at once", values.collect())
        }
        Setting::Zstd => levels(Coding::Zstd, of_hosts()),
        Setting::Brotli => levels(Coding::Brotli, of_hosts()),
        Setting::Gzip => levels(Coding::Gzip, of_hosts()),
        Setting::Congestion => {
            let usual = Congestion::usual().map(ExperimentValue::Text);
            ("the kernel does not say which it has", usual.into_iter().collect())
        }
    };
    // Tried on a socket, so that a missing permission is found at the start and not on each connection.
    let usual = match (setting, values.first()) {
        (Setting::Congestion, Some(ExperimentValue::Text(name))) => Some(controlled(name)),
        _ => None,
    };
    if let Some(Err(reason)) = &usual {
        findings.wrong(&path.key("setting"), format!("has no effect: {reason}"));
        return None;
    }
    if values.is_empty() {
        findings.wrong(&path.key("setting"), format!("has no effect: {none}"));
        return None;
    }
    let mut seen = Vec::new();
    values.retain(|value| {
        let is_new = !seen.contains(value);
        if is_new {
            seen.push(value.clone());
        }
        is_new
    });
    // Routes may differ; the control then serves all of their values.
    let text = values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    let text = format!("{} = {text}", setting.name());
    let advice = match setting {
        Setting::Tickets => TICKETS.to_owned(),
        _ => "Keep what is configured, and remove the experiment.".to_owned(),
    };
    Some(Control { text, advice, values, congestion: usual.and_then(Result::ok) })
}

/// The levels of a coding on routes that use it.
fn levels<'h>(
    coding: Coding,
    hosts: impl Iterator<Item = &'h HostFacts>,
) -> (&'static str, Vec<ExperimentValue>) {
    let levels = hosts.flat_map(|host| &host.levels).filter(|(of, _)| *of == coding);
    let levels = levels.map(|(_, level)| ExperimentValue::Number((*level).into()));
    ("no route of its hosts is compressed with it: write `compression`", levels.collect())
}

/// Converts valid values to the gateway's type.
fn typed(setting: Setting, values: &[ExperimentValue], controls: Vec<Congestion>) -> Values {
    let switches = || values.iter().map(|value| *value == ExperimentValue::Switch(true));
    let number = |value: &ExperimentValue| match value {
        ExperimentValue::Number(number) => u8::try_from(*number).unwrap_or_default(),
        // `wrong` has refused values of other types before.
        ExperimentValue::Switch(_) | ExperimentValue::Text(_) => 0,
    };
    let numbers = || values.iter().map(number);
    match setting {
        Setting::Records => Values::Records(switches().map(Records::new).collect()),
        Setting::Tickets => Values::Tickets(numbers().map(usize::from).collect()),
        Setting::EarlyHints => Values::EarlyHints(switches().collect()),
        Setting::Zstd => Values::Level(Coding::Zstd, numbers().collect()),
        Setting::Brotli => Values::Level(Coding::Brotli, numbers().collect()),
        Setting::Gzip => Values::Level(Coding::Gzip, numbers().collect()),
        Setting::Congestion => Values::Congestion(controls),
    }
}
