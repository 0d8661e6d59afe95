//! Record of the process: facts of connections and requests, counters, recent connections and recent problems.
//!
//! The code that drives a connection marks its [`Timeline`] and fills its [`ConnectionRecord`], which is reported to
//! the [`Sink`] once. Calls per request or per connection take no contended lock and look up no label. Most crates depend on
//! this one, so features define their metrics themselves ([`Metrics::collector`]), and the crate `logs`, behind [`RequestLog`],
//! formats lines and writes them.

mod display;
pub mod metrics;
mod outcome;
mod problems;
mod recent;
mod record;
mod request_id;
mod request_log;
mod sink;
mod throttle;
mod timeline;

pub use display::{changes_display, escape_markup};
pub use metrics::Metrics;
pub use outcome::{
    EarlyData, EarlyRequest, HandshakeOutcome, MalformedReason, Resumption, ResumptionFailure, Side,
    StreamEnd, UpgradedEnd,
};
pub use problems::{MINUTES as PROBLEM_MINUTES, Problem, Problems, Source};
pub use recent::RecentConnection;
pub use record::{
    ClientFingerprints, ConnectionEnd, ConnectionRecord, LogOutputs, MalformedRecord, QuicPath, RecordSink,
    RequestRecord, RequestSpan, StreamRecord, TlsFacts,
};
pub use request_id::{RequestId, RequestIds};
pub use request_log::RequestLog;
pub use sink::Sink;
pub use throttle::Throttle;
pub use timeline::{Milestone, Timeline};
