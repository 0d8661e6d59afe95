//! HTTP client of the measuring tools: HTTP/1.1 and HTTP/2 with one request at a time and with frames for display, and HTTP/3
//! with concurrent requests.
//!
//! [`http1::read_response`] and [`Http2`] run over any stream, [`http3`] over a datagram socket; the caller connects. Bodies are counted and discarded. A load
//! generator that needs no header fields uses [`http1::parse_head`] and [`http1::Body`], which do no I/O and do not allocate.

mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod http1;
mod http2;
pub mod http3;
mod request;
mod response;

pub use error::HttpError;
pub use http2::{Frame, Http2};
pub use request::Request;
pub use response::{Response, number};
