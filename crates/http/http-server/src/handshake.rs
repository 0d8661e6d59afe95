//! End of the handshake: its acknowledgement, and its completion while early data is already served.
//!
//! Until the handshake is complete, only the driver reads the socket: the HTTP code reads the early data kept for it, and
//! does not see a failure of the connection. Requests already forwarded are therefore completed and logged even if the
//! client is gone; requests that wait for the handshake end with the connection.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use brisk_http_connection::end::End;
use brisk_http_connection::handshake::Handshake;
use brisk_telemetry::Milestone;

use super::driver::{Driver, Http, Stop};

impl Driver<'_> {
    /// Acknowledges the client's last flight with a TCP `ACK` if nothing else does: no ticket to send, and no request yet.
    ///
    /// A client with Nagle's algorithm holds its request back until the `ACK`. Most clients set `TCP_NODELAY`, and their
    /// requests are available after one poll of the sockets.
    pub(super) async fn acknowledge_handshake(&self) {
        let waits = || {
            let stream = self.io.stream();
            stream.is_confirmed() && stream.is_drained() && !stream.has_plaintext()
        };
        if !waits() {
            return;
        }
        // Lets the runtime poll the sockets.
        tokio::task::yield_now().await;
        // An error or the end of the stream may be ignored here, since the next read reports it again.
        let came = poll_fn(|cx| Poll::Ready(self.io.stream_mut().poll_fill(cx).is_ready())).await;
        if !came {
            brisk_net::acknowledge(self.io.stream().tcp());
        }
    }

    /// Advances an incomplete handshake. To be called before the HTTP code, since it reads the data that comes with the
    /// handshake.
    pub(super) fn advance_handshake(&self, cx: &mut Context<'_>) {
        let Self { io, http } = self;
        let Some(handshake) = self.http.handshake() else { return };
        if handshake.failure().is_some() {
            return;
        }
        let polled = io.stream_mut().poll_confirm(cx);
        http.connection.client.record.borrow_mut().early_bytes = io.stream().early_bytes();
        match polled {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.complete_handshake(),
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                handshake.fail(End::Malformed);
            }
            Poll::Ready(Err(_)) => handshake.fail(End::ClientGone),
        }
    }

    /// Records the completed handshake in the metrics, with its duration from the `ClientHello`.
    fn complete_handshake(&self) {
        let http = self.http;
        let mut record = http.connection.client.record.borrow_mut();
        record.timeline.mark(Milestone::HandshakeFinished);
        let time = record.timeline.between(Milestone::ClientHello, Milestone::HandshakeFinished);
        if let Some(tls) = &mut record.tls {
            tls.handshake_time = time.unwrap_or(tls.handshake_time);
            http.service.current().telemetry().metrics.handshake(tls);
        }
    }

    /// Completes the handshake of a connection about to be closed: the client receives its tickets only after it, and needs
    /// them for its next early data.
    pub(super) async fn finish_handshake(&self, closing: Stop) -> Stop {
        let Self { io, http } = self;
        if let Some(handshake) = http.handshake() {
            http.deadline.set(handshake.time_left());
        }
        poll_fn(|cx| {
            self.advance_handshake(cx);
            let Some(handshake) = http.handshake() else {
                return Poll::Ready(closing);
            };
            if let Poll::Ready(Err(_)) = io.stream_mut().poll_drain(cx) {
                handshake.fail(End::ClientGone);
            }
            if let Some(end) = handshake.failure() {
                return Poll::Ready(stop(end));
            }
            http.deadline.poll_expired(cx).map(|()| http.late_handshake())
        })
        .await
    }
}

impl Http {
    /// Handshake whose early data is being served; `None` once the handshake is complete.
    pub(super) fn handshake(&self) -> Option<&Handshake> {
        self.connection.client.handshake()
    }

    /// Reason to stop after a failed handshake, once only requests that wait for the handshake are in flight.
    pub(super) fn failed_handshake(&self) -> Option<Stop> {
        let handshake = self.handshake()?;
        let end = handshake.failure()?;
        (self.connection.flow.in_flight() == handshake.waiting()).then(|| stop(end))
    }

    /// Reason to stop after the timeout of the handshake: [`End::HandshakeTimeout`], or an earlier failure.
    pub(super) fn late_handshake(&self) -> Stop {
        let failure = self.handshake().and_then(Handshake::failure);
        failure.map_or(Stop::Abort(End::HandshakeTimeout), stop)
    }
}

fn stop(end: End) -> Stop {
    // `Close` instead of `Abort`, because an alert has to be sent.
    if end == End::Malformed { Stop::Close(end) } else { Stop::Abort(end) }
}
