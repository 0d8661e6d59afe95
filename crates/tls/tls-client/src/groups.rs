//! Key exchange groups whose key pairs serve more than one handshake.
//!
//! A load generator makes thousands of handshakes per second from one process, and should cost less than the server.
//! The server's computation does not depend on the client's key, and its own share is new each time.

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

/// Supported groups, in order of preference.
const FRESH: [&dyn SupportedKxGroup; 6] = [
    kx_group::X25519MLKEM768,
    kx_group::X25519,
    kx_group::SECP256R1,
    kx_group::SECP384R1,
    kx_group::SECP256R1MLKEM768,
    kx_group::MLKEM768,
];

/// Number of groups in [`FRESH`] that are offered by default.
const OFFERED: usize = 4;

const REUSED: [&dyn SupportedKxGroup; 4] = [&X25519MLKEM768, &X25519, &SECP256R1, &SECP384R1];

const UNIT: [&dyn SupportedKxGroup; 2] = [&UNIT_X25519, &UNIT_SECP256R1];

// Per thread, so that the threads of a load generator share neither a lock nor a cache line.
thread_local! {
    static X25519_PAIR: OnceCell<Arc<KeyPair>> = const { OnceCell::new() };
    static SECP256R1_PAIR: OnceCell<Arc<KeyPair>> = const { OnceCell::new() };
    static SECP384R1_PAIR: OnceCell<Arc<KeyPair>> = const { OnceCell::new() };
    static MLKEM768_PAIR: OnceCell<Arc<KemPair>> = const { OnceCell::new() };
}

/// The groups with these code points. A group that does not support `shares` uses the next best of [`KeyShares`]. `None` if a
/// group is unknown.
pub(super) fn groups(names: &[u16], shares: KeyShares) -> Option<Vec<&'static dyn SupportedKxGroup>> {
    let group = |name: NamedGroup| {
        let unit = UNIT.iter().filter(|_| shares == KeyShares::Unit);
        let reused = REUSED.iter().filter(|_| shares != KeyShares::Fresh);
        unit.chain(reused).chain(&FRESH).find(|group| group.name() == name).copied()
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

/// A curve with one [`KeyPair`] per thread, for [`KeyShares::Reused`].
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

/// Length of an X25519 share in bytes (RFC 7748 section 5).
const X25519_SHARE: usize = 32;

/// X25519MLKEM768 (draft-ietf-tls-ecdhe-mlkem section 4): in shares and in the secret, ML-KEM precedes X25519.
#[derive(Debug)]
struct Hybrid;

/// An ML-KEM key pair, and its share together with this thread's X25519 pair.
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
        // rustls sends this part as a second share, so a server without ML-KEM needs no
        // `HelloRetryRequest`.
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

static UNIT_X25519: Unit = Unit { name: NamedGroup::X25519, generator: &X25519_GENERATOR };
static UNIT_SECP256R1: Unit = Unit { name: NamedGroup::secp256r1, generator: &SECP256R1_GENERATOR };

/// RFC 7748 section 4.1: u = 9, little-endian.
const X25519_GENERATOR: [u8; X25519_SHARE] = {
    let mut generator = [0; X25519_SHARE];
    generator[0] = 9;
    generator
};

/// SEC 2 section 2.4.2, uncompressed.
const SECP256R1_GENERATOR: [u8; 65] = [
    0x04, 0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40, 0xf2,
    0x77, 0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2, 0x96, 0x4f,
    0xe3, 0x42, 0xe2, 0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e, 0x16, 0x2b, 0xce,
    0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51, 0xf5,
];

/// A curve with the private key 1, for [`KeyShares::Unit`]. Only the length of the server's share is checked.
#[derive(Debug)]
struct Unit {
    name: NamedGroup,
    generator: &'static [u8],
}

impl SupportedKxGroup for Unit {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(UnitExchange { name: self.name, generator: self.generator }))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        self.name
    }
}

struct UnitExchange {
    name: NamedGroup,
    generator: &'static [u8],
}

impl ActiveKeyExchange for UnitExchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        if peer.len() != self.generator.len() {
            return Err(wrong_share());
        }
        // On a NIST curve, with uncompressed points, the secret is the first coordinate (RFC 8446 section 7.4.2).
        Ok(SharedSecret::from(match peer {
            [4, point @ ..] if peer.len() % 2 == 1 => &point[..point.len() / 2],
            u => u,
        }))
    }

    fn pub_key(&self) -> &[u8] {
        self.generator
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        self.name
    }
}

fn of_thread<T>(
    cell: &'static LocalKey<OnceCell<Arc<T>>>,
    make: impl FnOnce() -> Result<Arc<T>, Error>,
) -> Result<Arc<T>, Error> {
    cell.with(|cell| {
        // `OnceCell::get_or_try_init` is not stable yet.
        if cell.get().is_none() {
            let _ = cell.set(make()?);
        }
        cell.get().map(Arc::clone).ok_or_else(no_key)
    })
}

/// The shared secret. `peer` must be an uncompressed point of the curve (RFC 8446 section 4.2.8.2).
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
