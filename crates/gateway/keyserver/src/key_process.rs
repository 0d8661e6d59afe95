//! A key process: performs key operations for the gateway that started it, over sockets which that gateway passes to
//! it.

use std::io;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream as Socket;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

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

/// Limit of concurrent operations per connection. No effective limit here, because the gateway's own queue has one.
const OPERATIONS: u16 = u16::MAX;

/// Threads of a key process. They run until the process ends, which the end of the gateway causes.
#[derive(Debug)]
pub struct KeyProcess {
    shared: Arc<Shared>,
    workers: Vec<UnboundedSender<Socket>>,
    /// Index of the [`Worker`] for the next connection.
    next: usize,
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
        let shared = Shared::for_key_process(keystore, policy, OPERATIONS, environment);
        let start = |number| {
            // Unbounded without risk: only the gateway that started this process sends sockets.
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

    /// Replaces the keys, for open connections too. Operations in progress end with the previous keys.
    pub fn hold(&self, keystore: &Arc<Keystore>) {
        self.shared.hold(keystore);
    }

    /// Serves the gateway over `socket`, on the next worker in turn.
    pub fn serve(&mut self, socket: Socket) {
        let worker = &self.workers[self.next % self.workers.len()];
        self.next = self.next.wrapping_add(1);
        // Cannot fail: workers run until the process ends.
        let _ = worker.send(socket);
    }
}

/// Serves the connections of one worker.
async fn work(shared: Arc<Shared>, gathers: bool, mut sockets: UnboundedReceiver<Socket>) {
    let wheel = DeadlineWheel::new();
    let deadlines = wheel.clone();
    spawn_local(async move { deadlines.run().await });
    if gathers {
        spawn_local(gather::turns(Duration::ZERO));
    }
    // Never triggered: the gateway drains its own clients and then closes its connections.
    let (_trigger, drain) = drain::channel();
    let worker = Rc::new(Worker { shared, wheel, drain });
    while let Some(socket) = sockets.recv().await {
        let stream = socket.set_nonblocking(true).and_then(|()| UnixStream::from_std(socket));
        match stream {
            Ok(stream) => drop(spawn_local(connection::serve_local(Rc::clone(&worker), stream))),
            Err(error) => tracing::error!(%error, "a socket of the gateway cannot be used"),
        }
    }
}

#[cfg(test)]
mod tests;
