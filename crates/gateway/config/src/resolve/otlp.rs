//! `[otlp]`.

use std::time::Duration;

use brisk_config_file::KeyPath;
use brisk_logs::{
    AccessLogFormat, AccessLogSettings, AccessLogTarget, ExportHeaders, OtlpSettings, OtlpSignal, Sample,
};
use http::{HeaderName, HeaderValue, Uri};

use super::access_log::share;
use super::context::Context;
use crate::raw;

/// The outputs for the signals, with the share of lines of the access log.
pub(super) fn otlp(
    raw: &raw::Otlp,
    lines: Option<Sample>,
    context: &mut Context<'_>,
) -> Vec<AccessLogSettings> {
    let path = KeyPath::of("otlp");
    // The paths of the signals are appended, which is impossible behind a query.
    let is_url = raw.endpoint.parse::<Uri>().is_ok_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some() && url.query().is_none()
    });
    if !is_url {
        let message = format!("{:?} is no URL: write one as \"http://127.0.0.1:4318\"", raw.endpoint);
        context.shared.findings.wrong(&path.key("endpoint"), message);
    }
    let signals = [(OtlpSignal::Logs, raw.logs), (OtlpSignal::Traces, raw.traces)];
    let signals: Vec<_> =
        signals.into_iter().filter(|(_, on)| on.unwrap_or(true)).map(|(signal, _)| signal).collect();
    if signals.is_empty() {
        context.shared.findings.incomplete(&path, "exports nothing: logs and traces are false");
    }
    for (name, value) in raw.headers.iter().flatten() {
        if name.parse::<HeaderName>().is_err() || HeaderValue::from_str(value).is_err() {
            context
                .shared
                .findings
                .wrong(&path.key("headers").key(name), "is no header: write a name and a value of HTTP");
        }
    }
    let timeout = raw.timeout.map_or(Duration::from_secs(10), |timeout| timeout.0);
    if !(Duration::from_millis(100)..=Duration::from_mins(1)).contains(&timeout) {
        context.shared.findings.wrong(&path.key("timeout"), "is out of range: write \"100ms\" to \"1m\"");
    }
    let sample = share(raw.sample, &path, context);
    let output = |signal| AccessLogSettings {
        format: AccessLogFormat::Text,
        target: AccessLogTarget::Otlp(OtlpSettings {
            endpoint: raw.endpoint.clone(),
            signal,
            service_name: raw.service_name.clone().unwrap_or_else(|| "brisk".to_owned()),
            sample,
            ca: raw.ca.as_ref().map(|ca| context.shared.base.join(ca)),
            headers: ExportHeaders(raw.headers.clone().into_iter().flatten().collect()),
            timeout,
        }),
        // The share of the access log is for its lines. Spans have a share of their own.
        sample: lines.filter(|_| signal == OtlpSignal::Logs),
        ..AccessLogSettings::default()
    };
    signals.into_iter().map(output).collect()
}
