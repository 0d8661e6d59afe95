//! The thread that communicates with Redis, so that workers wait for replies only.

use std::{cell::Cell, io, rc::Rc, sync::Arc, thread};

use tokio::{
    runtime,
    sync::mpsc::Receiver,
    task::{LocalSet, spawn_local},
};

use super::{command::Command, exchange::Exchange, router::Router, shared::Shared};
use crate::Miss;

/// Work for the thread of [`start`].
pub(super) enum Job {
    /// A [`Command`] of a worker.
    Command(Command),
    /// The exchange of ticket keys, until it is stopped.
    Exchange(Box<Exchange>),
}

/// Starts the thread. It ends when all senders of `jobs` have been dropped and their commands are finished.
pub(super) fn start(shared: Arc<Shared>, jobs: Receiver<Job>) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let run = move || LocalSet::new().block_on(&runtime, run(shared, jobs));
    thread::Builder::new().name("redis".to_owned()).spawn(run)?;
    Ok(())
}

async fn run(shared: Arc<Shared>, mut jobs: Receiver<Job>) {
    let router = Rc::new(Router::new(Arc::clone(&shared)));
    let following = Rc::clone(&router);
    spawn_local(async move { following.keep().await });
    let in_flight = Rc::new(Cell::new(0));
    while let Some(job) = jobs.recv().await {
        match job {
            Job::Command(command) => dispatch(command, &router, &shared, &in_flight),
            Job::Exchange(exchange) => {
                let (router, shared) = (Rc::clone(&router), Arc::clone(&shared));
                spawn_local(async move { exchange.run(&router, &shared).await });
            }
        }
    }
    // At the end, commands in flight get the same timeout as a connection.
    let done = async {
        while in_flight.get() > 0 {
            tokio::time::sleep(shared.settings.deadline).await;
        }
    };
    let _ = tokio::time::timeout(shared.settings.connect_timeout, done).await;
}

/// Sends `command` to the server that has [`Command::key`]. Commands for the same session are sent in the order of the calls.
fn dispatch(command: Command, router: &Rc<Router>, shared: &Arc<Shared>, in_flight: &Rc<Cell<usize>>) {
    let key = command.key(shared);
    // No attempt to connect here: `Node::keep` connects, and a handshake must not wait for it.
    let Some(link) = router.node(&key).and_then(|node| node.link()) else {
        return command.give_up(Miss::Down, shared);
    };
    // A server that accepts commands but does not reply would otherwise accumulate tasks without limit.
    if in_flight.get() >= command.most_in_flight(shared.settings.queue) {
        return command.give_up(Miss::Late, shared);
    }
    let flight = Flight::begin(Rc::clone(in_flight), Arc::clone(shared));
    let router = Rc::clone(router);
    spawn_local(async move {
        command.perform(&key, &link, &router, &flight.shared).await;
        if link.take_moved() {
            router.doubt();
        }
    });
}

/// Counts a command as in flight until it is answered or cancelled.
struct Flight {
    count: Rc<Cell<usize>>,
    shared: Arc<Shared>,
}

impl Flight {
    fn begin(count: Rc<Cell<usize>>, shared: Arc<Shared>) -> Self {
        count.set(count.get() + 1);
        shared.counters.in_flight.count();
        Self { count, shared }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
        self.shared.counters.in_flight.sub(1);
    }
}
