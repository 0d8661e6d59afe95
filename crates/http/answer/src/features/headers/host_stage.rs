//! Headers of every response of a host, such as `Strict-Transport-Security`.

use std::rc::Rc;

use brisk_http::message::Response;

use crate::exchange::Exchange;
use crate::stage::{RequestState, Stage, StageContext};
use brisk_rules::ResponseHeaders;
use brisk_transform::body::Body;

/// Adds the headers of the host. Compiled if the host has any.
#[derive(Debug)]
pub(crate) struct HostHeadersStage(Rc<ResponseHeaders>);

impl Stage for HostHeadersStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        context.host?.headers.clone().map(Self)
    }

    fn response(&self, exchange: &Exchange, _: &RequestState, response: &mut Response<Body>) {
        self.0.apply(exchange.connection().client.secure, response.headers_mut());
    }
}
