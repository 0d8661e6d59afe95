//! Trace context of requests for upstreams and the access log.

use std::hash::{BuildHasher, RandomState};

use brisk_http::message::HeaderList;
use brisk_http::trace_context::TraceContext;
use brisk_telemetry::RequestSpan;

use crate::exchange::Exchange;
use crate::settings::Trace;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Continues the trace of the client, or begins one. Compiled if the route traces.
#[derive(Debug)]
pub(crate) struct TraceStage {
    continues: bool,
    /// Source of IDs: a keyed hash of the request's ID, which is unique.
    random: RandomState,
}

/// The trace of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTrace {
    context: TraceContext,
    /// ID of the operation that the upstream has as its parent.
    upstream: u64,
    is_continued: bool,
}

impl Stage for TraceStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let continues = context.first_route()?.trace? == Trace::Continue;
        Some(Self { continues, random: RandomState::new() })
    }

    fn request(
        &self,
        exchange: &mut Exchange,
        request: &mut ClientRequest,
        state: &mut RequestState,
    ) -> Flow {
        let continued = Some(&request.head.headers).filter(|_| self.continues).and_then(TraceContext::of);
        let context = continued.unwrap_or_else(|| {
            // The id of a trace has 128 bits, a hash 64.
            let half = |number: u8| u128::from(self.random.hash_one((exchange.id(), number)));
            let trace = TraceContext::new(half(0) << 64 | half(1));
            if exchange.samples_trace(trace.id) { trace } else { trace.unrecorded() }
        });
        // An id of zeros is invalid in Trace Context.
        let operation = |number: u8| self.random.hash_one((exchange.id(), number)).max(1);
        let upstream = operation(2);
        exchange.name_trace(RequestSpan {
            trace: context.id.bits(),
            parent: context.parent(),
            id: operation(3),
            upstream,
            is_sampled: context.is_recorded(),
        });
        state.trace = Some(Box::new(RequestTrace { context, upstream, is_continued: continued.is_some() }));
        Flow::Continue
    }

    fn forward(&self, exchange: &Exchange, state: &RequestState, headers: &mut HeaderList) {
        if let Some(trace) = &state.trace {
            exchange.mark_upstream();
            trace.context.write(trace.upstream, trace.is_continued, headers);
        }
    }
}
