//! Figures that other layers provide at every scrape: sessions, key operations.

/// What the session layer has counted, and what it holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFigures {
    /// Tickets sealed.
    pub tickets_sealed: u64,
    /// Tickets opened.
    pub tickets_opened: u64,
    /// Tickets whose key is not in the keyring.
    pub tickets_unknown_key: u64,
    /// Tickets whose key or session has expired.
    pub tickets_expired: u64,
    /// Tickets that failed authentication.
    pub tickets_forged: u64,
    /// Sessions put into the store in memory.
    pub sessions_stored: u64,
    /// Sessions found in it.
    pub sessions_found: u64,
    /// Look-ups in memory that found no session.
    pub sessions_missed: u64,
    /// Early data refused because its session had been used, in memory and in the shared store.
    pub early_data_replays: u64,
    /// Sessions removed to make room.
    pub sessions_evicted: u64,
    /// Sessions held now.
    pub sessions_held: u64,
    /// Bytes that they take.
    pub sessions_bytes: u64,
    /// The keys on the keyring; none where tickets are off.
    pub ticket_keys: Vec<TicketKeyFigures>,
    /// The store shared by the fleet; `None` where there is none.
    pub store: Option<StoreFigures>,
}

/// One ticket key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TicketKeyFigures {
    /// Names the key without giving it away: eight hexadecimal digits, the same on every node that has it.
    pub id: String,
    /// Seconds since the key was made, derived or read.
    pub age: u64,
    /// Whether it seals tickets now.
    pub seals: bool,
    /// From when on it seals, in seconds since 1970; `None` if it only opens.
    pub seals_from: Option<u64>,
    /// Until when it opens, in seconds since 1970; `None` if it does so until the next reload.
    pub opens_until: Option<u64>,
    /// Tickets sealed with it by this process.
    pub sealed: u64,
    /// Tickets opened with it by this process.
    pub opened: u64,
}

/// The store of sessions that a fleet shares, as this process sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreFigures {
    /// Look-ups that found a session.
    pub hits: u64,
    /// Look-ups of a session that is not there, or no longer.
    pub misses: u64,
    /// Look-ups of a session that was taken before.
    pub used: u64,
    /// Look-ups that found something forged or damaged.
    pub forged: u64,
    /// Look-ups that were not answered by their deadline.
    pub late: u64,
    /// Look-ups that were not made, or failed, because the store is out of order.
    pub down: u64,
    /// Look-ups for early data that were refused because the store was restarted or failed over after the session was
    /// stored. Counted in `misses` too.
    pub outlived: u64,
    /// Writes that the store has confirmed.
    pub written: u64,
    /// Writes dropped because the queue was full.
    pub dropped_full: u64,
    /// Writes dropped because the store does not work or refused them.
    pub dropped_down: u64,
    /// Writes and look-ups that wait to be sent, or to be answered, now.
    pub queue_length: u64,
    /// Whether the store is taken to be out of order, and spared until a probe succeeds.
    pub breaker_open: bool,
    /// Times that the circuit breaker opened.
    pub breaker_opened: u64,
    /// Connections open now.
    pub connections: u64,
    /// Connections established.
    pub connected: u64,
    /// Current problems of the store's servers; the log has each with its remedy.
    pub problems: u64,
    /// Operations that were answered, in time or too late.
    pub operations: u64,
    /// Time from handing over each of them to its answer, in microseconds, added up.
    pub operation_micros: u64,
}

/// What was refused because a client did it too often, by what it did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateFigures {
    /// Connections that were closed.
    pub connections: u64,
    /// Handshakes that failed.
    pub handshakes: u64,
    /// Requests that were answered with 429.
    pub requests: u64,
    /// Connections that were closed because of protocol errors of their client before.
    pub errors: u64,
}

/// What the engine of key operations has done on its threads, and has to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeyFigures {
    /// Operations that wait for a thread.
    pub queue_length: u64,
    /// Operations by how many were performed together: alone, two, three, four.
    pub by_batch: [u64; 4],
    /// Results that did not stand their check and were computed again.
    pub faults: u64,
    /// What batches gain with keys of each size.
    pub batch_gains: Vec<BatchGain>,
    /// The GPU beside the threads; `None` where there is none.
    pub gpu: Option<GpuFigures>,
}

/// What the fastest batches gain with keys of one size, as measured when the first key of this size was read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchGain {
    /// Bits of the modulus.
    pub bits: usize,
    /// The instructions, by the `engine` label of the series of key operations.
    pub engine: &'static str,
    /// Operations a second over those of single operations.
    pub gain: f64,
}

/// Key operations on a GPU: counted since the start, and under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GpuFigures {
    /// Operations that wait for it or are on it.
    pub pending: u64,
    /// Launches, each of many operations.
    pub launches: u64,
    /// Results that did not stand their check and were computed again.
    pub faults: u64,
    /// Operations that were meant for it and went to the threads.
    pub taken_over: u64,
    /// Whether it was given up.
    pub is_lost: bool,
}
