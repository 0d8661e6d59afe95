//! HTTP/3 client with several concurrent requests on one connection.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use brisk_http_client::http3::{KeptFields, PendingResponse};
use brisk_tls_client::{ClientFacts, SavedSession};

use crate::connection::{Kind, Opener};
use crate::error::Failure;
use crate::measure::Exchange;
use crate::quic::{QuicLink, failure};
use crate::shared::Multiplexed;
use crate::workload::{PerConnection, Request};

/// An HTTP/3 connection.
#[derive(Debug)]
pub(crate) struct Http3 {
    // Dropped first, while the link can still cancel it.
    /// The first request, if it was sent as early data.
    early: RefCell<Option<(PendingResponse, Instant)>>,
    link: RefCell<QuicLink>,
    /// Requests that may still be sent.
    left: Cell<u64>,
}

impl Multiplexed for Http3 {
    async fn open(
        opener: &Opener,
        kind: &Kind,
        session: Option<SavedSession>,
        requests: PerConnection,
        request: &Request,
    ) -> Result<Self, Failure> {
        let Kind::Tls(handshake) = kind else {
            unreachable!("HTTP/3 without TLS is refused with the options")
        };
        let early = kind.is_early().then(|| request.http3().clone());
        let (link, pending) = opener.open_quic(handshake, session, early).await?;
        // Rejected early data was sent again at the end of the handshake.
        let is_accepted = link.facts.early_data == brisk_tls_client::EarlyOutcome::Accepted;
        let sent = if is_accepted { link.started } else { Instant::now() };
        Ok(Self {
            early: RefCell::new(pending.map(|pending| (pending, sent))),
            link: RefCell::new(link),
            left: Cell::new(requests.most()),
        })
    }

    fn facts(&self) -> Option<ClientFacts> {
        Some(self.link.borrow().facts.clone())
    }

    fn is_open(&self) -> bool {
        self.link.borrow().connection.is_open()
    }

    fn left(&self) -> &Cell<u64> {
        &self.left
    }

    async fn exchange(&self, request: &Request) -> Result<Exchange, Failure> {
        let early = self.early.take();
        let (pending, sent) = if let Some(early) = early {
            early
        } else {
            // A clone, because the link must not stay borrowed during the wait: other operations use it
            // meanwhile.
            let connection = self.link.borrow().connection.clone();
            let pending = connection.request(request.http3().clone(), KeptFields::None).await;
            (pending.map_err(|error| failure(&error))?, Instant::now())
        };
        let response = pending.finish().await.map_err(|error| failure(&error))?;
        let ended = response.done_at.unwrap_or_else(Instant::now);
        self.link.borrow_mut().account(ended);
        Ok(Exchange {
            status: response.status,
            body: response.body_bytes,
            sent,
            first_byte: response.first_byte_at.unwrap_or(ended),
            ended,
        })
    }

    async fn close(self) {
        // An unfinished early request is cancelled while the connection is still open.
        drop(self.early);
        self.link.into_inner().close().await;
    }
}
