//! Pauses of the machine, during which programs do not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at the clock.
const STEP: Duration = Duration::from_millis(10);

/// Length of a pause from which on it may be the reason for a late reply.
const NOTICED: Duration = Duration::from_millis(100);

/// A thread that notices pauses until the value is dropped.
#[derive(Debug)]
pub struct Pauses {
    longest: Arc<AtomicU64>,
    has_ended: Arc<AtomicBool>,
}

impl Pauses {
    /// Watches from now on.
    pub fn watch() -> Self {
        let (longest, has_ended) = (Arc::default(), Arc::default());
        let watch = Self { longest: Arc::clone(&longest), has_ended: Arc::clone(&has_ended) };
        thread::spawn(move || {
            while !has_ended.load(Ordering::Relaxed) {
                let started = Instant::now();
                thread::sleep(STEP);
                let late = started.elapsed().saturating_sub(STEP);
                longest.fetch_max(late.as_millis() as u64, Ordering::Relaxed);
            }
        });
        watch
    }

    /// Whether the machine has paused for 100 ms or longer.
    pub fn has_paused(&self) -> bool {
        Duration::from_millis(self.longest.load(Ordering::Relaxed)) >= NOTICED
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}
