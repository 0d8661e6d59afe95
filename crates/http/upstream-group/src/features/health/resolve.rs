//! Resolution of `health`.

use brisk_config_file::{KeyPath, Period};
use brisk_http::server_url::ServerScheme;
use http::StatusCode;
use http::uri::PathAndQuery;

use super::{ActiveChecks, DetectionKeys, HealthSettings, PassiveChecks};
use crate::features::servers::UpstreamServer;
use crate::features::{Context, GroupScope, TIMEOUTS};
use crate::tls::TlsProtocol;

/// Resolves the keys of one group.
pub(super) fn settings(
    keys: &DetectionKeys,
    group: &GroupScope<'_>,
    context: &mut Context<'_, '_>,
) -> HealthSettings {
    let path = group.key("health");
    let is_http2 = |server: &UpstreamServer| match server.url.scheme() {
        ServerScheme::Http | ServerScheme::Tcp | ServerScheme::Tls | ServerScheme::Cgi(_) => false,
        ServerScheme::Https => group.tls.protocol == TlsProtocol::Http2,
        ServerScheme::H2c => true,
    };
    if keys.grpc.is_some() && !group.keys.servers.servers.iter().all(is_http2) {
        context.findings.wrong(
            &path.key("grpc"),
            "gRPC needs HTTP/2: write the servers with h2c://, or with https:// and tls.protocol = \"h2\"",
        );
    }
    let usual = PassiveChecks::default();
    let pause = keys.failure_pause.unwrap_or(Period(usual.pause));
    let percentage = |key: &str, share: u8, context: &mut Context<'_, '_>| {
        context.findings.within(&path.key(key), Some(share), share, &(1..=100)).into()
    };
    HealthSettings {
        active: if group.keys.servers.servers.iter().any(|server| server.url.scheme().is_stream()) {
            connecting(keys, &path, context)
        } else {
            active(keys, &path, context)
        },
        passive: PassiveChecks {
            max_failures: keys.max_failures.map_or(usual.max_failures, u32::from),
            counts_server_errors: keys.server_errors.unwrap_or(usual.counts_server_errors),
            error_share: keys.error_share.map(|share| percentage("error_share", share, context)),
            max_excluded: keys
                .max_excluded
                .map_or(usual.max_excluded, |share| percentage("max_excluded", share, context)),
            pause: context.findings.within(&path.key("failure_pause"), Some(pause), pause, &TIMEOUTS).0,
        },
        slow_start: keys
            .slow_start
            .map(|time| context.findings.within(&path.key("slow_start"), Some(time), time, &TIMEOUTS).0),
    }
}

/// Checks by connecting, for servers that get bytes. Any key about the checks enables them.
fn connecting(keys: &DetectionKeys, path: &KeyPath, context: &mut Context<'_, '_>) -> Option<ActiveChecks> {
    for key in ["path", "grpc", "host", "status", "server_errors"] {
        if context.findings.written(&path.key(key)) {
            let message =
                "has no effect: servers of [[tcp]] are checked by connecting; write `interval` alone";
            context.findings.wrong(&path.key(key), message);
        }
    }
    let is_written = ["interval", "timeout", "healthy_after", "unhealthy_after"]
        .iter()
        .any(|key| context.findings.written(&path.key(key)));
    // No path exists for bytes; that of `ActiveChecks` remains unused.
    is_written.then(|| rhythm(keys, path, ActiveChecks::new(PathAndQuery::from_static("/")), context))
}

fn active(keys: &DetectionKeys, path: &KeyPath, context: &mut Context<'_, '_>) -> Option<ActiveChecks> {
    let findings = &mut *context.findings;
    if keys.path.is_none() && keys.grpc.is_none() {
        for key in ["host", "status", "interval", "timeout", "healthy_after", "unhealthy_after"] {
            if findings.written(&path.key(key)) {
                findings.wrong(
                    &path.key(key),
                    "has no effect without `path`, which is what servers are asked for, or `grpc`",
                );
            }
        }
        return None;
    }
    if keys.grpc.is_some() {
        for key in ["path", "status"] {
            if findings.written(&path.key(key)) {
                findings.wrong(&path.key(key), "has no effect with `grpc`: remove one of the two");
            }
        }
    }
    let asked = if keys.grpc.is_some() { "/" } else { keys.path.as_deref().unwrap_or("/") };
    let parsed = asked.parse::<PathAndQuery>().ok().filter(|_| asked.starts_with('/'));
    let Some(asked) = parsed else {
        findings.wrong(&path.key("path"), format!("{asked:?} is not a path: write one as \"/healthz\""));
        return None;
    };
    let checks = rhythm(keys, path, ActiveChecks::new(asked), context);
    let status = keys
        .status
        .map(|status| context.findings.within(&path.key("status"), Some(status), 200, &(200..=599)));
    Some(ActiveChecks {
        grpc: keys.grpc.clone(),
        host: keys.host.clone(),
        status: status.and_then(|status| StatusCode::from_u16(status).ok()),
        ..checks
    })
}

/// `usual` with the times and numbers of checks that are written.
fn rhythm(
    keys: &DetectionKeys,
    path: &KeyPath,
    usual: ActiveChecks,
    context: &mut Context<'_, '_>,
) -> ActiveChecks {
    let findings = &mut *context.findings;
    let interval = findings.within(&path.key("interval"), keys.interval, Period(usual.interval), &TIMEOUTS);
    // A short `interval` alone lowers the default of `timeout`, which the operator did not write.
    let limit = Period(usual.timeout).min(interval);
    let timeout = findings.within(&path.key("timeout"), keys.timeout, limit, &TIMEOUTS);
    if timeout > interval {
        findings.wrong(&path.key("timeout"), format!("{timeout} is longer than the interval of {interval}"));
    }
    let healthy_after = findings.within(&path.key("healthy_after"), keys.healthy_after, 2, &(1..=100));
    let unhealthy_after = findings.within(&path.key("unhealthy_after"), keys.unhealthy_after, 3, &(1..=100));
    ActiveChecks {
        interval: interval.0,
        timeout: timeout.0,
        healthy_after: healthy_after.into(),
        unhealthy_after: unhealthy_after.into(),
        ..usual
    }
}
