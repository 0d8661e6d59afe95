//! What is the same on both sides of HTTP/2: the fields of messages, and the wakers of streams.

pub(crate) mod field;
pub(crate) mod wakes;
