//! `[sessions.redis]`: the Redis or Valkey server shared by a fleet.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brisk_config_file::{KeyPath, Period};
use brisk_keys::encoding_fault;
use brisk_session::{RedisAddress, RedisCredentials, RedisSettings, RedisTls, RedisTopology};
use zeroize::Zeroizing;

use super::context::Context;
use crate::raw;
use crate::values::RedisServer;

/// Characters of a prefix at most: every key begins with it.
const LONGEST_PREFIX: usize = 64;

/// The settings of the table at `path`.
pub(super) fn redis(raw: &raw::Redis, path: &KeyPath, context: &mut Context<'_>) -> RedisSettings {
    let usual = RedisSettings::new(servers(raw, path, context), topology(raw, path, context));
    let deadlines = Period(Duration::from_millis(1))..=Period(Duration::from_secs(1));
    let deadline = Period(usual.deadline);
    let user = User { name: raw.username.as_ref(), keys: ["username", "password_file"] };
    let sentinel =
        User { name: raw.sentinel_username.as_ref(), keys: ["sentinel_username", "sentinel_password_file"] };
    RedisSettings {
        tls: tls(raw, path, context),
        credentials: user.credentials(raw.password_file.as_ref(), path, context),
        sentinel_credentials: sentinel.credentials(raw.sentinel_password_file.as_ref(), path, context),
        prefix: prefix(raw, &usual.prefix, path, context),
        deadline: context.shared.findings.within(&path.key("deadline"), raw.deadline, deadline, &deadlines).0,
        ..usual
    }
}

/// Each server once, and as many as the topology has.
fn servers(raw: &raw::Redis, path: &KeyPath, context: &mut Context<'_>) -> Vec<RedisAddress> {
    let path = path.key("servers");
    if raw.servers.is_empty() && !context.shared.findings.written(&path.index(0)) {
        context.shared.findings.wrong(&path, "no server: write at least one, as \"redis://127.0.0.1:6379\"");
    }
    // Sentinels have a port of their own by default.
    let usual_port = if raw.topology == Some(raw::RedisTopology::Sentinel) { 26379 } else { 6379 };
    let address = |server: &RedisServer| RedisAddress {
        host: server.host.clone(),
        port: server.port.unwrap_or(usual_port),
    };
    let addresses: Vec<_> = raw.servers.iter().map(address).collect();
    let mut listed = HashMap::new();
    for (index, (address, server)) in addresses.iter().zip(&raw.servers).enumerate() {
        let path = path.index(index);
        if let Some(first) = listed.insert(address, path.clone()) {
            context.shared.findings.wrong(&path, format!("{first} is {address} already"));
        }
        // One TLS setting holds for all connections, also to servers that a Sentinel or a cluster names
        // later.
        if server.tls != raw.servers[0].tls {
            let message = "either all servers are reached by TLS (rediss://), or none (redis://)";
            context.shared.findings.wrong(&path, message);
        }
    }
    let single = matches!(raw.topology, None | Some(raw::RedisTopology::Single));
    if single && raw.servers.len() > 1 {
        let message = "several servers are Sentinels, with topology = \"sentinel\", or nodes of a cluster, with topology = \
                       \"cluster\"";
        context.shared.findings.wrong(&path, message);
    }
    addresses
}

fn topology(raw: &raw::Redis, path: &KeyPath, context: &mut Context<'_>) -> RedisTopology {
    let (service, sentinel) = (path.key("service"), raw.topology == Some(raw::RedisTopology::Sentinel));
    if !sentinel {
        for key in ["service", "sentinel_username", "sentinel_password_file"] {
            if context.shared.findings.written(&path.key(key)) {
                context
                    .shared
                    .findings
                    .wrong(&path.key(key), "has no effect without topology = \"sentinel\"");
            }
        }
    } else if !context.shared.findings.written(&service) {
        let message = "needs `service`: the name of what the Sentinels watch, as service = \"mymaster\"";
        context.shared.findings.wrong(&path.key("topology"), message);
    } else if raw.service.as_ref().is_some_and(|name| name.trim().is_empty()) {
        context
            .shared
            .findings
            .wrong(&service, "no name: write the one that the Sentinels have, as \"mymaster\"");
    }
    match raw.topology {
        Some(raw::RedisTopology::Cluster) => RedisTopology::Cluster,
        Some(raw::RedisTopology::Sentinel) => {
            RedisTopology::Sentinel { service: raw.service.clone().unwrap_or_default() }
        }
        Some(raw::RedisTopology::Single) | None => RedisTopology::Single,
    }
}

fn tls(raw: &raw::Redis, path: &KeyPath, context: &mut Context<'_>) -> Option<RedisTls> {
    let path = path.key("ca");
    let encrypted = raw.servers.iter().any(|server| server.tls);
    // Without servers, their error is the only one: the scheme is not known yet.
    if !encrypted && !raw.servers.is_empty() && raw.ca.is_some() {
        context.shared.findings.wrong(&path, "has no effect: none of the servers begins with rediss://");
    }
    let authorities = raw.ca.as_ref().map(|ca| {
        let file = context.file(ca);
        let pem = fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        RedisTls::trusting(&pem).map_err(|error| format!("{}: {error}", file.display()))
    });
    let trusted = authorities.unwrap_or_else(|| Ok(RedisTls::system())).unwrap_or_else(|message| {
        context.shared.findings.wrong(&path, message);
        RedisTls::system()
    });
    encrypted.then_some(trusted)
}

/// Credentials of brisk at servers of one kind.
struct User<'a> {
    name: Option<&'a String>,
    /// Keys of the user name and of the password file.
    keys: [&'static str; 2],
}

impl User<'_> {
    fn credentials(
        &self,
        file: Option<&PathBuf>,
        path: &KeyPath,
        context: &mut Context<'_>,
    ) -> Option<RedisCredentials> {
        let [name, password] = self.keys.map(|key| path.key(key));
        if self.name.is_some() && !context.shared.findings.written(&password) {
            let message = format!("needs `{}`, a file with the user's password", self.keys[1]);
            context.shared.findings.wrong(&name, message);
        }
        let file = context.file(file?);
        let password = context.shared.read_privately(&file, &password, read_password)?;
        Some(RedisCredentials { username: self.name.cloned(), password })
    }
}

/// The line in `file`.
fn read_password(file: &Path) -> Result<Zeroizing<String>, String> {
    let text = brisk_secrets::read_text(file);
    let text = text.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    if let Some(fault) = encoding_fault(text.as_bytes()) {
        return Err(format!("{}: {fault}", file.display()));
    }
    // Only line breaks are removed: a space at the end may be a part of the password.
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("{}: no password in it; write it as the only line", file.display())),
        lines if lines.contains(['\r', '\n']) => {
            Err(format!("{}: more than one line; the password is the only one", file.display()))
        }
        password => Ok(Zeroizing::new(password.to_owned())),
    }
}

fn prefix(raw: &raw::Redis, usual: &str, path: &KeyPath, context: &mut Context<'_>) -> String {
    let prefix = raw.prefix.as_deref().unwrap_or(usual);
    // A brace would put all keys into one slot of a cluster.
    let plain = |c: char| c.is_ascii_alphanumeric() || ":._-".contains(c);
    if prefix.len() > LONGEST_PREFIX || !prefix.chars().all(plain) {
        let message =
            format!("{prefix:?} is not a prefix: write up to {LONGEST_PREFIX} letters, digits and \":._-\"");
        context.shared.findings.wrong(&path.key("prefix"), message);
    }
    prefix.to_owned()
}
