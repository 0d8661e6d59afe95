//! Experiments on visitors (`[experiment.NAME]`), resolved by [`brisk_trials`].

use brisk_answer::features::compression::{HIGHEST_BROTLI, HIGHEST_GZIP, HIGHEST_ZSTD};
use brisk_answer::settings::{Action, FixedResponse, FormedResponse, HostSettings, RouteSettings};
use brisk_coding::Coding;
use brisk_gateway::settings::{GatewaySettings, VariationSettings};
use brisk_tls::TlsSettings;
use brisk_trials::{HostFacts, Surroundings};
use brisk_visits::Settings;

use super::context::Context;
use super::names::host_name;
use crate::raw;

/// Resolves the experiments, which need the store of visits.
pub(super) fn variation(
    raw: &raw::Config,
    hosts: &[HostSettings],
    tls: &TlsSettings,
    has_store: bool,
    context: &mut Context<'_>,
) -> VariationSettings {
    let share = raw.visits.share.unwrap_or(Settings::default().share);
    let surroundings = Surroundings {
        hosts: hosts.iter().map(|host| facts(host, share)).collect(),
        has_store,
        records: tls.records,
        tickets_per_handshake: tls.tickets_per_handshake,
        highest_levels: Coding::ALL.map(|coding| match coding {
            Coding::Zstd => HIGHEST_ZSTD,
            Coding::Brotli => HIGHEST_BROTLI,
            Coding::Gzip => HIGHEST_GZIP,
        }),
        host_name: |text| host_name(text).ok(),
    };
    VariationSettings(brisk_trials::resolve(&raw.experiment, &surroundings, &mut context.shared.findings))
}

/// Adds the variation to the complete settings.
pub(super) fn vary(settings: &mut GatewaySettings, variation: VariationSettings) {
    // By the position of the host: experiments were resolved for the same list.
    for (place, host) in settings.service.hosts.iter_mut().enumerate() {
        host.tls.other_tickets = variation.0.tickets(place);
    }
    settings.variation = variation;
}

/// The settings of a host on which experiments depend. `share` of page views is measured unless the host has its own.
fn facts(host: &HostSettings, share: f64) -> HostFacts {
    let hints = host.routes.iter().filter(|route| route.action.upstream().is_some());
    let compressions = host.routes.iter().filter_map(|route| route.compression.settings.as_ref());
    let levels = compressions.flat_map(|settings| {
        settings.codings.iter().map(|coding| (*coding, settings.levels[coding.index()]))
    });
    HostFacts {
        names: host.tls.names.clone(),
        has_visits: host.visits.is_some(),
        is_measured: host.visits.as_ref().is_some_and(|visits| visits.share.unwrap_or(share) > 0.0),
        // A host without routes has the built-in page.
        has_pages: host.routes.is_empty() || host.routes.iter().any(may_be_page),
        early_hints: hints.map(|route| route.early_hints.settings.is_some()).collect(),
        levels: levels.collect(),
    }
}

/// Whether the responses of a route may be documents that can have the script.
fn may_be_page(route: &RouteSettings) -> bool {
    match &route.action {
        Action::Fixed(FixedResponse { content_type, .. })
        | Action::Formed(FormedResponse { content_type, .. }) => {
            content_type.as_bytes().starts_with(b"text/html")
        }
        Action::Redirect(_) => false,
        _ => true,
    }
}
