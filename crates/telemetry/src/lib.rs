//! What is known of a connection and its requests, and the two places it goes to: the access log and the metrics.
//!
//! Nothing here measures by itself: the code that drives a connection marks its [`Timeline`], fills its [`ConnectionRecord`]
//! and hands both over once. Calls made per request or per connection take no contended lock and no label look-up.

pub mod access_log;
pub mod metrics;
mod outcome;
mod record;
mod request_id;
mod throttle;
mod timeline;

pub use access_log::{AccessLog, AccessLogError, AccessLogSettings};
pub use metrics::Metrics;
pub use outcome::{EarlyData, EarlyRequest, HandshakeOutcome, Resumption, ResumptionFailure, Side};
pub use record::{ConnectionRecord, RequestRecord, TlsFacts};
pub use request_id::{RequestId, RequestIds};
pub use throttle::Throttle;
pub use timeline::{Milestone, Timeline};
