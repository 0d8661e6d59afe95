//! Privileges of the processes of an isolated gateway: users, capabilities, and the coupling of their lifetimes.

use std::io::{self, Write};
use std::path::Path;
use std::{fmt, fs};

use brisk_sandbox::{Calls, Folders, keep_capabilities, look_up_user};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, getppid, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{CapabilitySet, capabilities, set_keep_capabilities, set_no_new_privs};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::error::IsolationError;

/// Exit status of a key process whose setup failed in a way that a restart cannot change, such as an unknown user.
pub(crate) const REFUSED: i32 = 3;

/// User of a key process started by root if the configuration names none: the overflow user of Linux, which owns no
/// files.
const OWNS_NOTHING: u32 = 65534;

/// Capability that a key process keeps, if it has it: `CAP_DAC_READ_SEARCH`, to read key files.
const TO_READ: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;

/// Capability that a gateway without root keeps: `CAP_NET_BIND_SERVICE`, to listen on ports below 1024 after a reload.
const TO_LISTEN: CapabilitySet = CapabilitySet::NET_BIND_SERVICE;

/// Remaining privileges of the gateway to read key files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The gateway runs as root and can read everything.
    Root,
    /// The gateway had capabilities or was root, and dropped them.
    GaveUp,
    /// The gateway has the permissions of its user only, which the key process has too.
    SameUser,
}

/// Whether this process may read files of others: as root, or by a capability other than [`TO_LISTEN`].
pub(crate) fn reads_files_of_others() -> io::Result<bool> {
    Ok(rustix::process::geteuid().is_root() || !TO_LISTEN.contains(capabilities(None)?.permitted))
}

/// Drops the gateway's capabilities except [`TO_LISTEN`], and prevents programs from regaining them. Must be called
/// while the process has one thread, after the keepers were started; `had_rights` is the result of
/// [`reads_files_of_others`] before. Changes nothing for root ([`Left::Root`]).
pub(crate) fn give_up(had_rights: bool) -> io::Result<Left> {
    if rustix::process::geteuid().is_root() {
        return Ok(Left::Root);
    }
    // The program's file may carry the capability, so `exec` must not grant it.
    set_no_new_privs(true)?;
    if !TO_LISTEN.contains(capabilities(None)?.permitted) {
        keep_capabilities(TO_LISTEN)?;
    }
    Ok(if had_rights { Left::GaveUp } else { Left::SameUser })
}

/// Writes a line to `stderr` if this does not block: the reader may be gone or stalled.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let mut stderr = io::stderr();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut line = format!("{line}\n").into_bytes();
    // A pipe that is writable has room for at least `PIPE_BUF`, 4096 bytes.
    line.truncate(4096);
    let has_room = {
        let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
        poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::OUT)
    };
    if has_room {
        let _ = stderr.write_all(&line);
    }
}

/// Returns [`IsolationError::Traced`] if a debugger is attached: it would see every key, and it keeps its access after
/// [`keep_memory_private`].
pub(crate) fn refuse_tracer() -> Result<(), IsolationError> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    match status.lines().find_map(|line| line.strip_prefix("TracerPid:")).map(str::trim) {
        None | Some("0") => Ok(()),
        Some(tracer) => Err(IsolationError::Traced { tracer: tracer.to_owned() }),
    }
}

/// Excludes the memory of the process from core dumps (`RLIMIT_CORE`) and from access by other processes of its user
/// (`PR_SET_DUMPABLE`). A refusal of the system is logged as a warning.
pub fn keep_memory_private() {
    let no_cores = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, no_cores) {
        tracing::warn!(%error, "core dumps stay allowed: they would hold private keys");
    }
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "other processes of this user may read the memory, with private keys in it");
    }
}

/// Ends this process by `SIGKILL` when its parent, which has this process id, ends. Returns
/// [`IsolationError::Orphan`] if the parent has ended already.
pub(crate) fn end_with(parent: u32) -> Result<(), IsolationError> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that ended before the call above causes no signal.
    if getppid().map(Pid::as_raw_pid) != i32::try_from(parent).ok() {
        return Err(IsolationError::Orphan);
    }
    Ok(())
}

/// Ignores signals that stop a gateway and may be sent to all its processes: the gateway needs the keys until the
/// drain has ended. The process ends when the gateway closes its end of the sockets. The [`Runtime`] must be kept.
pub(crate) fn outlive_signals() -> io::Result<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for kind in [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
            SignalKind::alarm(),
        ] {
            drop(signal(kind)?);
        }
        Ok::<_, io::Error>(())
    })?;
    Ok(runtime)
}

/// Locks all memory of this process, so that no key is swapped out. Requires an unlimited `RLIMIT_MEMLOCK`: later
/// allocations count too, and exceeding a limit would end the process.
pub(crate) fn lock_memory() -> Result<(), String> {
    let unlimited = Rlimit { current: None, maximum: None };
    // Root may raise the limit; for other users it is unchanged.
    let _ = setrlimit(Resource::Memlock, unlimited);
    if let Some(limit) = getrlimit(Resource::Memlock).current {
        return Err(format!(
            "the limit of locked memory is {limit} bytes and has to be none: LimitMEMLOCK=infinity for systemd, \
             or `ulimit -l unlimited`"
        ));
    }
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    mlockall(flags).map_err(|error| io::Error::from(error).to_string())
}

/// Changes to `user`, or to a user without files if this is root and none is given, and keeps at most the capability
/// to read files. Must be called while the process has one thread.
pub(crate) fn drop_to(user: Option<&str>) -> Result<(), IsolationError> {
    let is_root = Uid::effective().is_root();
    let wanted = match user {
        Some(name) => Some(look_up_user(name).map(|user| (user.uid, user.gid))?),
        None => is_root.then_some((Uid::from_raw(OWNS_NOTHING), Gid::from_raw(OWNS_NOTHING))),
    };
    if let Some((user, group)) = wanted {
        // Otherwise the change from root to another user clears the permitted capabilities (capabilities(7)).
        set_keep_capabilities(true)?;
        become_user(user, group).map_err(|source| IsolationError::User { user: user.as_raw(), source })?;
    }
    // After the change of the user, which makes capabilities ineffective.
    keep_capabilities(TO_READ)?;
    set_no_new_privs(true)?;
    Ok(())
}

/// Limits the key process to reading files and to [`Calls::Server`], or with a GPU only to [`Calls::Hardware`]. Limits that the
/// kernel lacks are logged. To be called once, when the engines run ([`Operations`](crate::Operations)).
pub(crate) fn confine(drives_gpu: bool) {
    // The files of a later configuration may be anywhere: the user of the process limits them.
    let mut folders = Folders::default();
    folders.read_folder(Path::new("/"));
    let (folders, calls) = if drives_gpu { (None, Calls::Hardware) } else { (Some(&folders), Calls::Server) };
    for missing in brisk_sandbox::confine(folders, calls).missing {
        tracing::warn!("the sandbox of the key process is incomplete: {missing}");
    }
}

/// Without the other groups of the user, unlike a gateway: the group of the user is enough for files of keys.
fn become_user(user: Uid, group: Gid) -> nix::Result<()> {
    if Uid::current() == user && Uid::effective() == user {
        return Ok(());
    }
    // Groups first: `setuid` clears the effective capability to change them.
    setgroups(&[group])?;
    setgid(group)?;
    setuid(user)
}
