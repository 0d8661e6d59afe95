//! What is known of a connection and its requests, and where it goes: the access log, the metrics, the recent connections.
//!
//! Nothing here measures by itself: the code that drives a connection marks its [`Timeline`] and fills its
//! [`ConnectionRecord`], which goes to the [`Sink`] once. Calls made per request or per connection take no contended lock and no label look-up.

pub mod access_log;
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
pub use metrics::Metrics;
pub use outcome::{EarlyData, EarlyRequest, HandshakeOutcome, Resumption, ResumptionFailure, Side};
pub use problems::{MINUTES as PROBLEM_MINUTES, Problem, Problems, Source};
pub use recent::RecentConnection;
pub use record::{ConnectionEnd, ConnectionRecord, RecordSink, RequestRecord, TlsFacts};
pub use request_id::{RequestId, RequestIds};
pub use sink::Sink;
pub use throttle::Throttle;
pub use timeline::{Milestone, Timeline};
