//! [`Timers`] that interrupt each thread by its processor time.

#![expect(unsafe_code, reason = "these timers are to be had from the C library only")]

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem;
use std::ptr;
use std::time::Duration;

use crate::handler::SIGNAL;
use crate::{ProfileError, refused, threads};

/// Number of samples without a signal stack after which a thread is no longer sampled. Above one, because each thread
/// briefly has none at its start and end.
const WITHOUT_STACK: u32 = 3;

/// Timers of all threads except the one that created them. Deleted on drop.
pub(crate) struct Timers {
    interval: Duration,
    own: i32,
    all: HashMap<i32, libc::timer_t>,
    names: HashMap<i32, String>,
    /// Number of samples without a signal stack, by thread.
    without_stack: HashMap<i32, u32>,
    /// Threads without a timer: none was available, or they must not be interrupted.
    left_out: HashSet<i32>,
}

impl Timers {
    pub(crate) fn new(interval: Duration) -> Self {
        // SAFETY: the call has no arguments and cannot fail.
        let own = unsafe { libc::gettid() };
        Self {
            interval,
            own,
            all: HashMap::new(),
            names: HashMap::new(),
            without_stack: HashMap::new(),
            left_out: HashSet::new(),
        }
    }

    /// Starts timers for new threads, deletes those of ended threads, and reads names.
    ///
    /// # Errors
    ///
    /// [`ProfileError::System`] if the threads cannot be listed or the first timer cannot be created.
    pub(crate) fn follow(&mut self) -> Result<(), ProfileError> {
        let all = threads::all().map_err(refused("/proc/self/task"))?;
        let present: HashSet<_> = all.into_iter().filter(|thread| *thread != self.own).collect();
        let ended: Vec<_> = self.all.keys().copied().filter(|thread| !present.contains(thread)).collect();
        for thread in ended {
            self.end(thread);
        }
        self.left_out.retain(|thread| present.contains(thread));
        for thread in present {
            if let Some(name) = threads::name(thread) {
                self.names.insert(thread, name);
            }
            if self.all.contains_key(&thread) || self.left_out.contains(&thread) {
                continue;
            }
            match start(thread, self.interval).map_err(|error| (error.raw_os_error(), error)) {
                Ok(timer) => drop(self.all.insert(thread, timer)),
                // The thread has ended in the meantime.
                Err((Some(libc::EINVAL | libc::ESRCH), _)) => {}
                // `RLIMIT_SIGPENDING` limits the number of timers; the other threads are still sampled.
                Err((Some(libc::EAGAIN), _)) if !self.all.is_empty() => drop(self.left_out.insert(thread)),
                Err((_, error)) => return Err(refused("timer_create")(error)),
            }
        }
        Ok(())
    }

    /// Name of a thread.
    pub(crate) fn name(&self, thread: i32) -> &str {
        self.names.get(&thread).map_or("[thread]", String::as_str)
    }

    /// Counts a sample without a signal stack. After [`WITHOUT_STACK`] of them the thread is no longer interrupted: it
    /// was not started by Rust, and the handler could overflow its only stack.
    pub(crate) fn has_no_stack(&mut self, thread: i32) {
        let times = self.without_stack.entry(thread).or_default();
        *times += 1;
        if *times >= WITHOUT_STACK {
            self.end(thread);
            self.left_out.insert(thread);
        }
    }

    /// Number of threads that are not sampled.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out.len()
    }

    fn end(&mut self, thread: i32) {
        if let Some(timer) = self.all.remove(&thread) {
            delete(timer);
        }
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        self.all.drain().for_each(|(_, timer)| delete(timer));
    }
}

/// Creates a timer that sends [`SIGNAL`] to a thread after each `interval` of its processor time.
fn start(thread: i32, interval: Duration) -> io::Result<libc::timer_t> {
    // The clock ID of one thread: `MAKE_THREAD_CPUCLOCK(thread, CPUCLOCK_SCHED)` of the kernel.
    let clock = (!thread << 3) | 6;
    let time =
        libc::timespec { tv_sec: interval.as_secs().cast_signed(), tv_nsec: interval.subsec_nanos().into() };
    let every = libc::itimerspec { it_interval: time, it_value: time };
    // SAFETY: a zeroed event is valid; the pointers are to local values, which the calls do not keep. The clock of an
    // ended thread is rejected with an error.
    unsafe {
        let mut event: libc::sigevent = mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = thread;
        let mut timer: libc::timer_t = ptr::null_mut();
        if libc::timer_create(clock, &raw mut event, &raw mut timer) != 0 {
            return Err(io::Error::last_os_error());
        }
        if libc::timer_settime(timer, 0, &raw const every, ptr::null_mut()) != 0 {
            let error = io::Error::last_os_error();
            delete(timer);
            return Err(error);
        }
        Ok(timer)
    }
}

fn delete(timer: libc::timer_t) {
    // SAFETY: the timer was created by [`start`] and is deleted once.
    unsafe { libc::timer_delete(timer) };
}
