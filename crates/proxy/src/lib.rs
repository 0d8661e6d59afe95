//! HTTP between clients and upstreams: serving, routing, forwarding.
//!
//! Three folders, each of which uses those below it: [`client`] speaks HTTP/1.1 and HTTP/2 with one client and asks the
//! service for each response; [`answer`] chooses and makes the response; [`upstream`] takes a request to a server of a group
//! and brings the response back. Below them are the state of a [`connection`], the [`body`] of a message, messages of
//! [`http1`], fields of HTTP/2 and the checks of a request's target. All of it runs on one worker's thread and is not `Send`; what workers share (settings,
//! [`upstream::GroupState`]) is.

pub mod answer;
pub mod body;
mod claims;
pub mod client;
pub mod connection;
mod date;
pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod http1;
mod http2;
pub mod upstream;
mod validate;

pub use answer::compress::CompressionMetrics;
pub use answer::consolidate::RewritingMetrics;
pub use answer::exchange::{RecordedBody, Telemetry};
pub use answer::redirect::HttpsRedirect;
pub use answer::service::Service;
pub use answer::settings;
pub use body::Body;
pub use body::client::ClientBody;
pub use connection::Connection;
pub use error::{BodyError, ConnectionError, ServiceError, UpstreamError};
pub use upstream::settings as upstream_settings;
