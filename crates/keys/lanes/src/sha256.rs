//! Block function of SHA-256 by AWS-LC. Without the processor's SHA instructions, its AVX code needs about 0.6 of the time of
//! portable code.
#![expect(unsafe_code, reason = "aws-lc-rs has no binding for the block function")]

use aws_lc_sys as ffi;

/// Size of a block in bytes.
pub const BLOCK: usize = 64;

/// Compresses `blocks` into `state` (FIPS 180-4 section 6.2.2).
pub fn compress(state: &mut [u32; 8], blocks: &[[u8; BLOCK]]) {
    // SAFETY: `state` has eight words, and `blocks` as many blocks of 64 bytes as stated. The function keeps no pointer.
    unsafe {
        ffi::SHA256_TransformBlocks(state.as_mut_ptr(), blocks.as_ptr().cast(), blocks.len());
    }
}
