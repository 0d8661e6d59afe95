//! X25519 and ECDSA with P-256, eight at a time in vector registers of AVX-512 IFMA.
//!
//! A batch of eight is computed side by side, each operation in its own 64-bit lane. Its steps do not depend on the
//! contents of the lanes: there is no branch, no address and no instruction of variable time that depends on a
//! secret, and a table is read with all its entries in registers. A batch takes the same time however full it is,
//! about as long as one or two single operations; `LanesUse` measures from which number of operations it is faster. Up
//! to 64 operations share the inversions at their ends.
//!
//! | file | content |
//! |---|---|
//! | `field25519`, `x25519`, `keygen` | the field, the exchange, public keys |
//! | `table` | multiples of the base points: generation and lookup |
//! | `p256/words`, `field`, `curve` | numbers, both fields, multiples of the base point |
//! | `p256` | signatures: nonces, checks |
//! | `ifma`, `portable` | the lanes; the latter for tests |
//! | `calibration` | cost of a batch on this processor |
//!
//! The arithmetic is generic over the lanes and always inlined into functions with the instructions enabled. No
//! closure or iterator adapter handles lanes, since the compiler makes them separate functions without the
//! instructions. `make kernels` checks in the machine code that none remains, that branches depend on counters only,
//! and that no gather instruction reads memory.
#![expect(clippy::many_single_char_names, reason = "formulas have the names that they have in print")]
#![expect(
    clippy::inline_always,
    clippy::needless_range_loop,
    reason = "what is not inlined into a function with the features enabled does without the instructions, closures least of all"
)]

mod aws_lc;
mod calibration;
mod field25519;
#[cfg(target_arch = "x86_64")]
mod ifma;
mod keygen;
mod lanes;
mod p256;
#[cfg(any(test, feature = "testing"))]
mod portable;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod timing;
mod x25519;

use std::sync::LazyLock;

use aws_lc_rs::rand;
use zeroize::{Zeroize, Zeroizing};

pub use calibration::LanesUse;
pub(crate) use calibration::best;
pub use p256::{PreparedKey, Signature, Signing};

use crate::processor::scrub_stack;
pub use lanes::LANES;

/// Batches that share an inversion.
const BATCHES: usize = 8;

/// Most operations that are performed together.
pub const TOGETHER: usize = BATCHES * LANES;

/// What is secret of a key pair and of its exchange. It lies on the heap until it is wiped there: moving an array would
/// leave a copy behind.
#[derive(Default)]
struct Secrets {
    scalar: [u8; 32],
    shared: [u8; 32],
}

impl Drop for Secrets {
    fn drop(&mut self) {
        self.scalar.zeroize();
        self.shared.zeroize();
    }
}

/// A key pair of X25519 for one exchange. Its `Debug` shows nothing, and it is wiped when dropped.
pub struct KeyPair {
    secrets: Box<Secrets>,
    public: [u8; 32],
}

impl KeyPair {
    /// A pair, made by aws-lc. `None` where there is no randomness.
    pub fn generate() -> Option<Self> {
        let mut secrets = Box::<Secrets>::default();
        rand::fill(&mut secrets.scalar).ok()?;
        let public = aws_lc::public_key(&secrets.scalar);
        Some(Self { secrets, public })
    }

    /// Eight pairs, made in lanes in about the time of one. `None` where there is no randomness.
    ///
    /// # Panics
    ///
    /// Where [`LanesUse::of_this_processor`] is `None`.
    pub fn generate_eight() -> Option<[Self; LANES]> {
        let mut scalars = Zeroizing::new([[0; 32]; LANES]);
        rand::fill(scalars.as_flattened_mut()).ok()?;
        let mut public = [[0; 32]; LANES];
        public_keys(std::slice::from_ref(&*scalars), std::slice::from_mut(&mut public));
        let pairs = std::array::from_fn(|pair| {
            let mut secrets = Box::<Secrets>::default();
            secrets.scalar.copy_from_slice(&scalars[pair]);
            Self { secrets, public: public[pair] }
        });
        scrub_stack::<{ 16 * 1024 }>();
        Some(pairs)
    }

    /// The public key, as it stands in a key share.
    pub const fn public(&self) -> &[u8; 32] {
        &self.public
    }

    /// The exchange with a peer's public key, yet to be performed.
    pub fn exchange(self, peer: &[u8; 32]) -> Exchange {
        Exchange { secrets: self.secrets, peer: *peer }
    }
}

/// An exchange of X25519. Wiped when dropped.
pub struct Exchange {
    secrets: Box<Secrets>,
    peer: [u8; 32],
}

impl Exchange {
    /// Performs it with aws-lc.
    pub fn perform(&mut self) {
        let Secrets { scalar, shared } = &mut *self.secrets;
        aws_lc::exchange(scalar, &self.peer, shared);
    }

    /// Performs all of them, in lanes where that takes less time than one by one. Returns how many were in lanes.
    pub fn perform_all(exchanges: &mut [Self]) -> usize {
        let break_even = LanesUse::of_this_processor().map_or(usize::MAX, |lanes| lanes.exchanges);
        let (in_lanes, alone) = exchanges.split_at_mut(worth_lanes(exchanges.len(), break_even));
        alone.iter_mut().for_each(Self::perform);
        if !in_lanes.is_empty() {
            Self::perform_together(in_lanes);
        }
        in_lanes.len()
    }

