//! `[upstream.NAME]`: groups of servers.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use brisk_answer::features::sticky::sticky;
use brisk_certs::{Warning, load};
use brisk_config_file::{KeyPath, Period, Size};
use brisk_keys::Keystore;
use brisk_upstream_group::settings::{
    ActiveChecks, Balance, GroupSettings, HEAD_SIZE, HEADERS, HashKey, HealthSettings, HedgeSettings,
    Identity, PassiveChecks, PoolSettings, ProxyVersion, QueueSettings, Retry, ServerScheme, TlsProtocol,
    UpstreamTimeouts, UpstreamTlsSettings,
};
use http::uri::PathAndQuery;
use http::{HeaderName, StatusCode};

use super::context::Context;
use super::files::blamed;
use super::{server_paths, upstream_servers};
use crate::raw;
use crate::values::{self, HashBy, KeyPlace, UpstreamServer};
use brisk_answer::features::TIMEOUTS;

/// Name of the cookie of `sticky`, unless another is written.
const COOKIE: &str = "brisk_server";

/// Permitted number of requests in a pipeline.
const PIPELINES: RangeInclusive<u8> = 1..=32;

/// Resolves all groups of the file.
pub(super) fn groups(raw: &BTreeMap<String, raw::Upstream>, context: &mut Context<'_>) -> Vec<GroupSettings> {
    let all = KeyPath::of("upstream");
    raw.iter().map(|(name, upstream)| group(name, upstream, &all.key(name), context)).collect()
}

fn group(name: &str, raw: &raw::Upstream, path: &KeyPath, context: &mut Context<'_>) -> GroupSettings {
    let servers = upstream_servers::servers(raw, path, context);
    server_paths::check_servers(&servers, &path.key("servers"), context);
    GroupSettings {
        name: name.to_owned(),
        servers,
        dns: upstream_servers::dns(raw, path, context),
        balance: balance(raw, path, context),
        sticky: raw.sticky.as_ref().map(|raw| sticky(raw, COOKIE, &path.key("sticky"), &mut context.shared)),
        timeouts: timeouts(&raw.timeouts, &path.key("timeouts"), context),
        head_size: head_size(raw, path, context),
        headers: context
            .shared
            .findings
            .within(&path.key("headers"), raw.headers, HEADERS, &(10..=1000))
            .into(),
        pool: pool(&raw.pool, &path.key("pool"), context),
        tls: tls(raw, &path.key("tls"), context),
        health: health(raw, &path.key("health"), context),
        retry: if raw.retry.unwrap_or(true) { Retry::Once } else { Retry::Never },
        hedge: hedge(raw, path, context),
        proxy_protocol: raw.proxy_protocol.map(proxy_version),
        pipeline: pipeline(raw, path, context),
    }
}

/// The delay is above the time of most responses, so that few requests are sent twice.
fn hedge(raw: &raw::Upstream, path: &KeyPath, context: &mut Context<'_>) -> Option<HedgeSettings> {
    let written = raw.hedge.as_ref()?;
    let path = path.key("hedge");
    if raw.retry == Some(false) {
        context.shared.findings.wrong(&path, "has no effect with retry = false: requests are sent once");
    }
    let delays = Period(Duration::from_millis(1))..=Period(Duration::from_mins(1));
    let after =
        context.shared.findings.within(&path.key("after"), Some(written.after), written.after, &delays).0;
    let percent = context.shared.findings.within(&path.key("percent"), written.percent, 5, &(1..=100)).into();
    Some(HedgeSettings { after, percent })
}

fn pipeline(raw: &raw::Upstream, path: &KeyPath, context: &mut Context<'_>) -> usize {
    let path = path.key("pipeline");
    let pipeline = context.shared.findings.within(&path, raw.pipeline, 1, &PIPELINES);
    if pipeline > 1 && raw.proxy_protocol.is_some() {
        context.shared.findings.wrong(
            &path,
            "has no effect with `proxy_protocol`, with which clients do not share connections: remove one of the two",
        );
    }
    if pipeline > 1 && raw.retry == Some(false) {
        context.shared.findings.wrong(
            &path,
            "a pipeline needs `retry = true`: requests behind a slow response, or on a connection that ends, are sent again",
        );
    }
    pipeline.into()
}

fn proxy_version(raw: raw::ProxyVersion) -> ProxyVersion {
    match raw {
        raw::ProxyVersion::V1 => ProxyVersion::V1,
        raw::ProxyVersion::V2 => ProxyVersion::V2,
    }
}

