//! Cost of a batch on this processor: the number of operations from which lanes are faster.

use std::{
    hint::black_box,
    sync::OnceLock,
    time::{Duration, Instant},
};

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair},
};

use super::{Exchange, KeyPair, LANES, PreparedKey, Signing, are_supported};

/// Numbers of operations from which lanes take less time than single operations with AWS-LC. Measured once, in about
/// ten milliseconds. They depend on the number of multiplication units of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanesUse {
    /// Exchanges of X25519. More than eight: lanes are never worth it.
    pub exchanges: usize,
    /// Signatures with P-256; more than eight: lanes are never worth it.
    pub signatures: usize,
}

/// Runs of a measurement; the shortest counts, since disturbances only make a run longer.
const RUNS: usize = 12;

impl LanesUse {
    /// The numbers for this processor. `None` if it has no lanes, or if random numbers for the measurement are
    /// unavailable.
    pub fn of_this_processor() -> Option<Self> {
        static MEASURED: OnceLock<Option<LanesUse>> = OnceLock::new();
        *MEASURED.get_or_init(|| if are_supported() { Self::measure() } else { None })
    }

    /// Whether lanes are ever worth it.
    pub const fn is_any(self) -> bool {
        self.exchanges <= LANES || self.signatures <= LANES
    }

    fn measure() -> Option<Self> {
        let pairs = KeyPair::generate_eight()?;
        let peer = *pairs[0].public();
        let mut exchanges = pairs.map(|pair| pair.exchange(&peer));
        let one = best(|| exchanges[0].perform());
        let eight = best(|| Exchange::perform_together(&mut exchanges));
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).ok()?;
        let key = PreparedKey::of_pair(&pair)?;
        let operations = [Signing { key: &key, digest: [1; 32] }; LANES];
        let one_signature = best(|| {
            let _ = black_box(pair.sign(&SystemRandom::new(), &[1; 32]));
        });
        let eight_signatures = best(|| {
            black_box(super::sign(&operations));
        });
        Some(Self {
            exchanges: break_even(one, eight),
            signatures: break_even(one_signature, eight_signatures),
        })
    }
}

/// The shortest of some runs.
pub(crate) fn best(mut run: impl FnMut()) -> Duration {
    let times = [(); RUNS].map(|()| {
        let began = Instant::now();
        run();
        began.elapsed()
    });
    times.into_iter().min().unwrap_or_default()
}

/// The least number of operations whose time one by one is more than that of a batch.
fn break_even(one: Duration, batch: Duration) -> usize {
    (batch.as_nanos() / one.as_nanos().max(1)) as usize + 1
}
