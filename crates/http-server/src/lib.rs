//! The client's side: HTTP/1.1 and HTTP/2 over a TLS stream, from a connection's first byte to its end.

mod driver;
mod flood;
pub(crate) mod h2;
mod handshake;
mod http1;
mod io;
pub(crate) mod lines;
mod strict_lines;
mod turn;

pub use crate::connection::end::End;
pub use crate::connection::settings::{HttpSettings, HttpTimeouts};
pub use driver::{CurrentService, Http, serve};
pub use io::HttpIo;
pub use strict_lines::{LineWatch, StrictLines};
