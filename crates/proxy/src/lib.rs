//! HTTP between clients and upstreams: serving, routing, forwarding.
//!
//! [`serve`] speaks HTTP/1.1 and HTTP/2 with one client and asks the service for each response; `route` says what
//! answers; [`forward`] takes a request to an [`upstream`] group and brings the response back. All of it runs on one
//! worker's thread and is not `Send`; what workers share (settings, [`upstream::GroupState`]) is.

mod admission;
mod balance;
pub mod body;
pub mod buffers;
mod claims;
mod client_cert;
pub mod connection;
mod early_data;
pub mod error;
mod error_page;
pub mod exchange;
pub mod forward;
mod forwarding;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod gathered;
pub mod head_limits;
mod headers;
pub mod health;
mod hosts;
mod http1;
mod http2;
mod login;
mod path;
mod places;
mod pool;
pub mod redirect;
mod route;
pub mod serve;
pub mod service;
pub mod settings;
mod static_files;
mod streams;
pub mod upgrade;
mod upload;
pub mod upstream;
mod upstream_body;
mod upstream_io;
pub mod upstream_settings;
mod validate;

pub use body::Body;
pub use connection::Connection;
pub use error::{BodyError, ServiceError, UpstreamError};
pub use exchange::{RecordedBody, Telemetry};
pub use head_limits::HeadLimits;
pub use redirect::HttpsRedirect;
pub use service::Service;
