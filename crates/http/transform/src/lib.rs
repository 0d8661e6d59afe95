//! Changes of responses on the way to the client: compression, replacement of texts, and the consolidation of other origins below
//! paths of a host. [`Body`](body::Body) is the body of every response.

pub mod body;
pub mod compress;
pub mod consolidate;
pub mod credentials;
pub mod digests;
pub mod header_values;
pub mod names;
pub mod replace;
pub mod weak_tags;
