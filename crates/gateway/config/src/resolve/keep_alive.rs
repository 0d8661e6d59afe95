//! `keep_alive` and `preconnect`: timeouts of idle connections.

use std::ops::RangeInclusive;
use std::time::Duration;

use brisk_answer::settings::{KeepAlive, Preconnect};
use brisk_config_file::{KeyPath, Period};

use super::context::Context;
use crate::raw::{self, Profile};

/// Times to wait for a request that are no slips.
const IDLE: RangeInclusive<Period> = Period(Duration::from_secs(1))..=Period(Duration::from_hours(24));

/// Default timeout of connections opened ahead of a click: longer than most visitors look at the page before.
const PRECONNECTED: Duration = Duration::from_mins(2);

/// Default of the host at `path` for its routes without `keep_alive`.
pub(super) fn of_host(raw: &raw::Host, path: &KeyPath, context: &mut Context<'_>) -> Option<KeepAlive> {
    let written = raw.keep_alive.as_ref()?;
    Some(settings(written, &path.key("keep_alive"), context))
}

/// The settings of the route at `path`.
pub(super) fn of_route(
    raw: &raw::Route,
    inherited: Option<KeepAlive>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<KeepAlive> {
    let written = raw.keep_alive.as_ref();
    written.map(|written| settings(written, &path.key("keep_alive"), context)).or(inherited)
}

/// The endpoint of the host at `path` for connections that are opened before they are needed.
pub(super) fn preconnect(
    raw: &raw::Host,
    inherited: Option<KeepAlive>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Preconnect> {
    let written = raw.preconnect.as_ref()?;
    let path = path.key("preconnect");
    let table = path.key("path");
    let place = if context.findings.written(&table) { &table } else { &path };
    let text = &written.path;
    if !text.starts_with('/') || text.contains(['?', '#', '%', '*']) || text.contains("//") {
        let message = format!("{text:?} is not a path for it: write one as \"/_preconnect\"");
        context.findings.wrong(place, message);
    }
    let usual = inherited.and_then(|keep_alive| keep_alive.idle).unwrap_or(PRECONNECTED);
    let idle = context.findings.within(&path.key("idle"), written.idle, Period(usual), &IDLE).0;
    Some(Preconnect {
        path: text.clone(),
        keep_alive: KeepAlive { idle: Some(idle), requests: None, closes: false },
    })
}

fn settings(written: &raw::KeepAlive, path: &KeyPath, context: &mut Context<'_>) -> KeepAlive {
    let raw::KeepAlive(table) = written;
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
