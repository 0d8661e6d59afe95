//! `Server-Timing`: facts about a request and its connection, for the requesting page.
//!
//! The header is added to the upstream's entries. Browsers show it to pages of the same origin, and to other origins
//! only if `Timing-Allow-Origin` names them. Facts about one visitor are omitted from responses that a cache may share.
//! All facts are omitted if the upstream allows origins that the host does not.

use std::time::Duration;

use brisk_http::message::HeaderList;
use brisk_telemetry::{ConnectionRecord, Resumption, TlsFacts};
use brisk_wire::cache_control::Directive;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, EXPIRES, HeaderName, LAST_MODIFIED};

use crate::exchange::Exchange;

/// The header.
pub(crate) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const TIMING_ALLOW_ORIGIN: HeaderName = HeaderName::from_static("timing-allow-origin");

/// Capacity in bytes, more than all entries need together.
const ROOM: usize = 224;

/// The pages that can read `Server-Timing`: pages of the host and of the allowed origins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTiming {
    /// `Timing-Allow-Origin` of all responses. Default: none.
    pub allowed: Option<HeaderValue>,
}

impl ServerTiming {
    /// Adds both headers to a response.
    pub(crate) fn apply(&self, exchange: &Exchange, headers: &mut HeaderList) {
        // Before the own value is added, which would count as one of the upstream.
        let is_for_others = self.shows_to_others(headers);
        if let Some(allowed) = &self.allowed {
            headers.append(TIMING_ALLOW_ORIGIN, allowed.clone());
        }
        if is_for_others {
            return;
        }
        let connection = exchange.connection();
        let facts = Facts {
            record: &connection.client.record.borrow(),
            is_confirmed: connection.client.is_confirmed(),
            is_first: exchange.number() == 1,
            elapsed: exchange.elapsed(),
            upstream: exchange.outcome.time(),
            request: exchange.id().digits(),
            is_shared: may_be_shared(headers),
        };
        if let Ok(value) = HeaderValue::from_maybe_shared(facts.written()) {
            headers.append(SERVER_TIMING, value);
        }
    }

    /// Whether the upstream shows the response's timing to origins that are not allowed here.
    fn shows_to_others(&self, headers: &HeaderList) -> bool {
        let allowed = self.allowed.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_allowed = |origin: &str| tokens(allowed).any(|own| own == "*" || own == origin);
        let mut named = headers.get_all(TIMING_ALLOW_ORIGIN);
        // A value that is no text counts as other origins.
        !named.all(|value| value.to_str().is_ok_and(|value| tokens(value).all(is_allowed)))
    }
}

/// Whether a cache may share the response with other clients (RFC 9111 section 3). `Authorization` would forbid some of
/// these; it is unknown here, so the result errs towards sharing.
fn may_be_shared(headers: &HeaderList) -> bool {
    let (mut has_control, mut is_allowed) = (false, false);
    for directive in headers.get_all(CACHE_CONTROL).flat_map(|value| Directive::all(value.as_bytes())) {
        has_control = true;
        if directive.is("private") || directive.is("no-store") {
            return false;
        }
        let allow = ["public", "max-age", "s-maxage", "immutable"];
        is_allowed |= allow.iter().any(|own| directive.is_named(own));
    }
    if has_control {
        return is_allowed;
    }
    headers.contains_key(EXPIRES) || headers.contains_key(LAST_MODIFIED)
}

/// The elements of a list (RFC 9110 section 5.6.1).
fn tokens(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|token| !token.is_empty())
}

/// Facts about a request and its connection.
struct Facts<'a> {
    record: &'a ConnectionRecord,
    /// Whether the handshake is complete.
    is_confirmed: bool,
    /// Whether the request is the first of its connection.
    is_first: bool,
    /// Time since the head of the request arrived.
    elapsed: Duration,
    upstream: Option<Duration>,
    request: [u8; 16],
    /// Whether a cache may share the response. Facts about the client are then omitted.
    is_shared: bool,
}

