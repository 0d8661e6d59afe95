//! Errors of accounts, orders and renewals, with the correction that an operator can make.

use std::time::Duration;

use brisk_certs::{CertError, StoreError};
use brisk_keys::KeyError;
use http::StatusCode;
use thiserror::Error;

use crate::dns::DnsError;

/// Errors of accounts, orders and renewals.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AcmeError {
    /// An operation on the store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A stored value cannot be parsed.
    #[error("{name} in {place} is damaged: {reason}; remove it, and it is created again")]
    Damaged {
        /// Name of the value.
        name: String,
        /// The store.
        place: String,
        /// Error of the parser.
        reason: String,
    },
    /// The HTTP client or the account cannot be prepared.
    #[error("cannot use {directory}: {reason}")]
    Client {
        /// URL of the directory.
        directory: String,
        /// The reason.
        reason: String,
    },
    /// The authority refused a request, or could not be reached.
    #[error("{attempt}: {source}{}", hint(source))]
    Authority {
        /// The operation.
        attempt: &'static str,
        /// The error of the request.
        source: instant_acme::Error,
        /// `Retry-After` of the response.
        retry_after: Option<Duration>,
    },
    /// The authority checked a name without success.
    #[error("the authority could not verify {name} by {challenge}: {reason}")]
    Unverified {
        /// The name.
        name: String,
        /// Name of the challenge.
        challenge: String,
        /// The authority's explanation.
        reason: String,
    },
    /// No configured challenge proves the name.
    #[error(
        "{name} cannot be proven: the authority offers {offered}, and the configuration allows {allowed}{hint}"
    )]
    NoChallenge {
        /// The name.
        name: String,
        /// Challenges that the authority offers.
        offered: String,
        /// Configured challenges that can prove the name.
        allowed: String,
        /// Correction, with a leading separator; may be empty.
        hint: &'static str,
    },
    /// A `dns-01` record could not be set.
    #[error("no record for dns-01: {0}")]
    Dns(#[from] DnsError),
    /// An attempt on behalf of an operator failed; the gateway will repeat it.
    #[error("{0}")]
    Failed(String),
    /// No certificate is stored.
    #[error("there is no certificate yet")]
    Missing,
    /// The issuer of a certificate is not in the configuration.
    #[error("it was issued by {0:?}, which is no authority of the configuration")]
    UnknownIssuer(String),
    /// The authority ended an order without a reported reason.
    #[error("the order became {0}")]
    Order(String),
    /// An order exceeded the timeout.
    #[error("the order is not complete after {} s; it is continued later", .0.as_secs())]
    Timeout(Duration),
    /// The authority requests a pause within an order that is longer than the timeout.
    #[error("the authority asks to wait {} s for the order; it is continued then", .0.as_secs())]
    Postponed(Duration),
    /// Another gateway holds the lock of the order.
    #[error("another gateway has taken over the order")]
    Overtaken,
    /// Another process holds the lock of the host.
    #[error("another process is ordering for this host; try again later")]
    Busy,
    /// A key or a certificate signing request cannot be created.
    #[error("cannot create a key: {0}")]
    Key(#[from] rcgen::Error),
    /// A stored key cannot be used.
    #[error("the key of the certificate cannot be used: {0}")]
    StoredKey(#[from] KeyError),
    /// The issued chain cannot be parsed.
    #[error("the issued certificate cannot be used: {0}")]
    InvalidChain(#[from] CertError),
    /// The authority requests proof of a name that was not ordered.
    #[error("the authority requests proof of {0:?}, which was not ordered")]
    UnorderedName(String),
    /// The issued chain does not match the order.
    #[error("the issued certificate cannot be used: {0}")]
    Unusable(String),
}

impl AcmeError {
    /// Returns whether the order has ended, so that the next attempt needs a new one.
    pub(crate) fn ends_order(&self) -> bool {
        match self {
            Self::Unverified { .. }
            | Self::NoChallenge { .. }
            | Self::Order(_)
            | Self::Unusable(_)
            | Self::UnorderedName(_)
            | Self::InvalidChain(_) => true,
            Self::Authority { source: instant_acme::Error::Api(problem), .. } => !is_passing(problem),
            // Timeouts and errors of the store leave the order, which the authority may still finish.
            _ => false,
        }
    }

    /// Returns whether a name could not be verified. Authorities limit the rate of these failures.
    pub(crate) fn is_about_names(&self) -> bool {
        matches!(self, Self::Unverified { .. })
    }

    /// Returns whether the authority does not know the account.
    pub(crate) fn is_account_gone(&self) -> bool {
        matches!(self, Self::Authority { source, .. } if is_account_gone(source))
    }

    /// The pause that the authority requested.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Authority { retry_after, .. } => *retry_after,
            Self::Postponed(pause) => Some(*pause),
            _ => None,
        }
    }
}

/// An error response that is not JSON, probably of a proxy before the authority.
#[derive(Debug, Error)]
#[error("{request}: the server responded with {status}{excerpt}")]
pub(crate) struct ForeignError {
    /// Method and URL of the request.
    pub(crate) request: String,
    /// Status of the response.
    pub(crate) status: StatusCode,
    /// Beginning of its text, after a colon; may be empty.
    pub(crate) excerpt: String,
}

/// Returns whether a nonce was reused or too old; the request may be repeated at once (RFC 8555 section 6.5).
pub(crate) fn is_bad_nonce(error: &instant_acme::Error) -> bool {
    matches!(error, instant_acme::Error::Api(problem) if is_type(problem, "badNonce"))
}

/// Returns whether the requested order or account does not exist.
pub(crate) fn is_gone(error: &instant_acme::Error) -> bool {
    matches!(error, instant_acme::Error::Api(problem)
        if matches!(problem.status, Some(404 | 410)) || is_type(problem, "accountDoesNotExist"))
}

/// Returns whether the authority does not know the account (RFC 8555 section 6.7).
pub(crate) fn is_account_gone(error: &instant_acme::Error) -> bool {
    matches!(error, instant_acme::Error::Api(problem) if is_type(problem, "accountDoesNotExist"))
}

/// Returns whether the authority would refuse the same request again.
pub(crate) fn is_refused(error: &instant_acme::Error) -> bool {
    match error {
        instant_acme::Error::Api(problem) => !is_passing(problem),
        instant_acme::Error::Other(source) => source
            .downcast_ref::<ForeignError>()
            .is_some_and(|error| !is_passing_status(error.status.as_u16())),
        _ => false,
    }
}

/// Returns whether the same request may succeed later.
fn is_passing(problem: &instant_acme::Problem) -> bool {
    is_type(problem, "badNonce")
        || is_type(problem, "rateLimited")
        || is_type(problem, "serverInternal")
        || problem.status.is_some_and(is_passing_status)
}

fn is_passing_status(status: u16) -> bool {
    status >= 500 || status == 429
}

fn is_type(problem: &instant_acme::Problem, name: &str) -> bool {
    problem.r#type.as_deref().and_then(|kind| kind.strip_prefix("urn:ietf:params:acme:error:")) == Some(name)
}

/// Correction for an error whose text contains none.
fn hint(error: &instant_acme::Error) -> &'static str {
    let instant_acme::Error::Api(problem) = error else { return "" };
    if is_type(problem, "externalAccountRequired") {
        "; write external_account = { key_id = \"...\", key_file = \"...\" } in [acme], from the authority's web site"
    } else if is_type(problem, "invalidProfile") {
        "; write one of the authority's profiles, or none"
    } else if is_type(problem, "caa") {
        "; the CAA records of the name must allow this authority"
    } else {
        ""
    }
}
