//! Pages: those of the admin listener, the dashboard, and the built-in page for visitors.

pub(crate) mod built_in;
mod connections;
pub(crate) mod dashboard;

use std::sync::Arc;
use std::time::SystemTime;

use brisk_server::Pages;
use brisk_telemetry::metrics::CONTENT_TYPE as METRICS_TYPE;

use crate::certificates::report;
use crate::resumption::ticket_keys;
use crate::shared::Shared;

/// Pages and actions of the admin listener.
pub(crate) fn pages_of(shared: &Shared) -> Pages {
    let (metrics, sink) = (Arc::clone(&shared.metrics), Arc::clone(&shared.sink));
    let (shown, rotated) = (Arc::clone(shared.resumption.keyring()), Arc::clone(shared.resumption.keyring()));
    let (engines, maintenance) =
        (Arc::clone(&shared.certificates.engines), Arc::clone(&shared.certificates.maintenance));
    let stapled = Arc::clone(&maintenance);
    let (silent, checks) = (Arc::clone(&shared.certificates.checks), Arc::clone(&shared.certificates.checks));
    let (catalogues, folders) =
        (shared.certificates.catalogues.clone(), shared.certificates.catalogues.clone());
    let quic = shared.quic.get().cloned();
    let on_demand = shared.certificates.on_demand.clone();
    let certificates = move || report::shown(&maintenance, &catalogues, &on_demand, SystemTime::now());
    Pages::default()
        .ready_unless(move || engines.trouble())
        .ready_unless(move || report::staple_trouble(&stapled))
        .ready_unless(move || silent.trouble())
        .ready_unless(move || quic.as_ref()?.trouble())
        .note(move || checks.notes())
        .note(move || report::folder_notes(&folders))
        // Without facts about single clients, and scrapers request it by name. For the other
        // pages see `Pages::show`.
        .show_under_any_name("/metrics", METRICS_TYPE, move || metrics.render())
        .show("/connections", "application/json", move || connections::shown(&sink.recent()))
        .show("/tickets", "application/json", move || ticket_keys::shown(&shown, SystemTime::now()))
        .show("/certificates", "application/json", certificates)
        .act("/tickets/rotate", move || match ticket_keys::rotate(&rotated, SystemTime::now()) {
            Ok(done) => Ok(done.to_owned()),
            Err(error) => Err(error.to_string()),
        })
}
