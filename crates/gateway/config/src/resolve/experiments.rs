//! `[experiment.NAME]`: the setting that varies, and the metric that decides.

mod values;

use std::sync::Arc;

use brisk_answer::settings::{Action, HostSettings, RouteSettings};
use brisk_config_file::KeyPath;
use brisk_gateway::settings::{GatewaySettings, VariationSettings};
use brisk_tls::TlsSettings;
use brisk_trials::{ExperimentSettings, Experiments};
use brisk_visits::{ARMS_OF_A_VISIT, Experiment, Metric, Settings};

use self::values::Setting;
pub(super) use self::values::records;
use super::context::Context;
use super::names::host_name;
use crate::raw;

/// Bytes of a name at most.
const LONGEST_NAME: usize = 64;

/// Other settings that the checks of an experiment need.
pub(super) struct Surroundings<'s> {
    hosts: &'s [HostSettings],
    tls: &'s TlsSettings,
    /// Share of measured page views for hosts without one of their own.
    share: f64,
}

impl Surroundings<'_> {
    /// Whether any page view of the host at `place` is measured.
    fn is_measured(&self, place: usize) -> bool {
        self.hosts[place].visits.as_ref().is_some_and(|visits| visits.share.unwrap_or(self.share) > 0.0)
    }

    /// Whether the host at `place` has pages: documents that can have the script.
    fn has_pages(&self, place: usize) -> bool {
        let may_be_page = |route: &RouteSettings| match &route.action {
            Action::Fixed(fixed) => fixed.content_type.as_bytes().starts_with(b"text/html"),
            Action::Redirect(_) => false,
            _ => true,
        };
        let routes = &self.hosts[place].routes;
        // A host without routes has the built-in page.
        routes.is_empty() || routes.iter().any(may_be_page)
    }
}

/// A resolved experiment, with the values of its setting.
struct Found {
    setting: Setting,
    settings: ExperimentSettings,
}

/// Resolves all experiments.
pub(super) fn experiments(
    raw: &raw::Config,
    hosts: &[HostSettings],
    tls: &TlsSettings,
    visits: bool,
    context: &mut Context<'_>,
) -> Experiments {
    let surroundings =
        Surroundings { hosts, tls, share: raw.visits.share.unwrap_or(Settings::default().share) };
    let mut all: Vec<Found> = Vec::new();
    for (name, table) in &raw.experiment {
        let path = KeyPath::of("experiment").key(name);
        if !visits {
            let message = "needs the store of visits, which compares: write [visits] with enabled = true";
            context.shared.findings.incomplete(&path, message);
        }
        if let Some(found) = experiment(name, table, &surroundings, &path, context) {
            clash(&found, &all, &surroundings, &path, context);
            all.push(found);
        }
    }
    Experiments::new(all.into_iter().map(|found| found.settings).collect())
}

/// Adds the experiments to the complete settings.
pub(super) fn vary(settings: &mut GatewaySettings, experiments: Experiments) {
    for (place, host) in settings.service.hosts.iter_mut().enumerate() {
        host.tls.other_tickets = experiments.tickets(place);
    }
    settings.variation = VariationSettings(experiments);
}

fn experiment(
    name: &str,
    table: &raw::Experiment,
    surroundings: &Surroundings<'_>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Found> {
    let is_plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if name.is_empty() || name.len() > LONGEST_NAME || !is_plain(name) {
        let message = format!("{name:?} is no name: write letters, digits, - and _, {LONGEST_NAME} at most");
        context.shared.findings.incomplete(path, message);
    }
    let setting = Setting::named(&table.setting);
    if setting.is_none() {
        let known = Setting::ALL.map(|setting| setting.name().to_owned()).to_vec();
        context.shared.findings.unknown(&path.key("setting"), &table.setting, known);
    }
    let hosts = hosts(table, surroundings, path, context);
    let share = context.shared.findings.within(&path.key("share"), table.share, 1.0, &(0.001..=1.0));
    let margin = context.shared.findings.within(&path.key("margin"), table.margin, 0.02, &(0.0..=1.0));
    let metric = metric(table, setting, path, context);
    let (setting, hosts) = (setting?, hosts?);
    if !hosts.iter().any(|place| surroundings.has_pages(*place)) {
        let message =
            "no route of its hosts answers with a page, and pages measure: name hosts that have some";
        context.shared.findings.incomplete(path, message);
    }
    let drawn = values::values(setting, table, surroundings, &hosts, path, context)?;
    let experiment = Experiment {
        name: name.into(),
        arms: drawn.arms.into_iter().map(Into::into).collect(),
        advice: drawn.advice.into_iter().map(Into::into).collect(),
        metric: metric?,
        margin,
        hosts: names(&hosts, surroundings.hosts),
        share,
    };
    let settings = ExperimentSettings { experiment, hosts, values: drawn.values };
    Some(Found { setting, settings })
}

