//! Encoders that are in use, under a limit for their memory, and a few that wait to be used again.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use brisk_coding::{Coding, Dictionary, Encoder};

use super::metrics::Made;

/// Encoders that a worker keeps: making one costs more than compressing a short answer.
const KEPT: usize = 3;

/// Memory of all encoders in use, in bytes.
static HELD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IDLE: RefCell<Vec<Encoder>> = const { RefCell::new(Vec::new()) };
    /// What encoders write into: output is sent in pieces of its own length.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The most memory that a worker keeps for output between two pieces.
const SCRATCH_KEPT: usize = 64 << 10;

/// An encoder in use. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Lease {
    encoder: Option<Encoder>,
    bytes: usize,
    made: Made,
}

/// Memory of all encoders in use, in bytes, as they take it at most.
pub(super) fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Calls `write` with an empty buffer, and returns what is in it then.
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
    let fits = HELD.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= limit;
    if !fits {
        HELD.fetch_sub(bytes, Ordering::Relaxed);
    }
    fits
}

/// Room for the memory of a decoder, under the same limit.
#[derive(Debug)]
pub(in crate::answer) struct Room(usize);

impl Room {
    /// Room for this number of bytes, unless all of it would be more than `limit`.
    pub(in crate::answer) fn take(bytes: usize, limit: usize) -> Option<Self> {
        // Not `then_some`: what it drops would give back what was never taken.
        reserve(bytes, limit).then(|| Self(bytes))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        HELD.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl Lease {
    /// An encoder, unless all of them would take more than `limit` bytes.
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

    /// An encoder that uses what the client has, for an answer of this length.
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

    /// What it makes.
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
        // An error: the thread ends.
        let _ = IDLE.try_with(|idle| {
            let mut idle = idle.borrow_mut();
            if idle.len() < KEPT && encoder.reset() {
                idle.push(encoder);
            }
        });
    }
}
