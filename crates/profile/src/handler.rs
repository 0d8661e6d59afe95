//! What interrupts a thread, and the room that it puts samples into.
//!
//! The handler does what `signal-safety(7)` allows, and of it only atomic operations and `process_vm_readv`.

#![expect(unsafe_code, reason = "signal handlers are to be had from the C library only")]

use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use crate::{ProfileError, refused};

/// Bytes of a stack that are copied: what is further out is cut off.
const STACK: usize = 64 * 1024;

/// The unit in which memory is there or not: no page is smaller.
const PAGE: usize = 4096;

/// Samples that wait to be unwound. 16 MiB, which are there only while a profile is taken.
pub(crate) const WAITING: usize = 256;

/// Bytes of the stack for signals that the handler wants to have left. It needs less, even if it is compiled
/// without optimization.
const SPARE: usize = 2048;

/// The signal.
pub(crate) const SIGNAL: libc::c_int = libc::SIGPROF;

/// The registers of an interrupted thread that unwinding begins with.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Registers {
    pub(crate) instruction: u64,
    pub(crate) stack: u64,
    frame: u64,
    /// Where the processor has one.
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

/// A thread at one moment.
pub(crate) struct Sample<'r> {
    /// Number of the thread.
    pub(crate) thread: i32,
    /// How many samples this one stands for: signals that were due at the same time come as one.
    pub(crate) times: u64,
    pub(crate) registers: Registers,
    /// Memory from the stack pointer on. `None` if the thread has no stack for signals, and was left alone.
    pub(crate) stack: Option<&'r [u8]>,
}

const FREE: u8 = 0;
const FILLING: u8 = 1;
const FULL: u8 = 2;

/// Room for a sample. All bytes zero is one that is free.
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

/// Where samples go; null while no profile is taken.
static SLOTS: AtomicPtr<Slots> = AtomicPtr::new(ptr::null_mut());
/// Handlers that run now, and may have read [`SLOTS`].
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Memory for samples, which handlers use until it is dropped. A process has one at a time, of who has the
/// [`Turn`](crate::Turn).
pub(crate) struct Room(*mut Slots);

impl Room {
    /// Makes room, and installs the handler.
    pub(crate) fn open() -> Result<Self, ProfileError> {
        // Known to work before a handler relies on it: a filter of system calls may forbid it.
        let mut probe = vec![0_u8; STACK];
        if copy(probe.as_ptr().addr(), probe.as_mut_ptr().cast()) == 0 {
            return Err(refused("process_vm_readv")(io::Error::last_os_error()));
        }
        // SAFETY: new memory of its own, all bytes zero, and as long as `Slots`; a page is aligned for it. No core
        // file and no child is to have it: stacks have secrets, which are wiped as soon as a sample was taken out.
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
            // SAFETY: the memory that was just mapped.
            if unsafe { libc::madvise(slots.cast(), size_of::<Slots>(), advice) } != 0 {
                return Err(refused("madvise")(io::Error::last_os_error()));
            }
        }
        install().map_err(refused("sigaction"))?;
        SLOTS.store(slots, Ordering::SeqCst);
        Ok(room)
    }

    /// Hands out the samples that are there, and frees their room.
    pub(crate) fn drain(&self, take: &mut impl FnMut(Sample<'_>)) {
        for number in 0..WAITING {
            // SAFETY: the memory is there until `self` is dropped. Of a slot nothing but the state is referred to
            // before the state says that its handler is done; from there to the store below no handler touches it.
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
                // Who may see that the slot is free has to see this as well: it cannot be left out.
                let length = (*slot).length.min(STACK);
                (&raw mut (*slot).stack).cast::<u8>().write_bytes(0, length);
                (*slot).state.store(FREE, Ordering::Release);
            }
        }
    }

    /// Samples that there was no room for.
    pub(crate) fn lost(&self) -> u64 {
        // SAFETY: the memory is there until `self` is dropped, and no one refers to this number but as to an atomic
        // one.
        unsafe { &(*self.0).lost }.load(Ordering::Relaxed)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        SLOTS.store(ptr::null_mut(), Ordering::SeqCst);
        // A handler counts itself before it reads the pointer: with none running, no other has it.
        while RUNNING.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
        // SAFETY: it was mapped with this length, and no one has the pointer any more.
        unsafe { libc::munmap(self.0.cast(), size_of::<Slots>()) };
    }
}

/// Installs the handler. It stays: a signal that comes late would end the process otherwise.
fn install() -> io::Result<()> {
    // SAFETY: all bytes zero is a valid action; the handler has the signature that `SA_SIGINFO` asks for. System
    // calls that it interrupts go on, and it runs on the thread's stack for signals.
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
        // SAFETY: the slots are there as long as this handler is counted; what the kernel gives is there until it
        // returns.
        unsafe { fill(slots, info, context.cast()) };
    }
    RUNNING.fetch_sub(1, Ordering::SeqCst);
}

