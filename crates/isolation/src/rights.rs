//! What the processes of an isolated gateway may do: which user they are, which capabilities they keep, and with whom they end.

use std::io::{self, Write};
use std::{fmt, fs};

use nix::unistd::{Gid, Uid, User, setgid, setgroups, setuid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, getppid, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities, set_no_new_privs,
};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::error::IsolationError;

/// The exit status of a key process that cannot become what it should be: another attempt would end the same way.
pub(crate) const REFUSED: i32 = 3;

/// Who a key process of root becomes where the configuration names no user: the one that Linux shows in the place of users that it
/// cannot show. It owns no file.
const OWNS_NOTHING: u32 = 65534;

/// What a key process keeps, if it has it: to read the files of keys.
const TO_READ: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;

/// All that a gateway keeps that is not root: to listen on ports below 1024.
const TO_LISTEN: CapabilitySet = CapabilitySet::NET_BIND_SERVICE;

/// Whether the gateway still may read the files of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It is root, which may read everything.
    Root,
    /// It had rights beyond those of its user, and gave them up.
    GaveUp,
    /// It has the rights of its user, which are those of the key process too.
    SameUser,
}

/// Has the gateway give up what lets it read files of others, and no program give it back. To be called while it has one thread, and
/// after the keeper was started.
pub(crate) fn give_up() -> io::Result<Left> {
    if rustix::process::geteuid().is_root() {
        return Ok(Left::Root);
    }
    // The file of the program may have the capability.
    set_no_new_privs(true)?;
    let before = capabilities(None)?;
    if TO_LISTEN.contains(before.permitted) {
        return Ok(Left::SameUser);
    }
    let kept = |set: CapabilitySet| set.intersection(TO_LISTEN);
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept(before.effective),
            permitted: kept(before.permitted),
            inheritable: kept(before.inheritable),
        },
    )?;
    Ok(Left::GaveUp)
}

/// Writes a line to standard error if there is room for it: its reader may be gone, or not read.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let mut stderr = io::stderr();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut line = format!("{line}\n").into_bytes();
    // A pipe that can be written to has room for as much.
    line.truncate(4096);
    let has_room = {
        let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
        poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::OUT)
    };
    if has_room {
        let _ = stderr.write_all(&line);
    }
}

/// Refuses to be looked into: a process that is traced already would show its tracer every key.
pub(crate) fn refuse_tracer() -> Result<(), IsolationError> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    match status.lines().find_map(|line| line.strip_prefix("TracerPid:")).map(str::trim) {
        None | Some("0") => Ok(()),
        Some(tracer) => Err(IsolationError::Traced { tracer: tracer.to_owned() }),
    }
}

/// Keeps the private keys of a process that has nothing else out of core dumps, and its memory from other processes of its user.
/// Where the system refuses, that is a warning.
pub fn keep_memory_private() {
    let no_cores = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, no_cores) {
        tracing::warn!(%error, "core dumps stay allowed: they would hold private keys");
    }
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "other processes of this user may read the memory, with private keys in it");
    }
}

/// Ends this process as soon as its parent, which has this number, ends.
pub(crate) fn end_with(parent: u32) -> Result<(), IsolationError> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().map(Pid::as_raw_pid) != i32::try_from(parent).ok() {
        return Err(IsolationError::Orphan);
    }
    Ok(())
}

/// Outlives the signals that stop a gateway, which may come to all its processes: it needs its keys until the drain has ended. The
/// process ends when the gateway closes its end of the sockets.
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
        ] {
            drop(signal(kind)?);
        }
        Ok::<_, io::Error>(())
    })?;
    Ok(runtime)
}

/// Locks all memory of this process, so that no key comes to a swap device. Only without a limit: memory that is wanted later
/// counts as well, and a limit would end the process then.
pub(crate) fn lock_memory() -> Result<(), String> {
    let unlimited = Rlimit { current: None, maximum: None };
    // Root may; for others the limit stays what it is.
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

/// Becomes `user`, or one that owns nothing if this is root and no user is named, and keeps the right to read files at most. To be
/// called while the process has one thread.
pub(crate) fn drop_to(user: Option<&str>) -> Result<(), IsolationError> {
    let is_root = Uid::effective().is_root();
    let kept = capabilities(None)?.permitted.intersection(TO_READ);
    let wanted = match user {
        Some(name) => Some(look_up(name)?),
        None => is_root.then_some((Uid::from_raw(OWNS_NOTHING), Gid::from_raw(OWNS_NOTHING))),
    };
    if let Some((user, group)) = wanted {
        set_keep_capabilities(true)?;
        become_user(user, group).map_err(|source| IsolationError::User { user: user.as_raw(), source })?;
    }
    set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )?;
    set_no_new_privs(true)?;
    Ok(())
}

/// The number of the user with this name, and of its group.
pub(crate) fn look_up(name: &str) -> Result<(Uid, Gid), IsolationError> {
    let found =
        User::from_name(name).map_err(|source| IsolationError::LookUp { name: name.to_owned(), source })?;
    let user = found.ok_or_else(|| IsolationError::NoUser { name: name.to_owned() })?;
    Ok((user.uid, user.gid))
}

fn become_user(user: Uid, group: Gid) -> nix::Result<()> {
    if Uid::current() == user && Uid::effective() == user {
        return Ok(());
    }
    setgroups(&[group])?;
    setgid(group)?;
    setuid(user)
}
