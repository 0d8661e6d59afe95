//! Server-sent events: one JSON value per second for each connected client. The number of clients is bounded, and a
//! client that does not read is disconnected.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Maximum number of [`EventStream`]s.
pub(crate) const MOST: usize = 32;

/// Capacity of an [`EventStream`]. A client that has not read for as many seconds is disconnected.
const WAITING: usize = 8;

/// All event streams.
#[derive(Debug, Default)]
pub(crate) struct EventStreams(Vec<EventStream>);

#[derive(Debug)]
struct EventStream {
    events: Sender<Bytes>,
    /// End of the authorization; `None` if unlimited.
    until: Option<Instant>,
}

impl EventStream {
    fn is_gone(&self) -> bool {
        self.events.is_closed() || self.until.is_some_and(|until| until <= Instant::now())
    }
}

/// An [`EventStream`] as a response body.
#[derive(Debug)]
pub(crate) struct Events(Receiver<Bytes>);

impl EventStreams {
    /// Adds an [`EventStream`] that begins with `first` and ends at `until`. `None` if there are [`MOST`].
    pub(crate) fn join(&mut self, first: Bytes, until: Option<Instant>) -> Option<Events> {
        // Before the count, so that streams that have ended take no slot from a new client.
        self.0.retain(|one| !one.is_gone());
        if self.0.len() >= MOST {
            return None;
        }
        let (sender, receiver) = mpsc::channel(WAITING);
        sender.try_send(first).ok()?;
        self.0.push(EventStream { events: sender, until });
        Some(Events(receiver))
    }

    /// Returns whether there is no stream, after closing those that have ended or lost their authorization.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.retain(|one| !one.is_gone());
        self.0.is_empty()
    }

    /// Sends an event to all streams. A stream with a full queue is closed.
    pub(crate) fn send(&mut self, event: &Bytes) {
        // `try_send` never waits: one slow client must not delay the samples of the others.
        self.0.retain(|one| one.events.try_send(event.clone()).is_ok());
    }
}

/// Formats an event with one line of data.
pub(crate) fn event(data: &str) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_may_look_and_who_leaves_makes_room() {
        let mut streams = EventStreams::default();
        let mut all: Vec<_> = (0..MOST).map(|_| streams.join(event("{}"), None).expect("room")).collect();
        assert!(streams.join(event("{}"), None).is_none());
        all.pop();
        assert!(streams.join(event("{}"), None).is_some());
        all.clear();
        assert!(streams.is_empty());
    }

    #[test]
    fn who_may_look_no_more_gets_nothing_more() {
        let mut streams = EventStreams::default();
        let mut events = streams.join(event("{}"), Some(Instant::now())).expect("room");
        assert!(streams.is_empty());
        assert!(events.0.try_recv().is_ok());
        assert_eq!(events.0.try_recv(), Err(mpsc::error::TryRecvError::Disconnected), "its end");
    }

    #[test]
    fn who_does_not_read_is_dropped_and_the_others_are_not() {
        let mut streams = EventStreams::default();
        let _slow = streams.join(event("{}"), None).expect("room");
        let mut other = streams.join(event("{}"), None).expect("room");
        for _ in 0..2 * WAITING {
            streams.send(&event("1"));
            while other.0.try_recv().is_ok() {}
        }
        assert_eq!(streams.0.len(), 1);
        assert!(!streams.is_empty());
    }
}
