//! Descriptors that a supervisor passes to the process by the protocol of socket activation, `sd_listen_fds(3)`.
//!
//! `CONTRIBUTING.md` lists the files with `unsafe` code.

#![expect(unsafe_code, reason = "a descriptor that comes with the process is known by its number only")]

use std::env;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::process;

use crate::environment::{LISTEN_FDNAMES, LISTEN_FDS, LISTEN_PID, is_supervised};

/// The number of the first descriptor, `SD_LISTEN_FDS_START`.
const FIRST: RawFd = 3;

/// A descriptor that was passed to this process.
#[derive(Debug)]
pub struct Passed {
    /// Number at which it was passed.
    pub number: RawFd,
    /// Name from `LISTEN_FDNAMES`; empty without one.
    pub name: String,
    /// The descriptor.
    pub descriptor: OwnedFd,
}

/// Takes the descriptors that `LISTEN_FDS` announces for this process. A second call returns none.
///
/// They are for this process if `LISTEN_PID` is its id, or if its parent is a supervisor ([`is_supervised`]). The descriptors are
/// marked to be closed on `exec`. The variables are kept: in a child process, both conditions are false.
pub fn take() -> Vec<Passed> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let (id, count, names) = (variable(LISTEN_PID), variable(LISTEN_FDS), variable(LISTEN_FDNAMES));
    let is_supervised = is_supervised();
    if (id.is_empty() && !is_supervised) || count.is_empty() {
        return Vec::new();
    }
    if !is_supervised && id.parse() != Ok(process::id()) {
        tracing::debug!(LISTEN_PID = id, "the sockets of the environment are for another process");
        return Vec::new();
    }
    let Ok(count) = count.parse::<u16>() else {
        tracing::warn!(LISTEN_FDS = count, "not a number of descriptors: no socket is inherited");
        return Vec::new();
    };
    let mut names = names.split(':');
    let mut passed = Vec::new();
    for number in (FIRST..).take(count.into()) {
        let name = names.next().unwrap_or_default().to_owned();
        match own(number) {
            Ok(descriptor) => passed.push(Passed { number, name, descriptor }),
            Err(error) => tracing::warn!(descriptor = number, name, %error, "announced, but not inherited"),
        }
    }
    passed
}

/// Takes ownership of an inherited descriptor and marks it with `FD_CLOEXEC`.
fn own(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: without a pointer among its arguments the call touches no memory, whatever the number.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // A descriptor that survived `exec` cannot have the flag, so this one was opened by the process itself.
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::other("it was opened by this process"));
    }
    // SAFETY: as above.
    if unsafe { libc::fcntl(number, libc::F_SETFD, flags | libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open. It came with the process, since it survived an `exec`, and all that Rust's libraries
    // open does not. No value owns it yet: taking it here sets the flag that refuses it above.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_descriptor_of_this_process_is_not_taken() {
        let file = File::open("/dev/null").expect("a file");
        let error = own(file.as_raw_fd()).expect_err("opened here");
        assert!(error.to_string().contains("opened by this process"), "{error}");
        let error = own(RawFd::MAX).expect_err("not open");
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}
