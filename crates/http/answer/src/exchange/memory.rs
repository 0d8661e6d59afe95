//! Memory of a request and its response: heads, and the body until its first piece is counted.

use std::task::{Context, Poll};

use brisk_http::validate::Refusal;
use brisk_http_connection::chunk::Reserved;
use http::StatusCode;

use super::Exchange;

impl Exchange {
    /// Reserves memory for the first piece of the response, which then need not wait for memory.
    pub(crate) fn reserve(&mut self, reserved: Reserved) {
        self.reserved = Some(reserved);
    }

    /// Counts the `bytes` of the first piece of the response, which have arrived with its head, on a connection with several
    /// requests at a time.
    pub(crate) fn hold_first(&mut self, bytes: usize) {
        if bytes > 0 && self.stream.is_some() {
            self.reserved = Some(Reserved::new(bytes, &self.connection));
        }
    }

    /// Drops the facts of a response that another one replaces.
    pub(crate) fn drop_response(&mut self) {
        self.named = Vec::new();
        self.ruled = None;
        self.reserved = None;
    }

    /// Counts a body that was formed in memory, such as a page or a compressed document: its head may wait for the output of
    /// others.
    pub(super) fn hold_formed(&mut self, bytes: usize) {
        match &mut self.reserved {
            Some(reserved) if bytes > 0 => reserved.resize(bytes),
            Some(_) => {}
            None => self.hold_first(bytes),
        }
    }

    /// Counts a head of the request or the response. Refuses with `503` if the client has its share of the memory for heads.
    pub(crate) fn hold_head(&mut self, size: impl FnOnce() -> usize) -> Result<(), Refusal> {
        // Over HTTP/1.1, a connection has one head at a time, whose limit of size suffices.
        let Some(heads) = &mut self.heads else { return Ok(()) };
        heads.add(size()).map_err(|_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "head-memory"))
    }

    /// Ready if the response may hold more memory; otherwise wakes the task when it may.
    pub(super) fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.reserved.is_some() { Poll::Ready(()) } else { self.connection.poll_room(context) }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use brisk_http::message::Request;
    use brisk_http_connection::testing::connection;
    use brisk_telemetry::{Metrics, RequestId};
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::super::Telemetry;
    use super::*;

    /// Rules of the first route removed fields from the trailers of the second one.
    #[test]
    fn a_replaced_response_leaves_no_names_for_trailers() {
        const NAME: HeaderName = HeaderName::from_static("x-own");
        let telemetry = Rc::new(Telemetry { metrics: Metrics::new(), access_log: None });
        let (head, ()) = Request::get("/").body(()).expect("a request").into_parts();
        let mut exchange = Exchange::begin(&telemetry, &connection(), RequestId(1), &head);
        exchange.named = vec![NAME];
        exchange.ruled = Some(Rc::from([NAME]));
        exchange.drop_response();
        let mut trailers = HeaderMap::new();
        trailers.insert(NAME, HeaderValue::from_static("1"));
        exchange.clean_trailers(&mut trailers);
        assert!(trailers.contains_key(NAME));
    }
}
