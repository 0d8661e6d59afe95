//! A setting of glibc that has to be made before the program starts.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Copies with vector registers at any length. glibc before 2.41 uses `rep movsb` above 8 KiB, which takes up to three times
/// as long on AMD Zen 3 and 4 if source and destination are aligned differently, as the plaintext and the ciphertext of a
/// TLS record always are. Without this setting large bodies cost a quarter (HTTP/1.1) to two fifths (HTTP/2) more. A larger
/// threshold costs nothing, because copies of the length of a record stay in the cache.
const VECTOR_COPIES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=0x40000000");

/// Marks the restarted program. Required because programs with file capabilities do not see `GLIBC_TUNABLES`, and would
/// restart themselves endlessly.
const STARTED_ANEW: &str = "BRISK_STARTED_ANEW";

/// Replaces the process by the same program with [`VECTOR_COPIES`] set. Returns if it is already set, if the operator has
/// set `GLIBC_TUNABLES`, or on failure.
pub(crate) fn c_library() {
    let (name, value) = VECTOR_COPIES;
    let made = [name, STARTED_ANEW].into_iter().any(|name| env::var_os(name).is_some());
    if made || cfg!(not(all(target_env = "gnu", target_arch = "x86_64"))) {
        return;
    }
    // Not the first argument, which the caller chooses and which may name another program.
    let Ok(program) = env::current_exe() else { return };
    let error =
        Command::new(program).args(env::args_os().skip(1)).env(name, value).env(STARTED_ANEW, "1").exec();
    eprintln!("cannot start anew with {name}={value}, so large bodies may cost more: {error}");
}
