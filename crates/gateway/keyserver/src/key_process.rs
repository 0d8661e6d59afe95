//! A key process: performs key operations for the gateway that started it, over sockets which that gateway passes to
//! it.

use std::io;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream as Socket;
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use brisk_keyless::Shape;
use brisk_keys::Keystore;
use brisk_net::{DeadlineWheel, drain};
use brisk_server::panicked;
use brisk_tls::gather;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinSet, spawn_local};

use crate::connection::{self, GATEWAY};
use crate::policy::{Keys, Policy};
use crate::server::Environment;
use crate::service::{Shared, Worker};

/// Limit of concurrent operations per connection. No effective limit here, because the gateway's own queue has one.
const OPERATIONS: u16 = u16::MAX;

/// Threads of a key process. They run until the process ends, which the end of the gateway causes.
#[derive(Debug)]
pub struct KeyProcess {
    shared: Arc<Shared>,
    workers: Vec<UnboundedSender<Socket>>,
    /// Index of the [`Worker`] for the next connection.
    next: usize,
    /// From each worker that has ended, the reason.
    failures: Receiver<String>,
}

impl KeyProcess {
    /// Starts the workers.
    ///
    /// # Errors
    ///
    /// The error of the system if a thread cannot be started.
    pub fn start(
        workers: NonZeroUsize,
        keystore: &Arc<Keystore>,
        environment: Environment,
    ) -> io::Result<Self> {
        let mut policy = Policy::new();
        // No client signatures and no decryption: a gateway that was taken over gets signatures of
        // its own handshakes only.
        policy.add(GATEWAY, Keys::All, vec![Shape::Tls13Server, Shape::Tls12Server], None);
        let gathers = environment.gathers;
        let (failed, failures) = channel();
        let shared = Shared::for_key_process(keystore, policy, OPERATIONS, environment);
        let start = |number| {
            // Unbounded without risk: only the gateway that started this process sends sockets.
            let (sender, sockets) = unbounded_channel();
            let (shared, failed) = (Arc::clone(&shared), failed.clone());
            let serve = move || {
                let built = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
                built.and_then(|runtime| runtime.block_on(work(shared, gathers, sockets)))
            };
            let name = format!("worker-{number}");
            thread::Builder::new().name(name).spawn(move || report(number, serve, &failed))?;
            Ok(sender)
        };
        let workers = (0..workers.get()).map(start).collect::<io::Result<_>>()?;
        Ok(Self { shared, workers, next: 0, failures })
    }

    /// Reason for which a worker has ended; `None` while all of them run. Without a worker, connections of the gateway would
    /// wait until their operations time out, so the process has to end too.
    pub fn failure(&self) -> Option<String> {
        self.failures.try_recv().ok()
    }

    /// Replaces the keys, for open connections too. Operations in progress end with the previous keys.
    pub fn hold(&self, keystore: &Arc<Keystore>) {
        self.shared.hold(keystore);
    }

    /// Serves the gateway over `socket`, on the next worker in turn.
    pub fn serve(&mut self, socket: Socket) {
        let worker = &self.workers[self.next % self.workers.len()];
        self.next = self.next.wrapping_add(1);
        // Fails if the worker has ended, which `failure` reports.
        let _ = worker.send(socket);
    }
}

/// Runs the worker `number` and sends the reason if it fails or panics.
fn report(number: usize, serve: impl FnOnce() -> io::Result<()>, failed: &Sender<String>) {
    // Sound: no state of the worker is used after a panic, since the process ends.
    let reason = match panic::catch_unwind(AssertUnwindSafe(serve)) {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it panicked, as the log says".to_owned(),
    };
    // The send fails if the process is ending already.
    let _ = failed.send(format!("worker {number} of the key process has ended: {reason}"));
}

/// Serves the connections of one worker, until the [`KeyProcess`] is dropped.
///
/// # Errors
///
/// A task without which the worker serves no operation has panicked.
async fn work(shared: Arc<Shared>, gathers: bool, mut sockets: UnboundedReceiver<Socket>) -> io::Result<()> {
    let (wheel, mut tasks) = (DeadlineWheel::new(), JoinSet::new());
    let deadlines = wheel.clone();
    tasks.spawn_local(async move { deadlines.run().await });
    if gathers {
        tasks.spawn_local(gather::turns(Duration::ZERO));
    }
    // Never triggered: the gateway drains its own clients and then closes its connections.
    let (_trigger, drain) = drain::channel();
    let worker = Rc::new(Worker { shared, wheel, drain });
    loop {
        let socket = tokio::select! {
            socket = sockets.recv() => socket,
            failed = panicked(&mut tasks) => return Err(failed),
        };
        let Some(socket) = socket else { return Ok(()) };
        let stream = socket.set_nonblocking(true).and_then(|()| UnixStream::from_std(socket));
        match stream {
            Ok(stream) => drop(spawn_local(connection::serve_local(Rc::clone(&worker), stream))),
            Err(error) => tracing::error!(%error, "a socket of the gateway cannot be used"),
        }
    }
}

#[cfg(test)]
mod tests;
