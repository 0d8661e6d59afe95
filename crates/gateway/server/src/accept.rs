//! Acceptance of connections: each gets a [`Place`] or is closed.
//!
//! Limits refuse connections before any work is done. If all places are taken, the connections that have been idle
//! longest are closed.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use brisk_net::Listener;
use brisk_pressure::Work;
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::context::WorkerContext;
use crate::service::{Accepted, NoService, Place, Service};

/// Connections of one worker that may wait for a [`Place`]; another one is refused at once. Each waiting one holds a
/// descriptor that `server.max_connections` does not count.
const WAITING: usize = 64;
/// Number of attempts to get a [`Place`]; with [`PAUSE`] before each, 100 ms in total.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// Accepts connections until the future is dropped, or until `listener` breaks, which is logged.
pub(crate) async fn accept<S: Service>(
    context: WorkerContext,
    worker: Rc<S::Worker>,
    mut listener: Listener,
    kind: S::Listener,
) {
    let local = match listener.local_address() {
        Ok(local) => local,
        Err(error) => return broken(&error),
    };
    loop {
        let (tcp, peer) = match listener.accept_making_room(|| context.make_room()).await {
            Ok(accepted) => accepted,
            Err(error) => return broken(&error),
        };
        // First, since a connection in an overload must cost nothing else.
        if context.shared.pressure.refuses(Work::Connection) {
            S::refused(&worker, NoService::Overloaded);
            continue;
        }
        let guest = Guest { tcp, peer, local, listener: kind };
        if let Some(place) = Place::take(&context) {
            S::serve(&worker, guest.placed(place));
        } else if context.waiting.get() < WAITING {
            spawn_local(guest.wait_for_room::<S>(context.clone(), Rc::clone(&worker)));
        } else {
            S::refused(&worker, NoService::Full);
        }
    }
}

fn broken(error: &std::io::Error) {
    tracing::error!(%error, "a listener broke: its worker accepts nothing more on it");
}

/// A connection before it has a [`Place`].
struct Guest<L> {
    tcp: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    listener: L,
}

impl<L> Guest<L> {
    fn placed(self, place: Place) -> Accepted<L> {
        let Self { tcp, peer, local, listener } = self;
        Accepted { tcp, peer, local, listener, place }
    }

    /// Closes idle connections and retries: a closed connection takes a moment to give its place back. Once a drain has
    /// started, no place is taken.
    async fn wait_for_room<S>(self, context: WorkerContext, worker: Rc<S::Worker>)
    where
        S: Service<Listener = L>,
    {
        context.waiting.set(context.waiting.get() + 1);
        let mut place = None;
        for _ in 0..LOOKS {
            context.make_room();
            sleep(PAUSE).await;
            place = Place::take(&context);
            if place.is_some() || context.drain.started() {
                break;
            }
        }
        context.waiting.set(context.waiting.get() - 1);
        // Checked after the place was taken: a drain that starts later waits for this place.
        match place.filter(|_| !context.drain.started()) {
            Some(place) => S::serve(&worker, self.placed(place)),
            None => S::refused(&worker, NoService::Full),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brisk_net::drain::{self, DrainTrigger};
    use brisk_net::{DeadlineWheel, Drain};
    use brisk_pressure::{Mode, Sample, Sampler, Source};
    use tokio::net::TcpListener;

    use super::*;
    use crate::context::Shared;
    use crate::testing::{ANY, Closing, Counts, PROGRAM, settings};

    /// A worker of a server with one place.
    fn worker(drain: Drain) -> WorkerContext {
        let shared = Shared::new(&settings(1, 1), 1, PROGRAM).into();
        WorkerContext { number: 0, wheel: DeadlineWheel::new(), drain, shared, waiting: Rc::default() }
    }

    async fn guest() -> Guest<()> {
        let listener = TcpListener::bind(ANY).await.expect("a listener");
        let local = listener.local_addr().expect("an address");
        let tcp = TcpStream::connect(local).await.expect("a connection");
        let (_, peer) = listener.accept().await.expect("a connection");
        Guest { tcp, peer, local, listener: () }
    }

    /// How many connections were served and refused, where one waits for a place while `meanwhile` runs and then gets it.
    async fn after_waiting(meanwhile: impl FnOnce(DrainTrigger)) -> (usize, usize) {
        let (trigger, drain) = drain::channel();
        let context = worker(drain);
        let counts = Rc::<Counts>::default();
        let taken = Place::take(&context).expect("a place");
        tokio::join!(guest().await.wait_for_room::<Closing>(context.clone(), Rc::clone(&counts)), async {
            assert_eq!(context.waiting.get(), 1);
            meanwhile(trigger);
            drop(taken);
        });
        assert_eq!(context.waiting.get(), 0);
        (counts.served.get(), counts.refused.get())
    }

    #[test]
    fn a_critical_overload_leaves_no_place() {
        let (_trigger, drain) = drain::channel();
        let context = worker(drain);
        assert!(context.place().is_ok());
        let mut sampler = Sampler::new(Arc::clone(&context.shared.pressure));
        let mut sample = Sample::default();
        sample.set(Source::AcceptQueue, 1.0);
        (0..100).for_each(|_| sampler.tick(sample, Mode::Shed));
        assert_eq!(context.place().err(), Some(NoService::Overloaded));
    }

    #[tokio::test]
    async fn a_place_that_becomes_free_is_given_to_who_waits_unless_a_drain_began() {
        assert_eq!(after_waiting(drop).await, (1, 0));
        assert_eq!(after_waiting(|trigger| trigger.start()).await, (0, 1));
    }
}
