//! `Server-Timing`: what the gateway knows of a request and its connection, for the page that asked.
//!
//! The header is added to what an upstream says there. A browser shows it to pages of the same origin, and to those of others
//! only where `Timing-Allow-Origin` names them.

use std::time::Duration;

use brisk_telemetry::{ConnectionRecord, Resumption, TlsFacts};
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

use crate::answer::exchange::Exchange;

/// The header.
pub(crate) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const TIMING_ALLOW_ORIGIN: HeaderName = HeaderName::from_static("timing-allow-origin");

/// More than all entries together take.
const ROOM: usize = 224;

/// Which pages can read what the gateway knows: those of the host, and of the origins that are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTiming {
    /// `Timing-Allow-Origin` of all answers. Default: none.
    pub allowed: Option<HeaderValue>,
}

impl ServerTiming {
    /// Adds both headers to the answer to a request.
    pub(crate) fn apply(&self, exchange: &Exchange, headers: &mut HeaderMap) {
        if let Some(allowed) = &self.allowed {
            headers.append(TIMING_ALLOW_ORIGIN, allowed.clone());
        }
        let connection = exchange.connection();
        let facts = Facts {
            record: &connection.record.borrow(),
            is_confirmed: connection.is_confirmed(),
            is_first: exchange.number() == 1,
            elapsed: exchange.elapsed(),
            upstream: exchange.outcome.time(),
            request: exchange.id().digits(),
        };
        if let Ok(value) = HeaderValue::from_maybe_shared(facts.written()) {
            headers.append(SERVER_TIMING, value);
        }
    }
}

/// What is said.
struct Facts<'a> {
    record: &'a ConnectionRecord,
    /// The handshake is complete.
    is_confirmed: bool,
    /// The request is the first of its connection.
    is_first: bool,
    /// Since the head of the request.
    elapsed: Duration,
    upstream: Option<Duration>,
    request: [u8; 16],
}

impl Facts<'_> {
    /// The entries of the header. One allocation, and no formatter: all answers of a host may have them.
    fn written(&self) -> bytes::Bytes {
        let mut text = Vec::with_capacity(ROOM);
        if let Some(tls) = &self.record.tls {
            self.write_tls(tls, &mut text);
        }
        if let Some(rtt) = self.record.rtt {
            text.extend_from_slice(b"rtt;dur=");
            write_milliseconds(rtt, &mut text);
            text.extend_from_slice(b", ");
        }
        text.extend_from_slice(b"connection;desc=");
        text.extend_from_slice(if self.is_first { b"new" } else { b"reused" });
        text.extend_from_slice(b", queue;dur=");
        write_milliseconds(self.elapsed.saturating_sub(self.upstream.unwrap_or_default()), &mut text);
        if let Some(upstream) = self.upstream {
            text.extend_from_slice(b", upstream;dur=");
            write_milliseconds(upstream, &mut text);
        }
        text.extend_from_slice(b", request;desc=");
        text.extend_from_slice(&self.request);
        text.into()
    }

    fn write_tls(&self, tls: &TlsFacts, text: &mut Vec<u8>) {
        text.extend_from_slice(b"tls;desc=\"");
        text.extend_from_slice(tls.version.name().unwrap_or("unknown").as_bytes());
        text.push(b'"');
        if self.is_confirmed {
            text.extend_from_slice(b";dur=");
            write_milliseconds(tls.handshake_time, text);
        }
        text.extend_from_slice(b", session;desc=");
        text.extend_from_slice(tls.resumption.name().as_bytes());
        if let (Resumption::Full, Some(failure)) = (tls.resumption, tls.resumption_failure) {
            text.extend_from_slice(b", missed;desc=");
            text.extend_from_slice(failure.name().as_bytes());
        }
        text.extend_from_slice(b", ");
    }
}

/// Milliseconds with three digits after the point.
fn write_milliseconds(time: Duration, text: &mut Vec<u8>) {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let mut digits = itoa::Buffer::new();
    text.extend_from_slice(digits.format(micros / 1000).as_bytes());
    let rest = micros % 1000;
    let digit = |value: u64| b'0' + (value % 10) as u8;
    text.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use brisk_telemetry::{ResumptionFailure, Timeline};
    use brisk_wire::registry::{CipherSuite, ProtocolVersion};

    use super::*;

    fn record(tls: Option<TlsFacts>) -> ConnectionRecord {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut record = ConnectionRecord::new(1, address, address, Timeline::start());
        record.tls = tls.map(Box::new);
        record
    }

    fn facts() -> TlsFacts {
        TlsFacts {
            version: ProtocolVersion::TLS1_3,
            suite: CipherSuite(0x1301),
            group: None,
            scheme: None,
            resumption: Resumption::Full,
            resumption_failure: Some(ResumptionFailure::Expired),
            early_data: None,
            server_name: None,
            alpn: None,
            client_subject: None,
            client_chain: Box::default(),
            hello_retry: false,
            handshake_time: Duration::from_micros(12_345),
        }
    }

    fn written(record: &ConnectionRecord, is_confirmed: bool, upstream: Option<u64>) -> String {
        let facts = Facts {
            record,
            is_confirmed,
            is_first: upstream.is_none(),
            elapsed: Duration::from_micros(5_010),
            upstream: upstream.map(Duration::from_micros),
            request: *b"0123456789abcdef",
        };
        let written = facts.written();
        assert!(written.len() <= ROOM, "{}", written.len());
        String::from_utf8(written.to_vec()).expect("text")
    }

    #[test]
    fn a_page_can_read_what_its_connection_cost() {
        let mut full = record(Some(facts()));
        full.rtt = Some(Duration::from_millis(50));
        assert_eq!(
            written(&full, true, Some(4_010)),
            "tls;desc=\"TLS 1.3\";dur=12.345, session;desc=full, missed;desc=expired, rtt;dur=50.000, \
             connection;desc=reused, queue;dur=1.000, upstream;dur=4.010, request;desc=0123456789abcdef"
        );
        let early = TlsFacts { resumption: Resumption::EarlyData, resumption_failure: None, ..facts() };
        assert_eq!(
            written(&record(Some(early)), false, None),
            "tls;desc=\"TLS 1.3\", session;desc=0-rtt, connection;desc=new, queue;dur=5.010, request;desc=0123456789abcdef"
        );
        assert_eq!(
            written(&record(None), true, None),
            "connection;desc=new, queue;dur=5.010, request;desc=0123456789abcdef"
        );
    }

    #[test]
    fn an_upstream_that_took_longer_than_all_leaves_no_queue() {
        assert!(written(&record(None), true, Some(9_000)).contains("queue;dur=0.000, upstream;dur=9.000"));
    }
}