fn balance(raw: &raw::Upstream, path: &KeyPath, context: &mut Context<'_>) -> Balance {
    let path = path.key("hash_by");
    match raw.balance.unwrap_or(raw::Balance::RoundRobin) {
        raw::Balance::ConsistentHash => {
            let by = raw.hash_by.as_ref().map(|by| hash_key(by, &path, context));
            Balance::ConsistentHash { by: by.unwrap_or(HashKey::ClientAddress) }
        }
        other => {
            if raw.hash_by.is_some() {
                context.shared.findings.wrong(&path, "has no effect without balance = \"consistent_hash\"");
            }
            match other {
                raw::Balance::LeastConnections => Balance::LeastConnections,
                _ => Balance::RoundRobin,
            }
        }
    }
}

fn hash_key(by: &HashBy, path: &KeyPath, context: &mut Context<'_>) -> HashKey {
    match by {
        HashBy::ClientAddress => HashKey::ClientAddress,
        HashBy::Path => HashKey::Path,
        HashBy::Cookie(name) => HashKey::Cookie(name.clone()),
        HashBy::Header(name) => {
            if let Ok(name) = HeaderName::try_from(name.as_str()) {
                return HashKey::Header(name);
            }
            context.shared.findings.wrong(path, format!("{name:?} is not the name of a header"));
            HashKey::ClientAddress
        }
    }
}

fn timeouts(raw: &raw::UpstreamTimeouts, path: &KeyPath, context: &mut Context<'_>) -> UpstreamTimeouts {
    let usual = UpstreamTimeouts::default();
    let mut limit = |key: &str, value: Option<Period>, usual: Duration| {
        context.shared.findings.within(&path.key(key), value, Period(usual), &TIMEOUTS).0
    };
    UpstreamTimeouts {
        connect: limit("connect", raw.connect, usual.connect),
        head: limit("head", raw.head, usual.head),
        body: limit("body", raw.body, usual.body),
        upgraded: limit("upgraded", raw.upgraded, usual.upgraded),
        ping: raw.ping.map_or(usual.ping, |ping| ping.0.map(|period| limit("ping", Some(period), period.0))),
    }
}

fn head_size(raw: &raw::Upstream, path: &KeyPath, context: &mut Context<'_>) -> usize {
    let range = Size(8 << 10)..=Size(1 << 20);
    let size =
        context.shared.findings.within(&path.key("head_size"), raw.head_size, Size(HEAD_SIZE as u64), &range);
    usize::try_from(size.0).unwrap_or(HEAD_SIZE)
}

fn pool(raw: &raw::Pool, path: &KeyPath, context: &mut Context<'_>) -> PoolSettings {
    let usual = PoolSettings::default();
    let most = raw.max_connections.map(|most| {
        context.shared.findings.within(&path.key("max_connections"), Some(most), 1, &(1..=1_000_000)) as usize
    });
    let seconds = Period(Duration::from_secs(1))..=*TIMEOUTS.end();
    let idle = context.shared.findings.within(
        &path.key("idle_timeout"),
        raw.idle_timeout,
        Period(usual.idle_timeout),
        &seconds,
    );
    PoolSettings {
        idle_connections: raw.idle_connections.map_or(usual.idle_connections, |kept| kept as usize),
        idle_timeout: idle.0,
        max_connections: most,
        queue: queue(raw, &path.key("queue"), context),
    }
}

fn queue(raw: &raw::Pool, path: &KeyPath, context: &mut Context<'_>) -> QueueSettings {
    let (written, usual) = (&raw.queue, QueueSettings::default());
    if context.shared.findings.written(path) && raw.max_connections.is_none() {
        context
            .shared
            .findings
            .wrong(path, "has no effect without `max_connections`: no request waits for a connection");
    }
    let size =
        context.shared.findings.within(&path.key("size"), written.size, usual.size as u32, &(0..=1_000_000));
    let timeout =
        |timeout| context.shared.findings.within(&path.key("timeout"), Some(timeout), timeout, &TIMEOUTS).0;
    QueueSettings { size: size as usize, timeout: written.timeout.map(timeout) }
}