/// Indices of the experiment's hosts: the configured ones, or all with `visits`. `None` if none of them is valid.
fn hosts(
    table: &raw::Experiment,
    surroundings: &Surroundings<'_>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Vec<usize>> {
    let all = surroundings.hosts;
    let Some(written) = &table.hosts else {
        let measured: Vec<_> = (0..all.len()).filter(|place| surroundings.is_measured(*place)).collect();
        if measured.is_empty() {
            let message = if all.iter().any(|host| host.visits.is_some()) {
                "no page view is measured, as `share` of all hosts with `visits` is 0: write a greater one"
            } else {
                "no host has its visits measured: write `visits = true` under a [[host]]"
            };
            context.shared.findings.incomplete(path, message);
        }
        return (!measured.is_empty()).then_some(measured);
    };
    let path = path.key("hosts");
    if written.is_empty() {
        context
            .shared
            .findings
            .wrong(&path, "no host: write names of hosts, or leave it out for all with `visits`");
    }
    let mut places = Vec::new();
    for (index, text) in written.iter().enumerate() {
        let path = path.index(index);
        let name = host_name(text).unwrap_or_default();
        let Some(place) = all.iter().position(|host| host.tls.names.contains(&name)) else {
            let known = all.iter().flat_map(|host| host.tls.names.iter().cloned()).collect();
            context.shared.findings.unknown(&path, text, known);
            continue;
        };
        if all[place].visits.is_none() {
            let message = format!("\"{name}\" is not measured: write `visits = true` under its [[host]]");
            context.shared.findings.wrong(&path, message);
        } else if !surroundings.is_measured(place) {
            let message = format!(
                "no page view of \"{name}\" is measured, as `share` of its visits is 0: write a greater one"
            );
            context.shared.findings.wrong(&path, message);
        } else if places.contains(&place) {
            context.shared.findings.wrong(&path, "is a name of a host in the list already");
        } else {
            places.push(place);
        }
    }
    (!places.is_empty()).then_some(places)
}

fn metric(
    table: &raw::Experiment,
    setting: Option<Setting>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Metric> {
    let Some(name) = &table.metric else { return setting.map(Setting::usual_metric) };
    let path = path.key("metric");
    let is_right = |metric: &Metric| metric.is_compared() && setting.is_none_or(|one| one.shows_in(*metric));
    let known: Vec<_> =
        Metric::ALL.iter().filter(|metric| is_right(metric)).map(ToString::to_string).collect();
    let found = Metric::named(name).filter(|metric| metric.is_compared());
    match (found, setting) {
        (None, _) => context.shared.findings.unknown(&path, name, known),
        (Some(metric), Some(setting)) if !setting.shows_in(metric) => {
            let known = known.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
            let message = format!(
                "\"{name}\" is over when {} takes effect, and is the same in all arms: write one of {known}",
                setting.name()
            );
            context.shared.findings.wrong(&path, message);
        }
        (Some(_), _) => {}
    }
    found.filter(is_right)
}

/// The names that visits of the hosts at these places have.
fn names(places: &[usize], hosts: &[HostSettings]) -> Vec<Arc<str>> {
    let first = |place: &usize| hosts[*place].tls.names.first().map_or("", String::as_str).into();
    places.iter().map(first).collect()
}

/// Two experiments cannot have the same setting of a host, nor a visit more arms than it has room for.
fn clash(
    found: &Found,
    others: &[Found],
    surroundings: &Surroundings<'_>,
    path: &KeyPath,
    context: &mut Context<'_>,
) {
    for place in &found.settings.hosts {
        let of_host: Vec<_> = others.iter().filter(|other| other.settings.hosts.contains(place)).collect();
        let host = surroundings.hosts[*place].tls.names.first().map_or("", String::as_str);
        if let Some(other) = of_host.iter().find(|other| other.setting == found.setting) {
            let message = format!(
                "[experiment.{}] has {} of \"{host}\" already: let one end, or write other `hosts`",
                other.settings.experiment.name,
                found.setting.name()
            );
            return context.shared.findings.wrong(&path.key("setting"), message);
        }
        if of_host.len() >= ARMS_OF_A_VISIT {
            let message = format!(
                "\"{host}\" takes part in {ARMS_OF_A_VISIT} already: a visit has no more; let one end"
            );
            return context.shared.findings.incomplete(path, message);
        }
    }
}