impl Facts<'_> {
    /// The entries of the header. One allocation and no formatter, because every response of a host may have them.
    fn written(&self) -> bytes::Bytes {
        let mut text = Vec::with_capacity(ROOM);
        if !self.is_shared {
            self.write_connection(&mut text);
        }
        text.extend_from_slice(b"queue;dur=");
        write_milliseconds(self.elapsed.saturating_sub(self.upstream.unwrap_or_default()), &mut text);
        if let Some(upstream) = self.upstream {
            text.extend_from_slice(b", upstream;dur=");
            write_milliseconds(upstream, &mut text);
        }
        if !self.is_shared {
            text.extend_from_slice(b", request;desc=");
            text.extend_from_slice(&self.request);
        }
        text.into()
    }

    fn write_connection(&self, text: &mut Vec<u8>) {
        if let Some(tls) = &self.record.tls {
            self.write_tls(tls, text);
        }
        if let Some(rtt) = self.record.rtt {
            text.extend_from_slice(b"rtt;dur=");
            write_milliseconds(rtt, text);
            text.extend_from_slice(b", ");
        }
        text.extend_from_slice(b"connection;desc=");
        text.extend_from_slice(if self.is_first { b"new" } else { b"reused" });
        text.extend_from_slice(b", ");
    }

    fn write_tls(&self, tls: &TlsFacts, text: &mut Vec<u8>) {
        text.extend_from_slice(b"tls;desc=\"");
        text.extend_from_slice(tls.version.name().unwrap_or("unknown").as_bytes());
        text.push(b'"');
        // Before the end of the handshake, its time is unknown.
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

/// Milliseconds with three decimals.
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

    use brisk_http_connection::testing::tls_facts;
    use brisk_telemetry::Timeline;

    use super::*;

    fn record(tls: Option<TlsFacts>) -> ConnectionRecord {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut record = ConnectionRecord::new(1, address, address, Timeline::start());
        record.tls = tls.map(Box::new);
        record
    }

    fn written(record: &ConnectionRecord, is_confirmed: bool, upstream: Option<u64>) -> String {
        let facts = Facts {
            record,
            is_confirmed,
            is_first: upstream.is_none(),
            elapsed: Duration::from_micros(5_010),
            upstream: upstream.map(Duration::from_micros),
            request: *b"0123456789abcdef",
            is_shared: false,
        };
        let written = facts.written();
        assert!(written.len() <= ROOM, "{}", written.len());
        String::from_utf8(written.to_vec()).expect("text")
    }

    #[test]
    fn a_page_can_read_what_its_connection_cost() {
        let mut full = record(Some(tls_facts()));
        full.rtt = Some(Duration::from_millis(50));
        assert_eq!(
            written(&full, true, Some(4_010)),
            "tls;desc=\"TLS 1.3\";dur=12.345, session;desc=full, missed;desc=expired, rtt;dur=50.000, \
             connection;desc=reused, queue;dur=1.000, upstream;dur=4.010, request;desc=0123456789abcdef"
        );
        let early = TlsFacts { resumption: Resumption::EarlyData, resumption_failure: None, ..tls_facts() };
        assert_eq!(
            written(&record(Some(early)), false, None),
            "tls;desc=\"TLS 1.3\", session;desc=0-rtt, connection;desc=new, queue;dur=5.010, request;desc=0123456789abcdef"
        );
        assert_eq!(
            written(&record(None), true, None),
            "connection;desc=new, queue;dur=5.010, request;desc=0123456789abcdef"
        );
    }

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderList {
        let field = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        fields.iter().map(field).collect()
    }

    #[test]
    fn answers_that_caches_may_show_to_others_say_nothing_of_a_client() {
        for (field, is_shared) in [
            (("cache-control", "public, max-age=60"), true),
            (("cache-control", "Max-Age=60"), true),
            (("cache-control", "s-maxage=5, must-revalidate"), true),
            (("cache-control", "private, max-age=60"), false),
            (("cache-control", "max-age=60, No-Store"), false),
            // The fields that it names alone are private.
            (("cache-control", "public, private=\"set-cookie, no-store\""), true),
            (("cache-control", "no-cache, x=\"a, public\""), false),
            (("cache-control", "no-cache"), false),
            (("last-modified", "Thu, 01 Jan 1970 00:00:00 GMT"), true),
            (("content-type", "text/html"), false),
        ] {
            assert_eq!(may_be_shared(&headers(&[field])), is_shared, "{field:?}");
        }
        let mut record = record(Some(tls_facts()));
        record.rtt = Some(Duration::from_millis(50));
        let facts = Facts {
            record: &record,
            is_confirmed: true,
            is_first: true,
            elapsed: Duration::from_micros(5_010),
            upstream: Some(Duration::from_micros(4_010)),
            request: *b"0123456789abcdef",
            is_shared: true,
        };
        assert_eq!(facts.written(), "queue;dur=1.000, upstream;dur=4.010");
    }

    #[test]
    fn origins_that_an_upstream_allows_are_not_those_of_the_host() {
        let shows = |allowed: Option<&'static str>, named: &'static str| {
            let timing = ServerTiming { allowed: allowed.map(HeaderValue::from_static) };
            timing.shows_to_others(&headers(&[("timing-allow-origin", named)]))
        };
        assert!(shows(None, "*") && shows(None, "https://a.test") && shows(Some("https://a.test"), "*"));
        assert!(shows(Some("https://a.test"), "https://a.test, https://b.test"));
        assert!(!shows(Some("https://a.test, https://b.test"), "https://b.test") && !shows(Some("*"), "*"));
        assert!(!ServerTiming::default().shows_to_others(&HeaderList::new()));
    }

    #[test]
    fn an_upstream_that_took_longer_than_all_leaves_no_queue() {
        assert!(written(&record(None), true, Some(9_000)).contains("queue;dur=0.000, upstream;dur=9.000"));
    }
}
