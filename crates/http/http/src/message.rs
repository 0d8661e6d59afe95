//! Heads of requests and responses, whose headers are a flat list.
//!
//! The types have the methods of those in the crate `http`. The difference is [`HeaderList`]: a message has some ten headers, which
//! are written once, searched a few times and sent in order. A list costs one allocation and no hash table; `http::HeaderMap` costs
//! two, and a hash for each operation.

mod header_list;
mod request_message;
mod response_message;

pub use self::header_list::{GetAll, HeaderList, LineName, Lines};
pub use self::request_message::{Request, RequestBuilder, RequestParts};
pub use self::response_message::{Response, ResponseParts};

/// Capacity of the headers of a request for those that are added for an upstream.
pub(crate) const ADDED: usize = 6;
