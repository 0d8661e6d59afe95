//! Settings of the C library and of the allocator that can only be made before a program starts.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Copies with vector registers at any length. glibc before 2.41 turns to `rep movsb` above 8 KiB, which on AMD's Zen 3
/// and 4 takes up to three times as long whenever source and destination are aligned differently, as the plaintext and
/// the ciphertext of a TLS record always are: without this, large bodies cost a quarter (HTTP/1.1) to two fifths (HTTP/2)
/// more. A larger threshold harms nobody: copies of the length of a record are in the cache.
const VECTOR_COPIES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=0x40000000");

/// The allocator's setting for how long freed memory is kept, in milliseconds. Its default purges only while it is being
/// used, so that a worker that has gone idle after a burst keeps the burst's memory; at 0 it goes back at once. No cost
/// per request could be measured.
const PURGE: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "0");

/// Starts the program anew, as the same process, with the settings; returns if they are made already, or cannot be.
/// An operator's own values are left alone.
pub(crate) fn environment() {
    let missing: Vec<_> = [VECTOR_COPIES, PURGE].into_iter().filter(|(name, _)| env::var_os(name).is_none()).collect();
    let Ok(program) = env::current_exe() else { return };
    if missing.is_empty() {
        return;
    }
    let error = Command::new(program).args(env::args_os().skip(1)).envs(missing.iter().copied()).exec();
    eprintln!("cannot start anew with {missing:?}, so large bodies may cost more: {error}");
}
