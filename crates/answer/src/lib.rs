//! What answers a request: its host, its route, and what that route does; and the record of the exchange.

pub(crate) mod client_cert;
pub mod compress;
pub mod consolidate;
pub(crate) mod early_data;
pub(crate) mod error_page;
pub mod exchange;
pub(crate) mod experiments;
pub(crate) mod files;
pub(crate) mod forwarding;
pub(crate) mod head_limits;
pub mod header_rules;
pub(crate) mod headers;
pub mod hints;
pub(crate) mod hosts;
pub(crate) mod path;
pub mod redirect;
pub(crate) mod route;
pub mod service;
pub mod settings;
mod stages;
pub mod timing;
pub mod visits;
