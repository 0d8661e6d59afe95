//! A setting of the C library that can only be made before a program starts.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Copies with vector registers at any length. glibc before 2.41 turns to `rep movsb` above 8 KiB, which on AMD's Zen 3
/// and 4 takes up to three times as long whenever source and destination are aligned differently, as the plaintext and
/// the ciphertext of a TLS record always are: without this, large bodies cost a quarter (HTTP/1.1) to two fifths (HTTP/2)
/// more. A larger threshold costs nothing: copies of the length of a record are in the cache.
const VECTOR_COPIES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=0x40000000");

/// Set for the program that is started anew: a program with file capabilities does not see `GLIBC_TUNABLES`, and would
/// start itself again and again.
const STARTED_ANEW: &str = "BRISK_STARTED_ANEW";

/// Starts the program anew, as the same process, with the setting; returns if it is made already, or cannot be.
/// An operator's own `GLIBC_TUNABLES` are left alone.
pub(crate) fn c_library() {
    let (name, value) = VECTOR_COPIES;
    let made = [name, STARTED_ANEW].into_iter().any(|name| env::var_os(name).is_some());
    if made || cfg!(not(all(target_env = "gnu", target_arch = "x86_64"))) {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let error =
        Command::new(program).args(env::args_os().skip(1)).env(name, value).env(STARTED_ANEW, "1").exec();
    eprintln!("cannot start anew with {name}={value}, so large bodies may cost more: {error}");
}
