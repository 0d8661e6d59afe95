//! Scheduling of a worker beside threads that compute.

#![expect(unsafe_code, reason = "a system call without a safe wrapper")]

use std::io;

/// Makes the calling thread wait for the end of the running thread's time slice when it becomes ready, instead of
/// preempting it (`SCHED_BATCH`, see sched(7)). Beside threads that compute in batches this saves two context
/// switches per result, and costs nothing while a processor is idle. The nice value is unchanged.
pub fn wait_for_turns() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` is valid for the call, and 0 names the calling thread.
    let status = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::wait_for_turns;

    #[test]
    fn the_policy_is_that_of_batches() {
        wait_for_turns().expect("a policy that needs no right");
        let own = fs::read_to_string("/proc/thread-self/stat").expect("a file of the kernel");
        // Field 41 of proc(5) is the policy; the third comes behind the name in parentheses.
        let fields = own.rsplit_once(')').expect("a name in parentheses").1;
        let policy = fields.split_whitespace().nth(41 - 3).expect("that many fields");
        assert_eq!(policy, libc::SCHED_BATCH.to_string());
    }
}
