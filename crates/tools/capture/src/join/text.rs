//! Records as texts of reports.

use std::fmt::Write;
use std::time::Duration;

use super::RecordReport;
use crate::time::text;

impl RecordReport {
    /// The record as a line for readers.
    pub(crate) fn text(&self) -> String {
        let mut parts = vec![format!("{} line {}: {}", self.source, self.line, self.name())];
        let micros = |us: u64| text(Duration::from_micros(us));
        parts.extend(self.error.clone());
        parts.extend(self.duration_us.map(|us| format!("{} in all", micros(us))));
        parts.extend(self.upstream_us.map(|us| format!("upstream {}", micros(us))));
        parts.extend(self.handshake_us.map(|us| format!("handshake {}", micros(us))));
        let mut line = parts.join(", ");
        for (place, (milestone, after)) in self.after_packets_us.iter().enumerate() {
            let before = if place == 0 { "; after the packets: " } else { ", " };
            let sign = if *after < 0 { '-' } else { '+' };
            // Writing to a string cannot fail.
            let _ = write!(line, "{before}{milestone} {sign}{}", micros(after.unsigned_abs()));
        }
        line
    }

    /// Events in the diagram of packets: microseconds since the first packet, and a text.
    pub(crate) fn events(&self) -> Vec<(i64, String)> {
        let milestones = self.milestones_us.iter();
        let mut events: Vec<_> =
            milestones.map(|(milestone, at)| (*at, format!("{}: {milestone}", self.source))).collect();
        if self.request.is_some() {
            if self.milestones_us.is_empty() {
                events.push((self.begin_us, format!("{}: begin of {}", self.source, self.name())));
            }
            events.push((self.end_us, format!("{}: end of {}", self.source, self.name())));
        }
        events
    }

    /// The request with its status, or the event.
    fn name(&self) -> String {
        let status = self.status.map(|status| format!(" {status}")).unwrap_or_default();
        self.request.as_ref().map_or_else(|| self.event.clone(), |request| format!("{request}{status}"))
    }
}
