//! Encoders that are in use, under a limit for their memory, and a few that wait to be used again.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use brisk_coding::{Coding, Decoder, Dictionary, Encoder};

use super::metrics::Made;

/// Encoders that a worker keeps: making one costs more than compressing a short answer.
const KEPT: usize = 3;

/// Memory of all encoders in use, in bytes.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Memory of all decoders in use, in bytes.
static DECODERS: AtomicUsize = AtomicUsize::new(0);

/// What decoders take of memory however little encoders may have.
const LEAST_OF_DECODERS: usize = 64 << 20;

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

/// Memory of all encoders and decoders in use, in bytes, as they take it at most.
pub(super) fn held() -> usize {
    HELD.load(Ordering::Relaxed).saturating_add(DECODERS.load(Ordering::Relaxed))
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
    reserve_of(&HELD, bytes, limit)
}

fn reserve_of(held: &AtomicUsize, bytes: usize, limit: usize) -> bool {
    let fits = held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= limit;
    if !fits {
        held.fetch_sub(bytes, Ordering::Relaxed);
    }
    fits
}

/// Room for the memory of a decoder, beside that of encoders: a client that has much compressed keeps no other from a
/// document that must be decoded. Decoders have half of what encoders have, and those that take much memory no more than
/// half of that.
#[derive(Debug)]
pub(crate) struct Room(usize);

impl Room {
    /// Room for a decoder, unless all of them would take more than their part of `limit`.
    pub(crate) fn take(coding: Coding, limit: usize) -> Option<Self> {
        let bytes = Decoder::memory(coding);
        let share = (limit / 2).max(LEAST_OF_DECODERS);
        let share = if coding == Coding::Gzip { share } else { share / 2 };
        // Not `then_some`: what it drops would give back what was never taken.
        reserve_of(&DECODERS, bytes, share).then(|| Self(bytes))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        DECODERS.fetch_sub(self.0, Ordering::Relaxed);
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
