//! The limits by name, those of hosts and routes, and timeouts.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use brisk_config_file::{KeyPath, Period};
use brisk_limits::{KEYS, LimitSettings, Limits, OnFailure};
use brisk_rules::{Template, Variable};
use brisk_upstream_group::settings::{RequestTimeouts, check_attempt};
use http::StatusCode;

use super::keys::{self, TimeoutsKeys};
use super::settings::{LimitKey, RequestLimit, RouteTimeouts};
use crate::features::{Context, HostKeys, TIMEOUTS};

/// Number of keys whose rates are remembered by default.
const USUAL_KEYS: u32 = 1 << 16;

/// The usual key.
const CLIENT: &str = "{client.address}";

/// All limits by name, as limits of `running`. Warns of those that none of `hosts` and their routes use.
pub fn limits<'k>(
    written: &BTreeMap<String, keys::Limit>,
    hosts: impl Iterator<Item = &'k HostKeys>,
    running: &Limits,
    context: &mut Context<'_>,
) -> BTreeMap<String, RequestLimit> {
    let used = hosts.flat_map(|host| {
        let routes = host.site.route.iter().map(|route| &route.limits);
        routes.chain([&host.limits]).filter_map(|keys| keys.limits.as_ref())
    });
    let used: HashSet<_> = used.flatten().collect();
    let mut limits = BTreeMap::new();
    for (name, limit) in written {
        let path = KeyPath::of("limit").key(name);
        if !used.contains(name) {
            context.findings.warn(format!("[{path}]: no host and no route has limits = [\"{name}\"]"));
        }
        if let Some(limit) = self::limit(name, limit, running, &path, context) {
            limits.insert(name.clone(), limit);
        }
    }
    limits
}

fn limit(
    name: &str,
    raw: &keys::Limit,
    running: &Limits,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<RequestLimit> {
    if raw.rate.is_none() && raw.concurrency.is_none() {
        let message = "limits nothing: write rate = \"10/s burst 20\", or concurrency = 10, or both";
        context.findings.incomplete(path, message);
    }
    if raw.keys.is_some() && raw.rate.is_none() {
        context.findings.wrong(&path.key("keys"), "has no effect without `rate`");
    }
    let fleet = fleet(raw, path, context);
    let keys = context.findings.within(&path.key("keys"), raw.keys, USUAL_KEYS, &KEYS);
    let most = |most| context.findings.within(&path.key("concurrency"), Some(most), 1, &(1..=1_000_000));
    let concurrency = raw.concurrency.map(most);
    let status = context.findings.within(&path.key("status"), raw.status, 429, &(400..=599));
    let by = raw.by.as_deref().unwrap_or(CLIENT);
    let key = key(by, &path.key("by"), context)?;
    let settings = LimitSettings {
        rate: raw.rate.map(|rate| rate.0),
        concurrency,
        by: by.to_owned(),
        keys,
        fleet,
        is_dry_run: raw.dry_run.unwrap_or(false),
    };
    Some(RequestLimit {
        // A running limit with equal settings keeps its counts over a reload.
        limit: running.open(name, settings),
        by: key,
        status: StatusCode::from_u16(status).ok()?,
    })
}

/// Whether a fleet counts the rate together.
fn fleet(raw: &keys::Limit, path: &KeyPath, context: &mut Context<'_>) -> Option<OnFailure> {
    let is_shared = raw.fleet == Some(true);
    if raw.on_failure.is_some() && !is_shared {
        context.findings.wrong(&path.key("on_failure"), "has no effect without fleet = true");
    }
    if is_shared && raw.rate.is_none() {
        context.findings.wrong(
            &path.key("fleet"),
            "has no effect without `rate`: requests at a time are counted by each gateway",
        );
    }
    if is_shared && !context.findings.written(&KeyPath::of("sessions").key("redis")) {
        let message = "needs [sessions.redis] with the `servers` that the gateways of the fleet share";
        context.findings.wrong(&path.key("fleet"), message);
    }
    is_shared.then_some(match raw.on_failure {
        None | Some(keys::OnFailure::Local) => OnFailure::Local,
        Some(keys::OnFailure::Allow) => OnFailure::Allow,
        Some(keys::OnFailure::Deny) => OnFailure::Deny,
    })
}

fn key(by: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<LimitKey> {
    if by == CLIENT {
        return Some(LimitKey::Client);
    }
    let fault = match Template::new(by, &context.maps) {
        Ok(template) if template.needs_response() => {
            "values of the response are known with the response only".to_owned()
        }
        // The stage of the limits precedes the one that verifies users, so the key would always be empty.
        Ok(template) if template.reaches(&Variable::User) => {
            "the user is verified after the limits: write a header or {client.address}".to_owned()
        }
        Ok(template) if template.fixed().is_some_and(|text| text.is_empty()) => {
            format!(
                "empty: write the key of a request, as {CLIENT:?}, or a fixed text for all requests together"
            )
        }
        Ok(template) => {
            context.note_fingerprints(|variable| template.has(variable));
            return Some(LimitKey::Template(template));
        }
        Err(reason) => reason,
    };
    // Not the echo of another value of the limit, even of one that could not be read.
    context.findings.incomplete(path, fault);
    None
}

/// The timeouts at `path`, and those of `general` that it does not have.
pub(super) fn timeouts(
    keys: &TimeoutsKeys,
    path: &KeyPath,
    general: RouteTimeouts,
    context: &mut Context<'_>,
) -> RouteTimeouts {
    let written = &keys.timeouts;
    let mut limit = |key: &str, value: Option<Period>, general| {
        let own = value.map(|value| context.findings.within(&path.key(key), Some(value), value, &TIMEOUTS).0);
        own.or(general)
    };
    let upstream = RequestTimeouts {
        head: limit("head", written.head, general.upstream.head),
        attempt: limit("attempt", written.attempt, general.upstream.attempt),
        body: limit("body", written.body, general.upstream.body),
    };
    let request = limit("request", written.request, general.request);
    if let Some(head) = upstream.head {
        // Only an attempt that is written here: the host has reported its own.
        let attempt = written.attempt.and(upstream.attempt);
        check_attempt(attempt, head, &path.key("attempt"), &mut context.findings);
    }
    RouteTimeouts { upstream, request }
}

/// The limits with these names, of the host or route at `path`.
pub(super) fn named(names: &[String], path: &KeyPath, context: &mut Context<'_>) -> Arc<[RequestLimit]> {
    let path = path.key("limits");
    let mut seen = HashSet::new();
    let mut limits = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let path = path.index(index);
        if !seen.insert(name) {
            context.findings.wrong(&path, format!("{name:?} is in the list already: once is enough"));
        }
        match context.limits.get(name) {
            Some(limit) => limits.push(limit.clone()),
            // A limit that exists but is invalid has been reported already.
            None if context.findings.written(&KeyPath::of("limit").key(name)) => {}
            None if context.limits.is_empty() => {
                let message =
                    format!("there is no limit: write [limit.{name}] with its `rate` or `concurrency`");
                context.findings.wrong(&path, message);
            }
            None => {
                let known = context.limits.keys().cloned().collect();
                context.findings.unknown(&path, name, known);
            }
        }
    }
    limits.into()
}
