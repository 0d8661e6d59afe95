//! Headers: `header`, `request_header`, and `header_up` and `header_down` of upstreams.

use crate::caddy::context::Context;
use crate::caddy::flow::Flow;
use crate::caddy::placeholders::{Use, template};
use crate::caddy::state::{Change, Rule, State};
use crate::caddy::step::Step;
use crate::caddy::world::World;
use crate::directive::Directive;
use crate::toml::{self, Keys};

/// Headers that brisk sends to upstreams without a setting, with the values that mean the same in `header_up` of Caddy.
const USUAL: &[(&str, &[&str])] = &[
    ("host", &["{host}", "{hostport}", "{http.request.host}", "{http.request.hostport}"]),
    ("x-forwarded-host", &["{host}", "{hostport}", "{http.request.host}", "{http.request.hostport}"]),
    ("x-forwarded-proto", &["{scheme}", "{http.request.scheme}", "https"]),
    (
        "x-forwarded-for",
        &["{remote_host}", "{remote}", "{client_ip}", "{http.request.remote.host}", "{http.request.remote}"],
    ),
    ("x-request-id", &["{uuid}", "{http.request.uuid}"]),
    (
        "connection",
        &[
            "*",
            "Upgrade",
            "upgrade",
            "{header.Connection}",
            "{http.request.header.Connection}",
            "{>Connection}",
        ],
    ),
    ("upgrade", &["*", "websocket", "{header.Upgrade}", "{http.request.header.Upgrade}", "{>Upgrade}"]),
];

/// Headers that frame a message, which `request_headers` and `response_headers` of brisk cannot change.
const FRAMING: [&str; 7] = [
    "content-length",
    "content-encoding",
    "transfer-encoding",
    "connection",
    "upgrade",
    "keep-alive",
    "trailer",
];

/// `header`: rules for `response_headers`. `X-A b` sets, `+X-A b` adds, `-X-A` removes, and `?X-A b` is a default.
pub(crate) fn response<'a>(
    context: &Context<'a>,
    step: &Step<'a>,
    state: &mut State<'a>,
    world: &World,
) -> Flow {
    let directive = step.directive;
    context.carried(directive);
    if !step.args.is_empty() {
        rule(context, directive, &step.args, true, state, world);
    }
    for line in directive.inner() {
        let words: Vec<_> = [line.name.clone()].into_iter().chain(line.args.iter().cloned()).collect();
        context.carried(line);
        if !matches!(&*line.name, "defer" | "match") {
            rule(context, line, &words, true, state, world);
        } else if line.name == "match" {
            let action = "write routes for the responses, or let the application send the headers";
            context.missing(line, "rules of brisk do not depend on the response", action);
        }
    }
    Flow::Continue
}

/// `request_header`: one rule for `request_headers`, without which the route refuses requests.
pub(crate) fn request<'a>(
    context: &Context<'a>,
    step: &Step<'a>,
    state: &mut State<'a>,
    world: &mut World,
) -> Flow {
    context.carried(step.directive);
    if !rule(context, step.directive, &step.args, false, state, world) {
        return Flow::REFUSE;
    }
    world.change(step.arg(0).trim_start_matches(['+', '-', '?', '>']).trim_end_matches(':'));
    Flow::Continue
}

/// Whether one header, as `header_up` has it, means the same as brisk without a rule: `X-Forwarded-Proto {scheme}` does.
pub(crate) fn is_usual(words: &[String]) -> bool {
    let [name, value] = words else { return false };
    let name = name.trim_start_matches('+').to_ascii_lowercase();
    USUAL.iter().any(|(own, values)| *own == name && values.contains(&value.as_str()))
}

/// A [`Rule`] for a header. `false` only if the rule of a request is missing, which could open a route.
pub(crate) fn rule<'a>(
    context: &Context<'a>,
    source: &'a Directive,
    words: &[String],
    is_response: bool,
    state: &mut State<'a>,
    world: &World,
) -> bool {
    let Some(first) = words.first() else { return true };
    let (kind, name) = match first.chars().next() {
        Some(kind @ ('+' | '-' | '?' | '>')) => (kind, first[1..].trim_end_matches(':')),
        _ => (' ', first.trim_end_matches(':')),
    };
    let lower = name.to_ascii_lowercase();
    // To leave the rule out opens nothing: these headers describe the message only.
    if FRAMING.contains(&&*lower) {
        context.unneeded(source, "brisk frames each message itself");
        return true;
    }
    if !is_response && is_usual(&words[..words.len().min(2)]) {
        return true;
    }
    let value = words.get(1).map_or("", String::as_str);
    // brisk has a key for this header, `x_real_ip`, which needs no rule.
    if !is_response && lower == "x-real-ip" && is_address(value) {
        state.real_ip = true;
        return true;
    }
    let is_plain = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&byte));
    if !is_plain || name.contains('*') || words.len() > 2 {
        let reason = "rules of brisk have one whole name and one value";
        context.missing(source, reason, advice(is_response));
        return is_response;
    }
    let change = match kind {
        '-' => Change::Remove,
        '+' => Change::Add,
        '?' if is_response => Change::Default,
        _ => Change::Set,
    };
    let own = match template(value, state, world, Use::Value) {
        Ok(own) if !is_response && own.contains("{response.") => {
            Err("the value is part of a response".to_owned())
        }
        other => other,
    };
    let own = match own {
        Ok(own) => own,
        Err(reason) => {
            context.missing(source, reason, advice(is_response));
            return is_response;
        }
    };
    let value = if kind == '?' && is_response { default_value(context, source, &lower, &own) } else { own };
    let rule = Rule { change, name: name.to_owned(), value, source };
    if is_response {
        state.response.push(rule);
    } else {
        state.request.push(rule);
    }
    true
}

fn advice(is_response: bool) -> &'static str {
    if is_response { "let the application send the header" } else { "until then the route refuses requests" }
}

fn is_address(value: &str) -> bool {
    matches!(
        value,
        "{remote_host}" | "{client_ip}" | "{http.request.remote.host}" | "{remote}" | "{http.vars.client_ip}"
    )
}

/// A value that applies if the response has none: a `[map.NAME]` from `{response.header.NAME}`, with `value` as its `default`.
fn default_value(context: &Context<'_>, source: &Directive, name: &str, value: &str) -> String {
    let mut keys = Keys::default();
    keys.set("from", toml::raw(&format!("{{response.header.{name}}}")));
    keys.set("patterns", "[{ regex = \"^(.+)$\", value = \"{1}\" }]");
    keys.set("default", toml::text(value));
    if value.contains('{') {
        context.missing(source, "a default of brisk has no variables", "let the application send the header");
        return format!("{{response.header.{name}}}");
    }
    format!("{{map.{}}}", context.named_table("map", &toml::name(name), &keys, source))
}
