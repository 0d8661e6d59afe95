//! `request_headers`, `response_headers` and `security_headers`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brisk_config_file::KeyPath;
use brisk_rules::{HeaderRules, HostHeaders, RuleValue, Template};
use http::{HeaderName, HeaderValue};

use super::keys::{self, HeaderRulesKeys, HostHeadersKeys, SecurityTable, TextOrOff};
use super::{HostHeaderSettings, HstsSettings};
use crate::features::{Context, HostScope, RouteScope};

/// Minimum `max-age` required by the browsers' preload list (hstspreload.org).
const PRELOAD_LEAST: Duration = Duration::from_hours(365 * 24);

/// `max-age` of HSTS with `security_headers` and without `hsts`.
const HSTS: Duration = Duration::from_hours(180 * 24);

/// The rules for the requests of a route.
pub(super) fn of_requests(
    keys: &HeaderRulesKeys,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> Option<Arc<HeaderRules>> {
    let (written, path) = (keys.request_headers.as_ref()?, route.key("request_headers"));
    if !route.has_upstream() {
        context.findings.wrong(&path, "has no effect without `upstream`");
    }
    Some(rules(written, Message::Request, &path, context))
}

/// The rules for the responses of a route.
pub(super) fn of_responses(
    keys: &HeaderRulesKeys,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> Option<Arc<HeaderRules>> {
    let written = keys.response_headers.as_ref()?;
    Some(rules(written, Message::Response, &route.key("response_headers"), context))
}

/// The message whose headers a rule changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Message {
    Request,
    Response,
}

fn rules(
    written: &keys::HeaderRules,
    message: Message,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Arc<HeaderRules> {
    let set = pairs(&written.set, message, &path.key("set"), context);
    let add = pairs(&written.add, message, &path.key("add"), context);
    for (name, _) in &add {
        if set.iter().any(|(other, _)| other == name) {
            let message = format!("{name} is in `set` too, which leaves it one value: keep one of the two");
            context.findings.wrong(&path.key("add").key(name.as_str()), message);
        }
    }
    let path = path.key("remove");
    let remove = written.remove.iter().enumerate();
    let remove = remove.filter_map(|(index, text)| name(text, &path.index(index), context)).collect();
    Arc::new(HeaderRules { remove, set, add })
}

fn pairs(
    written: &BTreeMap<String, String>,
    message: Message,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Vec<(HeaderName, RuleValue)> {
    let pair = |(text, value): (&String, &String)| {
        let path = path.key(text);
        let name = name(text, &path, context);
        let value = template(value, message, &path, context);
        name.zip(value)
    };
    written.iter().filter_map(pair).collect()
}

pub(crate) fn name(text: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<HeaderName> {
    let Ok(name) = HeaderName::from_bytes(text.as_bytes()) else {
        context
            .findings
            .wrong(path, format!("{text:?} is not the name of a header: write one as \"Cache-Control\""));
        return None;
    };
    if !HeaderRules::may_change(&name) {
        let message = format!("{text} says how a message is sent, which is brisk's own matter");
        context.findings.wrong(path, message);
        return None;
    }
    Some(name)
}

fn template(text: &str, message: Message, path: &KeyPath, context: &mut Context<'_>) -> Option<RuleValue> {
    let fault = match Template::new(text, &context.maps) {
        Ok(template) if message == Message::Response || !template.needs_response() => {
            context.note_fingerprints(|variable| template.has(variable));
            return Some(template.into());
        }
        Ok(_) => {
            "{upstream.address} is known with the response only: use it in `response_headers`".to_owned()
        }
        Err(reason) => reason,
    };
    context.findings.wrong(path, fault);
    None
}

pub(crate) fn value(text: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<HeaderValue> {
    let value = HeaderValue::from_str(text).ok().filter(|value| value.to_str().is_ok());
    if value.is_none() || text.trim() != text {
        let message = format!(
            "{text:?} is not the value of a header: write ASCII without line breaks, and no spaces around it"
        );
        context.findings.wrong(path, message);
        return None;
    }
    value
}

/// The headers of a host. `security_headers` enables HSTS unless the host configures it.
pub(super) fn of_host(
    keys: &HostHeadersKeys,
    host: &HostScope<'_>,
    context: &mut Context<'_>,
) -> HostHeaderSettings {
    let own = keys.hsts.as_ref().map(|written| hsts(written, &host.key("hsts"), context));
    let Some(keys::SecurityHeaders(table)) = &keys.security_headers else {
        return HostHeaderSettings { hsts: own, others: HostHeaders::default() };
    };
    let path = host.key("security_headers");
    if table.hsts.is_some() && own.is_some() {
        context.findings.wrong(&path.key("hsts"), "the host has `hsts` itself: keep one of the two");
    }
    let usual = HstsSettings { max_age: HSTS, include_subdomains: false, preload: false };
    HostHeaderSettings {
        hsts: own.or_else(|| table.hsts.unwrap_or(true).then_some(usual)),
        others: security(table, &path, context),
    }
}

/// Headers that `security_headers` enables.
fn security(table: &SecurityTable, path: &KeyPath, context: &mut Context<'_>) -> HostHeaders {
    let mut headers = Vec::new();
    if table.content_type_options.unwrap_or(true) {
        let value = HeaderValue::from_static("nosniff");
        headers.push((HeaderName::from_static("x-content-type-options"), value));
    }
    for (key, header, written, usual) in [
        (
            "referrer_policy",
            "referrer-policy",
            &table.referrer_policy,
            Some("strict-origin-when-cross-origin"),
        ),
        ("frame_options", "x-frame-options", &table.frame_options, Some("SAMEORIGIN")),
        (
            "opener_policy",
            "cross-origin-opener-policy",
            &table.opener_policy,
            Some("same-origin-allow-popups"),
        ),
        ("permissions_policy", "permissions-policy", &table.permissions_policy, None),
    ] {
        let text = match written {
            Some(TextOrOff::Off) => None,
            Some(TextOrOff::Text(text)) => Some(text.as_str()),
            None => usual,
        };
        let value = text.and_then(|text| value(text, &path.key(key), context));
        headers.extend(value.map(|value| (HeaderName::from_static(header), value)));
    }
    HostHeaders(headers)
}

/// Strict Transport Security of a host.
fn hsts(raw: &keys::Hsts, path: &KeyPath, context: &mut Context<'_>) -> HstsSettings {
    let max_age = raw.max_age.0;
    if raw.preload {
        let preload = path.key("preload");
        if max_age < PRELOAD_LEAST {
            let message = format!(
                "browsers preload a host only with max_age of \"365d\" or more, not \"{}\"",
                raw.max_age
            );
            context.findings.wrong(&preload, message);
        }
        if !raw.include_subdomains {
            context.findings.wrong(&preload, "browsers preload a host only with include_subdomains = true");
        }
    }
    HstsSettings { max_age, include_subdomains: raw.include_subdomains, preload: raw.preload }
}
