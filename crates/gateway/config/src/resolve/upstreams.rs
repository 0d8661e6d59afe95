//! `[upstream.NAME]`: groups of servers, and TLS to them.

use std::collections::BTreeMap;
use std::time::SystemTime;

use brisk_certs::{Warning, load};
use brisk_config_file::KeyPath;
use brisk_keys::Keystore;
use brisk_upstream_group::features::GroupScope;
use brisk_upstream_group::features::servers::UpstreamServer;
use brisk_upstream_group::settings::{
    GroupSettings, Identity, ServerAddress, TlsProtocol, UpstreamTlsSettings,
};

use super::context::Context;
use super::files::blamed;
use crate::raw;
use crate::values::{self, KeyPlace};

/// Resolves all groups of the file.
pub(super) fn groups(raw: &BTreeMap<String, raw::Upstream>, context: &mut Context<'_>) -> Vec<GroupSettings> {
    let all = KeyPath::of("upstream");
    raw.iter().map(|(name, upstream)| group(name, upstream, &all.key(name), context)).collect()
}

fn group(name: &str, raw: &raw::Upstream, path: &KeyPath, context: &mut Context<'_>) -> GroupSettings {
    let tls = tls(raw, &path.key("tls"), context);
    let scope = GroupScope { keys: &raw.features, tls: &tls, path };
    GroupSettings::resolve(name, &scope, &mut context.shared.of_groups())
}

fn tls(raw: &raw::Upstream, path: &KeyPath, context: &mut Context<'_>) -> UpstreamTlsSettings {
    let encrypted = raw.features.servers.servers.iter().any(|server| server.url.scheme().is_encrypted());
    if !encrypted && context.shared.findings.written(path) {
        context
            .shared
            .findings
            .wrong(path, "has no effect: none of the servers begins with https:// or tls://");
    }
    let accepts_any_server = raw.own.tls.verify == Some(false);
    if accepts_any_server {
        unverified(raw, path, context);
    }
    let ca = raw.own.tls.ca.as_ref().map(|ca| context.file(ca));
    if let Some(error) = ca.as_ref().and_then(|ca| super::clients::authorities(ca).err()) {
        context.shared.findings.wrong(&path.key("ca"), error);
    }
    let identity = raw.own.tls.certificate.as_ref();
    let identity = identity.and_then(|files| self::identity(files, &path.key("certificate"), context));
    // The name is sent in the ClientHello, which has no wildcards, and compared with the certificate.
    let server_name = raw.own.tls.server_name.as_ref().and_then(|name| match super::names::host_name(name) {
        Ok(name) if !name.starts_with("*.") => Some(name),
        Ok(_) => {
            context
                .shared
                .findings
                .wrong(&path.key("server_name"), "a wildcard cannot be verified: write one name");
            None
        }
        Err(message) => {
            context.shared.findings.wrong(&path.key("server_name"), message);
            None
        }
    });
    let protocol = match raw.own.tls.protocol {
        Some(values::TlsProtocol::Http2) => TlsProtocol::Http2,
        Some(values::TlsProtocol::Http1) | None => TlsProtocol::Http1,
    };
    UpstreamTlsSettings {
        ca,
        accepts_any_server,
        identity,
        server_name,
        protocol,
        allows_missing_close_notify: raw.own.tls.allow_missing_close_notify,
    }
}

/// Findings about a group with `verify = false`.
fn unverified(raw: &raw::Upstream, path: &KeyPath, context: &mut Context<'_>) {
    if raw.own.tls.ca.is_some() {
        let message = "has no effect with verify = false: remove one of the two";
        context.shared.findings.wrong(&path.key("ca"), message);
    }
    // A server on this machine is reached without a network in which an attacker could be.
    let is_remote = |server: &UpstreamServer| match server.url.address() {
        ServerAddress::Tcp(target) => !target.address().is_some_and(|address| address.ip().is_loopback()),
        ServerAddress::Service(_) => true,
        ServerAddress::Unix(_) => false,
    };
    let mut remote = raw.features.servers.servers.iter().filter(|server| is_remote(server));
    if let Some(server) = remote.find(|server| server.url.scheme().is_encrypted()) {
        let warning = format!(
            "{path}: verify = false: an attacker in the network can read and change what brisk and {} send each other; write ca = \
             \"server.pem\" with the certificate of its authority",
            server.url
        );
        context.shared.findings.warn(warning);
    }
}

/// The client certificate, tried as one of a host: its key is read again when it is used.
pub(super) fn identity(
    raw: &raw::Certificate,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Identity> {
    if raw.fallback_key.is_some() {
        context
            .shared
            .findings
            .wrong(&path.key("fallback_key"), "has no effect here: it is for certificates of hosts");
    }
    let KeyPlace::File(key) = &raw.key else {
        let message = match raw.key {
            KeyPlace::KeyServer(_) => "a key on key servers can be that of a host alone: write a path",
            _ => "a key in a token can be that of a host alone: write a path",
        };
        context.shared.findings.wrong(&path.key("key"), message);
        return None;
    };
    let identity = Identity { chain: context.file(&raw.chain), key: context.file(key) };
    // Only a check, in a store that is dropped: the connector reads the key itself.
    match load(&identity.chain, &identity.key, &mut Keystore::default(), SystemTime::now()) {
        Ok(loaded) => {
            // A missing name matters for server certificates only.
            let warnings =
                loaded.warnings.iter().filter(|warning| !matches!(warning, Warning::NoNames { .. }));
            for warning in warnings {
                context.shared.findings.warn(warning.to_string());
            }
            context.shared.warn_of_access(&identity.key);
        }
        Err(error) => {
            context.shared.findings.wrong(&path.key(blamed(&error, &identity.key)), error.to_string());
        }
    }
    Some(identity)
}
