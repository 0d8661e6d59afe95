//! Why a certificate could not be obtained, said so that an operator can put it right.

use std::time::Duration;

use brisk_certs::{CertError, StoreError};
use brisk_keys::KeyError;
use thiserror::Error;

use crate::dns::DnsError;

/// Errors of orders, accounts and renewals.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AcmeError {
    /// The store did not do what it was asked.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A value of the store cannot be understood.
    #[error("{name} in {place} is damaged: {reason}; remove it, and it is made anew")]
    Damaged {
        /// Its name in the store.
        name: String,
        /// The store.
        place: String,
        /// The error of the parser.
        reason: String,
    },
    /// The client for an authority cannot be made.
    #[error("cannot ask {directory}: {reason}")]
    Client {
        /// The directory.
        directory: String,
        /// Why.
        reason: String,
    },
    /// The authority refused, or could not be asked.
    #[error("{attempt}: {source}{}", hint(source))]
    Authority {
        /// What was tried.
        attempt: &'static str,
        /// The answer.
        source: instant_acme::Error,
        /// When the authority wants to be asked again, from when it answered.
        retry_after: Option<Duration>,
    },
    /// The authority checked a name, and was not satisfied.
    #[error("the authority could not verify {name} by {challenge}: {reason}")]
    Unverified {
        /// The name.
        name: String,
        /// How it was checked.
        challenge: String,
        /// What the authority says.
        reason: String,
    },
    /// None of the ways that are allowed here proves a name.
    #[error(
        "{name} cannot be proven: the authority offers {offered}, and the configuration allows {allowed}{hint}"
    )]
    NoChallenge {
        /// The name.
        name: String,
        /// Ways that the authority offers.
        offered: String,
        /// Ways that the configuration allows.
        allowed: String,
        /// What would help.
        hint: &'static str,
    },
    /// A record for dns-01 could not be put into the DNS.
    #[error("no record for dns-01: {0}")]
    Dns(#[from] DnsError),
    /// What an operator asked for failed, and will be tried again by the gateway.
    #[error("{0}")]
    Failed(String),
    /// There is no certificate to do something with.
    #[error("there is no certificate yet")]
    Missing,
    /// The authority of a certificate is not in the configuration.
    #[error("it was issued by {0:?}, which is no authority of the configuration")]
    Stranger(String),
    /// An order was given up by the authority without a reason that it reports.
    #[error("the order became {0}")]
    Order(String),
    /// An order takes too long.
    #[error("the order is not done after {} s; it is looked at again later", .0.as_secs())]
    Slow(Duration),
    /// The lock of the order was lost to another process.
    #[error("another gateway has taken over the order")]
    Overtaken,
    /// The host's lock is held by another process.
    #[error("another process orders for this host just now; try again when it is done")]
    Busy,
    /// A key or a request for a certificate cannot be made.
    #[error("cannot make a key: {0}")]
    Key(#[from] rcgen::Error),
    /// A key of the store cannot be used.
    #[error("the key of the certificate cannot be used: {0}")]
    StoredKey(#[from] KeyError),
    /// What the authority issued is no certificate that can be shown.
    #[error("what the authority issued cannot be used: {0}")]
    Issued(#[from] CertError),
    /// The authority wants another name proven than those that were ordered.
    #[error("the authority asks for a proof of {0:?}, which was not ordered")]
    Foreign(String),
    /// What the authority issued is not what was ordered.
    #[error("what the authority issued cannot be used: {0}")]
    Unusable(String),
}

impl AcmeError {
    /// Whether the order itself is at an end: a next attempt needs a new one.
    pub(crate) fn ends_order(&self) -> bool {
        match self {
            Self::Unverified { .. }
            | Self::NoChallenge { .. }
            | Self::Order(_)
            | Self::Unusable(_)
            | Self::Foreign(_)
            | Self::Issued(_) => true,
            Self::Authority { source: instant_acme::Error::Api(problem), .. } => !is_passing(problem),
            _ => false,
        }
    }

    /// Whether names could not be verified, for which there is a limit at authorities.
    pub(crate) fn is_about_names(&self) -> bool {
        matches!(self, Self::Unverified { .. })
    }

    /// Whether it is that the authority does not know the account.
    pub(crate) fn is_account_gone(&self) -> bool {
        matches!(self, Self::Authority { source, .. } if is_account_gone(source))
    }

    /// How long the authority asked to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Authority { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Whether `error` says that a nonce was used before, or is too old: the same may be asked again at once (RFC 8555 section 6.5).
pub(crate) fn is_bad_nonce(error: &instant_acme::Error) -> bool {
    matches!(error, instant_acme::Error::Api(problem) if is_type(problem, "badNonce"))
}

/// Whether `error` says that there is no such order, or account.
pub(crate) fn is_gone(error: &instant_acme::Error) -> bool {
    matches!(error, instant_acme::Error::Api(problem)
        if matches!(problem.status, Some(404 | 410)) || is_type(problem, "accountDoesNotExist"))
}

/// Whether `error` says that the authority does not know the account (RFC 8555 section 6.7).
pub(crate) fn is_account_gone(error: &instant_acme::Error) -> bool {
    matches!(error, instant_acme::Error::Api(problem) if is_type(problem, "accountDoesNotExist"))
}

/// Whether `error` says that there are too many requests, whatever they are.
pub(crate) fn is_rate_limited(error: &instant_acme::Error) -> bool {
    matches!(error, instant_acme::Error::Api(problem)
        if is_type(problem, "rateLimited") || problem.status == Some(429))
}

/// Whether `error` is an answer that the same request gets again.
pub(crate) fn is_refused(error: &instant_acme::Error) -> bool {
    matches!(error, instant_acme::Error::Api(problem) if !is_passing(problem))
}

/// Whether the authority may answer otherwise to the same request later.
fn is_passing(problem: &instant_acme::Problem) -> bool {
    is_type(problem, "badNonce")
        || is_type(problem, "rateLimited")
        || is_type(problem, "serverInternal")
        || problem.status.is_some_and(|status| status >= 500 || status == 429)
}

fn is_type(problem: &instant_acme::Problem, name: &str) -> bool {
    problem.r#type.as_deref().and_then(|kind| kind.strip_prefix("urn:ietf:params:acme:error:")) == Some(name)
}

/// What would help, where the answer does not say it.
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
