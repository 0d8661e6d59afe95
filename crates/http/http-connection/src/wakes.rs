//! Wakers for the streams of a connection, which all run in one task.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;

/// One [`Waker`] per slot, created once and used by successive streams. A late wake reaches the next stream, which is
/// harmless.
#[derive(Debug, Default)]
pub struct Wakes {
    shared: Arc<Shared>,
    /// `Rc`: a clone of a waker would cost atomic operations in each run of a stream.
    places: Vec<(Arc<Place>, Rc<Waker>)>,
}

#[derive(Debug, Default)]
struct Shared {
    // `Wake` requires `Send` and `Sync`, although all streams run on one thread: a file that is read by
    // `spawn_blocking`, for example, wakes from another thread.
    connection: AtomicWaker,
    woken: Mutex<Vec<u32>>,
}

#[derive(Debug)]
struct Place {
    number: u32,
    is_woken: AtomicBool,
    shared: Arc<Shared>,
}

impl Wakes {
    /// Registers the task of the connection, which is woken together with any stream.
    pub fn register(&self, context: &Context<'_>) {
        self.shared.connection.register(context.waker());
    }

    /// The waker of the slot `place`.
    pub fn waker(&mut self, place: u32) -> &Rc<Waker> {
        while self.places.len() <= place as usize {
            let number = self.places.len() as u32;
            let made = Place { number, is_woken: AtomicBool::new(false), shared: Arc::clone(&self.shared) };
            let made = Arc::new(made);
            self.places.push((Arc::clone(&made), Rc::new(Waker::from(made))));
        }
        &self.places[place as usize].1
    }

    /// Appends the woken slots to `woken`. Required in each turn that [`Self::register`] begins: until then, further slots do not
    /// wake the connection.
    pub fn take(&self, woken: &mut Vec<u32>) {
        // Each state of the list is valid, so the panic that has poisoned the lock does not matter here.
        let mut list = self.shared.woken.lock().unwrap_or_else(PoisonError::into_inner);
        for place in list.drain(..) {
            // Before the stream runs, so that a wake during its run is not lost.
            self.places[place as usize].0.is_woken.store(false, Ordering::Release);
            woken.push(place);
        }
    }
}

impl Wake for Place {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The flag keeps the list as short as the number of slots: a stream that is woken a thousand times is
        // listed once.
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            let mut woken = self.shared.woken.lock().unwrap_or_else(PoisonError::into_inner);
            woken.push(self.number);
            let is_first = woken.len() == 1;
            drop(woken);
            // The turn that the first slot of the list causes takes all of them.
            if is_first {
                self.shared.connection.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn a_place_is_woken_once_until_it_is_taken() {
        let mut wakes = Wakes::default();
        let [first, third] = [0, 2].map(|place| wakes.waker(place).clone());
        for _ in 0..3 {
            third.wake_by_ref();
        }
        first.wake_by_ref();
        let mut woken = Vec::new();
        wakes.take(&mut woken);
        assert_eq!(woken, [2, 0]);
        third.wake_by_ref();
        wakes.take(&mut woken);
        assert_eq!(woken, [2, 0, 2]);
    }

    #[derive(Default)]
    struct Wakeups(AtomicU32);

    impl Wake for Wakeups {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_connection_is_woken_once_for_all_places_of_a_turn() {
        let wakeups = Arc::new(Wakeups::default());
        let waker = Waker::from(Arc::clone(&wakeups));
        let mut wakes = Wakes::default();
        for turn in 1..=3 {
            wakes.register(&Context::from_waker(&waker));
            let mut woken = Vec::new();
            wakes.take(&mut woken);
            assert_eq!(woken.len(), if turn == 1 { 0 } else { 5 });
            (0..5).for_each(|place| wakes.waker(place).wake_by_ref());
            assert_eq!(wakeups.0.load(Ordering::Relaxed), turn);
        }
    }
}
