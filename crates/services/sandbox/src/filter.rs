//! The filter of system calls of the process (seccomp).

#![expect(unsafe_code, reason = "seccompiler has no flag against slower system calls on older kernels")]

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::io;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use crate::calls::{self, Calls, Refused};

/// Bit of the numbers of calls by x32, a second ABI of the same architecture.
const X32: u32 = 0x4000_0000;

/// Installs the filters for `calls` in all threads. Needs `PR_SET_NO_NEW_PRIVS`. Calls of another architecture end the process.
pub(crate) fn install(calls: Calls) -> io::Result<()> {
    let arch =
        TargetArch::try_from(ARCH).map_err(|_| io::Error::other(format!("{ARCH} is not supported")))?;
    let programs = programs(calls, arch, std::process::id()).map_err(io::Error::other)?;
    // The last one of several filters with an error decides about the number of the error.
    programs.iter().try_for_each(|program| apply(program))
}

/// The filters, in the order of their installation: calls that the process does not know, then refused ones.
fn programs(calls: Calls, arch: TargetArch, process: u32) -> Result<[BpfProgram; 2], BackendError> {
    let every = |list: &[c_long]| list.iter().map(|call| (*call, Vec::new())).collect::<BTreeMap<_, _>>();
    let (unknown, permitted) = (SeccompAction::Errno(libc::ENOSYS.unsigned_abs()), SeccompAction::Allow);
    let known = match (calls, arch) {
        (Calls::Server, TargetArch::x86_64 | TargetArch::aarch64) => {
            SeccompFilter::new(every(&calls::permitted()), unknown, permitted.clone(), arch)?
        }
        _ => SeccompFilter::new(every(calls::UNKNOWN), permitted.clone(), unknown, arch)?,
    };
    let mut rules = BTreeMap::new();
    for (call, refused) in calls::refused(calls, process) {
        rules.insert(call, rules_of(refused)?);
    }
    let refusal = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let refused = SeccompFilter::new(rules, permitted, refusal, arch)?;
    Ok([without_x32(known.try_into()?), refused.try_into()?])
}

/// Rules of which one must apply, for the filter to refuse the call; none for a call that is always refused.
fn rules_of(refused: Refused) -> Result<Vec<SeccompRule>, BackendError> {
    let compare = |argument, operator, value: u32| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value.into())
    };
    match refused {
        Refused::Always => Ok(Vec::new()),
        Refused::NoneOf(argument, values) => {
            let each = values.into_iter().map(|value| compare(argument, SeccompCmpOp::Ne, value));
            Ok(vec![SeccompRule::new(each.collect::<Result<_, _>>()?)?])
        }
        Refused::OneOf(argument, values) => {
            let each = values.into_iter().map(|value| compare(argument, SeccompCmpOp::Eq, value));
            each.map(|condition| SeccompRule::new(vec![condition?])).collect()
        }
        Refused::Without(argument, bit) => {
            let lacks = compare(argument, SeccompCmpOp::MaskedEq(bit.into()), 0)?;
            Ok(vec![SeccompRule::new(vec![lacks])?])
        }
    }
}

/// The program with three instructions before it, which make calls by x32 unknown. Seccompiler compares whole numbers only.
fn without_x32(program: BpfProgram) -> BpfProgram {
    if ARCH != "x86_64" {
        return program;
    }
    let instruction = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let unknown = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    let before = [
        // The number is the first word of `struct seccomp_data`.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, unknown),
    ];
    before.into_iter().chain(program).collect()
}

fn apply(program: &[sock_filter]) -> io::Result<()> {
    let copied = |own: &sock_filter| libc::sock_filter { code: own.code, jt: own.jt, jf: own.jf, k: own.k };
    let mut instructions: Vec<_> = program.iter().map(copied).collect();
    let length = u16::try_from(instructions.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: instructions.as_mut_ptr() };
    // Kernels before 5.16 slow all system calls of a filtered process down, against code of strangers in the process, of which
    // this program has none: `SPEC_ALLOW` declines that.
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the program and its instructions are valid for the call, which copies them.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    match done {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!("the thread {thread} has another filter"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_are_shorter_than_the_limit_of_the_kernel() {
        for calls in [Calls::Server, Calls::Hardware] {
            let arch = TargetArch::try_from(ARCH).expect("a supported architecture");
            let programs = programs(calls, arch, 1).expect("programs");
            // BPF_MAXINSNS.
            assert!(programs.iter().all(|program| (10..4096).contains(&program.len())), "{calls:?}");
        }
    }
}
