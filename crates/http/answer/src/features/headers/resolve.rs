//! `request_headers`, `response_headers` and `security_headers`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brisk_config_file::KeyPath;
use brisk_rules::{HeaderRule, HeaderRules, HostHeaders, RouteHeaders, RuleValue, Statuses, Template};
use http::{HeaderName, HeaderValue};

use super::keys::{self, HeaderRulesKeys, HostHeadersKeys, SecurityTable, TextOrOff};
use super::{HostHeaderSettings, HstsSettings};
use crate::features::{Context, HostScope, RouteScope};

/// Minimum `max-age` required by the browsers' preload list (hstspreload.org).
const PRELOAD_LEAST: Duration = Duration::from_hours(365 * 24);

/// `max-age` of HSTS with `security_headers` and without `hsts`.
const HSTS: Duration = Duration::from_hours(180 * 24);

/// The rules of a route, and those of its host for other names.
pub(super) fn of_route(
    keys: &HeaderRulesKeys,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> RouteHeaders {
    let general = &route.host.settings.headers.rules;
    if keys.request_headers.is_some() && !route.has_upstream() {
        context.findings.wrong(&route.key("request_headers"), "has no effect without `upstream`");
    }
    let written = [&keys.request_headers, &keys.response_headers];
    let mut rules = inheriting_rules(written, |key| route.key(key), general, context);
    // Rules that the route inherits for requests have no effect without an upstream.
    if !route.has_upstream() {
        rules.requests = None;
    }
    rules
}

/// The rules of `[server]`: `request_headers` and `response_headers`.
pub fn of_server(written: [&Option<keys::HeaderRules>; 2], context: &mut Context<'_>) -> RouteHeaders {
    let server = KeyPath::of("server");
    for (key, written) in KEYS.iter().zip(written) {
        if written.as_ref().is_some_and(|written| written.inherit.is_some()) {
            let path = server.key(key).key("inherit");
            context.findings.wrong(&path, "has no effect: there are no more general rules");
        }
    }
    inheriting_rules(written, |key| server.key(key), &RouteHeaders::default(), context)
}

/// The keys with rules.
const KEYS: [&str; 2] = ["request_headers", "response_headers"];

/// The rules for requests and responses, and those of `general` for other names.
fn inheriting_rules(
    [requests, responses]: [&Option<keys::HeaderRules>; 2],
    place: impl Fn(&str) -> KeyPath,
    general: &RouteHeaders,
    context: &mut Context<'_>,
) -> RouteHeaders {
    let mut resolve =
        |written: &Option<keys::HeaderRules>, message, key, general: &Option<Arc<HeaderRules>>| {
            let Some(written) = written else { return general.clone() };
            let own = rules(written, message, &place(key), context);
            let rules = match general.as_ref().filter(|_| written.inherit.unwrap_or(true)) {
                Some(general) => own.over(general),
                None => own,
            };
            (!rules.is_empty()).then(|| Arc::new(rules))
        };
    RouteHeaders {
        requests: resolve(requests, Message::Request, KEYS[0], &general.requests),
        responses: resolve(responses, Message::Response, KEYS[1], &general.responses),
    }
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
) -> HeaderRules {
    if message == Message::Request && written.always.is_some() {
        context.findings.wrong(&path.key("always"), "has no effect on requests: remove it");
    }
    // As in nginx: a rule for `Cache-Control` would make a missing file cacheable for weeks.
    let statuses = if written.always.unwrap_or(false) { Statuses::All } else { Statuses::Successful };
    let set = pairs(&written.set, (message, statuses), &path.key("set"), context);
    let add = pairs(&written.add, (message, statuses), &path.key("add"), context);
    for HeaderRule { name, .. } in &add {
        if set.iter().any(|other| other.name == *name) {
            let message = format!("{name} is in `set` too, which leaves it one value: keep one of the two");
            context.findings.wrong(&path.key("add").key(name.as_str()), message);
        }
    }
    let path = path.key("remove");
    let remove = written.remove.iter().enumerate();
    let remove = remove.filter_map(|(index, text)| name(text, &path.index(index), context)).collect();
    HeaderRules { remove, set, add }
}

fn pairs(
    written: &BTreeMap<String, String>,
    (message, statuses): (Message, Statuses),
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Vec<HeaderRule> {
    let pair = |(text, value): (&String, &String)| {
        let path = path.key(text);
        let name = name(text, &path, context);
        let value = template(value, message, &path, context);
        name.zip(value).map(|(name, value)| HeaderRule { name, value, statuses })
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
        Ok(_) => "values of the response are known with the response only: use them in `response_headers`"
            .to_owned(),
        Err(reason) => reason,
    };
    context.findings.wrong(path, fault);
    None
}

pub(crate) fn value(text: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<HeaderValue> {
    let value = HeaderValue::from_str(text).ok().filter(|value| value.to_str().is_ok());
    // Spaces around a value would be lost (RFC 9110 section 5.5).
    if value.is_none() || text.trim() != text {
        let message = format!(
            "{text:?} is not the value of a header: write ASCII without line breaks, and no spaces around it"
        );
        context.findings.wrong(path, message);
        return None;
    }
    value
}

/// The headers of a host, and its rules with those of the server. `security_headers` enables HSTS unless the host configures it.
pub(super) fn of_host(
    keys: &HostHeadersKeys,
    host: &HostScope<'_>,
    context: &mut Context<'_>,
) -> HostHeaderSettings {
    let own = keys.hsts.as_ref().map(|written| hsts(written, &host.key("hsts"), context));
    let (written, general) = ([&keys.request_headers, &keys.response_headers], context.headers.clone());
    let rules = inheriting_rules(written, |key| host.key(key), &general, context);
    let Some(keys::SecurityHeaders(table)) = &keys.security_headers else {
        return HostHeaderSettings { hsts: own, others: HostHeaders::default(), rules };
    };
    let path = host.key("security_headers");
    if table.hsts.is_some() && own.is_some() {
        context.findings.wrong(&path.key("hsts"), "the host has `hsts` itself: keep one of the two");
    }
    let usual = HstsSettings { max_age: HSTS, include_subdomains: false, preload: false };
    HostHeaderSettings {
        hsts: own.or_else(|| table.hsts.unwrap_or(true).then_some(usual)),
        others: security(table, &path, context),
        rules,
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
