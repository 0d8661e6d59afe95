//! `retry`: repetition of requests at another server.

mod keys;

use super::{Context, GroupFeature, GroupScope};
pub use keys::RetryKeys;

/// Repetition of requests that are safe to repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// Once: if no part of the request was sent, or if the method is idempotent (RFC 9110 section 9.2.2), the request has no
    /// body, and the connection failed before the response began.
    #[default]
    Once,
    /// Never. A pooled connection that turns out to be closed before anything was sent is still replaced.
    Never,
}

/// `retry` of groups.
#[derive(Debug)]
pub struct RetryFeature;

impl GroupFeature for RetryFeature {
    type Keys = RetryKeys;
    type Settings = Retry;

    fn resolve(keys: &RetryKeys, _: &GroupScope<'_>, _: &mut Context<'_, '_>) -> Retry {
        if keys.retry.unwrap_or(true) { Retry::Once } else { Retry::Never }
    }
}
