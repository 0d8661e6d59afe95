//! Key exchange groups whose key pairs serve more than one handshake.
//!
//! A load generator makes thousands of handshakes a second from one process; a new key pair for each would cost it as
//! much as the key agreement. The server cannot tell, and its own share is still new each time.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;
use std::thread::LocalKey;

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::kem::{self, DecapsulationKey};
use rustls::crypto::{ActiveKeyExchange, SharedSecret, SupportedKxGroup, aws_lc_rs::kx_group};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};

use super::settings::KeyShares;

/// Groups supported, the best first.
const FRESH: [&dyn SupportedKxGroup; 6] = [
    kx_group::X25519MLKEM768,
    kx_group::X25519,
    kx_group::SECP256R1,
    kx_group::SECP384R1,
    kx_group::SECP256R1MLKEM768,
    kx_group::MLKEM768,
];

/// Those of them that are offered unless the caller names others.
const OFFERED: usize = 4;

const REUSED: [&dyn SupportedKxGroup; 4] = [&X25519MLKEM768, &X25519, &SECP256R1, &SECP384R1];

thread_local! {
    static X25519_PAIR: OnceCell<Arc<KeyPair>> = const { OnceCell::new() };
    static SECP256R1_PAIR: OnceCell<Arc<KeyPair>> = const { OnceCell::new() };
    static SECP384R1_PAIR: OnceCell<Arc<KeyPair>> = const { OnceCell::new() };
    static MLKEM768_PAIR: OnceCell<Arc<KemPair>> = const { OnceCell::new() };
}

/// The groups of these names; those that may not be reused are fresh whatever was asked for. `None`: one is unknown.
pub(super) fn groups(names: &[u16], shares: KeyShares) -> Option<Vec<&'static dyn SupportedKxGroup>> {
    let group = |name: NamedGroup| {
        let reused = REUSED.iter().filter(|_| shares == KeyShares::Reused);
        reused.chain(&FRESH).find(|group| group.name() == name).copied()
    };
    if names.is_empty() {
        return FRESH[..OFFERED].iter().map(|fresh| group(fresh.name())).collect();
    }
    names.iter().map(|&name| group(NamedGroup::from(name))).collect()
}

static X25519: Curve = Curve { name: NamedGroup::X25519, algorithm: &agreement::X25519, pair: &X25519_PAIR };
static SECP256R1: Curve =
    Curve { name: NamedGroup::secp256r1, algorithm: &agreement::ECDH_P256, pair: &SECP256R1_PAIR };
static SECP384R1: Curve =
    Curve { name: NamedGroup::secp384r1, algorithm: &agreement::ECDH_P384, pair: &SECP384R1_PAIR };
static X25519MLKEM768: Hybrid = Hybrid;

/// A curve with one key pair for each thread.
struct Curve {
    name: NamedGroup,
    algorithm: &'static agreement::Algorithm,
    pair: &'static LocalKey<OnceCell<Arc<KeyPair>>>,
}

struct KeyPair {
    private: PrivateKey,
    public: agreement::PublicKey,
}

impl Curve {
    fn pair(&self) -> Result<Arc<KeyPair>, Error> {
        let made = || {
            let private = PrivateKey::generate(self.algorithm).map_err(|_| no_key())?;
            let public = private.compute_public_key().map_err(|_| no_key())?;
            Ok(Arc::new(KeyPair { private, public }))
        };
        of_thread(self.pair, made)
    }
}

impl SupportedKxGroup for Curve {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(CurveExchange { name: self.name, pair: self.pair()? }))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        self.name
    }
}

impl fmt::Debug for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, reused", self.name)
    }
}

struct CurveExchange {
    name: NamedGroup,
    pair: Arc<KeyPair>,
}

impl ActiveKeyExchange for CurveExchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        agree(&self.pair.private, peer, |secret| SharedSecret::from(secret))
    }

    fn pub_key(&self) -> &[u8] {
        self.pair.public.as_ref()
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        self.name
    }
}

/// Length of an X25519 share.
const X25519_SHARE: usize = 32;

/// X25519MLKEM768 (RFC-to-be draft-ietf-tls-ecdhe-mlkem section 4): in shares and in the secret ML-KEM comes first.
#[derive(Debug)]
struct Hybrid;

/// An ML-KEM key pair, and the share that it makes with this thread's X25519 pair.
struct KemPair {
    private: DecapsulationKey,
    share: Vec<u8>,
    classical: Arc<KeyPair>,
}

impl Hybrid {
    fn pair() -> Result<Arc<KemPair>, Error> {
        let made = || {
            let classical = X25519.pair()?;
            let private = DecapsulationKey::generate(&kem::ML_KEM_768).map_err(|_| no_key())?;
            let public = private.encapsulation_key().and_then(|key| key.key_bytes()).map_err(|_| no_key())?;
            let share = [public.as_ref(), classical.public.as_ref()].concat();
            Ok(Arc::new(KemPair { private, share, classical }))
        };
        of_thread(&MLKEM768_PAIR, made)
    }
}

impl SupportedKxGroup for Hybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(HybridExchange(Self::pair()?)))
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

struct HybridExchange(Arc<KemPair>);

impl ActiveKeyExchange for HybridExchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let at = peer.len().checked_sub(X25519_SHARE).ok_or_else(wrong_share)?;
        let (ciphertext, classical) = peer.split_at(at);
        let quantum = self.0.private.decapsulate(ciphertext.into()).map_err(|_| wrong_share())?;
        agree(&self.0.classical.private, classical, |classical| {
            SharedSecret::from([quantum.as_ref(), classical].concat())
        })
    }

    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((NamedGroup::X25519, self.0.classical.public.as_ref()))
    }

    fn complete_hybrid_component(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        agree(&self.0.classical.private, peer, |secret| SharedSecret::from(secret))
    }

    fn pub_key(&self) -> &[u8] {
        &self.0.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }
}

fn of_thread<T>(
    cell: &'static LocalKey<OnceCell<Arc<T>>>,
    make: impl FnOnce() -> Result<Arc<T>, Error>,
) -> Result<Arc<T>, Error> {
    cell.with(|cell| match cell.get() {
        Some(pair) => Ok(Arc::clone(pair)),
        None => {
            let pair = make()?;
            Ok(Arc::clone(cell.get_or_init(|| pair)))
        }
    })
}

/// What both sides share. `peer` is checked as TLS demands: of its curve, and uncompressed (RFC 8446 section 4.2.8.2).
fn agree<T>(own: &PrivateKey, peer: &[u8], secret: impl FnOnce(&[u8]) -> T) -> Result<T, Error> {
    let algorithm = own.algorithm();
    if *algorithm != agreement::X25519 && peer.first() != Some(&4) {
        return Err(wrong_share());
    }
    agreement::agree(own, UnparsedPublicKey::new(algorithm, peer), wrong_share(), |bytes| Ok(secret(bytes)))
}

fn no_key() -> Error {
    Error::General("no key pair can be made".into())
}

fn wrong_share() -> Error {
    PeerMisbehaved::InvalidKeyShare.into()
}
