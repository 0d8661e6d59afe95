//! Messages of HTTP without I/O: codecs of HTTP/1.1, fields of HTTP/2 and HTTP/3, checks of a request's target, and errors.
//!
//! Everything here is a function of bytes and headers: no socket, no task, no clock. [`http1`] reads and writes the messages of
//! HTTP/1.1 on both sides of the gateway, [`fields`] has the rules for fields of HTTP/2 and HTTP/3, whose frames are in
//! `brisk_wire`. [`message`] holds requests and responses for all crates above. [`validate`] and [`path`] refuse requests that two servers
//! could parse differently, and [`claims`] removes headers by which a client could impersonate another address, scheme or login.
//! [`cgi`] has the messages of FastCGI, uwsgi and SCGI. [`conditional`] and [`ranges`] evaluate conditions and ranges of requests for files.

pub mod cgi;
pub mod claims;
pub mod conditional;
pub mod error;
pub mod fields;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod hop_by_hop;
pub mod http1;
pub mod message;
pub mod path;
pub mod ranges;
pub mod server_url;
mod target;
pub mod trace_context;
pub mod url_path;
pub mod validate;
pub mod version;
