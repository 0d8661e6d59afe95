//! Restrictions: networks, passwords, permission of another server.

use std::net::IpAddr;

use crate::directive::Directive;
use crate::nginx::context::Context;
use crate::nginx::scope::Scope;
use crate::nginx::variables::only_variable;
use crate::toml::{self, Keys};

/// A network: its version, its first address and the length of its prefix, so that a network precedes its parts.
pub(crate) fn network(text: &str) -> Option<(u8, u128, u32)> {
    let (address, length) =
        text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let (version, bits, most) = match address.parse().ok()? {
        IpAddr::V4(address) => (4, u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (6, u128::from(address), 128),
    };
    let length = length.map_or(Some(most), |length| length.parse().ok())?;
    (length <= most).then(|| (version, bits & mask(length), length))
}

fn mask(length: u32) -> u128 {
    if length == 0 { 0 } else { u128::MAX << (128 - length) }
}

/// Whether the network `outer` contains `inner`.
pub(crate) fn contains(outer: &str, inner: &str) -> bool {
    network(outer).zip(network(inner)).is_some_and(|(outer, inner)| includes(outer, inner))
}

/// Whether the first network contains the second one.
pub(crate) fn includes(outer: (u8, u128, u32), inner: (u8, u128, u32)) -> bool {
    outer.0 == inner.0 && outer.2 <= inner.2 && outer.1 == inner.1 & mask(outer.2)
}

/// Restrictions that brisk does not have: those of other modules, such as `auth_jwt` and `modsecurity`. A route with one of them
/// refuses all requests.
pub(crate) const FOREIGN: [&str; 21] = [
    "auth_jwt",
    "auth_jwt_require",
    "auth_oidc",
    "auth_digest",
    "auth_ldap",
    "auth_ldap_servers",
    "auth_pam",
    "auth_gss",
    "access_by_lua",
    "access_by_lua_block",
    "access_by_lua_file",
    "rewrite_by_lua",
    "rewrite_by_lua_block",
    "rewrite_by_lua_file",
    "server_rewrite_by_lua_block",
    "server_rewrite_by_lua_file",
    "js_access",
    "perl_access",
    "secure_link",
    "secure_link_secret",
    "modsecurity",
];

/// A restriction of [`FOREIGN`] that is in force, besides those with the names `carried`.
pub(crate) fn foreign<'a>(scope: &Scope<'a>, carried: &[&str]) -> Option<&'a Directive> {
    let others = FOREIGN.iter().filter(|name| !carried.contains(name));
    others.filter_map(|name| scope.one(name)).find(|own| !matches!(own.arg(0), "off" | "Off"))
}

/// Whether a header of a permission may have this name for the upstream, not `Host` and `Content-Length`: brisk frames messages
/// itself.
pub(crate) fn is_copyable(name: &str) -> bool {
    let of_messages =
        ["connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"];
    !of_messages.iter().any(|own| name.eq_ignore_ascii_case(own))
}

/// All addresses.
pub(crate) const ALL: [&str; 2] = ["0.0.0.0/0", "::/0"];

