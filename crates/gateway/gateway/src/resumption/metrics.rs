//! Metrics of tickets, ticket keys and session stores.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use brisk_session::{
    KeyStatistics, KeyringStatistics, MemoryStatistics, MemoryStore, RedisStatistics, RedisStore,
    TicketKeyring,
};
use brisk_telemetry::metrics::{Collector, Encoder};

use crate::unix_time::unix_seconds;

/// [`Collector`] of the session metrics.
#[derive(Debug)]
pub(crate) struct SessionMetrics {
    pub(crate) keyring: Arc<TicketKeyring>,
    pub(crate) memory: Arc<MemoryStore>,
    /// The [`RedisStore`] that the fleet shares; `None` without a fleet.
    pub(crate) fleet: Option<RedisStore>,
}

impl Collector for SessionMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let (memory, fleet) = (self.memory.statistics(), self.fleet.as_ref().map(RedisStore::statistics));
        let now = SystemTime::now();
        tickets(page, &self.keyring.statistics())?;
        ticket_keys(page, &self.keyring.keys(now), now)?;
        self::memory(page, &memory)?;
        replays(page, memory.replays + fleet.as_ref().map_or(0, |fleet| fleet.replays))?;
        fleet.map_or(Ok(()), |fleet| self::fleet(page, &fleet))
    }
}

fn replays(page: &mut Encoder<'_, '_>, count: u64) -> fmt::Result {
    let mut family =
        page.counter("early_data_replays", "Early data rejected because its session was used before.")?;
    family.counter(&[], count)
}

fn tickets(page: &mut Encoder<'_, '_>, statistics: &KeyringStatistics) -> fmt::Result {
    let mut family = page.counter("tickets_sealed", "Session tickets sealed.")?;
    family.counter(&[], statistics.sealed)?;
    let mut family = page.counter("tickets_offered", "Session tickets offered by clients, by outcome.")?;
    family.counter(&[("outcome", "opened")], statistics.opened)?;
    family.counter(&[("outcome", "unknown-key")], statistics.unknown)?;
    family.counter(&[("outcome", "expired")], statistics.expired)?;
    family.counter(&[("outcome", "forged")], statistics.forged)
}

fn ticket_keys(page: &mut Encoder<'_, '_>, keys: &[KeyStatistics], now: SystemTime) -> fmt::Result {
    let keys: Vec<_> = keys.iter().map(|key| (key.id.to_string(), key)).collect();
    let mut family = page.seconds_gauge("ticket_key_age", "Age of the ticket key.")?;
    for (id, key) in &keys {
        let age = now.duration_since(key.added).unwrap_or_default();
        family.gauge(&[("key", id)], age.as_secs())?;
    }
    let mut family =
        page.gauge("ticket_key_seals", "1 if the key seals tickets, 0 if it only opens them.")?;
    for (id, key) in &keys {
        family.gauge(&[("key", id)], u64::from(key.seals))?;
    }
    let mut family = page
        .seconds_gauge("ticket_key_seals_from_timestamp", "Start of sealing with the key, as Unix time.")?;
    for (id, time) in keys.iter().filter_map(|(id, key)| Some((id, key.seals_from?))) {
        family.gauge(&[("key", id)], unix_seconds(time))?;
    }
    let mut family =
        page.seconds_gauge("ticket_key_opens_until_timestamp", "End of opening with the key, as Unix time.")?;
    for (id, time) in keys.iter().filter_map(|(id, key)| Some((id, key.opens_until?))) {
        family.gauge(&[("key", id)], unix_seconds(time))?;
    }
    let mut family = page.counter("ticket_key_sealed", "Session tickets sealed with the key.")?;
    for (id, key) in &keys {
        family.counter(&[("key", id)], key.sealed)?;
    }
    let mut family = page.counter("ticket_key_opened", "Session tickets opened with the key.")?;
    for (id, key) in &keys {
        family.counter(&[("key", id)], key.opened)?;
    }
    Ok(())
}

fn memory(page: &mut Encoder<'_, '_>, statistics: &MemoryStatistics) -> fmt::Result {
    let mut family = page.counter("sessions_stored", "Sessions stored in memory.")?;
    family.counter(&[], statistics.stored)?;
    let mut family = page.counter("session_lookups", "Look-ups of sessions in memory, by outcome.")?;
    family.counter(&[("outcome", "found")], statistics.hits)?;
    family.counter(&[("outcome", "missed")], statistics.misses)?;
    let mut family = page.counter("sessions_evicted", "Sessions evicted from memory.")?;
    family.counter(&[], statistics.evicted)?;
    let mut family = page.gauge("sessions_held", "Sessions in memory.")?;
    family.gauge(&[], statistics.sessions as u64)?;
    let mut family = page.bytes_gauge("sessions_held", "Memory used by sessions.")?;
    family.gauge(&[], statistics.bytes as u64)
}

