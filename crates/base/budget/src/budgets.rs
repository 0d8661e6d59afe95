//! The [`Budgets`] of the process by [`Resource`], and their metrics.

use std::fmt;
use std::sync::Arc;

use brisk_telemetry::metrics::{Collector, Encoder};

use crate::Budget;
use crate::budget::Label;

/// Minimum budget of all decoders in bytes, however small the limit of encoders is.
const LEAST_OF_DECODERS: u64 = 64 << 20;

/// Divisor of the limit of responses for the part that heads may take in addition, likewise bodies of requests, and its minimum
/// in bytes.
const REQUESTS: u64 = 4;
const LEAST_OF_REQUESTS: u64 = 16 << 20;

/// Divisor of a limit of stored responses for the part that is reserved for responses being gathered.
const GATHERED: u64 = 4;

/// Memory of beacons that arrive, in bytes.
const BEACONS: u64 = 16 << 20;

/// Memory of mirrored requests, in bytes.
const MIRRORS: u64 = 32 << 20;

/// A kind of memory that clients occupy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Responses above 64 KiB per connection that the client has not read.
    Responses,
    /// Encoders of responses in progress, and incomplete tags above 4 KiB of documents being changed.
    Encoders,
    /// Decoders of upstream documents in progress, for `gzip`.
    Decoders,
    /// Decoders of upstream documents in progress, for codings with a large window: `br` and `zstd`.
    WideDecoders,
    /// Responses gathered to become a dictionary or the compressed copy of a file.
    Copies,
    /// Request bodies gathered before they are forwarded.
    Requests,
    /// Beacons that arrive.
    Beacons,
    /// Heads of requests and responses in progress above 64 KiB per connection, and links of interim responses.
    Heads,
    /// Bodies of requests that upstreams have not taken, above 64 KiB per connection over HTTP/2.
    Bodies,
    /// Copies of requests for a mirror: heads, and bodies while they arrive and are sent.
    Mirrors,
}

/// Limits that the configuration sets, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Responses that clients have not read. Heads may take a quarter as much in addition, but at least 16 MiB; likewise
    /// bodies of requests in transit.
    pub responses: u64,
    /// Encoders. Decoders may take half as much in addition, but at least 64 MiB.
    pub encoders: u64,
    /// Compressed copies of files and dictionaries together. Responses gathered to become one may take a quarter.
    pub copies: u64,
    /// Request bodies gathered before they are forwarded.
    pub requests: u64,
}

/// One [`Budget`] for each [`Resource`].
#[derive(Debug)]
pub struct Budgets([Budget; Resource::ALL.len()]);

/// The part of `limit` bytes that finished copies or dictionaries may take. The rest is [`Resource::Copies`].
pub fn stored_part(limit: usize) -> usize {
    limit - limit / GATHERED as usize
}

impl Resource {
    /// All resources.
    pub const ALL: [Self; 10] = [
        Self::Responses,
        Self::Encoders,
        Self::Decoders,
        Self::WideDecoders,
        Self::Copies,
        Self::Requests,
        Self::Beacons,
        Self::Heads,
        Self::Bodies,
        Self::Mirrors,
    ];

    /// Name in metrics and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::Encoders => "encoders",
            Self::Decoders => "decoders",
            Self::WideDecoders => "wide_decoders",
            Self::Copies => "copies",
            Self::Requests => "requests",
            Self::Beacons => "beacons",
            Self::Heads => "heads",
            Self::Bodies => "bodies",
            Self::Mirrors => "mirrors",
        }
    }

    fn label(self) -> Label {
        let setting = match self {
            Self::Responses | Self::Heads | Self::Bodies => "server.limits.buffered_total",
            Self::Encoders | Self::Decoders | Self::WideDecoders => "server.limits.compression_memory",
            Self::Copies => "server.limits.compressed_files, server.limits.dictionaries",
            Self::Requests => "server.limits.buffered_requests",
            Self::Beacons | Self::Mirrors => "fixed",
        };
        Label { name: self.name(), setting }
    }

    fn limit(self, limits: &Limits) -> u64 {
        let decoders = (limits.encoders / 2).max(LEAST_OF_DECODERS);
        match self {
            Self::Responses => limits.responses,
            Self::Encoders => limits.encoders,
            // Separate halves: documents in `br` and `zstd` must not take the room of decoders for `gzip`.
            Self::Decoders | Self::WideDecoders => decoders / 2,
            Self::Copies => limits.copies / GATHERED,
            Self::Requests => limits.requests,
            Self::Beacons => BEACONS,
            Self::Mirrors => MIRRORS,
            Self::Heads | Self::Bodies => (limits.responses / REQUESTS).max(LEAST_OF_REQUESTS),
        }
    }
}

