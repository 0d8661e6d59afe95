//! One worker: a thread with its own runtime, listeners and deadlines.

use std::io;
use std::net::TcpListener;
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use brisk_net::{DeadlineWheel, Drain, Listener};
use brisk_pressure::INTERVAL;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};

use crate::ServerError;
use crate::accept::accept;
use crate::context::{Shared, WorkerContext};
use crate::load::{Meter, OwnDelay};
use crate::service::{DatagramSocket, Service};
use crate::watchdog::BEAT;

/// Turns of connections between two polls of the sockets. A turn with a long response takes 0.3 ms, so `tokio`'s 61 would leave
/// a new request unseen for 20 ms while many such answers are under way; looking costs a system call.
const TURNS: u32 = 8;

/// Number of threads per worker for reading files and resolving upstream names. Each takes up to 1 MiB, and a client
/// can request many files at once; `tokio`'s default of 512 would allow half a GiB.
const FILE_THREADS: usize = 16;

const PANICKED: &str = "it panicked, as the log says";

/// Parameters that every worker is started with.
#[derive(Clone)]
pub(crate) struct Start {
    pub(crate) shared: Arc<Shared>,
    pub(crate) drain: Drain,
    /// The worker ends when the sender of `stop` is dropped.
    pub(crate) stop: watch::Receiver<()>,
    pub(crate) failures: UnboundedSender<ServerError>,
    /// Gets a message when [`Service::start_worker`] has returned.
    pub(crate) prepared: UnboundedSender<()>,
    /// Becomes true when all workers may serve. The worker ends if the sender is dropped before.
    pub(crate) gate: watch::Receiver<bool>,
}

/// The sockets of a worker.
pub(crate) struct WorkerSockets<L> {
    pub(crate) streams: Vec<(L, TcpListener)>,
    pub(crate) datagrams: Vec<DatagramSocket<L>>,
}

/// Starts a worker on a thread `worker-<number>`. A later failure, also a panic, is sent to [`Start::failures`].
pub(crate) fn start<S: Service>(
    number: usize,
    service: Arc<S>,
    sockets: WorkerSockets<S::Listener>,
    start: Start,
) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
        let failures = start.failures.clone();
        let serve = || {
            let built = Builder::new_current_thread()
                .enable_all()
                .event_interval(TURNS)
                .max_blocking_threads(FILE_THREADS)
                .build_local(LocalOptions::default());
            built.and_then(|local| local.block_on(run(number, service, sockets, start)))
        };
        // Sound: no state of the worker is used after a panic, since the process ends.
        let ended = panic::catch_unwind(AssertUnwindSafe(serve));
        let reason = match ended {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => PANICKED.to_owned(),
        };
        // The send fails if the process is ending already.
        let _ = failures.send(ServerError::Worker { number, reason });
    })
}

async fn run<S: Service>(
    number: usize,
    service: Arc<S>,
    sockets: WorkerSockets<S::Listener>,
    Start { shared, drain, mut stop, prepared, mut gate, failures: _ }: Start,
) -> io::Result<()> {
    // Before the worker accepts: a shortage of another worker from then on is not missed.
    let shortages = shared.shortages.subscribe();
    let context =
        WorkerContext { number, wheel: DeadlineWheel::new(), drain, shared, waiting: Rc::default() };
    let mut tasks = JoinSet::new();
    let deadlines = context.wheel.clone();
    tasks.spawn_local(async move { deadlines.run().await });
    tasks.spawn_local(help_others(context.wheel.clone(), shortages));
    tasks.spawn_local(each_second(context.clone()));
    tasks.spawn_local(each_sample(context.clone()));
    let worker = service.start_worker(&context, &mut tasks)?;
    let listeners = sockets.streams.into_iter().map(|(kind, socket)| Ok((kind, Listener::new(socket)?)));
    let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
    // Fails if the server has ended already, which the gate shows too.
    let _ = prepared.send(());
    tokio::select! {
        // Nothing is accepted before: a predecessor still serves these sockets, and the start of another worker may fail.
        opened = gate.wait_for(|is_open| *is_open) => if opened.is_err() { return Ok(()) },
        failed = panicked(&mut tasks) => return Err(failed),
    }
    let mut accepting = JoinSet::new();
    for socket in sockets.datagrams {
        // Among the other tasks, because connections of QUIC need the socket during the drain.
        tasks.spawn_local(S::serve_datagrams(&worker, socket));
    }
    for (kind, listener) in listeners {
        accepting.spawn_local(accept::<S>(context.clone(), Rc::clone(&worker), listener, kind));
    }
    tokio::select! {
        () = context.drain.wait() => {}
        failed = panicked(&mut accepting) => return Err(failed),
        failed = panicked(&mut tasks) => return Err(failed),
    }
    // Dropping the tasks closes the listeners: the drain accepts nothing more.
    drop(accepting);
    // Connections do not wait for the drain themselves (`Drain::wait`): idle ones would
    // last until their deadline.
    context.wheel.wake_all();
    tokio::select! {
        // Ends with an error when the sender is gone: that is the signal.
        _gone = stop.changed() => Ok(()),
        failed = panicked(&mut tasks) => Err(failed),
    }
}

