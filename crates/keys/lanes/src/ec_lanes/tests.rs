//! Lanes beside aws-lc and published vectors: those of this processor where it has them, and the portable ones.

pub(super) mod arithmetic;
mod ecdsa;
mod montgomery;

use std::sync::LazyLock;

use super::*;
use portable::Portable;

/// Operations of each kind: as many as all fills from 1 to 64 have together.
const SOME: usize = 2_080;

/// Operations of each kind in tests that take a minute, in a release build.
const MANY: usize = 100_000;

type Batch = [[u8; 32]; LANES];

/// The operations, by some lanes.
struct Path {
    name: &'static str,
    exchange: fn(&[Batch], &[Batch], &mut [Batch]),
    public_keys: fn(&[Batch], &mut [Batch]),
    sign: fn(&[Signing<'_>], &[p256::WideNonce], &mut [Option<Signature>]),
}

static PORTABLE_TABLES: LazyLock<(keygen::Table, p256::Table)> =
    LazyLock::new(|| (keygen::Table::compute::<Portable>(), p256::Table::compute::<Portable>()));

/// The portable lanes, and those of this processor where it has them.
fn paths() -> Vec<Path> {
    let portable = Path {
        name: "portable",
        exchange: x25519::exchange::<Portable>,
        public_keys: |secrets, public| {
            keygen::public_keys::<Portable>(&PORTABLE_TABLES.0, secrets, public);
        },
        sign: |operations, nonces, signatures| {
            p256::sign::<Portable>(&PORTABLE_TABLES.1, operations, nonces, signatures);
        },
    };
    let own = Path { name: "this processor's", exchange, public_keys, sign: sign_with };
    if are_supported() { vec![portable, own] } else { vec![portable] }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).expect("randomness");
    bytes
}

fn hex(text: &str) -> [u8; 32] {
    std::array::from_fn(|byte| u8::from_str_radix(&text[2 * byte..2 * byte + 2], 16).expect("hexadecimal"))
}
