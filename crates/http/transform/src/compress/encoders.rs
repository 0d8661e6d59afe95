//! Encoders in use, whose memory is reserved for the client, and a few idle encoders for reuse.

use std::cell::RefCell;
use std::rc::Rc;

use brisk_budget::Resource;
use brisk_coding::{Coding, Dictionary, Encoder};
use brisk_http_connection::Connection;
use brisk_http_connection::holding::Holding;

use super::metrics::Made;

/// Maximum number of idle [`Encoder`]s per worker. Creating an encoder costs more than compressing a short response.
const KEPT: usize = 3;

thread_local! {
    static IDLE: RefCell<Vec<Encoder>> = const { RefCell::new(Vec::new()) };
    /// Output buffer of encoders. Copied from there, so that a piece takes no more memory than its length.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Maximum capacity of [`SCRATCH`] that a worker keeps, in bytes.
const SCRATCH_KEPT: usize = 64 << 10;

/// The right to an encoder, which is taken when it is first used: responses that wait for their first turn need none. Returned for
/// reuse on drop.
#[derive(Debug)]
pub(super) struct Lease {
    encoder: Option<Encoder>,
    coding: Coding,
    level: u8,
    made: Made,
    _holding: Holding,
}

/// Calls `write` with an empty buffer and returns a copy of the buffer's content.
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

impl Lease {
    /// Reserves the memory of an encoder for a response on `connection`; `None` if its client has no memory left for encoders.
    pub(super) fn take(coding: Coding, level: u8, connection: &Rc<Connection>) -> Option<Self> {
        let holding = connection.reserve(Resource::Encoders, Encoder::memory(coding)).ok()?;
        Some(Self { encoder: None, coding, level, made: Made::Coding(coding), _holding: holding })
    }

    /// Creates an encoder with a dictionary of the client, for a response of `length` bytes, if known. `None` as for
    /// [`Self::take`].
    pub(super) fn with_dictionary(
        dictionary: &Dictionary,
        level: u8,
        length: Option<u64>,
        connection: &Rc<Connection>,
    ) -> Option<Self> {
        let bytes = Encoder::memory_with(dictionary, length);
        let holding = connection.reserve(Resource::Encoders, bytes).ok()?;
        let encoder = Encoder::with_dictionary(level, dictionary, length).ok()?;
        let coding = encoder.coding();
        Some(Self { encoder: Some(encoder), coding, level, made: Made::WithDictionary, _holding: holding })
    }

    /// The coding of the output, for the metrics.
    pub(super) fn made(&self) -> Made {
        self.made
    }

    /// Replaces the encoder by one for `gzip` with level 0, which does not compress. The caller must not use previous output.
    pub(super) fn store(&mut self) {
        self.encoder = Some(Encoder::new(Coding::Gzip, 0));
    }

    /// The encoder: an idle one or a new one if this is the first use.
    pub(super) fn encoder(&mut self) -> &mut Encoder {
        self.encoder.get_or_insert_with(|| {
            let idle = IDLE.with_borrow_mut(|idle| {
                let fits =
                    |encoder: &Encoder| encoder.coding() == self.coding && encoder.level() == self.level;
                idle.iter().position(fits).map(|place| idle.swap_remove(place))
            });
            idle.unwrap_or_else(|| Encoder::new(self.coding, self.level))
        })
    }

    /// Whether an encoder is in use.
    #[cfg(test)]
    pub(super) fn has_encoder(&self) -> bool {
        self.encoder.is_some()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(mut encoder) = self.encoder.take() else { return };
        // An error means that the thread is ending.
        let _ = IDLE.try_with(|idle| {
            let mut idle = idle.borrow_mut();
            if idle.len() < KEPT && encoder.level() > 0 && encoder.reset() {
                idle.push(encoder);
            }
        });
    }
}
