//! Signal handler that takes samples, and the memory that it writes them to.
//!
//! The handler uses only operations that `signal-safety(7)` permits: atomic operations and `process_vm_readv`.

#![expect(unsafe_code, reason = "signal handlers are to be had from the C library only")]

use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use crate::{ProfileError, refused};

/// Maximum number of copied bytes of a stack; outer frames beyond it are cut off.
const STACK: usize = 64 * 1024;

/// Granularity of the copy: the smallest page size, so that a part is completely mapped or not at all.
const PAGE: usize = 4096;

/// Number of slots for samples between two calls of [`SampleBuffer::drain`]. 16 MiB, allocated only while a profile is taken.
pub(crate) const WAITING: usize = 256;

/// Free bytes that [`fill`] requires on the signal stack. It uses less, even without optimization.
const SPARE: usize = 2048;

/// The signal of the timers.
pub(crate) const SIGNAL: libc::c_int = libc::SIGPROF;

/// Registers of an interrupted thread, as needed for unwinding.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Registers {
    pub(crate) instruction: u64,
    pub(crate) stack: u64,
    frame: u64,
    /// The link register, on processors that have one.
    link: u64,
}

impl Registers {
    #[cfg(test)]
    pub(crate) fn at(instruction: u64, stack: u64) -> Self {
        Self { instruction, stack, frame: stack.wrapping_add(64), link: instruction }
    }

    #[cfg(target_arch = "x86_64")]
    pub(crate) fn native(self) -> framehop::UnwindRegsNative {
        framehop::UnwindRegsNative::new(self.instruction, self.stack, self.frame)
    }

    #[cfg(target_arch = "aarch64")]
    pub(crate) fn native(self) -> framehop::UnwindRegsNative {
        framehop::UnwindRegsNative::new(self.link, self.stack, self.frame)
    }
}

/// State of a thread at one moment.
pub(crate) struct Sample<'r> {
    /// Thread ID, as of `gettid(2)`.
    pub(crate) thread: i32,
    /// Number of timer expiries that the [`Sample`] represents: expiries while a signal is pending are merged into one
    /// signal.
    pub(crate) times: u64,
    pub(crate) registers: Registers,
    /// Memory from the stack pointer on. `None` if the thread has no signal stack and was not sampled.
    pub(crate) stack: Option<&'r [u8]>,
}

const FREE: u8 = 0;
const FILLING: u8 = 1;
const FULL: u8 = 2;

/// Memory for one [`Sample`]. All bytes zero is a valid, free slot.
#[repr(C)]
struct Slot {
    state: AtomicU8,
    is_left_alone: u8,
    thread: i32,
    times: u64,
    registers: Registers,
    length: usize,
    stack: [u8; STACK],
}

#[repr(C)]
struct Slots {
    next: AtomicUsize,
    lost: AtomicU64,
    all: [Slot; WAITING],
}

/// Memory of the present profile; null if there is none.
static SLOTS: AtomicPtr<Slots> = AtomicPtr::new(ptr::null_mut());
/// Number of running handlers that may have read [`SLOTS`].
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Memory for samples, used by handlers until it is dropped. Only the holder of the
/// [`ProfileRight`](crate::ProfileRight) creates one, so there is at most one per process.
pub(crate) struct SampleBuffer(*mut Slots);

