//! Common parts of all code in vector lanes: detection of instructions, and wiping of stack and registers.

use std::hint::black_box;

/// Whether this processor has AVX-512F and IFMA: eight lanes of 64 bits, and the multiplication of 52 bits in each.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_ifma() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512ifma")
}

/// Whether this processor has AVX2 and FMA: four lanes of 64 bits, and floating-point products without rounding between the steps.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_fma() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

/// Whether this processor has AVX-512F and AVX-512DQ too: the same in eight lanes.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_fma_512() -> bool {
    has_fma() && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq")
}

/// Overwrites `BYTES` of the stack used by functions that have just returned: their spilled registers.
///
/// `make check-kernels` verifies in the machine code that kernels use at most this much and that it is wiped.
/// `memset` writes the zeroes; `zeroize` would write single bytes, which took a third of the time of a batch of the
/// curves.
#[inline(never)]
pub(crate) fn scrub_stack<const BYTES: usize>() {
    black_box(&mut [0u8; BYTES]);
}
