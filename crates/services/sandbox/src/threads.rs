//! Landlock for the threads that run already: a signal makes each restrict itself, as the C library changes the user of all
//! threads.
//!
//! The kernel limits the calling thread and the threads that it creates. A process that limits one thread only limits nothing:
//! its threads share their memory.

#![expect(unsafe_code, reason = "signal handlers are to be had from the C library only")]

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of threads.
const MOST: usize = 1024;

/// Maximum time for a thread to handle the signal.
const LIMIT: Duration = Duration::from_secs(5);

/// The descriptor of the ruleset.
static RULESET: AtomicI32 = AtomicI32::new(-1);
/// Number of entries in [`ANSWERS`].
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Threads that have handled the signal, negative if the system refused.
static ANSWERS: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];

/// Restricts all threads but the calling one by `ruleset`. Returns the names of threads that did not follow within [`LIMIT`], for
/// example because they block all signals. To be called once per process, since the list of answers is not cleared.
pub(crate) fn restrict(ruleset: &OwnedFd) -> io::Result<Vec<String>> {
    RULESET.store(ruleset.as_raw_fd(), Ordering::SeqCst);
    let signal = libc::SIGRTMAX() - 1;
    handle(signal, enter as *const () as usize)?;
    let restricted = restrict_others(signal);
    // A late signal would otherwise end the process. Pending ones are discarded.
    handle(signal, libc::SIG_IGN)?;
    RULESET.store(-1, Ordering::SeqCst);
    restricted
}

fn restrict_others(signal: libc::c_int) -> io::Result<Vec<String>> {
    // SAFETY: the calls take no pointers.
    let (process, own) = unsafe { (libc::getpid(), libc::gettid()) };
    let (mut done, mut left) = (vec![own], Vec::new());
    // Threads may create others meanwhile, until each is restricted.
    loop {
        let new: Vec<_> = all()?.into_iter().filter(|thread| !done.contains(thread)).collect();
        if new.is_empty() {
            return Ok(left);
        }
        if done.len() + new.len() > MOST {
            return Err(io::Error::other(format!("there are more than {MOST} threads")));
        }
        for thread in new {
            done.push(thread);
            if !follows(process, thread, signal) {
                left.extend(name(thread));
            }
        }
    }
}

/// Sends the signal to a thread and waits for its answer. `true` if the thread has ended.
fn follows(process: libc::pid_t, thread: libc::pid_t, signal: libc::c_int) -> bool {
    // SAFETY: the call takes no pointers.
    if unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) } != 0 {
        return name(thread).is_none();
    }
    let limit = Instant::now() + LIMIT;
    loop {
        let count = COUNT.load(Ordering::SeqCst).min(MOST);
        let mut answers = ANSWERS[..count].iter().map(|answer| answer.load(Ordering::SeqCst));
        if let Some(answer) = answers.find(|answer| answer.abs() == thread) {
            return answer > 0;
        }
        if name(thread).is_none() {
            return true;
        }
        if Instant::now() > limit {
            return false;
        }
        thread::sleep(Duration::from_micros(100));
    }
}

/// Numbers of the threads of this process.
fn all() -> io::Result<Vec<libc::pid_t>> {
    let entries = fs::read_dir("/proc/self/task")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Name of a thread; `None` if it has ended.
fn name(thread: libc::pid_t) -> Option<String> {
    fs::read_to_string(format!("/proc/self/task/{thread}/comm")).ok().map(|name| name.trim().to_owned())
}

fn handle(signal: libc::c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: a zeroed `sigaction` is valid, and the handler has the signature that a call without `SA_SIGINFO` requires.
    // `SA_RESTART` continues interrupted system calls; `SA_ONSTACK` selects the signal stack.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        if libc::sigaction(signal, &raw const action, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Restricts the interrupted thread. Uses only operations that `signal-safety(7)` permits.
extern "C" fn enter(_signal: libc::c_int) {
    // SAFETY: the calls take no pointers; `errno` of the interrupted thread is restored.
    unsafe {
        let error = libc::__errno_location();
        let before = *error;
        let ruleset = RULESET.load(Ordering::SeqCst);
        // Landlock requires it of a thread without other rights.
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let refused = libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0_u32) != 0;
        let thread = libc::gettid();
        if let Some(answer) = ANSWERS.get(COUNT.fetch_add(1, Ordering::SeqCst)) {
            answer.store(if refused { -thread } else { thread }, Ordering::SeqCst);
        }
        *error = before;
    }
}