impl SampleBuffer {
    /// Allocates the memory and installs the handler.
    pub(crate) fn open() -> Result<Self, ProfileError> {
        // Checked before any handler depends on it: a seccomp filter may forbid the system call.
        let mut probe = vec![0_u8; STACK];
        if copy(probe.as_ptr().addr(), probe.as_mut_ptr().cast()) == 0 {
            return Err(refused("process_vm_readv")(io::Error::last_os_error()));
        }
        // SAFETY: the mapping is new, zeroed, page-aligned and as long as `Slots`. Core dumps and children are excluded
        // below, because stacks contain secrets; each sample is wiped as soon as it has been read.
        let slots = unsafe {
            let memory = libc::mmap(
                ptr::null_mut(),
                size_of::<Slots>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if memory == libc::MAP_FAILED {
                return Err(refused("mmap")(io::Error::last_os_error()));
            }
            memory.cast::<Slots>()
        };
        let room = Self(slots);
        for advice in [libc::MADV_DONTDUMP, libc::MADV_DONTFORK] {
            // SAFETY: the mapping of above.
            if unsafe { libc::madvise(slots.cast(), size_of::<Slots>(), advice) } != 0 {
                return Err(refused("madvise")(io::Error::last_os_error()));
            }
        }
        install().map_err(refused("sigaction"))?;
        SLOTS.store(slots, Ordering::SeqCst);
        Ok(room)
    }

    /// Passes each available [`Sample`] to `take`, and frees its [`Slot`].
    pub(crate) fn drain(&self, take: &mut impl FnMut(Sample<'_>)) {
        for number in 0..WAITING {
            // SAFETY: the memory exists until `self` is dropped. Until the state is `FULL`, only the state of a slot is
            // accessed; from then until the store below, no handler accesses the slot.
            unsafe {
                let slot = &raw mut (*self.0).all[number];
                if (*slot).state.load(Ordering::Acquire) != FULL {
                    continue;
                }
                let stack = &(&(*slot).stack)[..(*slot).length.min(STACK)];
                take(Sample {
                    thread: (*slot).thread,
                    times: (*slot).times,
                    registers: (*slot).registers,
                    stack: ((*slot).is_left_alone == 0).then_some(stack),
                });
                // Wiped before the state is released: a handler that sees the free slot also sees this write, so the
                // compiler cannot remove it.
                let length = (*slot).length.min(STACK);
                (&raw mut (*slot).stack).cast::<u8>().write_bytes(0, length);
                (*slot).state.store(FREE, Ordering::Release);
            }
        }
    }

    /// Number of samples without a free slot.
    pub(crate) fn lost(&self) -> u64 {
        // SAFETY: the memory exists until `self` is dropped, and all accesses to this counter are atomic.
        unsafe { &(*self.0).lost }.load(Ordering::Relaxed)
    }
}

impl Drop for SampleBuffer {
    fn drop(&mut self) {
        SLOTS.store(ptr::null_mut(), Ordering::SeqCst);
        // Handlers increment the counter before they read the pointer: if none is running, none can still have the
        // pointer.
        while RUNNING.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
        // SAFETY: the mapping has this length, and no other reference to it exists.
        unsafe { libc::munmap(self.0.cast(), size_of::<Slots>()) };
    }
}

/// Installs the handler. It is never removed: a signal that arrives late would terminate the process.
fn install() -> io::Result<()> {
    // SAFETY: a zeroed `sigaction` is valid, and the handler has the signature that `SA_SIGINFO` requires. `SA_RESTART`
    // continues interrupted system calls; `SA_ONSTACK` selects the signal stack.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = interrupted as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        if libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn interrupted(_signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    RUNNING.fetch_add(1, Ordering::SeqCst);
    let slots = SLOTS.load(Ordering::SeqCst);
    if !slots.is_null() && !info.is_null() && !context.is_null() {
        // SAFETY: the slots exist while this handler is counted; the kernel's structures exist until it returns.
        unsafe { fill(slots, info, context.cast()) };
    }
    RUNNING.fetch_sub(1, Ordering::SeqCst);
}

/// Takes a [`Sample`] if a [`Slot`] is free.
///
/// # Safety
///
/// `slots` must be the present value of [`SLOTS`]; `info` and `context` must belong to the signal that is being
/// handled.
unsafe fn fill(slots: *mut Slots, info: *const libc::siginfo_t, context: *const libc::ucontext_t) {
    // SAFETY: see above. Until the exchange succeeds, only the state of the slot is accessed. `errno` of the
    // interrupted thread is restored.
    unsafe {
        let number = (*slots).next.fetch_add(1, Ordering::Relaxed) % WAITING;
        let slot = &raw mut (*slots).all[number];
        if (*slot).state.compare_exchange(FREE, FILLING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            (*slots).lost.fetch_add(times(info), Ordering::Relaxed);
            return;
        }
        (*slot).registers = registers(&*context);
        (*slot).times = times(info);
        let error = libc::__errno_location();
        let before = *error;
        (*slot).thread = libc::gettid();
        let has_room = stands_on(&(*context).uc_stack, ptr::from_ref(&before).addr());
        (*slot).is_left_alone = u8::from(!has_room);
        (*slot).length =
            if has_room { copy((*slot).registers.stack as usize, &raw mut (*slot).stack) } else { 0 };
        *error = before;
        (*slot).state.store(FULL, Ordering::Release);
    }
}

/// Returns whether the address `here` is on the thread's signal stack, with at least [`SPARE`] bytes below it.
fn stands_on(stack: &libc::stack_t, here: usize) -> bool {
    let lowest = stack.ss_sp.addr();
    stack.ss_flags & libc::SS_DISABLE == 0
        && here.checked_sub(lowest).is_some_and(|left| left >= SPARE && left < stack.ss_size)
}

/// Number of timer expiries that a signal represents.
///
/// # Safety
///
/// `info` must belong to a signal.
unsafe fn times(info: *const libc::siginfo_t) -> u64 {
    // SAFETY: for signals of timers, the sixth 32-bit word is `si_overrun`, after three words, padding and the timer's
    // ID; the structure has 32 words.
    let missed = unsafe {
        if (*info).si_code != libc::SI_TIMER {
            return 1;
        }
        *info.cast::<libc::c_int>().add(5)
    };
    // A thread that stays in the kernel for long misses one expiry per tick. The bound guards against implausible
    // values.
    1 + u64::try_from(missed).unwrap_or(0).min(10_000)
}

/// Copies memory starting at `from` up to the first unmapped page, and returns the number of bytes. Never faults: the
/// kernel checks the addresses.
fn copy(from: usize, to: *mut [u8; STACK]) -> usize {
    const PARTS: usize = STACK / PAGE + 1;
    // Each part is copied completely or not at all, so no part may cross a page boundary.
    let mut parts = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; PARTS];
    let (mut at, mut left) = (from, STACK);
    for part in &mut parts {
        let length = left.min(PAGE - at % PAGE);
        *part = libc::iovec { iov_base: ptr::without_provenance_mut(at), iov_len: length };
        at = at.wrapping_add(length);
        left -= length;
    }
    let own = libc::iovec { iov_base: to.cast(), iov_len: STACK };
    // SAFETY: the kernel writes at most `STACK` bytes to `to`, which has that length and belongs to this handler, and
    // reads only mapped memory of this process.
    let copied = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const own, 1, parts.as_ptr(), PARTS as libc::c_ulong, 0)
    };
    usize::try_from(copied).unwrap_or(0)
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let of = |register: libc::c_int| context.uc_mcontext.gregs[register as usize] as u64;
    Registers { instruction: of(libc::REG_RIP), stack: of(libc::REG_RSP), frame: of(libc::REG_RBP), link: 0 }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers { instruction: machine.pc, stack: machine.sp, frame: machine.regs[29], link: machine.regs[30] }
}

