//! The [`State`] of a request between rules: header rules, restrictions and the new path, and the keys of its route.

use std::collections::BTreeSet;

use crate::haproxy::formula::Need;
use crate::haproxy::rule::Of;
use crate::toml::{self, Keys};

/// Headers that frame a message, which rules of brisk cannot change.
const FRAMING: [&str; 6] =
    ["content-length", "content-encoding", "transfer-encoding", "connection", "upgrade", "keep-alive"];

/// Rules for the headers of one direction: `request_headers` or `response_headers`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    set: Keys,
    add: Keys,
    remove: Vec<String>,
}

impl Headers {
    /// Whether brisk frames messages with this header itself.
    pub(crate) fn is_framing(name: &str) -> bool {
        FRAMING.contains(&&*name.to_ascii_lowercase())
    }

    /// Removes all rules for `name`.
    fn forget(&mut self, name: &str) {
        let is_other = |own: &str| !own.eq_ignore_ascii_case(name);
        self.set.0.retain(|(own, _)| is_other(own));
        self.add.0.retain(|(own, _)| is_other(own));
        self.remove.retain(|own| is_other(own));
    }

    /// `set-header`: `x-a 1` becomes `set = { x-a = "1" }`.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.forget(name);
        self.set.set(name, toml::text(value));
    }

    /// `add-header`. Whether there is no rule of `set` or `add` for this name yet, because brisk has one for each name.
    pub(crate) fn add(&mut self, name: &str, value: &str) -> bool {
        let is_own = |(own, _): &(String, String)| own.eq_ignore_ascii_case(name);
        if self.add.0.iter().any(is_own) || self.set.0.iter().any(is_own) {
            return false;
        }
        self.add.set(name, toml::text(value));
        true
    }

    /// `del-header`: `x-a` becomes `remove = ["x-a"]`.
    pub(crate) fn remove(&mut self, name: &str) {
        self.forget(name);
        self.remove.push(name.to_owned());
    }

    /// Leaves the header to brisk.
    pub(crate) fn default(&mut self, name: &str) {
        self.forget(name);
    }

    /// Bytes of the texts.
    fn size(&self) -> usize {
        let pairs = self.set.0.iter().chain(&self.add.0);
        let pairs: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
        pairs + self.remove.iter().map(String::len).sum::<usize>()
    }

    /// The inline table with `set`, `add`, `remove` and `always`; `None` without rules.
    fn toml(&self, of: Of) -> Option<String> {
        let mut keys = Keys::default();
        if !self.set.is_empty() {
            keys.set("set", self.set.inline());
        }
        if !self.add.is_empty() {
            keys.set("add", self.add.inline());
        }
        if !self.remove.is_empty() {
            keys.set("remove", toml::list(&self.remove));
        }
        // HAProxy's rules concern responses of servers with every status.
        if of == Of::Response && (!self.set.is_empty() || !self.add.is_empty()) {
            keys.set("always", "true");
        }
        (!keys.is_empty()).then(|| keys.inline())
    }
}

/// Effects of the rules before a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) request: Headers,
    pub(crate) response: Headers,
    /// Names of the headers of the request that rules have changed, in lower case.
    pub(crate) changed: BTreeSet<String>,
    pub(crate) real_ip: bool,
    /// Keys for a new path, from `set-path` and `replace-path`.
    pub(crate) path: Keys,
    /// Users with their realm, for `basic_auth`.
    pub(crate) users: Option<(Need, String)>,
    pub(crate) certificate: Option<Vec<String>>,
    pub(crate) limits: Vec<String>,
    pub(crate) body_size: Option<u64>,
    pub(crate) is_silent: bool,
    /// Number of the backend, after `use_backend` or `default_backend`.
    pub(crate) backend: Option<usize>,
}

impl State {
    /// Bytes of the texts.
    pub(crate) fn size(&self) -> usize {
        let texts = self.limits.iter().chain(&self.changed);
        self.request.size() + self.response.size() + texts.map(String::len).sum::<usize>()
    }

    /// The keys of the restrictions, which routes of every kind have: `limits`, `basic_auth`, `client_certificate`, `access_log`.
    /// `users` gives the file of a [`Need`].
    pub(crate) fn restrictions(&self, users: &dyn Fn(&Need) -> String, keys: &mut Keys) {
        if !self.limits.is_empty() {
            keys.set("limits", toml::list(&self.limits));
        }
        if let Some((need, realm)) = &self.users {
            let mut auth = Keys::of("file", users(need));
            if !realm.is_empty() {
                auth.set("realm", toml::text(realm));
            }
            // Without servers, nothing gets the header.
            if keys.get("upstream").is_some() {
                auth.set("forward", "true");
            }
            keys.set("basic_auth", auth.inline());
        }
        if let Some(names) = &self.certificate {
            let names = if names.is_empty() { Keys::default() } else { Keys::of("names", toml::list(names)) };
            keys.set("client_certificate", names.inline().replace("{  }", "{}"));
        }
        if self.is_silent {
            keys.set("access_log", "false");
        }
    }

    /// The keys of a route with an `upstream`: `request_headers`, `response_headers`, `x_real_ip`, `body_size` and a new path.
    pub(crate) fn forwarding(&self, keys: &mut Keys) {
        keys.0.extend(self.path.0.clone());
        if let Some(rules) = self.request.toml(Of::Request) {
            keys.set("request_headers", rules);
        }
        if let Some(rules) = self.response.toml(Of::Response) {
            keys.set("response_headers", rules);
        }
        if self.real_ip {
            keys.set("x_real_ip", "true");
        }
        if let Some(size) = self.body_size {
            keys.set("body_size", toml::size(size));
        }
    }

    /// Adds a restriction. `false` if the route has another one of this kind, because it has one `basic_auth` and one
    /// `client_certificate`.
    pub(crate) fn require(&mut self, need: &Need, realm: &str) -> bool {
        match need {
            Need::User { .. } => {
                if let Some((own, _)) = &self.users {
                    own == need
                } else {
                    self.users = Some((need.clone(), realm.to_owned()));
                    true
                }
            }
            Need::Certificate { names } => match &self.certificate {
                Some(own) if own.is_empty() || own == names => {
                    self.certificate = Some(names.clone());
                    true
                }
                // Any certificate suffices, and one of some names is required already.
                Some(_) => names.is_empty(),
                None => {
                    self.certificate = Some(names.clone());
                    true
                }
            },
        }
    }
}
