//! X25519 by aws-lc, one exchange at a time.
//!
//! aws-lc-rs makes a key of given bytes only by computing its public half again, which costs a third of an exchange; so this
//! file calls the C library itself.
#![expect(unsafe_code, reason = "aws-lc-rs has no safe binding for an exchange alone")]

use aws_lc_sys as ffi;

use crate::processor::scrub_stack;

/// Wiped after each call. Some of aws-lc's ladders leave a copy of the secret on the stack, in less than 1 KiB.
const STACK: usize = 2048;

/// Computes the shared secret; zeroes if `point` is of small order.
pub(super) fn exchange(secret: &[u8; 32], point: &[u8; 32], shared: &mut [u8; 32]) {
    // SAFETY: three arrays of 32 bytes, the first of which is written. The return value reports whether the result is
    // zero, which is in `shared` too.
    unsafe { ffi::X25519(shared.as_mut_ptr(), secret.as_ptr(), point.as_ptr()) };
    scrub_stack::<STACK>();
}

/// The public key of a secret.
pub(super) fn public_key(secret: &[u8; 32]) -> [u8; 32] {
    let mut public = [0; 32];
    // SAFETY: two arrays of 32 bytes, the first of which is written.
    unsafe { ffi::X25519_public_from_private(public.as_mut_ptr(), secret.as_ptr()) };
    scrub_stack::<STACK>();
    public
}
