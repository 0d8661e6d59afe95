//! The gateway: composes certificates, keys, TLS and the proxy into workers that serve.

pub mod settings;
