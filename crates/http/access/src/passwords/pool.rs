//! Threads that verify passwords, so that no worker does.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use brisk_net::limits::client_of;
use brisk_net::{FairShare, SharePermit};

/// Number of threads. A client occupies one at most, so that a single client leaves one to the others.
const THREADS: usize = 2;

/// Number of verifications that wait or run, of which a single client has half. Beyond it, [`PasswordThreads::run`] is
/// [`Busy`].
const PLACES: usize = 64;

/// The threads of a process that verify passwords. They start with the first verification. Clones share the threads.
#[derive(Clone, Debug, Default)]
pub struct PasswordThreads(Arc<Owner>);

/// Ends the threads when dropped.
#[derive(Debug, Default)]
struct Owner(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    places: FairShare,
    state: Mutex<State>,
    changed: Condvar,
}

/// A verification.
type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// Clients with waiting verifications; the next one to be served is in front. Bounded by [`PLACES`].
    lanes: VecDeque<Lane>,
    /// Clients whose verifications run.
    running: Vec<IpAddr>,
    threads: usize,
    has_ended: bool,
}

/// The waiting verifications of a client.
struct Lane {
    client: IpAddr,
    jobs: VecDeque<(Job, SharePermit)>,
}

/// No place for another verification of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl PasswordThreads {
    /// Runs `job` on a thread, after earlier ones of the same client, and in turn with those of other clients. Never waits.
    ///
    /// # Errors
    ///
    /// [`Busy`] if the client, an IPv4 address or an IPv6 /64, has its share of the places, or if no thread can be started.
    pub(super) fn run(&self, client: IpAddr, job: impl FnOnce() + Send + 'static) -> Result<(), Busy> {
        let shared = &self.0.0;
        let client = client_of(client);
        let place = shared.places.try_acquire(client).ok_or(Busy)?;
        let mut state = shared.lock();
        while state.threads < THREADS {
            let own = Arc::clone(shared);
            let started = thread::Builder::new().name("password".to_owned()).spawn(move || own.work());
            match started {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads > 0 => break,
                Err(error) => {
                    tracing::warn!("no thread for the verification of passwords: {error}");
                    return Err(Busy);
                }
            }
        }
        let job = (Box::new(job) as Job, place);
        match state.lanes.iter_mut().find(|lane| lane.client == client) {
            Some(lane) => lane.jobs.push_back(job),
            None => state.lanes.push_back(Lane { client, jobs: VecDeque::from([job]) }),
        }
        shared.changed.notify_one();
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        while !state.has_ended {
            let Some((client, job)) = state.next() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            // A job that panics refuses the requests that wait for its result.
            if catch_unwind(AssertUnwindSafe(job.0)).is_err() {
                tracing::error!("the verification of a password failed");
            }
            // After the job, so that running verifications occupy a place too.
            drop(job.1);
            state = self.lock();
            state.running.retain(|running| *running != client);
            // Jobs of this client were not eligible before, and another thread may wait for one.
            self.changed.notify_one();
        }
    }
}

impl State {
    /// The next verification, of a client of which none runs. Clients take turns.
    fn next(&mut self) -> Option<(IpAddr, (Job, SharePermit))> {
        let index = self.lanes.iter().position(|lane| !self.running.contains(&lane.client))?;
        let mut lane = self.lanes.remove(index)?;
        let job = lane.jobs.pop_front()?;
        let client = lane.client;
        if !lane.jobs.is_empty() {
            self.lanes.push_back(lane);
        }
        self.running.push(client);
        Some((client, job))
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self { places: FairShare::new(PLACES), state: Mutex::default(), changed: Condvar::new() }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.has_ended = true;
        // The drop of a job refuses the requests that wait for its result.
        state.lanes.clear();
        self.0.changed.notify_all();
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("clients", &self.lanes.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    /// A job that reports `number` and then waits until the sender is dropped.
    fn held(threads: &PasswordThreads, number: u8, report: &Sender<u8>) -> (Result<(), Busy>, Sender<()>) {
        let (hold, held): (_, Receiver<()>) = channel();
        let report = report.clone();
        let result = threads.run(client(number), move || {
            report.send(number).expect("a test that listens");
            let _ = held.recv();
        });
        (result, hold)
    }

    #[test]
    fn a_client_occupies_one_thread_and_others_take_turns() {
        let threads = PasswordThreads::default();
        let (report, started) = channel();
        let (_, first) = held(&threads, 1, &report);
        assert_eq!(started.recv(), Ok(1));
        let (_, second) = held(&threads, 1, &report);
        let (_, third) = held(&threads, 1, &report);
        let (_, other) = held(&threads, 2, &report);
        assert_eq!(started.recv(), Ok(2), "another client does not wait for the first one");
        let (_, last) = held(&threads, 3, &report);
        drop(first);
        // One of the first client and one of the third in turn, the second client still holds its thread.
        assert_eq!(started.recv(), Ok(1));
        drop(second);
        assert_eq!(started.recv(), Ok(3));
        drop(other);
        assert_eq!(started.recv(), Ok(1));
        drop((third, last));
    }

    #[test]
    fn one_client_leaves_places_for_others_and_gets_its_own_back() {
        let threads = PasswordThreads::default();
        let (report, _started) = channel();
        let taken: Vec<_> = (0..PLACES).map(|_| held(&threads, 1, &report)).collect();
        assert_eq!(taken.iter().filter(|(result, _)| result.is_ok()).count(), PLACES / 2);
        assert!(held(&threads, 2, &report).0.is_ok());
        drop(taken);
        let (done, is_done) = channel();
        while threads
            .run(client(1), {
                let done = done.clone();
                move || {
                    let _ = done.send(());
                }
            })
            .is_err()
        {
            thread::yield_now();
        }
        assert_eq!(is_done.recv(), Ok(()));
    }

    #[test]
    fn a_panic_ends_no_thread() {
        let threads = PasswordThreads::default();
        let (done, is_done) = channel();
        for _ in 0..2 * THREADS {
            threads.run(client(1), || panic!("a defect")).expect("a place");
        }
        threads.run(client(1), move || done.send(()).expect("a test that listens")).expect("a place");
        assert_eq!(is_done.recv(), Ok(()));
    }
}