impl Budgets {
    /// Budgets with these limits.
    pub fn new(limits: &Limits) -> Self {
        Self(Resource::ALL.map(|resource| Budget::new(resource.label(), resource.limit(limits))))
    }

    /// Applies other limits. Reservations above a lower limit remain.
    pub fn set_limits(&self, limits: &Limits) {
        for resource in Resource::ALL {
            self.of(resource).set_limit(resource.limit(limits));
        }
    }

    /// The budget of `resource`.
    pub fn of(&self, resource: Resource) -> &Budget {
        // `ALL` has the order of the variants, which a test checks; another order would exchange the budgets.
        &self.0[resource as usize]
    }
}

/// Metrics of [`Budgets`].
#[derive(Debug)]
pub struct BudgetMetrics(pub Arc<Budgets>);

impl Collector for BudgetMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let all = || Resource::ALL.iter().zip(&self.0.0).map(|(resource, budget)| (resource.name(), budget));
        let mut family = page.bytes_gauge("budget_held", "Memory reserved for clients, by budget.")?;
        for (name, budget) in all() {
            family.gauge(&[("budget", name)], budget.held())?;
        }
        let mut family = page.bytes_gauge("budget_limit", "Limit of a memory budget.")?;
        for (name, budget) in all() {
            family.gauge(&[("budget", name)], budget.limit())?;
        }
        let mut family = page.gauge("budget_clients", "Clients that hold memory of a budget.")?;
        for (name, budget) in all() {
            family.gauge(&[("budget", name)], budget.clients() as u64)?;
        }
        let mut family = page.counter(
            "budget_refusals",
            "Reservations refused because the client has its share or the limit is reached.",
        )?;
        for (name, budget) in all() {
            family.counter(&[("budget", name)], budget.refused())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { responses: 1000, encoders: 400 << 20, copies: 64 << 20, requests: 3000 };

    #[test]
    fn every_resource_has_its_own_budget_and_name() {
        let budgets = Budgets::new(&LIMITS);
        for (index, resource) in Resource::ALL.into_iter().enumerate() {
            assert_eq!(resource as usize, index);
            let _held = budgets.of(resource).reserve(None, index as u64 + 1).expect("room");
            assert_eq!(budgets.of(resource).held(), index as u64 + 1);
        }
        let mut names = Resource::ALL.map(Resource::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Resource::ALL.len());
    }

    #[test]
    fn other_limits_apply_to_later_reservations() {
        let budgets = Budgets::new(&LIMITS);
        let held = budgets.of(Resource::Requests).reserve(None, 3000).expect("room");
        budgets.set_limits(&Limits { requests: 1000, ..LIMITS });
        assert_eq!(budgets.of(Resource::Requests).held(), 3000);
        drop(held);
        assert!(budgets.of(Resource::Requests).reserve(None, 1001).is_err());
        assert!(budgets.of(Resource::Requests).reserve(None, 1000).is_ok());
    }

    #[test]
    fn heads_and_bodies_have_a_quarter_each_of_the_memory_of_responses_and_a_minimum() {
        for resource in [Resource::Heads, Resource::Bodies] {
            let limit = |responses| resource.limit(&Limits { responses, ..LIMITS });
            assert_eq!((limit(400 << 20), limit(4 << 20)), (100 << 20, 16 << 20));
        }
    }

    #[test]
    fn decoders_have_half_of_the_memory_of_encoders_and_a_minimum() {
        let limits = |encoders| {
            let limits = Limits { encoders, ..LIMITS };
            Resource::Decoders.limit(&limits) + Resource::WideDecoders.limit(&limits)
        };
        assert_eq!(limits(400 << 20), 200 << 20);
        assert_eq!(limits(4 << 20), 64 << 20);
    }
}
