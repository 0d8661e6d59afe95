//! Findings as sentences.

use super::levers::Lever;
use super::{Finding, Imbalance, Share};
use crate::metric::Metric;

/// The [`Finding`] as text.
pub(super) fn text(finding: &Finding, lever: &Lever, metric: Metric) -> String {
    let scope = if lever.scope.is_empty() { String::new() } else { format!(" {}", lever.scope) };
    let reasons: Vec<_> = finding.reasons.iter().map(reason).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
    let claim = format!(
        "{} of visits{scope} {}{reasons}. Those that {} had {} less {}.",
        percent(finding.share),
        finding.worse,
        finding.better,
        amount(finding, metric),
        what(metric)
    );
    if finding.imbalances.is_empty() {
        return claim;
    }
    let names: Vec<_> = finding.imbalances.iter().map(imbalance).collect();
    format!(
        "{claim} Both differ in other things too: {}. So only visits that agree in those were compared: {} of them have \
         a counterpart. Without that the difference would seem to be {}.",
        names.join("; "),
        percent(finding.matched),
        value(finding.unadjusted, metric)
    )
}

fn reason(share: &Share) -> String {
    format!("{} {}", percent(share.share), share.name)
}

fn imbalance(imbalance: &Imbalance) -> String {
    format!(
        "{} \"{}\" ({} of those that had less, {} of the others)",
        imbalance.dimension,
        imbalance.value,
        percent(imbalance.better),
        percent(imbalance.worse)
    )
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

fn amount(finding: &Finding, metric: Metric) -> String {
    let difference = &finding.difference;
    let digits = digits(difference.value, metric);
    let unit = if metric.unit().is_empty() { String::new() } else { format!(" {}", metric.unit()) };
    format!(
        "{:.digits$}{unit} ({:.digits$} to {:.digits$})",
        difference.value, difference.low, difference.high
    )
}

fn value(value: f64, metric: Metric) -> String {
    let digits = digits(value, metric);
    let unit = if metric.unit().is_empty() { String::new() } else { format!(" {}", metric.unit()) };
    format!("{value:.digits$}{unit}")
}

fn digits(value: f64, metric: Metric) -> usize {
    match value.abs() {
        _ if metric == Metric::Bytes => 0,
        small if small < 0.1 => 3,
        small if small < 10.0 => 1,
        _ => 0,
    }
}

const fn what(metric: Metric) -> &'static str {
    match metric {
        Metric::Dns => "for name resolution",
        Metric::Connect => "for the TCP connection",
        Metric::Tls | Metric::Handshake => "for the TLS handshake",
        Metric::Wait => "from request to response",
        Metric::FirstByte => "to first byte",
        Metric::Load => "to the end of loading",
        Metric::FirstPaint => "to the first paint",
        Metric::LargestPaint => "to the largest paint",
        Metric::Interaction => "from an interaction to the next paint",
        Metric::Shift => "layout shift",
        Metric::Connections => "in connections",
        Metric::Bytes => "in bytes",
        Metric::RoundTrip => "of round-trip time",
        Metric::Queue => "of waiting for the key operation",
        Metric::Upstream => "of waiting for the upstream",
    }
}
