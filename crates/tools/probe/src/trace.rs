//! Trace of one connection. It is filled in step by step, so that a failure leaves the earlier steps.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use brisk_http_client::{Frame, Response};
use brisk_net::TcpInfo;
use brisk_tls_client::{ClientFacts, SavedSession};

use crate::error::Step;
use crate::recorder::{Recorder, Verdict};

/// Times at which a connection reached its milestones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Milestones {
    /// Current step.
    pub(crate) step: Step,
    /// Begin of the first connection attempt.
    pub(crate) began: Option<Instant>,
    /// Begin of the successful connection attempt, or of the last one.
    pub(crate) dialled: Option<Instant>,
    pub(crate) connected: Option<Instant>,
    /// Time at which the client had sent the last byte of its handshake.
    pub(crate) secured: Option<Instant>,
    /// Time at which the request was sent.
    pub(crate) asked: Option<Instant>,
    /// Arrival of the first byte of the response.
    pub(crate) first_byte: Option<Instant>,
    pub(crate) done: Option<Instant>,
    /// Time of a failure.
    pub(crate) ended: Option<Instant>,
}

impl Default for Milestones {
    fn default() -> Self {
        Self {
            step: Step::Connect,
            began: None,
            dialled: None,
            connected: None,
            secured: None,
            asked: None,
            first_byte: None,
            done: None,
            ended: None,
        }
    }
}

impl Milestones {
    /// Enters the next step.
    pub(crate) fn reach(&mut self, step: Step) {
        self.step = step;
    }
}

/// Facts about a connection, as far as it went.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) address: Option<SocketAddr>,
    /// Addresses that failed to connect before the successful one, in the order of the attempts.
    pub(crate) refused: Vec<Refused>,
    pub(crate) milestones: Milestones,
    pub(crate) recorder: Arc<Recorder>,
    /// State of the TCP connection after its handshake.
    pub(crate) tcp: Option<TcpInfo>,
    /// State of the TCP connection at its end.
    pub(crate) tcp_end: Option<TcpInfo>,
    pub(crate) facts: Option<ClientFacts>,
    /// The [`Response`] as far as it was received; its status is `0` before its head.
    pub(crate) response: Option<Response>,
    pub(crate) frames: Vec<Frame>,
    /// Sessions issued by the server.
    pub(crate) sessions: Vec<SavedSession>,
    /// Verdict on the certificate of the connection that issued the session.
    pub(crate) before: Verdict,
}

impl Trace {
    /// [`Verdict`] on the server's certificate. A resumed handshake verifies none, so `before` applies.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.recorder.copy().verdict {
            Verdict::Unknown => self.before.clone(),
            verdict => verdict,
        }
    }
}

/// An address that failed to connect.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) address: SocketAddr,
    /// Begin of the attempt.
    pub(crate) began: Instant,
    pub(crate) why: String,
}

impl Refused {
    pub(crate) fn of(address: SocketAddr, began: Instant, why: &str) -> Self {
        Self { address, began, why: why.to_owned() }
    }
}
