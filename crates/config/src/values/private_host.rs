//! Hosts of `certificates.allow_private`.

use std::str::FromStr;

use super::Written;

/// A host outside of the public internet from which the gateway may fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrivateHost(pub(crate) brisk_fetch::PrivateHost);

impl Written for PrivateHost {
    const EXPECTED: &'static str = "an address, a network or a host name in quotes, as \"10.0.0.0/8\"";
}

impl FromStr for PrivateHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}
