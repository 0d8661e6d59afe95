//! `Server-Timing`: the phases of a request, for its page.

use brisk_http::message::Response;
use brisk_transform::body::Body;

use crate::exchange::Exchange;
use crate::settings::ServerTiming;
use crate::stage::{RequestState, Stage, StageContext};

/// Adds `Server-Timing` and `Timing-Allow-Origin`. Compiled if
/// [`HostSettings::server_timing`](crate::settings::HostSettings::server_timing) is set.
#[derive(Debug)]
pub(crate) struct ServerTimingStage {
    timing: ServerTiming,
}

impl Stage for ServerTimingStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        Some(Self { timing: context.host?.settings.server_timing.clone()? })
    }

    fn response(&self, exchange: &Exchange, _: &RequestState, response: &mut Response<Body>) {
        self.timing.apply(exchange, response.headers_mut());
    }
}
