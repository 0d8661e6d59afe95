//! Facts about a page view at the time of the response.

use std::sync::Arc;
use std::time::Duration;

use brisk_beacon::Issued;
use brisk_http::version;
use brisk_telemetry::{ConnectionRecord, Milestone};
use brisk_visits::{Browser, CertificateType, Connection, Device, Metric, Session, Visit, Window};
use http::HeaderValue;

use super::PageView;
use crate::exchange::Exchange;

/// Maximum pause between two messages that a client sends in direct succession.
const SOON: Duration = Duration::from_millis(2);

/// Collects the known facts about the connection and the request.
pub(super) fn issued(view: &PageView, exchange: &Exchange) -> Issued {
    let connection = exchange.connection();
    let record = connection.client.record.borrow();
    let mut visit = Visit::new(Arc::clone(&view.visits.host), Arc::clone(&view.route));
    let user_agent = view.user_agent.as_ref().map_or(&[][..], HeaderValue::as_bytes);
    visit.browser = Browser::of(user_agent);
    visit.device = Device::of(user_agent);
    visit.network = view.visits.beacons.visits().network(exchange.client().ip());
    visit.http = Some(version::of(view.version));
    visit.assigned = view.visits.variants.within(connection.extras.assigned());
    let is_new = exchange.number() == 1;
    visit.connection = if is_new { Connection::New } else { Connection::Reused };
    note_tls(&mut visit, &record);
    // A navigation in early data has not waited for the handshake.
    note_times(&mut visit, exchange, &record, is_new && connection.client.is_confirmed());
    Issued {
        request: exchange.id(),
        visit,
        path: view.path.clone(),
        answered_in: exchange.elapsed(),
        // A later request of the connection has not waited for its handshake.
        held_since_hello: held_since_hello(&record).filter(|_| is_new),
        may_be_hinted: view.may_be_hinted,
    }
}

/// The time from the `ClientHello` to the first request, if the client may have held the request until the connection
/// was open.
///
/// In TLS 1.2 the server's `Finished` is a round trip away at that time; early data precedes the client's `Finished`.
fn held_since_hello(record: &ConnectionRecord) -> Option<Duration> {
    let between = |earlier, later| record.timeline.between(earlier, later);
    // The request precedes the end of the handshake in early data. `between` then has no value.
    let ready = between(Milestone::HandshakeFinished, Milestone::FirstRequest).unwrap_or_default();
    let soon = record.rtt.unwrap_or_default() + SOON;
    between(Milestone::ClientHello, Milestone::FirstRequest).filter(|_| ready <= soon)
}

fn note_tls(visit: &mut Visit, record: &ConnectionRecord) {
    let Some(tls) = &record.tls else { return };
    visit.version = Some(tls.version);
    visit.suite = Some(tls.suite);
    visit.group = tls.group;
    visit.session = Session::of(tls);
    visit.early_data = tls.early_data;
    visit.certificate = tls.scheme.map_or(CertificateType::Unknown, CertificateType::of);
    visit.window = Window::of_segments(record.window.into());
}

/// Records the times of the visit. The handshake counts only if the navigation `waited_for_it`.
fn note_times(visit: &mut Visit, exchange: &Exchange, record: &ConnectionRecord, waited_for_it: bool) {
    let queue = record.timeline.between(Milestone::KeyOperationStarted, Milestone::KeyOperationFinished);
    let handshake = record.tls.as_ref().map(|tls| tls.handshake_time);
    for (metric, time) in [
        (Metric::Handshake, handshake.filter(|_| waited_for_it)),
        (Metric::Queue, queue.filter(|_| waited_for_it)),
        (Metric::RoundTrip, record.rtt),
        (Metric::Upstream, exchange.outcome.time()),
    ] {
        if let Some(time) = time {
            visit.measures.set(metric, time.as_secs_f64() * 1e3);
        }
    }
}
