//! HTTP/1.1 and HTTP/2 with clients, with or without TLS ([`serve`]), redirects over plain HTTP/1.1 ([`serve_plain`]), and HTTP/3
//! over a QUIC connection ([`h3::Http3`]), from a connection's first byte to its end.

mod date;
mod driver;
mod flood;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod h2;
pub mod h3;
mod handshake;
mod http1;
mod invariants;
mod io;
mod ready;
mod refused;
mod response;
#[cfg(any(test, fuzzing))]
mod testing;
mod turn;

pub use brisk_http_connection::end::End;
pub use brisk_http_connection::settings::{AbortOnClose, HttpSettings, HttpTimeouts};
pub use driver::{CurrentService, Http, serve};
pub use flood::FloodMetrics;
pub use http1::plain::serve_plain;
pub use io::HttpIo;
