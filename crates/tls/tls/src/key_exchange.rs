//! The groups X25519 and X25519MLKEM768 of a server, whose operations [`gather`] joins with those of other handshakes.

use brisk_keys::{Encapsulation, Exchange, KeyPair};
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};

use crate::gather;

/// X25519 (RFC 7748, RFC 8422).
pub(crate) static X25519: &dyn SupportedKxGroup = &Classical;

/// ML-KEM-768 followed by X25519 (draft-ietf-tls-ecdhe-mlkem).
pub(crate) static X25519_MLKEM768: &dyn SupportedKxGroup = &Hybrid;

/// Length of an ML-KEM-768 encapsulation key (FIPS 203 section 8).
const ENCAPSULATION_KEY: usize = 1184;

const INVALID_KEY_SHARE: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

#[derive(Debug)]
struct Classical;

impl SupportedKxGroup for Classical {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(Active(key_pair()?)))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

struct Active(KeyPair);

impl ActiveKeyExchange for Active {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let exchange = gather::begin(exchange(self.0, peer)?).wait();
        Ok(SharedSecret::from(shared(&exchange)?))
    }

    fn pub_key(&self) -> &[u8] {
        self.0.public()
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

#[derive(Debug)]
struct Hybrid;

impl SupportedKxGroup for Hybrid {
    /// A TLS 1.3 server has the client's `key_share` when it starts, so only tests call this.
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        kx_group::X25519MLKEM768.start()
    }

    fn start_and_complete(&self, peer: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (key, point) = peer.split_at_checked(ENCAPSULATION_KEY).ok_or(INVALID_KEY_SHARE)?;
        let pair = key_pair()?;
        let public = *pair.public();
        // Both begin before the first wait, so that they share one turn.
        let exchange = gather::begin(exchange(pair, point)?);
        let encapsulation = gather::begin(Encapsulation::new(key).ok_or(INVALID_KEY_SHARE)?);
        let (exchange, encapsulation) = (exchange.wait(), encapsulation.wait());
        let secret = encapsulation.shared().ok_or(Error::FailedToGetRandomBytes)?;
        // draft-ietf-tls-ecdhe-mlkem: the secret of ML-KEM comes first.
        let secrets = [&secret[..], shared(&exchange)?].concat();
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: [&encapsulation.ciphertext()[..], &public].concat(),
            secret: SharedSecret::from(secrets),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

fn key_pair() -> Result<KeyPair, Error> {
    gather::key_pair().ok_or(Error::FailedToGetRandomBytes)
}

fn exchange(pair: KeyPair, peer: &[u8]) -> Result<Exchange, Error> {
    let peer = peer.try_into().map_err(|_| INVALID_KEY_SHARE)?;
    Ok(pair.exchange(peer))
}

/// RFC 8446 section 7.4.2, RFC 7748 section 6.1: an all-zero secret is refused.
fn shared(exchange: &Exchange) -> Result<&[u8], Error> {
    exchange.shared().map(|secret| &secret[..]).ok_or(INVALID_KEY_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_groups_agree_with_those_of_rustls() {
        for (own, theirs) in [(X25519, kx_group::X25519), (X25519_MLKEM768, kx_group::X25519MLKEM768)] {
            assert_eq!(own.name(), theirs.name());
            for version in [ProtocolVersion::TLSv1_2, ProtocolVersion::TLSv1_3] {
                assert_eq!(own.usable_for_version(version), theirs.usable_for_version(version));
            }
            let client = theirs.start().expect("randomness");
            let server = own.start_and_complete(client.pub_key()).expect("a share");
            assert_eq!(server.group, own.name());
            let secret = client.complete(&server.pub_key).expect("a share");
            assert_eq!(secret.secret_bytes(), server.secret.secret_bytes());
            // rustls checks its groups in this way: the server starts with a share.
            let (client, server) = (theirs.start().expect("randomness"), own.start().expect("randomness"));
            assert_eq!((server.group(), server.pub_key().len()), (client.group(), client.pub_key().len()));
        }
    }

    #[test]
    fn shares_of_another_length_are_refused() {
        for length in [0, 31, 33, 1184, 1215, 1217] {
            let share = vec![9; length];
            for group in [X25519, X25519_MLKEM768] {
                let refused = group.start_and_complete(&share).err();
                assert_eq!(refused, Some(INVALID_KEY_SHARE), "{length} bytes");
            }
        }
    }

    /// RFC 7748 section 6.1, RFC 8446 section 7.4.2.
    #[test]
    fn points_of_small_order_are_refused() {
        let hybrid = kx_group::X25519MLKEM768.start().expect("randomness");
        for point in [[0; 32], std::array::from_fn(|byte| u8::from(byte == 0))] {
            assert_eq!(X25519.start_and_complete(&point).err(), Some(INVALID_KEY_SHARE));
            let share = [&hybrid.pub_key()[..ENCAPSULATION_KEY], &point].concat();
            assert_eq!(X25519_MLKEM768.start_and_complete(&share).err(), Some(INVALID_KEY_SHARE));
        }
    }
}
