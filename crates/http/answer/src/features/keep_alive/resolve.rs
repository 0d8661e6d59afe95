//! Timeouts of idle connections.

use std::ops::RangeInclusive;
use std::time::Duration;

use brisk_config_file::{KeyPath, Period};
use brisk_http_connection::keep_alive::KeepAlive;

use super::Preconnect;
use super::keys::{self, Profile};
use crate::features::{Context, HostScope};

/// Times to wait for a request that are no slips.
const IDLE: RangeInclusive<Period> = Period(Duration::from_secs(1))..=Period(Duration::from_hours(24));

/// Default timeout of connections opened ahead of a click: longer than most visitors look at the page before.
const PRECONNECTED: Duration = Duration::from_mins(2);

/// The endpoint of a host for connections that are opened before they are needed.
pub(super) fn preconnect(
    written: &keys::Preconnect,
    host: &HostScope<'_>,
    context: &mut Context<'_>,
) -> Preconnect {
    let path = host.key("preconnect");
    let table = path.key("path");
    // A text in place of the table is the path itself.
    let place = if context.findings.written(&table) { &table } else { &path };
    let text = &written.path;
    if !text.starts_with('/') || text.contains(['?', '#', '%', '*']) || text.contains("//") {
        let message = format!("{text:?} is not a path for it: write one as \"/_preconnect\"");
        context.findings.wrong(place, message);
    }
    let usual = host.settings.keep_alive.and_then(|keep_alive| keep_alive.idle).unwrap_or(PRECONNECTED);
    let idle = context.findings.within(&path.key("idle"), written.idle, Period(usual), &IDLE).0;
    Preconnect {
        path: text.clone(),
        keep_alive: KeepAlive { idle: Some(idle), requests: None, closes: false },
    }
}

/// The timeouts that are written at `path`.
pub(super) fn settings(written: &keys::KeepAlive, path: &KeyPath, context: &mut Context<'_>) -> KeepAlive {
    let keys::KeepAlive(table) = written;
    // docs/pages.md has the reasons.
    let usual = table.profile.map(|profile| match profile {
        Profile::Web => Duration::from_mins(2),
        Profile::Api => Duration::from_mins(5),
        Profile::Video => Duration::from_secs(30),
    });
    let idle = match (table.idle, usual) {
        (Some(idle), _) => Some(context.findings.within(&path.key("idle"), Some(idle), idle, &IDLE).0),
        (None, usual) => usual,
    };
    let requests = table.requests;
    if let Some(requests) = requests {
        context.findings.within(&path.key("requests"), Some(requests), 1, &(1..=u32::MAX));
    }
    let closes = table.close.unwrap_or(false);
    if closes && table.idle.is_some() {
        context
            .findings
            .wrong(&path.key("idle"), "has no effect with close = true: the connection ends with the answer");
    }
    KeepAlive { idle, requests, closes }
}
