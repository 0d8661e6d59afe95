//! `[[tcp]]`: TCP connections whose bytes are forwarded, with TLS passed on, terminated, or without it.
//!
//! [`Routes`](routes::Routes) decide which connections of a listener these are, [`serve_tcp`](serve::serve_tcp) serves a listener of
//! its own, and [`forward`](forward::forward) copies the bytes.

pub(crate) mod forward;
mod io;
pub(crate) mod listeners;
mod metrics;
pub(crate) mod routes;
pub(crate) mod serve;
pub(crate) mod settings;

pub(crate) use metrics::TcpMetrics;
