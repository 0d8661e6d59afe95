//! What the processes of an isolated gateway may do: which user they are, which capabilities they keep, and with whom they end.

use std::io;

use anyhow::{anyhow, bail};
use nix::unistd::{Gid, Uid, User, setgid, setgroups, setuid};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities, set_no_new_privs,
};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// The exit status of a key process that cannot become what it should be: another attempt would end the same way.
pub(super) const REFUSED: i32 = 3;

/// Who a key process of root becomes where the configuration names no user: the one that Linux shows in the place of users that it
/// cannot show. It owns no file.
const OWNS_NOTHING: u32 = 65534;

/// What a key process keeps, if it has it: to read the files of keys.
const TO_READ: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;

/// What a gateway that is not root gives up: it lets it read files that are not its own, become another user who may, or look into the
/// key process.
const GIVEN_UP: CapabilitySet = TO_READ
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_MODULE)
    .union(CapabilitySet::SYS_RAWIO);

/// Whether the gateway still may read the files of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// It is root, which may read everything.
    Root,
    /// It had rights beyond those of its user, and gave them up.
    GaveUp,
    /// It has the rights of its user, which are those of the key process too.
    SameUser,
}

/// Has the gateway give up what lets it read files of others. To be called while it has one thread.
pub(super) fn give_up() -> io::Result<Left> {
    if rustix::process::geteuid().is_root() {
        return Ok(Left::Root);
    }
    let before = capabilities(None)?;
    if !before.permitted.intersects(GIVEN_UP) {
        return Ok(Left::SameUser);
    }
    let without = |set: CapabilitySet| set.difference(GIVEN_UP);
    set_capabilities(
        None,
        CapabilitySets {
            effective: without(before.effective),
            permitted: without(before.permitted),
            inheritable: without(before.inheritable),
        },
    )?;
    Ok(Left::GaveUp)
}

/// Ends this process as soon as its parent, which has this number, ends.
pub(super) fn end_with(parent: u32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().map(Pid::as_raw_pid) != i32::try_from(parent).ok() {
        bail!("the process that started this one is gone");
    }
    Ok(())
}

/// Outlives the signals that stop a gateway, which may come to all its processes: it needs its keys until the drain has ended. The
/// process ends when the gateway closes its end of the sockets.
pub(super) fn outlive_signals() -> io::Result<Runtime> {
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
pub(super) fn lock_memory() -> Result<(), String> {
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
pub(super) fn drop_to(user: Option<&str>) -> anyhow::Result<()> {
    let is_root = Uid::effective().is_root();
    let kept = capabilities(None)?.permitted.intersection(TO_READ);
    let wanted = match user {
        Some(name) => Some(look_up(name)?),
        None => is_root.then_some((Uid::from_raw(OWNS_NOTHING), Gid::from_raw(OWNS_NOTHING))),
    };
    if let Some((user, group)) = wanted {
        set_keep_capabilities(true)?;
        become_user(user, group)
            .map_err(|error| anyhow!("the key process cannot become the user {user}: {error}"))?;
    }
    set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )?;
    set_no_new_privs(true)?;
    Ok(())
}

fn look_up(name: &str) -> anyhow::Result<(Uid, Gid)> {
    let found =
        User::from_name(name).map_err(|error| anyhow!("cannot look up the user \"{name}\": {error}"))?;
    let user = found.ok_or_else(|| anyhow!("there is no user \"{name}\""))?;
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
