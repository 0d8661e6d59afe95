//! Selection and production of responses: a request's host, its route, the stages and the action of the route, and the
//! record of the exchange.
//!
//! A [`Service`] is built from [`ServiceSettings`](settings::ServiceSettings) and responds to the requests of all
//! connections of one worker. It does no I/O with clients: `brisk-http-server` reads requests and writes responses.

mod alt_svc;
mod client_address;
mod error;
mod error_page;
mod exchange;
mod explain;
pub mod features;
mod files;
mod forwarding;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod head_limits;
mod headers;
mod hosts;
mod own_names;
mod redirect;
mod service;
pub mod settings;
mod stage;
mod stages;
mod timing;
mod variables;
mod visits;

pub use brisk_transform::body::Body;
pub use brisk_transform::compress::CompressionMetrics;
pub use brisk_transform::consolidate::RewritingMetrics;
pub use error::ServiceError;
pub use exchange::{RecordedBody, Telemetry};
pub use explain::{Explanation, explain};
pub use features::mirror::MirrorMetrics;
pub use files::is_hidden_name;
pub use service::Service;
