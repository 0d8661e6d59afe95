//! Counters of the key server, and its audit log of refusals.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use brisk_keyless::ErrorCode;
use brisk_telemetry::metrics::{Collector, Encoder};

use crate::audit::{AuditLimiter, Refusal};

/// Counters of a key server.
#[derive(Debug)]
pub(crate) struct Figures {
    /// Open connections, from their acceptance on.
    pub(crate) open: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    /// Failed handshakes: no certificate, an invalid one, or another protocol.
    pub(crate) handshakes_failed: AtomicU64,
    /// Connections refused because all slots were in use.
    pub(crate) shed: AtomicU64,
    /// Connections evicted before their handshake was complete.
    pub(crate) evicted: AtomicU64,
    /// Connections closed because the client did not read, or did not complete a frame.
    pub(crate) stalled: AtomicU64,
    pub(crate) operations: AtomicU64,
    refused: [AtomicU64; ErrorCode::ALL.len()],
    lines: Mutex<AuditLimiter>,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            open: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
            handshakes_failed: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            refused: Default::default(),
            lines: Mutex::default(),
        }
    }
}

/// A refusal, as logged in the audit log.
pub(crate) struct RefusedRequest<'a> {
    pub(crate) client: &'a str,
    pub(crate) peer: &'a str,
    pub(crate) code: ErrorCode,
    /// The key, if known.
    pub(crate) key: Option<brisk_keys::KeyId>,
    pub(crate) detail: &'a str,
}

impl Figures {
    /// Counts a refusal and writes it to the audit log.
    pub(crate) fn refused(&self, refused: &RefusedRequest<'_>) {
        let RefusedRequest { client, peer, code, key, detail } = refused;
        if let Some(place) = ErrorCode::ALL.iter().position(|known| known == code) {
            self.refused[place].fetch_add(1, Ordering::Relaxed);
        }
        let refusal = Refusal { client: (*client).to_owned(), code: *code, key: *key };
        let more = self.lines.lock().unwrap_or_else(PoisonError::into_inner).pass(refusal, Instant::now());
        let Some(more) = more else { return };
        let key = key.map(tracing::field::display);
        tracing::warn!(target: "brisk_keyserver::audit", client, peer, %code, key, detail, more, "refused");
    }
}

/// [`Collector`] of [`Figures`].
#[derive(Debug)]
pub(crate) struct KeyServerMetrics(pub(crate) Arc<Figures>);

impl Collector for KeyServerMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let Self(figures) = self;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut family = page.gauge("keyserver_clients", "Open connections of gateways.")?;
        family.gauge(&[], figures.open.load(Ordering::Relaxed) as u64)?;
        let mut family = page.counter("keyserver_accepted", "Connections of gateways accepted.")?;
        family.counter(&[], load(&figures.accepted))?;
        let mut family = page
            .counter("keyserver_closed", "Connections of gateways that the key server ended, by reason.")?;
        for (reason, count) in [
            ("handshake", &figures.handshakes_failed),
            ("limit", &figures.shed),
            ("evicted", &figures.evicted),
            ("stalled", &figures.stalled),
        ] {
            family.counter(&[("reason", reason)], load(count))?;
        }
        let mut family = page.counter("keyserver_requests", "Operations that gateways asked for.")?;
        family.counter(&[], load(&figures.operations))?;
        let mut family = page.counter(
            "keyserver_refusals",
            "Operations and connections of gateways that were refused, by reason.",
        )?;
        for (code, count) in ErrorCode::ALL.iter().zip(&figures.refused) {
            family.counter(&[("reason", code.name())], load(count))?;
        }
        Ok(())
    }
}
