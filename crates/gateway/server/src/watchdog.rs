//! Detection of workers whose event loop is stuck. Their listeners are closed, since the kernel would continue to
//! assign connections to them that no worker serves.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use brisk_net::{accept_queue, listener};

use crate::load::{Measured, WorkerLoad};
use crate::sockets::Bound;

/// Interval at which workers show that they turn, and at which the watchdog looks.
pub(crate) const BEAT: Duration = Duration::from_secs(1);
/// Consecutive looks without a beat after which a worker counts as stuck. Counted in looks, not in time: a pause of the
/// whole process holds up the watchdog as well.
const PATIENT_LOOKS: u32 = 5;

/// The beats of all workers, and which workers are stuck. Shared by all threads.
#[derive(Debug)]
pub(crate) struct Pulse(Box<[WorkerPulse]>);

#[derive(Debug, Default)]
struct WorkerPulse {
    beats: AtomicU64,
    stuck: AtomicBool,
    measured: Measured,
}

impl Pulse {
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self((0..workers).map(|_| WorkerPulse::default()).collect()))
    }

    /// Records that `worker` turns. To be called once every [`BEAT`].
    pub(crate) fn beat(&self, worker: usize) {
        self.0[worker].beats.fetch_add(1, Ordering::Relaxed);
    }

    /// The last [`Measured`] of `worker`.
    pub(crate) fn measured(&self, worker: usize) -> &Measured {
        &self.0[worker].measured
    }

    /// Delay of the event loops by their own work since the last call, as a mean: other workers relieve a single one.
    pub(crate) fn take_own_delay(&self) -> Duration {
        let sum: Duration = self.0.iter().map(|worker| worker.measured.take_own_delay()).sum();
        sum / u32::try_from(self.0.len()).unwrap_or(u32::MAX).max(1)
    }

    /// [`WorkerLoad`] of each worker, by number.
    pub(crate) fn loads(&self) -> Vec<WorkerLoad> {
        self.0.iter().map(|worker| worker.measured.load(worker.stuck.load(Ordering::Relaxed))).collect()
    }

    /// The numbers of the workers that do not turn.
    pub(crate) fn stuck(&self) -> Vec<usize> {
        let stuck = self.0.iter().enumerate().filter(|(_, worker)| worker.stuck.load(Ordering::Relaxed));
        stuck.map(|(number, _)| number).collect()
    }
}

/// Load of a server's workers. A clone costs one reference count.
#[derive(Clone, Debug)]
pub struct WorkerLoads(pub(crate) Arc<Pulse>);

impl WorkerLoads {
    /// [`WorkerLoad`] of all workers, by number, as of the last beat of each: older while its event loop is blocked.
    pub fn now(&self) -> Vec<WorkerLoad> {
        self.0.loads()
    }
}

/// Watches the workers.
#[derive(Debug)]
pub(crate) struct Watchdog {
    pulse: Arc<Pulse>,
    workers: Vec<Watched>,
    /// Whether a successor may have the same sockets, which then stay in service: a pause would end its accepting too.
    is_shared: bool,
}

#[derive(Debug)]
struct Watched {
    listeners: Vec<(TcpListener, i32)>,
    beats: u64,
    looks: u32,
}

impl Watchdog {
    /// Keeps copies of the sockets that the workers will serve, except for [`Bound::is_shared`]: these stay in service,
    /// since the other workers accept from them too.
    pub(crate) fn new<L>(pulse: Arc<Pulse>, workers: usize, bound: &[Bound<L>]) -> io::Result<Self> {
        let watched = |number: usize| {
            // One stuck worker does not block the sockets that all workers share.
            let own = bound.iter().filter(|bound| !bound.is_shared);
            let sockets =
                own.flat_map(|bound| bound.sockets[number].iter().map(move |socket| (socket, bound.backlog)));
            let copies = sockets.map(|(socket, backlog)| Ok((socket.try_clone()?, backlog)));
            let listeners = copies.collect::<io::Result<_>>()?;
            Ok(Watched { listeners, beats: 0, looks: 0 })
        };
        let workers = (0..workers).map(watched).collect::<io::Result<_>>()?;
        Ok(Self { pulse, workers, is_shared: false })
    }

