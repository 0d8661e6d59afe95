//! Takes connections from a listener and decides which of them are served.
//!
//! Limits refuse before any work is done. Where all places are taken, the connections that are idle longest are closed.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use brisk_net::Listener;
use brisk_telemetry::metrics::{Listening, Refusal};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::connection::serve_https;
use crate::redirect::serve_http;
use crate::worker::{Permits, Worker};

/// Connections of one worker that may wait for a place; another one is refused at once.
const WAITING: usize = 64;
/// How often, and after which pause each time, a connection looks for a place: 100 ms in all.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// Accepts until it is dropped, or until the socket breaks.
pub(crate) async fn accept(worker: Rc<Worker>, mut listener: Listener, kind: Listening) {
    let local = match listener.local_address() {
        Ok(local) => local,
        Err(error) => return broken(&error),
    };
    loop {
        let (tcp, peer) = match listener.accept_making_room(|| worker.make_room()).await {
            Ok(accepted) => accepted,
            Err(error) => return broken(&error),
        };
        let guest = Guest { tcp, peer, local, kind };
        match admit(&worker, peer) {
            Ok(permits) => guest.serve(&worker, permits),
            Err(Refusal::Limit) if worker.waiting.get() < WAITING => {
                spawn_local(guest.wait_for_room(Rc::clone(&worker)));
            }
            Err(refusal) => worker.shared.metrics.connection_refused(refusal),
        }
    }
}

fn broken(error: &std::io::Error) {
    tracing::error!(%error, "a listener broke: its worker accepts nothing more on it");
}

/// A connection before it has a place.
struct Guest {
    tcp: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    kind: Listening,
}

impl Guest {
    fn serve(self, worker: &Rc<Worker>, permits: Permits) {
        let (worker, Self { tcp, peer, local, kind }) = (Rc::clone(worker), self);
        match kind {
            Listening::Https => spawn_local(serve_https(worker, tcp, peer, local, permits)),
            Listening::Http => spawn_local(serve_http(worker, tcp, peer, local, permits)),
        };
    }

    /// Closes idle connections and retries: a closed connection takes a moment to give its place back.
    async fn wait_for_room(self, worker: Rc<Worker>) {
        worker.waiting.set(worker.waiting.get() + 1);
        let mut admitted = Err(Refusal::Limit);
        for _ in 0..LOOKS {
            worker.make_room();
            sleep(PAUSE).await;
            admitted = admit(&worker, self.peer);
            if !matches!(admitted, Err(Refusal::Limit)) {
                break;
            }
        }
        worker.waiting.set(worker.waiting.get() - 1);
        match admitted {
            Ok(permits) => self.serve(&worker, permits),
            Err(refusal) => worker.shared.metrics.connection_refused(refusal),
        }
    }
}

/// A place for a connection of `peer`, or why there is none. One that begins with a PROXY header is its client's only when
/// that is read.
fn admit(worker: &Worker, peer: SocketAddr) -> Result<Permits, Refusal> {
    let shared = &worker.shared;
    let total = shared.connections.try_acquire().ok_or(Refusal::Limit)?;
    let mut permits = Permits { _total: total, counted: None, _drain: worker.drain.guard() };
    let live = shared.live.load();
    if !live.proxy_protocol.expected_from(peer.ip()) {
        permits.count_client(shared, &live, peer.ip())?;
    }
    Ok(permits)
}