/// Disables the signal stack of the calling thread and returns it.
#[cfg(test)]
pub(crate) fn without_signal_stack() -> libc::stack_t {
    // SAFETY: a zeroed description is valid; the call writes one and reads one.
    unsafe {
        let none = libc::stack_t { ss_flags: libc::SS_DISABLE, ..mem::zeroed() };
        let mut before: libc::stack_t = mem::zeroed();
        assert_eq!(libc::sigaltstack(&raw const none, &raw mut before), 0);
        before
    }
}

/// Restores the signal stack of the calling thread.
#[cfg(test)]
pub(crate) fn with_signal_stack(stack: &libc::stack_t) {
    // SAFETY: it was the signal stack of this thread before, and has not been freed.
    assert_eq!(unsafe { libc::sigaltstack(ptr::from_ref(stack), ptr::null_mut()) }, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProfileRight;

    #[test]
    fn memory_is_copied_as_far_as_there_is_any() {
        let mut copied = vec![0_u8; STACK];
        let room = copied.as_mut_ptr().cast();
        let here = [7_u8; 64];
        let length = copy(here.as_ptr().addr(), room);
        assert!(length >= 64 && copied[..64] == here, "{length}");
        assert_eq!(copy(64, room), 0);
        assert_eq!(copy(usize::MAX - 16, room), 0);
        // SAFETY: two new pages, the second of which is unmapped; the rest is unmapped with them.
        unsafe {
            let (rights, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let two = libc::mmap(ptr::null_mut(), 2 * PAGE, rights, kind, -1, 0);
            assert_ne!(two, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(two.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
            assert_eq!(copy(two.addr() + 1000, room), PAGE - 1000);
            libc::munmap(two, 2 * PAGE);
        }
    }

    #[test]
    fn a_thread_without_a_stack_for_signals_or_without_room_on_it_is_left_alone() {
        let stack = |flags| libc::stack_t {
            ss_sp: ptr::without_provenance_mut(0x10_0000),
            ss_flags: flags,
            ss_size: 8192,
        };
        assert!(stands_on(&stack(0), 0x10_0000 + SPARE));
        for (flags, here) in [
            (0, 0x10_0000 + SPARE - 1),
            (0, 0x10_0000 + 8192),
            (0, 0x0f_ffff),
            (libc::SS_DISABLE, 0x10_0000 + 4096),
        ] {
            assert!(!stands_on(&stack(flags), here), "{flags} {here:x}");
        }
    }

    /// Sends the signal to the calling thread. It has been handled when the call returns.
    fn interrupt() {
        // SAFETY: the call takes no pointers.
        assert_eq!(unsafe { libc::raise(SIGNAL) }, 0);
    }

    #[test]
    fn samples_beyond_the_room_are_counted_as_lost_and_a_late_signal_does_nothing() {
        let turn = loop {
            match ProfileRight::claim() {
                Some(turn) => break turn,
                None => thread::yield_now(),
            }
        };
        let room = SampleBuffer::open().expect("room");
        (0..WAITING + 3).for_each(|_| interrupt());
        assert!(room.lost() >= 3);
        // SAFETY: the call takes no arguments.
        let own = unsafe { libc::gettid() };
        let mut taken = 0;
        let mut count = |sample: Sample<'_>| {
            // A signal of another test, for another thread, may arrive late.
            if sample.thread == own {
                assert_eq!(sample.times, 1);
                assert!(sample.stack.is_some_and(|stack| stack.len() >= 64));
                taken += 1;
            }
        };
        room.drain(&mut count);
        interrupt();
        room.drain(&mut count);
        room.drain(&mut count);
        assert!((2..=WAITING + 1).contains(&taken), "{taken}");
        drop(room);
        interrupt();
        drop(turn);
    }
}
