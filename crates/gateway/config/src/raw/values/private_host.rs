//! Hosts of `certificates.allow_private`.

use serde::de::{Deserialize, Deserializer, Error};

/// A host outside of the public internet from which the gateway may fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrivateHost(pub brisk_fetch::PrivateHost);

impl<'de> Deserialize<'de> for PrivateHost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(Error::custom)
    }
}
