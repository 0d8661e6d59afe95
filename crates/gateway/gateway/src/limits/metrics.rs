//! Metrics of rate limits.

use std::fmt;
use std::sync::Arc;

use brisk_net::rates::{Event, Refusals};
use brisk_telemetry::metrics::{Collector, Encoder};

/// [`Collector`] of requests and connections refused because a client exceeded a rate of [`Event`]s.
#[derive(Debug)]
pub(crate) struct RateMetrics(pub(crate) Arc<Refusals>);

impl Collector for RateMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let mut family =
            page.counter("rate_refusals", "Events refused by a rate limit per client, by kind of event.")?;
        for (label, event) in [
            ("connection", Event::Connection),
            ("handshake", Event::Handshake),
            ("request", Event::Request),
            ("error", Event::Error),
        ] {
            family.counter(&[("event", label)], self.0.of(event))?;
        }
        Ok(())
    }
}
