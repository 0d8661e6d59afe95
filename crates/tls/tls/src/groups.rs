//! Choice of the key exchange group (`supported_groups` and `key_share`, RFC 8446 sections 4.2.7 and 4.2.8).
//!
//! rustls takes the first supported group of the client, and requests another hello if the client sent no share for it,
//! even if it sent a share for an equally good group. Here the client's shares decide. rustls has no setting for that,
//! but calls `usable_for_version` of each group: the acceptor sets the chosen group in [`notes`] beforehand, and all
//! others return false.

use std::sync::LazyLock;

use brisk_wire::client_hello::ClientHello;
use brisk_wire::registry::{NamedGroup, ProtocolVersion};
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, ProtocolVersion as Version};

use crate::{key_exchange, notes};

/// Supported groups by preference: post-quantum first, then by cost.
const ORDER: [NamedGroup; 4] =
    [NamedGroup::X25519MLKEM768, NamedGroup::X25519, NamedGroup::SECP256R1, NamedGroup::SECP384R1];

static GROUPS: LazyLock<[Chosen; 4]> = LazyLock::new(|| {
    [key_exchange::X25519_MLKEM768, key_exchange::X25519, kx_group::SECP256R1, kx_group::SECP384R1]
        .map(Chosen)
});

/// All groups of [`ORDER`]. Each is usable in a handshake unless [`notes`] contain another.
pub(crate) fn all() -> Vec<&'static dyn SupportedKxGroup> {
    GROUPS.iter().map(|group| group as &dyn SupportedKxGroup).collect()
}

/// The group for TLS 1.3 with this client: the best one with a share, otherwise the best one that a `HelloRetryRequest`
/// can ask for. `None` leaves the choice to rustls, as for TLS 1.2, where the client's order decides.
pub(crate) fn choose(hello: &ClientHello) -> Option<NamedGroup> {
    if !hello.offers_version(ProtocolVersion::TLS1_3) {
        return None;
    }
    let offered = || ORDER.into_iter().filter(|group| hello.groups.contains(group));
    let shares = hello.key_shares.as_deref().unwrap_or_default();
    // A group with a share before a preferred one without: another hello costs a round trip.
    offered().find(|group| shares.contains(group)).or_else(|| offered().next())
}

/// A group that is not usable while [`notes`] contain another one.
#[derive(Debug)]
struct Chosen(&'static dyn SupportedKxGroup);

impl SupportedKxGroup for Chosen {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        self.0.start()
    }

    fn start_and_complete(&self, peer_pub_key: &[u8]) -> Result<CompletedKeyExchange, Error> {
        self.0.start_and_complete(peer_pub_key)
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> rustls::NamedGroup {
        self.0.name()
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }

    fn usable_for_version(&self, version: Version) -> bool {
        let chosen = notes::current().input.group;
        self.0.usable_for_version(version)
            && chosen.is_none_or(|chosen| chosen == NamedGroup(u16::from(self.name())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P384: NamedGroup = NamedGroup::SECP384R1;
    const P256: NamedGroup = NamedGroup::SECP256R1;
    const X25519: NamedGroup = NamedGroup::X25519;

    fn chosen(groups: &[NamedGroup], shares: &[NamedGroup]) -> Option<NamedGroup> {
        let mut hello = ClientHello::default();
        hello.versions = vec![ProtocolVersion::TLS1_3];
        hello.groups = groups.to_vec();
        hello.key_shares = Some(shares.to_vec());
        choose(&hello)
    }

    #[test]
    fn a_share_that_came_is_taken() {
        assert_eq!(chosen(&[P384, P256], &[P256]), Some(P256));
        assert_eq!(chosen(&[P384, P256, X25519], &[P384, P256]), Some(P256));
        assert_eq!(chosen(&[P256, NamedGroup::X25519MLKEM768], &[P256]), Some(P256));
    }

    #[test]
    fn without_one_the_best_group_is_asked_for() {
        assert_eq!(chosen(&[NamedGroup::SECP521R1, P384, X25519], &[NamedGroup::SECP521R1]), Some(X25519));
        assert_eq!(chosen(&[P384], &[]), Some(P384));
        // RFC 8446 section 4.2.8: shares are for offered groups only.
        assert_eq!(chosen(&[P384], &[X25519]), Some(P384));
        assert_eq!(chosen(&[NamedGroup::SECP521R1], &[NamedGroup::SECP521R1]), None);
    }
}
