//! The system calls of a server.

mod permitted;

use libc::{AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, c_int, c_long};

pub(crate) use self::permitted::permitted;

/// System calls that a process keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Those that this server and its libraries use. Others are unknown to the process (`ENOSYS`), so that a library uses
    /// another one.
    Server,
    /// All except those that no server uses: for processes with libraries that drive hardware, whose calls are unknown.
    Hardware,
}

/// Condition on an argument under which a call is refused. Compares the lower 32 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Always,
    /// The argument with this index is none of these values.
    NoneOf(u8, Vec<u32>),
    /// The argument with this index is one of these values.
    OneOf(u8, Vec<u32>),
    /// The argument with this index lacks this bit.
    Without(u8, u32),
}

/// Calls refused with `EPERM`, also in [`Calls::Hardware`]: programs and processes, other processes, the kernel, the file
/// systems, the time, users. `process` is the id of this process.
pub(crate) fn refused(calls: Calls, process: u32) -> Vec<(c_long, Refused)> {
    let mut all: Vec<_> = ALWAYS.iter().map(|call| (*call, Refused::Always)).collect();
    // Threads are created by `clone` with this flag. `clone3`, whose flags are in memory, is unknown to the process: see
    // `UNKNOWN`.
    all.push((libc::SYS_clone, Refused::Without(0, libc::CLONE_THREAD.unsigned_abs())));
    // The profile reads stacks of this process.
    all.push((libc::SYS_process_vm_readv, Refused::NoneOf(0, vec![process])));
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        all.push((call, Refused::NoneOf(0, vec![process])));
    }
    // A limit of processor time or of the size of files ends another process by a signal. 0 is the calling process.
    all.push((libc::SYS_prlimit64, Refused::NoneOf(0, vec![0, process])));
    // The first two put input into a terminal, from which a shell would execute it. The others, like `SIGNALLING`, choose the
    // process that the kernel signals when a descriptor is ready.
    let commands = vec![libc::TIOCSTI as u32, TIOCLINUX, FIOSETOWN, SIOCSPGRP];
    all.push((libc::SYS_ioctl, Refused::OneOf(1, commands)));
    all.push((libc::SYS_fcntl, Refused::OneOf(1, SIGNALLING.to_vec())));
    if calls == Calls::Server {
        let families = [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK].map(c_int::unsigned_abs);
        all.push((libc::SYS_socket, Refused::NoneOf(0, families.to_vec())));
        // 0 is the calling thread; libraries that drive hardware name their threads by other numbers.
        for call in [libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler] {
            all.push((call, Refused::NoneOf(0, vec![0])));
        }
        all.extend(OF_FILES.iter().map(|call| (*call, Refused::Always)));
    }
    all
}

/// Calls that are unknown to the process in [`Calls::Hardware`] too (`ENOSYS`), so that the C library uses another one.
pub(crate) const UNKNOWN: &[c_long] = &[libc::SYS_clone3];

/// Commands of `ioctl` for which `libc` has no names: of terminals of the kernel, and for the owner of a socket.
const TIOCLINUX: u32 = 0x541c;
const FIOSETOWN: u32 = 0x8901;
const SIOCSPGRP: u32 = 0x8902;

/// Commands of `fcntl` that choose the process and the number of the signal of a descriptor: `F_SETOWN`, `F_SETSIG` and
/// `F_SETOWN_EX`.
const SIGNALLING: [u32; 3] = [8, 10, 15];

/// Calls that are always refused.
const ALWAYS: &[c_long] = &[
    // Programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    // Namespaces and file systems.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    libc::SYS_mknodat,
    // The kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_fanotify_init,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    // The time.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    // Users, and other rules for calls.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_personality,
    libc::SYS_seccomp,
];

/// Calls that change files without opening them, or after opening them to read, which Landlock does not limit. A server creates
/// files with their modes. They would let root make programs of the system setuid.
const OF_FILES: &[c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_truncate,
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_call_is_permitted_and_always_refused_except_for_the_second_filter() {
        let permitted: HashSet<_> = permitted().into_iter().collect();
        let both: Vec<_> = ALWAYS.iter().chain(OF_FILES).filter(|call| permitted.contains(call)).collect();
        assert_eq!(both, [&libc::SYS_seccomp]);
        assert!(UNKNOWN.iter().all(|call| !permitted.contains(call)));
        // Calls that depend on an argument are permitted otherwise.
        let refused = refused(Calls::Server, 1).into_iter();
        let mut conditional = refused.filter(|(_, refused)| *refused != Refused::Always);
        assert!(conditional.all(|(call, _)| permitted.contains(&call)));
    }
}
