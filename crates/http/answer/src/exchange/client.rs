//! The client of a request.

use super::Exchange;
use crate::client_address::{ClientAddress, ClientSource, Hop};

impl Exchange {
    /// The client of the request, from any [`ClientSource`](crate::client_address::ClientSource). For decisions that
    /// [`Self::hold_until_proven`] precedes, decisions about requests that wait for the handshake anyway, and statements to
    /// operators and upstreams.
    pub(crate) fn client(&self) -> ClientAddress {
        self.client
    }

    /// The addresses that a trusted proxy states, in the order of its list.
    pub(crate) fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// Sets the client that a trusted proxy states.
    pub(crate) fn name_client(&mut self, client: ClientAddress, hops: Vec<Hop>) {
        self.client = client;
        self.hops = hops.into();
    }

    /// Waits until it is certain that the client receives packets at its address.
    pub(crate) async fn hold_until_proven(&mut self) {
        if self.client.source == ClientSource::Unproven {
            self.hold_until_confirmed().await;
            // After the proof, the statements of a trusted proxy count.
            self.client.source =
                if self.hops.is_empty() { ClientSource::Socket } else { ClientSource::Header };
        }
    }
}
