//! Wakers of connections: each marks its connection and wakes the task of the driver.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The slots of a [`Driver`](crate::Driver) that were woken, from any thread.
#[derive(Debug, Default)]
pub(crate) struct Woken(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    slots: Vec<u32>,
    driver: Option<Waker>,
}

/// The [`Waker`] of one slot.
#[derive(Debug)]
pub(crate) struct Signal {
    woken: Arc<Woken>,
    slot: u32,
    is_set: AtomicBool,
}

impl Woken {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The [`Signal`] of a slot; its [`Waker`] is valid for all connections of the slot.
    pub(crate) fn signal(self: &Arc<Self>, slot: u32) -> Arc<Signal> {
        Arc::new(Signal { woken: Arc::clone(self), slot, is_set: AtomicBool::new(false) })
    }

    /// Sets the [`Waker`] of the driver's task.
    pub(crate) fn register(&self, driver: &Waker) {
        let mut inner = self.inner();
        if !inner.driver.as_ref().is_some_and(|old| old.will_wake(driver)) {
            inner.driver = Some(driver.clone());
        }
    }

    /// Moves the woken slots to `slots`, which is empty.
    pub(crate) fn take(&self, slots: &mut Vec<u32>) {
        std::mem::swap(&mut self.inner().slots, slots);
    }
}

impl Signal {
    /// Resets `is_set`. Returns whether it was `true`.
    pub(crate) fn take(&self) -> bool {
        // Acquires the writes of the thread that woke the slot, before the connection is polled.
        self.is_set.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A slot is in the list at most once, so that the list does not grow with the wake-ups of one connection.
        if self.is_set.swap(true, Ordering::AcqRel) {
            return;
        }
        // Woken without the lock, which the task of the driver takes when it runs.
        let driver = {
            let mut inner = self.woken.inner();
            inner.slots.push(self.slot);
            inner.driver.clone()
        };
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}
