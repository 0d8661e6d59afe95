//! What is known of one connection, filled in while it goes on, so that a failure leaves what came before it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use brisk_http_client::{Frame, Response};
use brisk_net::TcpInfo;
use brisk_tls_client::{ClientFacts, SavedSession};

use crate::error::Step;
use crate::recorder::{Recorder, Verdict};

/// When a connection reached what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Milestones {
    /// The step that it is in.
    pub(crate) step: Step,
    /// The first connection attempt began.
    pub(crate) began: Option<Instant>,
    /// The one that connected began; where none did, the last one.
    pub(crate) dialled: Option<Instant>,
    pub(crate) connected: Option<Instant>,
    /// The client has sent the last byte of its handshake.
    pub(crate) secured: Option<Instant>,
    /// The request was sent.
    pub(crate) asked: Option<Instant>,
    /// The first byte of the answer.
    pub(crate) first_byte: Option<Instant>,
    pub(crate) done: Option<Instant>,
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
        }
    }
}

impl Milestones {
    /// The next step begins.
    pub(crate) fn reach(&mut self, step: Step) {
        self.step = step;
    }
}

/// A connection, as far as it got.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) address: Option<SocketAddr>,
    /// Addresses that did not connect, in the order in which they were tried: those before the one that did.
    pub(crate) refused: Vec<Refused>,
    pub(crate) milestones: Milestones,
    pub(crate) recorder: Arc<Recorder>,
    /// After TCP's handshake, and at the end.
    pub(crate) tcp: Option<TcpInfo>,
    pub(crate) tcp_end: Option<TcpInfo>,
    pub(crate) facts: Option<ClientFacts>,
    /// The response as far as it was received; its status is 0 before its head.
    pub(crate) response: Option<Response>,
    pub(crate) frames: Vec<Frame>,
    /// Sessions that the server gave.
    pub(crate) sessions: Vec<SavedSession>,
    /// What was said of the certificate of the connection that the session comes from.
    pub(crate) before: Verdict,
}

impl Trace {
    /// What is known of the server's certificate: a resumed handshake verifies none.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.recorder.copy().verdict {
            Verdict::Unknown => self.before.clone(),
            verdict => verdict,
        }
    }
}

/// An address that did not connect.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) address: SocketAddr,
    /// When it began to be tried.
    pub(crate) began: Instant,
    pub(crate) why: String,
}

impl Refused {
    pub(crate) fn of(address: SocketAddr, began: Instant, why: &str) -> Self {
        Self { address, began, why: why.to_owned() }
    }
}
