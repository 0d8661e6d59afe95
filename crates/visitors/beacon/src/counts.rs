//! Counters of beacons: a fixed set, so that no beacon can add series.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brisk_telemetry::metrics::{Collector, Encoder};
use brisk_visits::Navigation;

use crate::beacons::Beacons;
use crate::page::PROTOCOLS;
use crate::refusal::Refusal;
use crate::reports::{Counted, ERRORS, KINDS};

/// Whether the script was put into a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The script was inserted.
    Done,
    /// The page's `Content-Security-Policy` would refuse it.
    Policy,
    /// The page has a `Content-Encoding` although none was requested, or must not be changed (`no-transform`).
    Unchangeable,
    /// The page has no place for it.
    NoPlace,
}

impl Insertion {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Done, "inserted"),
        (Self::Policy, "policy"),
        (Self::Unchangeable, "unchangeable"),
        (Self::NoPlace, "no-place"),
    ];
}

/// Counters of beacons.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) issued: AtomicU64,
    pub(crate) forgotten: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) joined: AtomicU64,
    views: [AtomicU64; Navigation::ALL.len()],
    refused: [AtomicU64; Refusal::ALL.len()],
    insertions: [AtomicU64; Insertion::ALL.len()],
    resources: [AtomicU64; PROTOCOLS.len()],
    reports: [AtomicU64; KINDS.len() + 1],
    errors: [AtomicU64; ERRORS.len() + 1],
}

impl Counts {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            issued: zero(),
            forgotten: zero(),
            received: zero(),
            joined: zero(),
            views: std::array::from_fn(|_| zero()),
            refused: std::array::from_fn(|_| zero()),
            insertions: std::array::from_fn(|_| zero()),
            resources: std::array::from_fn(|_| zero()),
            reports: std::array::from_fn(|_| zero()),
            errors: std::array::from_fn(|_| zero()),
        }
    }

    pub(crate) fn refused(&self, refusal: Refusal) {
        add(&self.refused[refusal as usize], 1);
    }

    pub(crate) fn view(&self, navigation: Navigation) {
        add(&self.views[navigation as usize], 1);
    }

    pub(crate) fn insertion(&self, insertion: Insertion) {
        add(&self.insertions[insertion as usize], 1);
    }

    pub(crate) fn resources(&self, counts: &[u32; PROTOCOLS.len()]) {
        for (place, count) in self.resources.iter().zip(counts) {
            add(place, (*count).into());
        }
    }

    /// Total number of reports.
    #[cfg(test)]
    pub(crate) fn reported(&self) -> u64 {
        self.reports.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn report(&self, (kind, error): Counted) {
        add(&self.reports[kind], 1);
        if let Some(error) = error {
            add(&self.errors[error], 1);
        }
    }
}

pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// [`Collector`] of the metrics `brisk_beacon_*` and `brisk_beacons_*` of a [`Beacons`].
#[derive(Debug)]
pub struct BeaconMetrics(pub Arc<Beacons>);

impl Collector for BeaconMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let counts = self.0.counts();
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        for (name, help, count) in [
            ("beacon_ids", "Page views that got an id for their beacon.", &counts.issued),
            (
                "beacon_ids_forgotten",
                "Ids forgotten before their beacon came, for want of room.",
                &counts.forgotten,
            ),
            ("beacons_received", "Beacons and reports that arrived.", &counts.received),
            ("beacons_joined", "Beacons that became visits.", &counts.joined),
        ] {
            page.counter(name, help)?.counter(&[], value(count))?;
        }
        let mut family =
            page.counter("beacon_views", "Page views of joined beacons, by their navigation.")?;
        for navigation in Navigation::ALL {
            family
                .counter(&[("navigation", navigation.name())], value(&counts.views[*navigation as usize]))?;
        }
        let mut family = page.counter("beacons_refused", "Beacons that were dropped, by reason.")?;
        for refusal in Refusal::ALL {
            family.counter(&[("reason", refusal.name())], value(&counts.refused[refusal as usize]))?;
        }
        let mut family = page.counter("beacon_scripts", "Pages that were to get the script, by outcome.")?;
        for (insertion, name) in Insertion::ALL {
            family.counter(&[("outcome", name)], value(&counts.insertions[insertion as usize]))?;
        }
        for (name, help, label, names, values) in [
            (
                "page_resources",
                "Resources of pages from their own host, as their browsers counted them.",
                "protocol",
                &PROTOCOLS[..],
                &counts.resources[..],
            ),
            (
                "browser_reports",
                "Reports of browsers, by type; unverified: any client can send them.",
                "type",
                &KINDS[..],
                &counts.reports[..],
            ),
            (
                "network_errors",
                "Network errors that browsers reported, by type; unverified: any client can send them.",
                "type",
                &ERRORS[..],
                &counts.errors[..],
            ),
        ] {
            let mut family = page.counter(name, help)?;
            // `reports` and `errors` have one count more than names, for other kinds. `resources` has its own
            // `other`, so `zip` drops the additional name.
            let names = names.iter().copied().chain(std::iter::once("other"));
            for (name, count) in names.zip(values).filter(|(_, count)| value(count) > 0) {
                family.counter(&[(label, name)], value(count))?;
            }
        }
        Ok(())
    }
}