fn tls(raw: &raw::Upstream, path: &KeyPath, context: &mut Context<'_>) -> UpstreamTlsSettings {
    let encrypted = raw.servers.iter().any(|server| server.url.scheme() == ServerScheme::Https);
    if !encrypted && context.shared.findings.written(path) {
        context.shared.findings.wrong(path, "has no effect: none of the servers begins with https://");
    }
    let ca = raw.tls.ca.as_ref().map(|ca| context.file(ca));
    if let Some(error) = ca.as_ref().and_then(|ca| super::clients::authorities(ca).err()) {
        context.shared.findings.wrong(&path.key("ca"), error);
    }
    let identity = raw.tls.certificate.as_ref();
    let identity = identity.and_then(|files| self::identity(files, &path.key("certificate"), context));
    let server_name = raw.tls.server_name.as_ref().and_then(|name| match super::names::host_name(name) {
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
    let protocol = match raw.tls.protocol {
        Some(values::TlsProtocol::Http2) => TlsProtocol::Http2,
        Some(values::TlsProtocol::Http1) | None => TlsProtocol::Http1,
    };
    UpstreamTlsSettings {
        ca,
        identity,
        server_name,
        protocol,
        allows_missing_close_notify: raw.tls.allow_missing_close_notify,
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

fn health(group: &raw::Upstream, path: &KeyPath, context: &mut Context<'_>) -> HealthSettings {
    let raw = &group.health;
    let is_http2 = |server: &UpstreamServer| match server.url.scheme() {
        ServerScheme::Http => false,
        ServerScheme::Https => group.tls.protocol == Some(values::TlsProtocol::Http2),
        ServerScheme::H2c => true,
    };
    if raw.grpc.is_some() && !group.servers.iter().all(is_http2) {
        context.shared.findings.wrong(
            &path.key("grpc"),
            "gRPC needs HTTP/2: write the servers with h2c://, or with https:// and tls.protocol = \"h2\"",
        );
    }
    let usual = PassiveChecks::default();
    let pause = raw.failure_pause.unwrap_or(Period(usual.pause));
    let percentage = |key: &str, share: u8, context: &mut Context<'_>| {
        context.shared.findings.within(&path.key(key), Some(share), share, &(1..=100)).into()
    };
    HealthSettings {
        active: active(raw, path, context),
        passive: PassiveChecks {
            max_failures: raw.max_failures.map_or(usual.max_failures, u32::from),
            counts_server_errors: raw.server_errors.unwrap_or(usual.counts_server_errors),
            error_share: raw.error_share.map(|share| percentage("error_share", share, context)),
            max_excluded: raw
                .max_excluded
                .map_or(usual.max_excluded, |share| percentage("max_excluded", share, context)),
            pause: context
                .shared
                .findings
                .within(&path.key("failure_pause"), Some(pause), pause, &TIMEOUTS)
                .0,
        },
        slow_start: raw.slow_start.map(|time| {
            context.shared.findings.within(&path.key("slow_start"), Some(time), time, &TIMEOUTS).0
        }),
    }
}

fn active(raw: &raw::Health, path: &KeyPath, context: &mut Context<'_>) -> Option<ActiveChecks> {
    if raw.path.is_none() && raw.grpc.is_none() {
        for key in ["host", "status", "interval", "timeout", "healthy_after", "unhealthy_after"] {
            if context.shared.findings.written(&path.key(key)) {
                context.shared.findings.wrong(
                    &path.key(key),
                    "has no effect without `path`, which is what servers are asked for, or `grpc`",
                );
            }
        }
        return None;
    }
    if raw.grpc.is_some() {
        for key in ["path", "status"] {
            if context.shared.findings.written(&path.key(key)) {
                context
                    .shared
                    .findings
                    .wrong(&path.key(key), "has no effect with `grpc`: remove one of the two");
            }
        }
    }
    let asked = if raw.grpc.is_some() { "/" } else { raw.path.as_deref().unwrap_or("/") };
    let parsed = asked.parse::<PathAndQuery>().ok().filter(|_| asked.starts_with('/'));
    let Some(asked) = parsed else {
        context
            .shared
            .findings
            .wrong(&path.key("path"), format!("{asked:?} is not a path: write one as \"/healthz\""));
        return None;
    };
    let usual = ActiveChecks::new(asked);
    let findings = &mut context.shared.findings;
    let interval = findings.within(&path.key("interval"), raw.interval, Period(usual.interval), &TIMEOUTS);
    let limit = Period(usual.timeout).min(interval);
    let timeout = findings.within(&path.key("timeout"), raw.timeout, limit, &TIMEOUTS);
    if timeout > interval {
        findings.wrong(&path.key("timeout"), format!("{timeout} is longer than the interval of {interval}"));
    }
    let status =
        raw.status.map(|status| findings.within(&path.key("status"), Some(status), 200, &(200..=599)));
    let healthy_after = findings.within(&path.key("healthy_after"), raw.healthy_after, 2, &(1..=100));
    let unhealthy_after = findings.within(&path.key("unhealthy_after"), raw.unhealthy_after, 3, &(1..=100));
    Some(ActiveChecks {
        grpc: raw.grpc.clone(),
        host: raw.host.clone(),
        status: status.and_then(|status| StatusCode::from_u16(status).ok()),
        interval: interval.0,
        timeout: timeout.0,
        healthy_after: healthy_after.into(),
        unhealthy_after: unhealthy_after.into(),
        ..usual
    })
}
