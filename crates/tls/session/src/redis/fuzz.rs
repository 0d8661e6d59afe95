//! Sealed values of Redis, for [`fuzz`](crate::fuzz).

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
