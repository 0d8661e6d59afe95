//! Facts of connections and requests, and their outputs: the access log, the metrics and the recent connections.
//!
//! The code that drives a connection marks its [`Timeline`] and fills its [`ConnectionRecord`], which is reported to
//! the [`Sink`] once. Calls per request or per connection take no contended lock and look up no label.

pub mod access_log;
mod display;
pub mod metrics;
mod outcome;
mod problems;
mod recent;
mod record;
mod request_id;
mod sink;
mod throttle;
mod timeline;

pub use access_log::{AccessLog, AccessLogError, AccessLogSettings};
pub use display::{changes_display, escape_markup};
pub use metrics::Metrics;
pub use outcome::{
    EarlyData, EarlyRequest, HandshakeOutcome, MalformedReason, Resumption, ResumptionFailure, Side,
    UpgradedEnd,
};
pub use problems::{MINUTES as PROBLEM_MINUTES, Problem, Problems, Source};
pub use recent::RecentConnection;
pub use record::{
    ClientFingerprints, ConnectionEnd, ConnectionRecord, MalformedRecord, QuicPath, RecordSink,
    RequestRecord, RequestSpan, TlsFacts,
};
pub use request_id::{RequestId, RequestIds};
pub use sink::Sink;
pub use throttle::Throttle;
pub use timeline::{Milestone, Timeline};