/// Takes a sample, if there is room for it.
///
/// # Safety
/// `slots` has to be [`SLOTS`] of now, and `info` and `context` those of the signal that is handled.
unsafe fn fill(slots: *mut Slots, info: *const libc::siginfo_t, context: *const libc::ucontext_t) {
    // SAFETY: as above. Of a slot only its state is referred to before it is this handler's own. The error number is
    // the interrupted thread's again afterwards.
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

/// Whether `here` is on a thread's stack for signals, with enough left below it.
fn stands_on(stack: &libc::stack_t, here: usize) -> bool {
    let lowest = stack.ss_sp.addr();
    stack.ss_flags & libc::SS_DISABLE == 0
        && here.checked_sub(lowest).is_some_and(|left| left >= SPARE && left < stack.ss_size)
}

/// How many expiries of a timer a signal stands for.
///
/// # Safety
/// `info` has to be that of a signal.
unsafe fn times(info: *const libc::siginfo_t) -> u64 {
    // SAFETY: where a timer sent the signal, the number of expiries that came with it is the sixth word
    // (`si_overrun`, after three words, one of padding and the timer's number); the structure has 32.
    let missed = unsafe {
        if (*info).si_code != libc::SI_TIMER {
            return 1;
        }
        *info.cast::<libc::c_int>().add(5)
    };
    // A thread that the kernel keeps for long is one sample more for each tick, but no number is trusted to be small.
    1 + u64::try_from(missed).unwrap_or(0).min(10_000)
}

/// Copies memory from `from` on, as far as there is any; returns how much. Fails nowhere: the kernel looks before it
/// reads.
fn copy(from: usize, to: *mut [u8; STACK]) -> usize {
    const PARTS: usize = STACK / PAGE + 1;
    // What is copied of a part is all or nothing, so each is within a page.
    let mut parts = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; PARTS];
    let (mut at, mut left) = (from, STACK);
    for part in &mut parts {
        let length = left.min(PAGE - at % PAGE);
        *part = libc::iovec { iov_base: ptr::without_provenance_mut(at), iov_len: length };
        at = at.wrapping_add(length);
        left -= length;
    }
    let own = libc::iovec { iov_base: to.cast(), iov_len: STACK };
    // SAFETY: the kernel writes at most `STACK` bytes to `to`, which is as long and of this handler alone, and reads
    // what it can of this process's own memory.
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

/// Takes the calling thread's stack for signals away.
#[cfg(test)]
pub(crate) fn without_signal_stack() -> libc::stack_t {
    // SAFETY: all bytes zero is a valid description; the call writes one and reads one.
    unsafe {
        let none = libc::stack_t { ss_flags: libc::SS_DISABLE, ..mem::zeroed() };
        let mut before: libc::stack_t = mem::zeroed();
        assert_eq!(libc::sigaltstack(&raw const none, &raw mut before), 0);
        before
    }
}

/// Gives it back.
#[cfg(test)]
pub(crate) fn with_signal_stack(stack: &libc::stack_t) {
    // SAFETY: it was this thread's before, and nothing has freed it.
    assert_eq!(unsafe { libc::sigaltstack(ptr::from_ref(stack), ptr::null_mut()) }, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Turn;

    #[test]
    fn memory_is_copied_as_far_as_there_is_any() {
        let mut copied = vec![0_u8; STACK];
        let room = copied.as_mut_ptr().cast();
        let here = [7_u8; 64];
        let length = copy(here.as_ptr().addr(), room);
        assert!(length >= 64 && copied[..64] == here, "{length}");
        assert_eq!(copy(64, room), 0);
        assert_eq!(copy(usize::MAX - 16, room), 0);
        // SAFETY: two new pages, of which the second is taken away; they are freed as a whole.
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

    /// Sends the signal to the calling thread, which has handled it when the call returns.
    fn interrupt() {
        // SAFETY: the call has no pointers.
        assert_eq!(unsafe { libc::raise(SIGNAL) }, 0);
    }

    #[test]
    fn samples_beyond_the_room_are_counted_as_lost_and_a_late_signal_does_nothing() {
        let turn = loop {
            match Turn::claim() {
                Some(turn) => break turn,
                None => thread::yield_now(),
            }
        };
        let room = Room::open().expect("room");
        (0..WAITING + 3).for_each(|_| interrupt());
        assert!(room.lost() >= 3);
        // SAFETY: the call has no arguments.
        let own = unsafe { libc::gettid() };
        let mut taken = 0;
        let mut count = |sample: Sample<'_>| {
            // A signal of another test, for another thread, may come late.
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
