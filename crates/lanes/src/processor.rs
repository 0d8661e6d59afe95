//! What all code in vector lanes shares: whether the processor has the instructions, and the wiping of what they leave.

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

/// Overwrites `BYTES` of what the functions that have just returned left on the stack: their spilled registers.
///
/// Of kernels, `make check-kernels` reads from the machine code that this is as much as they use, and that it is done.
/// Zeroes are written by `memset`; `zeroize` would write them byte by byte, which took a third of a batch of the curves.
#[inline(never)]
pub(crate) fn scrub_stack<const BYTES: usize>() {
    black_box(&mut [0u8; BYTES]);
}
