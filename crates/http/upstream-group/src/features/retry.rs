//! `retry`: repetition of requests at another server.

mod credit;
mod keys;

use std::collections::BTreeSet;

use http::StatusCode;

use super::{Context, GroupFeature, GroupScope};
pub use credit::Credit;
pub use keys::RetryKeys;
use keys::RetryValue;

/// Maximum number of requests in a hundred that leave a silent server for another one, for each worker: a share that a group
/// without reserves can bear.
pub const LEAVING_PERCENT: u32 = 20;

/// Repetition of requests that are safe to repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// Once: if no part of the request was sent, or if the method is idempotent (RFC 9110 section 9.2.2), the request has no
    /// body or a gathered one, and the connection failed or the server was silent before the response began.
    #[default]
    Once,
    /// Once, for these reasons too.
    OnceFor(Box<RetryReasons>),
    /// Never. A pooled connection that turns out to be closed before anything was sent is still replaced.
    Never,
}

/// Further reasons of a repetition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryReasons {
    /// Statuses of responses after which the request is repeated.
    pub statuses: BTreeSet<StatusCode>,
    /// Whether requests with other methods than idempotent ones are repeated too.
    pub unsafe_methods: bool,
}

impl Retry {
    /// The further reasons.
    pub fn reasons(&self) -> Option<&RetryReasons> {
        match self {
            Self::OnceFor(reasons) => Some(reasons),
            Self::Once | Self::Never => None,
        }
    }
}

/// `retry` of groups.
#[derive(Debug)]
pub struct RetryFeature;

impl GroupFeature for RetryFeature {
    type Keys = RetryKeys;
    type Settings = Retry;

    fn resolve(keys: &RetryKeys, group: &GroupScope<'_>, context: &mut Context<'_, '_>) -> Retry {
        let table = match &keys.retry {
            None | Some(RetryValue::Is(true)) => return Retry::Once,
            Some(RetryValue::Is(false)) => return Retry::Never,
            Some(RetryValue::Table(table)) => table,
        };
        let path = group.key("retry").key("statuses");
        let mut statuses = BTreeSet::new();
        for (index, status) in table.statuses.iter().enumerate() {
            let of_error = |status: &StatusCode| status.is_client_error() || status.is_server_error();
            if let Some(status) = StatusCode::from_u16(*status).ok().filter(of_error) {
                statuses.insert(status);
            } else {
                let message = format!("{status} is not the status of an error: write 400 to 599");
                context.findings.wrong(&path.index(index), message);
            }
        }
        let unsafe_methods = table.unsafe_methods.unwrap_or(false);
        Retry::OnceFor(Box::new(RetryReasons { statuses, unsafe_methods }))
    }
}
