//! The end of a connection after its last response.

use brisk_http::message::Response;
use brisk_http::version;
use brisk_transform::body::Body;
use http::{StatusCode, header};

use crate::exchange::Exchange;
use crate::headers::CLOSE;
use crate::stage::{RequestState, Stage, StageContext};

/// Adds `Connection: close` (RFC 9112 section 9.6) to the last response on an HTTP/1.1 connection. Compiled for every
/// response.
#[derive(Debug)]
pub(super) struct ConnectionCloseStage;

impl Stage for ConnectionCloseStage {
    fn compile(_: &StageContext<'_>) -> Option<Self> {
        Some(Self)
    }

    fn response(&self, exchange: &Exchange, state: &RequestState, response: &mut Response<Body>) {
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if version::of(state.version).has_connection_header()
            && !switches
            && exchange.connection().is_used_up()
        {
            let headers = response.headers_mut();
            // A 426 has the option `upgrade` too.
            if headers.contains_key(header::UPGRADE) {
                headers.append(header::CONNECTION, CLOSE);
            } else {
                headers.insert(header::CONNECTION, CLOSE);
            }
        }
    }
}