    /// Performs some in lanes, 64 at a time.
    ///
    /// # Panics
    ///
    /// Where [`LanesUse::of_this_processor`] is `None`.
    pub fn perform_together(exchanges: &mut [Self]) {
        for together in exchanges.chunks_mut(TOGETHER) {
            perform_exchanges(together);
        }
        scrub_stack::<{ 16 * 1024 }>();
    }

    /// The shared secret once it was performed. `None` if the peer's key is of small order, which RFC 8446 section 7.4.2 has
    /// refused.
    pub fn shared(&self) -> Option<&[u8; 32]> {
        let shared = &self.secrets.shared;
        let sum = shared.iter().fold(0, |sum, byte| sum | byte);
        (sum != 0).then_some(shared)
    }
}

/// How many of `operations` are performed in lanes: full batches where these are worth it, and the rest where it is
/// enough.
pub const fn worth_lanes(operations: usize, break_even: usize) -> usize {
    let rest = operations % LANES;
    match (break_even <= LANES, rest >= break_even) {
        (false, _) => 0,
        (true, true) => operations,
        (true, false) => operations - rest,
    }
}

/// At most [`TOGETHER`].
fn perform_exchanges(exchanges: &mut [Exchange]) {
    let batches = exchanges.len().div_ceil(LANES);
    let mut secrets = Zeroizing::new([[[0; 32]; LANES]; BATCHES]);
    // `*secrets` is still zero here, so this copies no secret.
    let (mut points, mut shared) = (*secrets, Zeroizing::new([[[0; 32]; LANES]; BATCHES]));
    for (exchange, (secret, point)) in
        exchanges.iter().zip(secrets.as_flattened_mut().iter_mut().zip(points.as_flattened_mut()))
    {
        secret.copy_from_slice(&exchange.secrets.scalar);
        *point = exchange.peer;
    }
    exchange(&secrets[..batches], &points[..batches], &mut shared[..batches]);
    for (exchange, result) in exchanges.iter_mut().zip(shared.as_flattened()) {
        exchange.secrets.shared.copy_from_slice(result);
    }
}

/// Makes signatures in lanes, at most [`TOGETHER`]; `None` for one that has to be made by other means, because there was no
/// randomness or it did not stand its check.
///
/// # Panics
///
/// Where [`LanesUse::of_this_processor`] is `None`.
pub fn sign(operations: &[Signing<'_>]) -> [Option<Signature>; TOGETHER] {
    let mut signatures = [None; TOGETHER];
    if let Some(nonces) = p256::nonces(operations)
        && !operations.is_empty()
    {
        sign_with(operations, &nonces, &mut signatures[..operations.len()]);
        scrub_stack::<{ 40 * 1024 }>();
    }
    signatures
}

/// Whether this processor has what the lanes are made of.
pub fn are_supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    return crate::processor::has_ifma();
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Public multiples of both base points.
struct Tables {
    x25519: keygen::Table,
    p256: p256::Table,
}

/// Computed when they are first used, in a few milliseconds.
static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    #[cfg(any(test, feature = "testing"))]
    if !are_supported() {
        return Tables {
            x25519: keygen::Table::compute::<portable::Portable>(),
            p256: p256::Table::compute::<portable::Portable>(),
        };
    }
    #[cfg(target_arch = "x86_64")]
    return Tables { x25519: ifma::keygen_table(), p256: ifma::p256_table() };
    #[cfg(not(target_arch = "x86_64"))]
    panic!("this processor has no AVX-512 IFMA");
});

fn exchange(secrets: &[[[u8; 32]; LANES]], points: &[[[u8; 32]; LANES]], shared: &mut [[[u8; 32]; LANES]]) {
    #[cfg(any(test, feature = "testing"))]
    if !are_supported() {
        return x25519::exchange::<portable::Portable>(secrets, points, shared);
    }
    #[cfg(target_arch = "x86_64")]
    ifma::exchange(secrets, points, shared);
    #[cfg(not(target_arch = "x86_64"))]
    panic!("this processor has no AVX-512 IFMA");
}

fn public_keys(secrets: &[[[u8; 32]; LANES]], public: &mut [[[u8; 32]; LANES]]) {
    #[cfg(any(test, feature = "testing"))]
    if !are_supported() {
        return keygen::public_keys::<portable::Portable>(&TABLES.x25519, secrets, public);
    }
    #[cfg(target_arch = "x86_64")]
    ifma::public_keys(&TABLES.x25519, secrets, public);
    #[cfg(not(target_arch = "x86_64"))]
    panic!("this processor has no AVX-512 IFMA");
}

fn sign_with(operations: &[Signing<'_>], nonces: &[p256::WideNonce], signatures: &mut [Option<Signature>]) {
    #[cfg(any(test, feature = "testing"))]
    if !are_supported() {
        return p256::sign::<portable::Portable>(&TABLES.p256, operations, nonces, signatures);
    }
    #[cfg(target_arch = "x86_64")]
    ifma::sign(&TABLES.p256, operations, nonces, signatures);
    #[cfg(not(target_arch = "x86_64"))]
    panic!("this processor has no AVX-512 IFMA");
}
