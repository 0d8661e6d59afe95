//! `servers` and `[upstream.NAME.dns]`: the servers of a group, and the names among them that DNS resolves.

use std::ops::RangeInclusive;
use std::time::Duration;

use brisk_config_file::{KeyPath, Period};
use brisk_upstream_group::settings::{DnsSettings, ResolverSettings, ServerAddress, ServerSettings};

use super::context::Context;
use crate::raw;
use crate::values::UpstreamServer;

/// Permitted times between two questions about a name.
const TTLS: RangeInclusive<Period> = Period(Duration::from_millis(100))..=Period(Duration::from_hours(24));

/// Resolves the servers of the group at `path`.
pub(super) fn servers(raw: &raw::Upstream, path: &KeyPath, context: &mut Context<'_>) -> Vec<ServerSettings> {
    let path = path.key("servers");
    if raw.servers.is_empty() {
        context.shared.findings.wrong(&path, "no server: write at least one, as \"http://127.0.0.1:8080\"");
    } else if raw.servers.iter().all(|server| server.backup) {
        context.shared.findings.wrong(
            &path,
            "every server is a backup: remove `backup` from those that should get requests at all times",
        );
    }
    let servers = raw.servers.iter().enumerate();
    servers.map(|(index, server)| member(server, &path.index(index), context)).collect()
}

fn member(raw: &UpstreamServer, path: &KeyPath, context: &mut Context<'_>) -> ServerSettings {
    let weight = context.shared.findings.within(&path.key("weight"), raw.weight, 1, &(1..=1000));
    let is_service = matches!(raw.url.address(), ServerAddress::Service(_));
    if is_service && raw.weight.is_some() {
        context
            .shared
            .findings
            .wrong(&path.key("weight"), "has no effect: the weights of a service come from its SRV records");
    }
    let has_name = match raw.url.address() {
        ServerAddress::Tcp(target) => target.address().is_none(),
        ServerAddress::Service(_) => true,
        ServerAddress::Unix(_) => false,
    };
    if raw.resolve && !has_name {
        let message = format!("has no effect: {} has no name that DNS could resolve", raw.url);
        context.shared.findings.wrong(&path.key("resolve"), message);
    }
    ServerSettings {
        url: raw.url.clone(),
        weight: weight.into(),
        is_backup: raw.backup,
        resolves: raw.resolve,
    }
}

/// Resolves `[upstream.NAME.dns]` of the group at `path`.
pub(super) fn dns(raw: &raw::Upstream, path: &KeyPath, context: &mut Context<'_>) -> DnsSettings {
    let path = path.key("dns");
    let is_resolved =
        |server: &UpstreamServer| server.resolve || matches!(server.url.address(), ServerAddress::Service(_));
    if context.shared.findings.written(&path) && !raw.servers.iter().any(is_resolved) {
        context.shared.findings.wrong(
            &path,
            "has no effect: write a server as { url = \"http://app.internal\", resolve = true }, or as \"srv+http://_http._tcp.app.internal\"",
        );
    }
    let raw = &raw.dns;
    let usual = DnsSettings::default();
    let findings = &mut context.shared.findings;
    let min_ttl = findings.within(&path.key("min_ttl"), raw.min_ttl, Period(usual.min_ttl), &TTLS);
    let longest = Period(usual.max_ttl).max(min_ttl);
    let max_ttl = findings.within(&path.key("max_ttl"), raw.max_ttl, longest, &TTLS);
    if min_ttl > max_ttl {
        findings.wrong(&path.key("max_ttl"), format!("{max_ttl} is shorter than `min_ttl`, {min_ttl}"));
    }
    let max_addresses = findings.within(&path.key("max_addresses"), raw.max_addresses, 64, &(1..=1000));
    DnsSettings {
        resolver: ResolverSettings {
            servers: raw.servers.iter().map(|server| server.0).collect(),
            uses_ipv6: raw.ipv6.unwrap_or(usual.resolver.uses_ipv6),
            max_addresses: max_addresses.into(),
        },
        min_ttl: min_ttl.0,
        // A wrong order has been reported.
        max_ttl: max_ttl.0.max(min_ttl.0),
    }
}
