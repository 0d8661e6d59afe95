//! Sealed values and replies of Redis, for [`fuzz`](crate::fuzz).

use super::bounded::Replies;
use super::epoch::Epoch;
use super::sealing::Sealer;
use crate::FleetSecret;

/// Seals and opens sessions.
pub(crate) struct Values(Sealer);

impl Values {
    pub(crate) fn new(secret: &FleetSecret) -> Self {
        Self(Sealer::new(secret))
    }

    pub(crate) fn seal(&self, id: &[u8], session: &[u8]) -> Vec<u8> {
        self.0.seal(id, (1_799_999_000, 1_800_000_000), Epoch::UNKNOWN, session)
    }

    pub(crate) fn open(&self, id: &[u8], value: Vec<u8>) -> Option<Vec<u8>> {
        self.0.open(id, value).map(|stored| stored.session.to_vec())
    }
}

/// Number of bytes after which all replies are complete for the first time; `None` if they never are, or are refused before.
pub(crate) fn complete(bytes: &[u8]) -> Option<usize> {
    let mut replies = Replies::default();
    for (index, byte) in bytes.iter().enumerate() {
        replies.count(&[*byte]).ok()?;
        if replies.is_complete() {
            return Some(index + 1);
        }
    }
    None
}

/// Whether the parser of the library waits for more bytes.
pub(crate) fn wants_more(bytes: &[u8]) -> bool {
    redis::parse_redis_value(bytes).is_err_and(|error| error.is_connection_dropped())
}

/// Whether replies in pieces of two lengths have the same end.
pub(crate) fn is_same_in_pieces(bytes: &[u8]) -> bool {
    let whole = |piece: usize| {
        let mut replies = Replies::default();
        bytes.chunks(piece).try_for_each(|piece| replies.count(piece)).map(|()| replies)
    };
    whole(1) == whole(7)
}