    /// Keeps all sockets in service from now on if `is_shared`: a successor starts with copies of them. Those of a stuck worker,
    /// which were taken out of service before, are put into service by the successor, for its own worker. Otherwise, those of stuck
    /// workers are out of service again.
    pub(crate) fn share_sockets(&mut self, is_shared: bool) {
        self.is_shared = is_shared;
        if !is_shared {
            self.pulse.stuck().into_iter().for_each(|number| self.workers[number].pause());
        }
    }

    /// Whether at least one worker turns, as of the last [`look`](Self::look).
    pub(crate) fn sees_life(&self) -> bool {
        self.pulse.stuck().len() < self.pulse.0.len()
    }

    /// Looks at every worker. To be called once every [`BEAT`].
    pub(crate) fn look(&mut self) {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let pulse = &self.pulse.0[number];
            // Relaxed order suffices: a beat that is seen one look later changes
            // nothing before `PATIENT_LOOKS`.
            let turned = worker.turned(pulse.beats.load(Ordering::Relaxed));
            let stuck = pulse.stuck.load(Ordering::Relaxed);
            if turned && stuck {
                pulse.stuck.store(false, Ordering::Relaxed);
                worker.resume();
                tracing::warn!(worker = number, "the worker turns again, and accepts connections");
            } else if !stuck && worker.looks >= PATIENT_LOOKS {
                pulse.stuck.store(true, Ordering::Relaxed);
                if !self.is_shared {
                    worker.pause();
                }
                tracing::error!(
                    worker = number,
                    "the worker has not turned for {PATIENT_LOOKS} s: new connections go to the others. If it stays so, \
                     restart brisk and report what it was doing"
                );
            }
        }
    }

    /// Share of the longest queue of connections that wait to be accepted, as a mean of the workers that turn: others relieve a
    /// single one.
    pub(crate) fn accept_queue(&self) -> f64 {
        let turning = self.workers.iter().zip(self.pulse.0.iter());
        let turning = turning.filter(|(_, pulse)| !pulse.stuck.load(Ordering::Relaxed));
        let longest = |worker: &Watched| {
            let queues = worker.listeners.iter().filter_map(|(socket, _)| accept_queue(socket).ok());
            queues.fold(0.0, f64::max)
        };
        let (sum, workers) = turning
            .map(|(worker, _)| longest(worker))
            .fold((0.0, 0_u32), |(sum, workers), longest| (sum + longest, workers + 1));
        sum / f64::from(workers.max(1))
    }

    /// Closes the watchdog's copies of the listeners, so that the ports are closed once the workers have closed theirs.
    pub(crate) fn end(&mut self) {
        self.workers.clear();
    }
}

impl Watched {
    /// Whether there were beats since the last look.
    fn turned(&mut self, beats: u64) -> bool {
        let turned = beats != self.beats;
        self.looks = if turned { 0 } else { self.looks.saturating_add(1) };
        self.beats = beats;
        turned
    }

    fn pause(&self) {
        for (socket, _) in &self.listeners {
            // Logged only: the other listeners can still be taken out of service.
            if let Err(error) = listener::pause(socket) {
                tracing::warn!(%error, "cannot take a listener out of service");
            }
        }
    }

