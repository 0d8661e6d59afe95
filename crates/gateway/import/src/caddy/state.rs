//! Settings that directives leave to the response of later ones: `header`, `basic_auth`, `encode` and others.

use std::collections::BTreeMap;

use crate::caddy::context::Context;
use crate::caddy::environment;
use crate::caddy::plan::Action;
use crate::caddy::world::World;
use crate::directive::Directive;
use crate::toml::{self, Keys};

/// Kind of a change of headers: `set`, `add` or `remove` in brisk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Set,
    /// A value that counts only without another rule for the header.
    Default,
    Add,
    Remove,
}

/// A change of a header. `value` has brisk's variables, such as `{client.address}`.
#[derive(Clone, Debug)]
pub(crate) struct Rule<'a> {
    pub(crate) change: Change,
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) source: &'a Directive,
}

/// Settings of the requests that `follow` has in hand.
#[derive(Clone, Debug, Default)]
pub(crate) struct State<'a> {
    pub(crate) root: Option<String>,
    pub(crate) request: Vec<Rule<'a>>,
    pub(crate) response: Vec<Rule<'a>>,
    pub(crate) compression: Option<String>,
    pub(crate) basic_auth: Option<Keys>,
    pub(crate) forward_auth: Option<Keys>,
    pub(crate) body_size: Option<String>,
    pub(crate) has_log: Option<bool>,
    pub(crate) real_ip: bool,
    /// Values of `vars`.
    pub(crate) vars: BTreeMap<String, String>,
    /// Names that `map` sets.
    pub(crate) mapped: Vec<String>,
}

impl State<'_> {
    /// Work that a copy causes.
    pub(crate) fn size(&self) -> usize {
        self.request.len() + self.response.len() + self.vars.len() + self.mapped.len()
    }

    /// The keys of a route with this [`Action`]: `request_headers` and `body_size` for upstreams only.
    pub(crate) fn keys(&self, context: &Context<'_>, world: &World, action: &Action) -> Keys {
        let mut keys = Keys::default();
        let has_upstream = matches!(action, Action::Upstream { .. });
        if let Some(users) = &self.basic_auth {
            let mut users = users.clone();
            if has_upstream {
                // Caddy passes the header `Authorization` on to the upstream.
                users.set("forward", "true");
            }
            keys.set("basic_auth", users.inline());
        }
        if let Some(auth) = &self.forward_auth {
            let own = |(key, _): &&(String, String)| has_upstream || key != "copy_headers";
            keys.set("forward_auth", Keys(auth.0.iter().filter(own).cloned().collect()).inline());
        }
        if let Some(size) = self.body_size.as_ref().filter(|_| has_upstream) {
            keys.set("body_size", size.clone());
        }
        if has_upstream {
            if let Some(rules) = rules(context, &self.request, false) {
                keys.set("request_headers", rules);
            }
            if self.real_ip {
                keys.set("x_real_ip", "true");
            }
        }
        let is_typed = matches!(action, Action::Respond(_)) && world.view.is_original();
        let own: Vec<_> = self.response.iter().filter(|rule| !is_typed || !rule.is_type()).cloned().collect();
        if let Some(rules) = rules(context, &own, true) {
            keys.set("response_headers", rules);
        }
        if let Some(compression) = &self.compression
            && !matches!(action, Action::Redirect(_) | Action::Empty)
        {
            keys.set("compression", compression.clone());
        }
        if self.has_log == Some(false) {
            keys.set("access_log", "false");
        }
        keys
    }

    /// The type that a rule for `Content-Type` gives to a fixed response.
    pub(crate) fn content_type(&self) -> Option<&str> {
        let rule = self.response.iter().rev().find(|rule| rule.is_type() && rule.change == Change::Set)?;
        Some(&rule.value)
    }
}

impl Rule<'_> {
    fn is_type(&self) -> bool {
        self.name.eq_ignore_ascii_case("content-type") && !self.value.contains('{')
    }
}

/// The table of rules: `{ set = { X-A = "b" } }`. brisk has one rule of each kind for a header; the last one counts.
fn rules(context: &Context<'_>, rules: &[Rule<'_>], is_response: bool) -> Option<String> {
    let (mut set, mut add, mut remove) = (Keys::default(), Keys::default(), Vec::new());
    for rule in rules {
        let is_same = |(name, _): &(String, String)| name.eq_ignore_ascii_case(&rule.name);
        match rule.change {
            Change::Default if set.0.iter().any(is_same) => {}
            Change::Set | Change::Default => {
                add.0.retain(|own| !is_same(own));
                remove.retain(|own: &String| !own.eq_ignore_ascii_case(&rule.name));
                set.0.retain(|own| !is_same(own));
                set.set(&rule.name, environment::text(&rule.value));
            }
            Change::Add if add.0.iter().any(is_same) => {
                context.missing(
                    rule.source,
                    "brisk adds one line of a header",
                    "join the values, or let the application send them",
                );
            }
            Change::Add => add.set(&rule.name, environment::text(&rule.value)),
            Change::Remove => {
                add.0.retain(|own| !is_same(own));
                set.0.retain(|own| !is_same(own));
                remove.push(rule.name.clone());
            }
        }
    }
    let mut keys = Keys::default();
    let has_values = !set.is_empty() || !add.is_empty();
    for (key, own) in [("set", &set), ("add", &add)] {
        if !own.is_empty() {
            keys.set(key, own.inline());
        }
    }
    if !remove.is_empty() {
        keys.set("remove", toml::list(&remove));
    }
    // Caddy changes headers of all responses, and brisk too if `always` is set.
    if is_response && has_values {
        keys.set("always", "true");
    }
    (!keys.is_empty()).then(|| keys.inline())
}
