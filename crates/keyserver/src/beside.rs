//! A key process: performs operations for the one gateway that started it, over sockets that this gateway passes to it.

use std::io;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream as Socket;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use brisk_keyless::Shape;
use brisk_keys::Keystore;
use brisk_net::{DeadlineWheel, drain};
use brisk_tls::gather;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_local;

use crate::connection::{self, GATEWAY};
use crate::policy::{Keys, Policy};
use crate::server::Environment;
use crate::service::{Shared, Worker};

/// Operations of one connection that are under way at a time. The gateway's own queue is the limit that counts.
const OPERATIONS: u16 = u16::MAX;

/// The threads of a key process. They run until the process ends: a gateway that goes away takes it along.
#[derive(Debug)]
pub struct KeyProcess {
    shared: Arc<Shared>,
    workers: Vec<UnboundedSender<Socket>>,
    /// The worker that gets the next connection.
    next: usize,
}

impl KeyProcess {
    /// Starts the workers. The error is the operating system's, when it refuses a thread.
    pub fn start(
        workers: NonZeroUsize,
        keystore: &Arc<Keystore>,
        environment: Environment,
    ) -> io::Result<Self> {
        let mut policy = Policy::new();
        policy.add(GATEWAY, Keys::All, vec![Shape::Tls13Server, Shape::Tls12Server], None);
        let gathers = environment.gathers;
        let shared = Shared::beside(keystore, policy, OPERATIONS, environment);
        let start = |number| {
            let (sender, sockets) = unbounded_channel();
            let shared = Arc::clone(&shared);
            let run = move || {
                let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
                match runtime {
                    Ok(runtime) => runtime.block_on(work(shared, gathers, sockets)),
                    Err(error) => tracing::error!(%error, "a worker of the key process cannot start"),
                }
            };
            thread::Builder::new().name(format!("worker-{number}")).spawn(run)?;
            Ok(sender)
        };
        let workers = (0..workers.get()).map(start).collect::<io::Result<_>>()?;
        Ok(Self { shared, workers, next: 0 })
    }

    /// Puts other keys in force, for connections that are open too. Operations under way end with those of before.
    pub fn hold(&self, keystore: &Arc<Keystore>) {
        self.shared.hold(keystore);
    }

    /// Serves the gateway over this socket. Workers take turns.
    pub fn serve(&mut self, socket: Socket) {
        let worker = &self.workers[self.next % self.workers.len()];
        self.next = self.next.wrapping_add(1);
        // A worker ends with the process only.
        let _ = worker.send(socket);
    }
}

/// Serves connections on this thread.
async fn work(shared: Arc<Shared>, gathers: bool, mut sockets: UnboundedReceiver<Socket>) {
    let wheel = DeadlineWheel::new();
    let deadlines = wheel.clone();
    spawn_local(async move { deadlines.run().await });
    if gathers {
        spawn_local(gather::turns());
    }
    // Never started: the gateway drains, and closes its connections when it has.
    let (_trigger, drain) = drain::channel();
    let worker = Rc::new(Worker { shared, wheel, drain });
    while let Some(socket) = sockets.recv().await {
        let stream = socket.set_nonblocking(true).and_then(|()| UnixStream::from_std(socket));
        match stream {
            Ok(stream) => drop(spawn_local(connection::serve_beside(Rc::clone(&worker), stream))),
            Err(error) => tracing::error!(%error, "a socket of the gateway cannot be used"),
        }
    }
}

#[cfg(test)]
mod tests;