fn fleet(page: &mut Encoder<'_, '_>, store: &RedisStatistics) -> fmt::Result {
    let mut family =
        page.counter("session_store_lookups", "Look-ups of sessions in the fleet's store, by outcome.")?;
    let outcomes = [
        ("found", store.hits),
        ("missed", store.misses),
        ("used", store.used),
        ("forged", store.forged),
        ("late", store.late),
        ("down", store.down),
    ];
    for (outcome, count) in outcomes {
        family.counter(&[("outcome", outcome)], count)?;
    }
    let mut family = page.counter(
        "session_store_outlived",
        "Sessions refused for early data because the store was restarted after they were stored.",
    )?;
    family.counter(&[], store.outlived)?;
    writes(page, store)?;
    connections(page, store)?;
    let mut family = page.counter("session_store_operations", "Operations answered by the store.")?;
    family.counter(&[], store.operations)?;
    let mut family =
        page.seconds_counter("session_store_operation", "Total duration of these operations.")?;
    family.seconds_counter(&[], store.operation_time)
}

fn writes(page: &mut Encoder<'_, '_>, store: &RedisStatistics) -> fmt::Result {
    let mut family = page.counter("session_store_writes", "Writes that the store confirmed.")?;
    family.counter(&[], store.written)?;
    let mut family = page.counter("session_store_dropped_writes", "Writes that were dropped, by reason.")?;
    family.counter(&[("reason", "queue-full")], store.dropped_full)?;
    family.counter(&[("reason", "down")], store.dropped_down)?;
    let mut family =
        page.gauge("session_store_queue_length", "Commands that are queued or unanswered now.")?;
    family.gauge(&[], store.queue_length)
}

fn connections(page: &mut Encoder<'_, '_>, store: &RedisStatistics) -> fmt::Result {
    let mut family =
        page.gauge("session_store_breaker_open", "1 while the circuit breaker is open, otherwise 0.")?;
    family.gauge(&[], u64::from(store.breaker_open))?;
    let mut family =
        page.counter("session_store_breaker_opened", "Times that the circuit breaker opened.")?;
    family.counter(&[], store.breaker_opened)?;
    let mut family = page.gauge("session_store_connections_open", "Connections to the store open now.")?;
    family.gauge(&[], store.connections)?;
    let mut family =
        page.counter("session_store_connections", "Connections to the store that were established.")?;
    family.counter(&[], store.connected)?;
    let mut family =
        page.gauge("session_store_problems", "Current problems with servers of the store; see the log.")?;
    family.gauge(&[], store.troubles.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brisk_session::{KeySource, MemorySettings, RotationSettings};
    use brisk_telemetry::Metrics;

    use super::*;

    /// The metrics of a fleet's store that says so.
    #[derive(Debug)]
    struct Fleet(RedisStatistics);

    impl Collector for Fleet {
        fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
            fleet(page, &self.0)
        }
    }

    fn shows(metrics: &Arc<Metrics>, line: &str) {
        let page = metrics.render();
        assert!(page.lines().any(|shown| shown == line), "{line} is not in {page}");
    }

    #[test]
    fn tickets_their_keys_and_sessions_are_shown() {
        let metrics = Metrics::new();
        let now = SystemTime::now();
        let keyring = TicketKeyring::new(KeySource::Generated(RotationSettings::default()), now);
        keyring.seal(b"session", now).expect("a ticket");
        let id = keyring.keys(now)[0].id.to_string();
        let memory = Arc::new(MemoryStore::new(&MemorySettings::default()));
        metrics.register(SessionMetrics { keyring: Arc::new(keyring), memory, fleet: None });
        shows(&metrics, "brisk_tickets_sealed_total 1");
        shows(&metrics, &format!("brisk_ticket_key_sealed_total{{key=\"{id}\"}} 1"));
        shows(&metrics, &format!("brisk_ticket_key_seals{{key=\"{id}\"}} 1"));
        shows(&metrics, "brisk_sessions_held_bytes 0");
        shows(&metrics, "brisk_early_data_replays_total 0");
        assert!(!metrics.render().contains("brisk_session_store_"));
    }

    #[test]
    fn the_fleets_store_is_shown_and_every_metric_of_it_is_documented() {
        let metrics = Metrics::new();
        let operation_time = Duration::from_micros(1500);
        let statistics =
            RedisStatistics { used: 4, operations: 2, operation_time, ..RedisStatistics::default() };
        metrics.register(Fleet(statistics));
        shows(&metrics, "brisk_session_store_lookups_total{outcome=\"used\"} 4");
        shows(&metrics, "brisk_session_store_operation_seconds_total 0.0015");
        shows(&metrics, "brisk_session_store_breaker_open 0");
        let documentation = include_str!("../../../../../docs/metrics.md");
        assert_eq!(metrics.undocumented(documentation), [""; 0]);
    }
}