    fn resume(&self) {
        for (socket, backlog) in &self.listeners {
            if let Err(error) = listener::resume(socket, *backlog) {
                tracing::error!(%error, "cannot put a listener back into service");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};

    use brisk_net::ListenerSettings;

    use super::*;
    use crate::stored::Stored;

    #[test]
    fn a_worker_that_does_not_turn_gets_no_connections_until_it_does() {
        let free = listener::bind(&ListenerSettings::new(SocketAddr::from(([127, 0, 0, 1], 0))));
        let address = free.and_then(|socket| socket.local_addr()).expect("a free port");
        let settings = ListenerSettings::new(address);
        let socket = listener::bind(&settings).expect("the same port");
        let listeners = vec![(socket, settings.backlog)];
        let pulse = Pulse::new(1);
        let workers = vec![Watched { listeners, beats: 0, looks: 0 }];
        let mut watchdog = Watchdog { pulse: Arc::clone(&pulse), workers, is_shared: false };
        for _ in 0..10 {
            pulse.beat(0);
            watchdog.look();
        }
        assert!(pulse.stuck().is_empty());
        for _ in 0..PATIENT_LOOKS {
            TcpStream::connect(address).expect("it listens");
            watchdog.look();
        }
        assert_eq!(pulse.stuck(), [0]);
        TcpStream::connect(address).expect_err("out of service");
        pulse.beat(0);
        watchdog.look();
        assert!(pulse.stuck().is_empty());
        TcpStream::connect(address).expect("in service again");
    }

    #[test]
    fn the_accept_queue_is_a_mean_of_the_workers_that_turn() {
        let bound = || listener::bind(&ListenerSettings::new(SocketAddr::from(([127, 0, 0, 1], 0))));
        let sockets = [bound().expect("a socket"), bound().expect("a socket")];
        let address = sockets[0].local_addr().expect("an address");
        let pulse = Pulse::new(2);
        let workers = sockets.map(|socket| Watched { listeners: vec![(socket, 16)], beats: 0, looks: 0 });
        let watchdog = Watchdog { pulse: Arc::clone(&pulse), workers: workers.into(), is_shared: false };
        let _waiting = TcpStream::connect(address).expect("it listens");
        let queue = || accept_queue(&watchdog.workers[0].listeners[0].0).expect("TCP_INFO");
        while queue() < 1e-9 {
            std::thread::yield_now();
        }
        let alone = queue();
        assert!((watchdog.accept_queue() - alone / 2.0).abs() < 1e-9);
        pulse.0[0].stuck.store(true, Ordering::Relaxed);
        assert!(watchdog.accept_queue() < 1e-9, "the queue of a stuck worker concerns no other");
        pulse.0[1].stuck.store(true, Ordering::Relaxed);
        assert!(watchdog.accept_queue() < 1e-9);
    }

    #[test]
    fn sockets_that_others_serve_stay_in_service() {
        let free = listener::bind(&ListenerSettings::new(SocketAddr::from(([127, 0, 0, 1], 0))));
        let address = free.and_then(|socket| socket.local_addr()).expect("a free port");
        let socket = listener::bind(&ListenerSettings::new(address)).expect("the same port");
        let bound = |is_shared| {
            let sockets = vec![vec![socket.try_clone().expect("a copy")]];
            [Bound {
                kind: (),
                address,
                configured: Some(address),
                datagrams_configured: None,
                backlog: 16,
                is_shared,
                sockets,
                datagrams: Vec::new(),
                halves: None,
            }]
        };
        let stuck = |bound: &[Bound<()>], has_successor| {
            let pulse = Pulse::new(1);
            let mut watchdog = Watchdog::new(Arc::clone(&pulse), 1, bound).expect("copies");
            watchdog.share_sockets(has_successor);
            assert!(watchdog.sees_life());
            (0..=PATIENT_LOOKS).for_each(|_| watchdog.look());
            assert_eq!(pulse.stuck(), [0]);
            assert!(!watchdog.sees_life());
            watchdog
        };
        stuck(&bound(true), false);
        TcpStream::connect(address).expect("in service for the other workers");
        let mut watchdog = stuck(&bound(false), true);
        TcpStream::connect(address).expect("in service for the successor");
        watchdog.share_sockets(false);
        TcpStream::connect(address).expect_err("the successor has ended: out of service");
        let [resumed] = bound(false);
        let mut stored = Stored::new(1);
        stored.add("https", &resumed).expect("a copy");
        stored.resume();
        TcpStream::connect(address).expect("in service for a successor that is ready");
        stuck(&bound(false), false);
        TcpStream::connect(address).expect_err("out of service");
    }
}
