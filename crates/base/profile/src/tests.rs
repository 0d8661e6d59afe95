use std::hint::black_box;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, mpsc};
use std::thread;

use super::*;

/// Uses the processor until `stop` is set.
#[inline(never)]
fn burns_time(stop: &AtomicBool) -> u64 {
    let mut sum = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        for number in 0..10_000_u64 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
    }
    sum
}

/// Ends the thread when dropped, also if the test panics.
struct Burner {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u64>>,
}

impl Burner {
    fn start(name: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&stop);
        let thread = thread::Builder::new().name(name.into()).spawn(move || burns_time(&own));
        Self { stop, thread: Some(thread.expect("a thread")) }
    }

    fn start_without_stack(name: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&stop);
        let (ready, is_ready) = mpsc::channel();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            let before = handler::without_signal_stack();
            ready.send(()).expect("a test that waits");
            let sum = burns_time(&own);
            handler::with_signal_stack(&before);
            sum
        });
        is_ready.recv().expect("a thread that begins");
        Self { stop, thread: Some(thread.expect("a thread")) }
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Other tests of this process take profiles too.
fn turn() -> ProfileRight {
    loop {
        match ProfileRight::claim() {
            Some(turn) => return turn,
            None => thread::yield_now(),
        }
    }
}

#[test]
fn a_busy_thread_is_seen_by_name_and_function() {
    let _burner = Burner::start("burner");
    // On a busy machine one second may be too short for a sample.
    let seen = (0..60).find_map(|_| {
        let profile =
            turn().take(ProfileOptions { seconds: 1, frequency: 200 }, || false).expect("a profile");
        let folded = profile.folded();
        let is_seen = folded.lines().any(|line| line.starts_with("burner;") && line.contains("::burns_time"));
        is_seen.then_some(profile)
    });
    let profile = seen.expect("a stack with the function");
    assert!(profile.samples() > 0);
    assert!(profile.flame_graph(&[]).contains("::burns_time ("));
    // Stacks are complete, down to the start of the thread.
    let folded = profile.folded();
    let burner: Vec<_> = folded.lines().filter(|line| line.starts_with("burner;")).collect();
    assert!(burner.iter().any(|line| line.contains("thread_start") || line.contains("::main")), "{burner:?}");
}

#[test]
fn one_profile_is_taken_at_a_time_and_one_that_is_unwanted_ends() {
    let first = turn();
    assert!(ProfileRight::claim().is_none());
    let asked = AtomicUsize::new(0);
    let given_up = first
        .take(ProfileOptions { seconds: 60, frequency: 99 }, || asked.fetch_add(1, Ordering::Relaxed) > 2);
    assert!(matches!(given_up, Err(ProfileError::GivenUp)), "{given_up:?}");
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    drop(turn());
}

#[test]
fn threads_that_come_and_go_are_no_fault() {
    let stop = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&stop);
    let spawning = thread::spawn(move || {
        let mut sum = 0;
        while !own.load(Ordering::Relaxed) {
            let short = thread::spawn(|| (0..200_000_u64).fold(0, |sum, number| black_box(sum ^ number)));
            sum ^= short.join().expect("no panic");
        }
        sum
    });
    let taken = turn().take(ProfileOptions { seconds: 2, frequency: 1000 }, || false);
    stop.store(true, Ordering::Relaxed);
    spawning.join().expect("no panic");
    taken.expect("a profile");
}

/// Threads of C libraries have no signal stack.
#[test]
fn a_thread_without_a_stack_for_signals_is_not_interrupted_again_and_again() {
    let _burner = Burner::start_without_stack("foreign");
    let is_left_out = (0..30).any(|_| {
        let profile =
            turn().take(ProfileOptions { seconds: 1, frequency: 1000 }, || false).expect("a profile");
        assert!(!profile.folded().contains("foreign;"), "{}", profile.folded());
        profile.left_out > 0
    });
    assert!(is_left_out);
}
