//! Validation by tls-alpn-01 (RFC 8737): a handshake with a special certificate, closed at its end.

use std::future::poll_fn;
use std::sync::Arc;

use brisk_certs::{Served, Slot};
use brisk_telemetry::HandshakeOutcome;
use brisk_wire::client_hello::ClientHello;
use rustls::AlertDescription;
use tokio::net::TcpStream;

use super::negotiation::Negotiation;
use super::selection::Host;
use super::{Acceptor, Trace, alert, send_last};
use crate::demands::Demands;
use crate::gate::KeyGate;
use crate::prepared_slot::PreparedSlot;
use crate::refusal::Refusal;

impl Acceptor {
    /// Presents the certificate for the validation, if there is one for the name, and closes. The refusal contains the
    /// outcome.
    pub(super) async fn answer_challenge(
        &self,
        hello: &ClientHello,
        mut io: TcpStream,
        incoming: Vec<u8>,
        trace: &mut Trace<'_>,
    ) -> Refusal {
        let name = hello.server_name.as_deref();
        let served = match name {
            Some(name) => self.challenges.tls(name).await,
            None => None,
        };
        let Some(served) = served else {
            send_last(&mut io, &alert(AlertDescription::UnrecognisedName), trace).await;
            let reason = "an authority checks by tls-alpn-01, but no certificate is ordered for that name";
            return Refusal::because(HandshakeOutcome::UnknownName, &reason);
        };
        let host = self.challenge_host(served);
        let prepared = host.prepare(&host.config, hello, None).await;
        let negotiation = match Negotiation::run(prepared, &mut io, incoming, trace).await {
            Ok(negotiation) => negotiation,
            Err(refusal) => return refusal,
        };
        let (mut stream, _) = negotiation.into_stream(io, self.settings.records, trace);
        // In TLS 1.2 the server sends the last message of the handshake, which is still in the stream.
        let closed = poll_fn(|cx| stream.poll_close(cx)).await;
        *trace.sent = stream.bytes().1;
        match closed {
            Ok(()) => Refusal::new(HandshakeOutcome::Challenge),
            Err(error) => Refusal::because(HandshakeOutcome::ClientClosed, &error),
        }
    }

    fn challenge_host(&self, served: Served) -> Host {
        let slot = Slot::new();
        slot.publish(vec![served]);
        let prepared = PreparedSlot::new(&slot, &Arc::new(KeyGate::default()));
        Host {
            place: 0,
            demands: Demands::default(),
            hashes_client_certificates: false,
            config: self.challenge.clone(),
            quic: None,
            prepared,
            catalogue: None,
            on_demand: None,
        }
    }
}
