//! The end of a handshake: its acknowledgement, and what follows where its early data is served already.
//!
//! Until the end of such a handshake only the driver reads the socket: HTTP gets what was kept for it, and never
//! sees the connection fail. So requests that were sent on are answered and logged even if the client is gone; those
//! that wait for the handshake end with the connection.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use brisk_http_connection::end::End;
use brisk_http_connection::handshake::Handshake;
use brisk_telemetry::Milestone;

use super::driver::{Driver, Stop};

impl Driver<'_> {
    /// Acknowledges the client's last flight where nothing else does: no ticket is due, and no request has come with it. With
    /// Nagle's algorithm on, the client keeps its request back until then. Most clients have it off, and their requests are
    /// here after a look at the socket.
    pub(super) async fn acknowledge_handshake(&self) {
        let waits = || {
            let stream = self.io.stream();
            stream.is_confirmed() && stream.is_drained() && !stream.has_plaintext()
        };
        if !waits() {
            return;
        }
        // Lets the runtime look at the sockets.
        tokio::task::yield_now().await;
        // The next read gets the error, or the end, once more.
        let came = poll_fn(|cx| Poll::Ready(self.io.stream_mut().poll_fill(cx).is_ready())).await;
        if !came {
            brisk_net::acknowledge(self.io.stream().tcp());
        }
    }

    /// Goes on with the handshake, if it is not complete. To be called before HTTP is: it reads what comes with it.
    pub(super) fn advance_handshake(&self, cx: &mut Context<'_>) {
        let Self { io, http } = self;
        let Some(handshake) = self.handshake() else { return };
        if handshake.failure().is_some() {
            return;
        }
        let polled = io.stream_mut().poll_confirm(cx);
        http.connection.record.borrow_mut().early_bytes = io.stream().early_bytes();
        match polled {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.complete_handshake(),
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                handshake.fail(End::Malformed);
            }
            Poll::Ready(Err(_)) => handshake.fail(End::ClientGone),
        }
    }

    /// The handshake counts from now on, as that of any other connection.
    fn complete_handshake(&self) {
        let http = self.http;
        let mut record = http.connection.record.borrow_mut();
        record.timeline.mark(Milestone::HandshakeFinished);
        let time = record.timeline.between(Milestone::ClientHello, Milestone::HandshakeFinished);
        if let Some(tls) = &mut record.tls {
            tls.handshake_time = time.unwrap_or(tls.handshake_time);
            http.service.current().telemetry().metrics.handshake(tls);
        }
    }

    /// How the connection ends, if its handshake has failed and nothing is left to do: no request but those that wait for it.
    pub(super) fn failed_handshake(&self) -> Option<Stop> {
        let handshake = self.handshake()?;
        let end = handshake.failure()?;
        (self.http.connection.in_flight() == handshake.waiting()).then(|| stop(end))
    }

    /// How the connection ends when the client has not finished its handshake in time.
    pub(super) fn late_handshake(&self) -> Stop {
        let failure = self.handshake().and_then(Handshake::failure);
        failure.map_or(Stop::Abort(End::HandshakeTimeout), stop)
    }

    /// Waits for the end of the handshake of a connection that is to be closed: only after it the client has its tickets,
    /// which it would miss for its next early data.
    pub(super) async fn finish_handshake(&self, closing: Stop) -> Stop {
        let Self { io, http } = self;
        if let Some(handshake) = self.handshake() {
            http.deadline.set(handshake.time_left());
        }
        poll_fn(|cx| {
            self.advance_handshake(cx);
            let Some(handshake) = self.handshake() else {
                return Poll::Ready(closing);
            };
            if let Poll::Ready(Err(_)) = io.stream_mut().poll_drain(cx) {
                handshake.fail(End::ClientGone);
            }
            if let Some(end) = handshake.failure() {
                return Poll::Ready(stop(end));
            }
            http.deadline.poll_expired(cx).map(|()| self.late_handshake())
        })
        .await
    }
}

fn stop(end: End) -> Stop {
    // An alert is due.
    if end == End::Malformed { Stop::Close(end) } else { Stop::Abort(end) }
}