impl Context<'_> {
    /// `allow` and `deny` in the order of nginx, in which the first match decides; in brisk it is the longest prefix.
    pub(crate) fn networks(&self, scope: &Scope<'_>, keys: &mut Keys) {
        // Both names together: in nginx, a level with either of them replaces all rules of the outer levels.
        let (_, rules) = scope.all_of(&["allow", "deny"]);
        let mut kept: Vec<(bool, &str)> = Vec::new();
        let mut by_default = true;
        for rule in &rules {
            self.carried(rule);
            let network = rule.arg(0);
            let is_allowed = rule.name == "allow";
            if !matches!(network, "unix:" | "all") && !contains(network, network) {
                // A wrong `allow` is left out, which permits less. A wrong `deny` would permit more, so it
                // closes the route.
                let action = "write the network; until then a wrong deny refuses all clients";
                self.missing(rule, format!("{network} is no network"), action);
                if is_allowed {
                    continue;
                }
                return keys.set("deny", toml::list(ALL));
            }
            if network == "unix:" {
                self.unneeded(rule, "brisk does not listen on Unix sockets");
            } else if network == "all" {
                // In nginx the first match decides, so rules behind `all` have no effect.
                by_default = is_allowed;
                break;
            } else if !kept.iter().any(|(_, outer)| contains(outer, network)) {
                // An outer network before this one decides in nginx. In brisk, the longer prefix would.
                kept.push((is_allowed, network));
            }
        }
        let of = |wanted: bool| {
            kept.iter().filter(move |(allowed, _)| *allowed == wanted).map(|(_, network)| *network)
        };
        let (allowed, denied): (Vec<_>, Vec<_>) = (of(true).collect(), of(false).collect());
        if by_default {
            // Without a last `deny all`, nginx permits the others. `allow` of brisk would exclude them, so it
            // begins with all addresses.
            if !denied.is_empty() {
                if !allowed.is_empty() {
                    // A network in both lists is an error.
                    let others = ALL.into_iter().filter(|all| !denied.iter().any(|own| contains(own, all)));
                    keys.set("allow", toml::list(others.chain(allowed)));
                }
                keys.set("deny", toml::list(denied));
            } else if !rules.is_empty() {
                // The location has rules that permit everything: the empty list ends those of the host.
                keys.set("deny", "[]");
            }
        } else if allowed.is_empty() {
            keys.set("deny", toml::list(ALL));
        } else {
            keys.set("allow", toml::list(allowed));
            if !denied.is_empty() {
                keys.set("deny", toml::list(denied));
            }
        }
    }

    /// `auth_basic` with its file.
    pub(crate) fn passwords(&self, scope: &Scope<'_>, keys: &mut Keys) -> Result<(), String> {
        let Some(realm) = scope.one("auth_basic") else { return Ok(()) };
        self.carried(realm);
        if realm.arg(0) == "off" {
            return Ok(());
        }
        let Some(file) = scope.one("auth_basic_user_file") else {
            self.missing(
                realm,
                "there is no auth_basic_user_file",
                "write basic_auth = { file = \"users\" }",
            );
            return Err("passwords without a file".to_owned());
        };
        self.carried(file);
        if file.arg(0).contains('$') || realm.arg(0).contains('$') {
            self.missing(file, "the file depends on a variable", "write a route for each file");
            return Err("passwords with variables".to_owned());
        }
        let mut table = Keys::default();
        table.set("file", self.file(file.arg(0)));
        table.set("realm", toml::text(realm.arg(0)));
        let drops = |header: &&Directive| {
            header.arg(0).eq_ignore_ascii_case("authorization") && header.arg(1).is_empty()
        };
        // nginx forwards the password to the server unless a header rule removes it. brisk keeps it back
        // unless `forward` is written.
        let has_upstream =
            keys.get("upstream").is_some() || keys.get("fallback").is_some_and(|to| to.starts_with('{'));
        if has_upstream && !scope.all("proxy_set_header").iter().any(drops) {
            table.set("forward", "true");
        }
        keys.set("basic_auth", table.inline());
        Ok(())
    }

    /// Notes a header with the user where no password is verified: in nginx, the name that a client sends.
    pub(crate) fn note_user(&self, scope: &Scope<'_>, header: &Directive, value: &str) {
        let is_verified = scope.one("auth_basic").is_some_and(|realm| realm.arg(0) != "off");
        if !is_verified && self.has_any(value, &["{user}"]) {
            self.different(header, "brisk has no user without auth_basic");
        }
    }

    /// `satisfy`, for routes with two restrictions.
    pub(crate) fn satisfy(&self, scope: &Scope<'_>, keys: &mut Keys) {
        let Some(satisfy) = scope.one("satisfy") else { return };
        // Without networks that are denied, all clients meet the first restriction.
        let is_open = keys.get("allow").is_none() && keys.get("deny") == Some("[]");
        let networks = keys.get("allow").or(keys.get("deny")).filter(|_| !is_open);
        let restrictions = [networks, keys.get("basic_auth"), keys.get("forward_auth")];
        if satisfy.arg(0) == "any" && is_open {
            self.different(satisfy, "the networks permit all clients, and brisk requires the password");
        }
        let is_any = satisfy.arg(0) == "any" && restrictions.iter().flatten().count() > 1;
        let reason = if keys.get("forward_auth").is_some() {
            Some("in brisk, forward_auth applies in addition to the other restrictions")
        } else {
            // nginx has no restriction for it: the `if` applies to all clients.
            keys.get("client_certificate")
                .map(|_| "in brisk, any would make the certificate of the client optional")
        };
        if let Some(reason) = reason.filter(|_| is_any) {
            self.missing(satisfy, reason, "write a route with when.networks for the first restriction");
        } else {
            if is_any {
                keys.set("satisfy", "\"any\"");
            }
            self.carried(satisfy);
        }
    }

    /// Headers of a permission that the upstream and the client get: `auth_request_set` with the headers that use it.
    pub(crate) fn copied_headers(&self, scope: &Scope<'_>, table: &mut Keys) {
        let (mut to_upstream, mut to_client): (Vec<(String, String)>, Vec<String>) = (Vec::new(), Vec::new());
        for set in scope.all("auth_request_set") {
            let variable = set.arg(0).trim_start_matches('$');
            let source = only_variable(set.arg(1)).and_then(|name| name.strip_prefix("upstream_http_"));
            let headers = [scope.all("proxy_set_header"), scope.all("add_header")].concat();
            let Some(source) = source else {
                if !headers.iter().any(|header| header.arg(1).contains(variable)) {
                    self.unneeded(set, "nothing uses it");
                    continue;
                }
                self.missing(
                    set,
                    "brisk copies headers of a permission only",
                    "let the server send a header",
                );
                continue;
            };
            let mut is_used = false;
            for header in headers.iter().filter(|header| only_variable(header.arg(1)) == Some(variable)) {
                let name = header.arg(0).to_owned();
                // The variable of nginx has underscores for hyphens. Clients get headers under their own names.
                let is_same = name.replace('-', "_").eq_ignore_ascii_case(source);
                if header.name == "add_header" && is_same {
                    to_client.retain(|own| !own.eq_ignore_ascii_case(&name));
                    to_client.push(name);
                } else if header.name == "proxy_set_header" && is_copyable(&name) {
                    let source = if is_same { name.clone() } else { source.replace('_', "-") };
                    // A key may be in a table of TOML once. The last line is retained.
                    to_upstream.retain(|(own, _)| !own.eq_ignore_ascii_case(&name));
                    to_upstream.push((name, source));
                } else {
                    continue;
                }
                self.carried(header);
                is_used = true;
            }
            if is_used {
                self.carried(set);
            } else {
                self.missing(
                    set,
                    "brisk copies headers of the permission to headers of the request, or under their own names to the client",
                    "write copy_headers in forward_auth",
                );
            }
        }
        if to_upstream.iter().any(|(name, source)| name != source) {
            let names = to_upstream.into_iter().map(|(name, source)| (name, toml::text(&source)));
            table.set("copy_headers", Keys(names.collect()).inline());
        } else if !to_upstream.is_empty() {
            table.set("copy_headers", toml::list(to_upstream.into_iter().map(|(name, _)| name)));
        }
        if !to_client.is_empty() {
            table.set("copy_to_response", toml::list(to_client));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::contains;

    #[test]
    fn networks_contain_their_parts() {
        assert!(contains("10.0.0.0/8", "10.1.2.3"));
        assert!(contains("::/0", "2001:db8::/32"));
        assert!(!contains("10.0.0.0/8", "11.0.0.0/8"));
        assert!(!contains("10.0.0.0/16", "10.0.0.0/8"));
        assert!(!contains("::/0", "10.0.0.0/8"));
    }
}