/// Waits until one of `tasks` panics: without this a worker would seem to live and not serve. The log has the panic.
pub async fn panicked(tasks: &mut JoinSet<()>) -> io::Error {
    while let Some(ended) = tasks.join_next().await {
        if ended.is_err_and(|error| error.is_panic()) {
            return io::Error::other(PANICKED);
        }
    }
    std::future::pending().await
}

/// Reports a beat each second ([`BEAT`]). Also calls [`Program::give_back_memory`](crate::Program::give_back_memory), since
/// after a burst no later allocation may trigger the release.
async fn each_second(context: WorkerContext) {
    let mut seconds = beats(BEAT);
    let mut meter = Meter::start();
    loop {
        let due = seconds.tick().await;
        context.shared.pulse.beat(context.number);
        meter.note(due, context.shared.pulse.measured(context.number));
        (context.shared.program.give_back_memory)();
    }
}

/// Measures the delay of the event loop by its own work ([`OwnDelay`]) for every sample of the main thread.
async fn each_sample(context: WorkerContext) {
    let mut samples = beats(INTERVAL);
    let mut delay = OwnDelay::start();
    loop {
        let due = samples.tick().await;
        delay.note(due, context.shared.pulse.measured(context.number));
    }
}

/// Creates a timer with one beat per `interval`. After a stall, the next beat follows an `interval` after the late one:
/// catching up on missed beats would report the worker as punctual and idle.
fn beats(interval: Duration) -> Interval {
    let mut beats = tokio::time::interval(interval);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beats
}

/// Closes idle connections on a message of [`Shared::shortages`]: another worker needs a place and has none to close.
async fn help_others(wheel: DeadlineWheel, mut shortages: watch::Receiver<()>) {
    while shortages.changed().await.is_ok() {
        // One eviction for several messages, of which `watch` keeps one: a burst must not
        // close all idle connections.
        wheel.evict_idle();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::load::Measured;

    #[tokio::test]
    async fn what_a_stall_did_can_be_read_after_it() {
        let (mut beats, mut meter, measured) = (beats(BEAT), Meter::start(), Measured::default());
        meter.note(beats.tick().await, &measured);
        // Blocks the event loop, as a bug would.
        thread::sleep(Duration::from_millis(2600));
        let stalled_until = Instant::now();
        meter.note(beats.tick().await, &measured);
        let next = beats.tick().await;
        assert!(next >= stalled_until + BEAT, "{:?}", next - stalled_until);
        meter.note(next, &measured);
        assert!(measured.load(false).delay >= Duration::from_millis(1500), "{:?}", measured.load(false));
    }

    #[tokio::test]
    async fn a_task_that_panics_is_noticed_and_one_that_ends_is_not() {
        let mut tasks = JoinSet::new();
        tasks.spawn(async {});
        tasks.spawn(async {
            tokio::task::yield_now().await;
            panic!("as a bug would");
        });
        let failed = panicked(&mut tasks).await;
        assert_eq!(failed.to_string(), PANICKED);
    }
}
