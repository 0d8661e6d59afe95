//! Tickets, their keys, and the stores of sessions.

use std::fmt;

use super::Encoder;
use crate::metrics::figures::{SessionFigures, StoreFigures, TicketKeyFigures};

pub(super) fn all(page: &mut Encoder<'_, '_>, figures: &SessionFigures) -> fmt::Result {
    tickets(page, figures)?;
    ticket_keys(page, &figures.ticket_keys)?;
    memory(page, figures)?;
    match &figures.store {
        Some(store) => fleet(page, store),
        None => Ok(()),
    }
}

fn tickets(page: &mut Encoder<'_, '_>, figures: &SessionFigures) -> fmt::Result {
    let mut family = page.counter("tickets_sealed", "Session tickets sealed.")?;
    family.counter(&[], figures.tickets_sealed)?;
    let mut family = page.counter("tickets_offered", "Session tickets offered by clients, by outcome.")?;
    family.counter(&[("outcome", "opened")], figures.tickets_opened)?;
    family.counter(&[("outcome", "unknown-key")], figures.tickets_unknown_key)?;
    family.counter(&[("outcome", "expired")], figures.tickets_expired)?;
    family.counter(&[("outcome", "forged")], figures.tickets_forged)
}

fn ticket_keys(page: &mut Encoder<'_, '_>, keys: &[TicketKeyFigures]) -> fmt::Result {
    let mut family = page.seconds_gauge("ticket_key_age", "Age of the ticket key.")?;
    for key in keys {
        family.gauge(&[("key", &key.id)], key.age)?;
    }
    let mut family =
        page.gauge("ticket_key_seals", "1 if the key seals tickets, 0 if it only opens them.")?;
    for key in keys {
        family.gauge(&[("key", &key.id)], u64::from(key.seals))?;
    }
    let mut family = page
        .seconds_gauge("ticket_key_seals_from_timestamp", "Start of sealing with the key, as Unix time.")?;
    for (key, time) in keys.iter().filter_map(|key| Some((key, key.seals_from?))) {
        family.gauge(&[("key", &key.id)], time)?;
    }
    let mut family =
        page.seconds_gauge("ticket_key_opens_until_timestamp", "End of opening with the key, as Unix time.")?;
    for (key, time) in keys.iter().filter_map(|key| Some((key, key.opens_until?))) {
        family.gauge(&[("key", &key.id)], time)?;
    }
    let mut family = page.counter("ticket_key_sealed", "Session tickets sealed with the key.")?;
    for key in keys {
        family.counter(&[("key", &key.id)], key.sealed)?;
    }
    let mut family = page.counter("ticket_key_opened", "Session tickets opened with the key.")?;
    for key in keys {
        family.counter(&[("key", &key.id)], key.opened)?;
    }
    Ok(())
}

fn memory(page: &mut Encoder<'_, '_>, figures: &SessionFigures) -> fmt::Result {
    let mut family = page.counter("sessions_stored", "Sessions stored in memory.")?;
    family.counter(&[], figures.sessions_stored)?;
    let mut family = page.counter("session_lookups", "Look-ups of sessions in memory, by outcome.")?;
    family.counter(&[("outcome", "found")], figures.sessions_found)?;
    family.counter(&[("outcome", "missed")], figures.sessions_missed)?;
    let mut family = page.counter("sessions_evicted", "Sessions evicted from memory.")?;
    family.counter(&[], figures.sessions_evicted)?;
    let mut family = page.gauge("sessions_held", "Sessions in memory.")?;
    family.gauge(&[], figures.sessions_held)?;
    let mut family = page.bytes_gauge("sessions_held", "Memory used by sessions.")?;
    family.gauge(&[], figures.sessions_bytes)
}

fn fleet(page: &mut Encoder<'_, '_>, store: &StoreFigures) -> fmt::Result {
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
    family.seconds_counter(store.operation_micros)
}

fn writes(page: &mut Encoder<'_, '_>, store: &StoreFigures) -> fmt::Result {
    let mut family = page.counter("session_store_writes", "Writes that the store confirmed.")?;
    family.counter(&[], store.written)?;
    let mut family = page.counter("session_store_dropped_writes", "Writes that were dropped, by reason.")?;
    family.counter(&[("reason", "queue-full")], store.dropped_full)?;
    family.counter(&[("reason", "down")], store.dropped_down)?;
    let mut family =
        page.gauge("session_store_queue_length", "Commands that are queued or unanswered now.")?;
    family.gauge(&[], store.queue_length)
}

fn connections(page: &mut Encoder<'_, '_>, store: &StoreFigures) -> fmt::Result {
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
    family.gauge(&[], store.problems)
}
