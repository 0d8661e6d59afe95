//! Timers that count the processor time of each thread and interrupt it.

#![expect(unsafe_code, reason = "these timers are to be had from the C library only")]

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem;
use std::ptr;
use std::time::Duration;

use crate::handler::SIGNAL;
use crate::{ProfileError, refused, threads};

/// Times that a thread is found without a stack for signals, until it is left alone. Every thread is without one when
/// it begins and when it ends.
const WITHOUT_STACK: u32 = 3;

/// A timer for each thread but the one that made it. Dropping them ends them.
pub(crate) struct Timers {
    interval: Duration,
    own: i32,
    all: HashMap<i32, libc::timer_t>,
    names: HashMap<i32, String>,
    /// How often threads were found without a stack for signals.
    without_stack: HashMap<i32, u32>,
    /// Threads that there is no timer to be had for, or that must not be interrupted.
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

    /// Starts timers of threads that have none, ends those of threads that have ended, and reads names.
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
                // It has ended meanwhile.
                Err((Some(libc::EINVAL | libc::ESRCH), _)) => {}
                // There is a limit to the number of timers: RLIMIT_SIGPENDING.
                Err((Some(libc::EAGAIN), _)) if !self.all.is_empty() => drop(self.left_out.insert(thread)),
                Err((_, error)) => return Err(refused("timer_create")(error)),
            }
        }
        Ok(())
    }

    /// The name of a thread.
    pub(crate) fn name(&self, thread: i32) -> &str {
        self.names.get(&thread).map_or("[thread]", String::as_str)
    }

    /// Notes that a thread has no stack for signals. If that stays so, it is interrupted no more: it is not one of this
    /// program's own, and may have little room on the one stack that it has.
    pub(crate) fn has_no_stack(&mut self, thread: i32) {
        let times = self.without_stack.entry(thread).or_default();
        *times += 1;
        if *times >= WITHOUT_STACK {
            self.end(thread);
            self.left_out.insert(thread);
        }
    }

    /// How many threads are not interrupted.
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

/// A timer that interrupts a thread each time it has used the processor for `interval`.
fn start(thread: i32, interval: Duration) -> io::Result<libc::timer_t> {
    // The clock of one thread, `MAKE_THREAD_CPUCLOCK(thread, CPUCLOCK_SCHED)` of the kernel.
    let clock = (!thread << 3) | 6;
    let time =
        libc::timespec { tv_sec: interval.as_secs().cast_signed(), tv_nsec: interval.subsec_nanos().into() };
    let every = libc::itimerspec { it_interval: time, it_value: time };
    // SAFETY: all bytes zero is a valid event; the pointers are to values on this stack, which the calls read or
    // write and do not keep. A clock of a thread that has ended is refused.
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
    // SAFETY: the timer was created here, and is deleted once.
    unsafe { libc::timer_delete(timer) };
}
