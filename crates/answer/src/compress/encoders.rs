//! Encoders in use, limited by memory, and a few idle encoders for reuse.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use brisk_coding::{Coding, Decoder, Dictionary, Encoder};

use super::metrics::Made;

/// Idle encoders per worker. Creating an encoder costs more than compressing a short response.
const KEPT: usize = 3;

/// Memory of all encoders in use, in bytes.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Memory of all decoders in use, in bytes.
static DECODERS: AtomicUsize = AtomicUsize::new(0);

/// Minimum budget of decoders in bytes, however small the limit of encoders is.
const LEAST_OF_DECODERS: usize = 64 << 20;

thread_local! {
    static IDLE: RefCell<Vec<Encoder>> = const { RefCell::new(Vec::new()) };
    /// Output buffer of encoders. Copied from there, so that a piece takes no more memory than its length.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Maximum capacity that a worker keeps for output, in bytes.
const SCRATCH_KEPT: usize = 64 << 10;

/// An encoder in use. Returned for reuse on drop.
#[derive(Debug)]
pub(super) struct Lease {
    encoder: Option<Encoder>,
    bytes: usize,
    made: Made,
}

/// Memory limits of all encoders and decoders in use, in bytes.
pub(super) fn held() -> usize {
    HELD.load(Ordering::Relaxed).saturating_add(DECODERS.load(Ordering::Relaxed))
}

/// Calls `write` with an empty buffer and returns the buffer's content.
pub(super) fn written<E>(write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<bytes::Bytes, E> {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        let result = write(scratch);
        let output = bytes::Bytes::copy_from_slice(scratch);
        if scratch.capacity() > SCRATCH_KEPT {
            *scratch = Vec::new();
        }
        result.map(|()| output)
    })
}

fn reserve(bytes: usize, limit: usize) -> bool {
    reserve_of(&HELD, bytes, limit)
}

fn reserve_of(held: &AtomicUsize, bytes: usize, limit: usize) -> bool {
    let fits = held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= limit;
    if !fits {
        held.fetch_sub(bytes, Ordering::Relaxed);
    }
    fits
}

/// Reserved memory of a decoder.
///
/// Decoders have a budget of their own: a client with many compressed responses cannot block documents that must be
/// decoded. It is half of the limit of encoders; decoders with a large window (all but gzip) get at most half of the
/// budget.
#[derive(Debug)]
pub(crate) struct Room(usize);

impl Room {
    /// Reserves memory for a decoder; `None` if the budget derived from `limit` is exhausted.
    pub(crate) fn take(coding: Coding, limit: usize) -> Option<Self> {
        let bytes = Decoder::memory(coding);
        let share = (limit / 2).max(LEAST_OF_DECODERS);
        let share = if coding == Coding::Gzip { share } else { share / 2 };
        // `then_some` would create the value before the check, and its drop would release memory that was never
        // reserved.
        reserve_of(&DECODERS, bytes, share).then(|| Self(bytes))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        DECODERS.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl Lease {
    /// Takes an encoder; `None` if all encoders together would exceed `limit` bytes.
    pub(super) fn take(coding: Coding, level: u8, limit: usize) -> Option<Self> {
        let bytes = Encoder::memory(coding);
        if !reserve(bytes, limit) {
            return None;
        }
        let idle = IDLE.with_borrow_mut(|idle| {
            let fits = |encoder: &Encoder| encoder.coding() == coding && encoder.level() == level;
            idle.iter().position(fits).map(|place| idle.swap_remove(place))
        });
        let encoder = Some(idle.unwrap_or_else(|| Encoder::new(coding, level)));
        Some(Self { encoder, bytes, made: Made::Coding(coding) })
    }

    /// Creates an encoder with a dictionary of the client, for a response of this length.
    pub(super) fn with_dictionary(
        dictionary: &Dictionary,
        level: u8,
        length: Option<u64>,
        limit: usize,
    ) -> Option<Self> {
        let bytes = Encoder::memory_with(dictionary, length);
        if !reserve(bytes, limit) {
            return None;
        }
        let mut lease = Self { encoder: None, bytes, made: Made::WithDictionary };
        lease.encoder = Some(Encoder::with_dictionary(level, dictionary, length).ok()?);
        Some(lease)
    }

    /// The coding of the output.
    pub(super) fn made(&self) -> Made {
        self.made
    }

    /// The encoder.
    pub(super) fn encoder(&mut self) -> &mut Encoder {
        self.encoder.as_mut().expect("an encoder is given back by drop alone")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        HELD.fetch_sub(self.bytes, Ordering::Relaxed);
        let Some(mut encoder) = self.encoder.take() else { return };
        // An error means that the thread is ending.
        let _ = IDLE.try_with(|idle| {
            let mut idle = idle.borrow_mut();
            if idle.len() < KEPT && encoder.reset() {
                idle.push(encoder);
            }
        });
    }
}
