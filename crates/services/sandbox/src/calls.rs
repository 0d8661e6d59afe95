//! The system calls of a server.

use libc::{AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, c_int, c_long};

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
    // Both put input into a terminal, from which a shell would execute it.
    all.push((libc::SYS_ioctl, Refused::OneOf(1, vec![libc::TIOCSTI as u32, TIOCLINUX])));
    if calls == Calls::Server {
        let families = [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK].map(c_int::unsigned_abs);
        all.push((libc::SYS_socket, Refused::NoneOf(0, families.to_vec())));
        all.extend(OF_FILES.iter().map(|call| (*call, Refused::Always)));
    }
    all
}

/// Calls that are unknown to the process in [`Calls::Hardware`] too (`ENOSYS`), so that the C library uses another one.
pub(crate) const UNKNOWN: &[c_long] = &[libc::SYS_clone3];

/// Command of terminals of the kernel; `libc` has no name for it.
const TIOCLINUX: u32 = 0x541c;

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

/// Calls of [`Calls::Server`]: those of Rust's and the C library, tokio, the allocator, AWS-LC, `SQLite` and the resolver. Calls
/// that a later version of a library may use instead are included.
pub(crate) fn permitted() -> Vec<c_long> {
    [MEMORY, FILES, NETWORK, THREADS, EVENTS, OF_ARCHITECTURE].concat()
}

const MEMORY: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_get_mempolicy,
    libc::SYS_madvise,
    libc::SYS_mbind,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munlockall,
    libc::SYS_munmap,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_set_mempolicy,
];

const FILES: &[c_long] = &[
    libc::SYS_chdir,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchdir,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getxattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_ioctl,
    libc::SYS_lgetxattr,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_syncfs,
    libc::SYS_tee,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_vmsplice,
    libc::SYS_write,
    libc::SYS_writev,
];

const NETWORK: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_socketpair,
];

const THREADS: &[c_long] = &[
    libc::SYS_capget,
    libc::SYS_clone,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_kill,
    libc::SYS_pidfd_open,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_process_vm_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield,
    // For the filter that refuses calls with `EPERM`, which it then refuses too.
    libc::SYS_seccomp,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setpriority,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_times,
    libc::SYS_uname,
    libc::SYS_wait4,
    libc::SYS_waitid,
];

const EVENTS: &[c_long] = &[
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_getitimer,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_setitimer,
    libc::SYS_signalfd4,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_gettime,
    libc::SYS_timer_settime,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
];

/// Calls of older architectures, in whose place others have calls with more arguments.
#[cfg(target_arch = "x86_64")]
const OF_ARCHITECTURE: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_creat,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_futimesat,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_inotify_init,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pause,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_setrlimit,
    libc::SYS_signalfd,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_sync_file_range,
    libc::SYS_time,
    libc::SYS_unlink,
    libc::SYS_utime,
    libc::SYS_utimes,
];

/// `renameat`, `sync_file_range`, `getrlimit` and `setrlimit`, for which `libc` has no names.
#[cfg(target_arch = "aarch64")]
const OF_ARCHITECTURE: &[c_long] = &[38, 84, 163, 164];

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OF_ARCHITECTURE: &[c_long] = &[];

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
