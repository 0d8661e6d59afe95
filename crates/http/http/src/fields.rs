//! Fields of messages in HTTP/2 and HTTP/3, on both sides of the gateway.
//!
//! RFC 9113 sections 8.2 and 8.3 and RFC 9114 sections 4.2 and 4.3 have the same rules.

mod field;
mod length;
mod request;
mod table;

use http::HeaderValue;

pub use field::{Field, is_connection_specific};
pub use length::{BodyLeft, length};
pub use request::RequestHead;
pub use table::{Constant, Hpack, Qpack, StaticTable};

/// Protocol of an extended `CONNECT` (RFC 8441, RFC 9220), as an extension of the request.
#[derive(Clone, Debug)]
pub struct Protocol(pub HeaderValue);
