//! TLS part of the report, from the recorded bytes and the facts of the TLS client.

use std::time::Duration;

use brisk_handshake_view::chain::compressible;
use brisk_handshake_view::{Chain, ConnectionView, Party, Ticket, message, window};
use brisk_telemetry::Resumption;
use brisk_tls_client::EarlyOutcome;
use brisk_wire::registry::ProtocolVersion;

use super::{INITIAL_WINDOW, TlsFacts};
use crate::findings::now;
use crate::recorder::{Recorded, Verdict};
use crate::trace::Trace;
use crate::trust::refusal;

/// Negotiated parameters, as far as the handshake went; `None` without a `ServerHello`.
pub(super) fn tls(
    trace: &Trace,
    recorded: &Recorded,
    view: &ConnectionView,
    host: &str,
    rtt: Duration,
) -> Option<TlsFacts> {
    let (chosen, facts) = (view.chosen(), trace.facts.as_ref());
    // The hello may follow bytes that [`ConnectionView`] does not parse.
    let version = chosen.map(|hello| hello.version).or(facts.map(|facts| facts.version))?;
    let suite = chosen.map(|hello| hello.suite).or(facts.map(|facts| facts.suite))?;
    let group = chosen.and_then(|hello| hello.group).or(facts.and_then(|facts| facts.group));
    let exchange = view.message(Party::Server, message::SERVER_KEY_EXCHANGE);
    let exchange = exchange.and_then(|message| message::key_exchange(&message.body));
    let verify = view.message(Party::Server, message::CERTIFICATE_VERIFY);
    let scheme =
        verify.and_then(|message| message::scheme(&message.body)).or(exchange.map(|(_, scheme)| scheme));
    let is13 = version == ProtocolVersion::TLS1_3;
    let protocol = facts.and_then(|facts| facts.protocol.as_deref().map(str::to_owned));
    // 1,500 bytes of Ethernet less 40 bytes of IPv4 and TCP.
    let segment = trace.tcp.map_or(1460, |tcp| tcp.segment);
    let hello_bytes = view.client.first().map_or(0, |record| record.len as u64);
    let resumption = facts.map(|facts| facts.resumption);
    let false_start = !is13 && resumption == Some(Resumption::Full);
    let flight = view.server_flight(is13);
    let bytes = flight.map(|(begin, end)| end - begin);
    let flight_waited =
        flight.and_then(|(begin, end)| window::waited(&recorded.recording, begin, end, rtt, segment));
    let tickets = view.tickets(version);
    let verdict = trace.verdict();
    let chain = (!recorded.chain.is_empty()).then(|| chain(recorded, view));
    let reason = verdict.distrust().map(str::to_owned);
    let in_words = |reason: &String| match &chain {
        Some(chain) => refusal(chain, reason, host, now()).reason,
        None => reason.clone(),
    };
    Some(TlsFacts {
        version: version.to_string(),
        suite: suite.to_string(),
        group: group.or(exchange.map(|(group, _)| group)).map(|group| group.to_string()),
        scheme: scheme.map(|scheme| scheme.to_string()),
        // The probe offers no suite without AEAD, so only ALPN and ECDHE remain to be checked.
        false_start: false_start.then_some(protocol.is_some() && exchange.is_some()),
        protocol,
        is_complete: facts.is_some(),
        resumption: resumption.map_or("unfinished", Resumption::name),
        early_data: facts.map_or(EarlyOutcome::None, |facts| facts.early_data).name(),
        hello_retry: view
            .hellos
            .iter()
            .find(|hello| hello.is_retry)
            .map(|hello| hello.group.map_or_else(|| "none".to_owned(), |group| group.to_string())),
        hello_bytes,
        flight_bytes: bytes,
        flight_waited,
        window_bytes: u64::from(segment) * u64::from(INITIAL_WINDOW),
        // RFC 9000 section 8.1: three times the received bytes. Section 14.1: a first datagram has at least
        // 1,200.
        quic_bytes: 3 * hello_bytes.max(1200),
        is_trusted: (verdict != Verdict::Unknown).then_some(verdict == Verdict::Trusted),
        distrust: reason.as_ref().map(in_words),
        chain,
        verdict: reason,
        gives_session: gives_session(trace, version, &tickets, chosen.is_some_and(|hello| hello.has_id)),
        tickets,
    })
}

/// Whether the server issued a session that can be resumed.
fn gives_session(trace: &Trace, version: ProtocolVersion, tickets: &[Ticket], has_id: bool) -> bool {
    let is_kept = tickets.is_empty() && !trace.sessions.is_empty();
    // RFC 8446 section 4.1.3: in TLS 1.3 the ID is an echo of the client's, and no session.
    let has_id = has_id && version != ProtocolVersion::TLS1_3;
    tickets.iter().any(|ticket| ticket.is_of_use(version)) || has_id || is_kept
}

fn chain(recorded: &Recorded, view: &ConnectionView) -> Chain {
    let mut chain = Chain::read(&recorded.chain, recorded.staple.len());
    let compressed = view.message(Party::Server, message::COMPRESSED_CERTIFICATE);
    // A trial compression costs time, and the size is known if the server compresses.
    if compressed.is_none() {
        chain.compressible = compressible(&recorded.chain);
    }
    chain.compressed = compressed.and_then(|message| {
        message::compressed(&message.body).map(|(algorithm, _)| (message.len, algorithm.to_owned()))
    });
    chain
}
