//! Questions to the OCSP responders of a certificate: in their order, by GET, and by POST where GET is of no use.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::permits::FetchPermit;
use super::{FetchFailure, Shared};
use crate::ocsp::{CertId, OcspError, RESPONSE_LIMIT, Staple};

/// Maximum number of responders that are asked. Certificates usually have one.
const RESPONDERS: usize = 4;

/// Maximum length of a request in base64 that is sent by GET (RFC 6960 appendix A.1).
const GET_LIMIT: usize = 255;

/// The media type of requests (RFC 6960 appendix C.1).
const REQUEST_TYPE: &str = "application/ocsp-request";

/// One round of questions about a certificate.
pub(super) struct Round<'a> {
    pub(super) shared: &'a Shared,
    pub(super) cert_id: &'a CertId,
    /// Addresses in the certificate (RFC 5280 section 4.2.2.1), each of which is an alternative.
    pub(super) responders: &'a [String],
    /// Date of the revocation that a responder has reported. A staple from before is that of a cache.
    pub(super) revoked: Option<SystemTime>,
}

/// Reason for which a responder gave no staple.
#[derive(Debug)]
pub(super) struct RoundFailure {
    responder: String,
    pub(super) reason: Refusal,
}

#[derive(Debug)]
pub(super) enum Refusal {
    Fetch(FetchFailure),
    Response(OcspError),
    /// The response is older than the known revocation, probably from a cache.
    Outdated,
}

impl RoundFailure {
    pub(super) fn responder(&self) -> &str {
        &self.responder
    }

    /// Whether the responder has reported a revocation, which no other responder can undo.
    fn is_revocation(&self) -> bool {
        matches!(self.reason, Refusal::Response(OcspError::Revoked(_)))
    }
}

impl std::fmt::Display for RoundFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { responder, reason } = self;
        match reason {
            Refusal::Fetch(error) => write!(f, "no staple from {responder}: {error}"),
            Refusal::Outdated => write!(f, "the answer of {responder} is older than the revocation"),
            Refusal::Response(error) => {
                write!(f, "the answer of {responder} is not shown to clients: {error}")
            }
        }
    }
}

/// How a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Get,
    Post,
}

impl Round<'_> {
    /// The permit for the first responder. It is acquired before the fleet's lock, whose holder then waits for responders only.
    pub(super) async fn permit(&self) -> FetchPermit {
        self.shared.permits.acquire(&self.responders[0]).await
    }

    /// The first good response. After a response without a staple, the same responder gets a POST request at once; a responder
    /// that cannot be reached gets one only after all other responders.
    ///
    /// # Errors
    ///
    /// The failures of all responders, at least one; of a revoked certificate only the revocation.
    pub(super) async fn ask(&self, first: FetchPermit) -> Result<Staple, Vec<RoundFailure>> {
        let request = self.cert_id.request();
        let form = if STANDARD.encode(&request).len() <= GET_LIMIT { Form::Get } else { Form::Post };
        let (mut failures, mut unreachable) = (Vec::new(), Vec::new());
        let mut permit = Some(first);
        for responder in self.responders.iter().take(RESPONDERS) {
            let permit = match permit.take() {
                Some(permit) => permit,
                None => self.shared.permits.acquire(responder).await,
            };
            let mut outcome = self.ask_one(responder, form, &request).await;
            if let Err(failure) = &outcome
                && form == Form::Get
                && !failure.is_revocation()
            {
                if let Refusal::Fetch(FetchFailure::Unreachable(_)) = failure.reason {
                    unreachable.push(responder);
                } else {
                    let posted = self.ask_one(responder, Form::Post, &request).await;
                    outcome = posted.map_err(|posted| better(failure, posted));
                }
            }
            drop(permit);
            match outcome {
                Ok(staple) => return Ok(Self::success(responder, staple, &failures)),
                Err(failure) if failure.is_revocation() => return Err(vec![failure]),
                Err(failure) => failures.push(failure),
            }
        }
        for responder in unreachable {
            let _permit = self.shared.permits.acquire(responder).await;
            match self.ask_one(responder, Form::Post, &request).await {
                Ok(staple) => return Ok(Self::success(responder, staple, &failures)),
                Err(failure) if failure.is_revocation() => return Err(vec![failure]),
                // The failure of the GET request is among `failures` already.
                Err(_) => {}
            }
        }
        Err(failures)
    }

    /// Logs the responders that failed before another one gave the staple.
    fn success(responder: &str, staple: Staple, failures: &[RoundFailure]) -> Staple {
        for failure in failures {
            tracing::info!("{failure}; {responder} has given one");
        }
        staple
    }

    async fn ask_one(&self, responder: &str, form: Form, request: &[u8]) -> Result<Staple, RoundFailure> {
        let failure = |reason| RoundFailure { responder: responder.to_owned(), reason };
        let url = address(responder, request);
        let fetching = match form {
            Form::Get => self.shared.fetch.get(&url, RESPONSE_LIMIT),
            Form::Post => self.shared.fetch.post(responder, REQUEST_TYPE, request.to_vec(), RESPONSE_LIMIT),
        };
        let fetched = fetching.await.map_err(|error| failure(Refusal::Fetch(error)))?;
        let verified = self.cert_id.verify(&fetched.body, SystemTime::now());
        let staple = verified.map_err(|error| failure(Refusal::Response(error)))?;
        // Otherwise a response that a cache made before the revocation would end the alarm.
        if self.revoked.is_some_and(|since| staple.this_update < since) {
            return Err(failure(Refusal::Outdated));
        }
        Ok(staple)
    }
}

/// The failure that explains more: of two forms of a request, the one with an OCSP response.
fn better(got: &RoundFailure, posted: RoundFailure) -> RoundFailure {
    let reason = match (&got.reason, posted.reason) {
        (_, reason @ (Refusal::Response(_) | Refusal::Outdated)) => reason,
        (Refusal::Response(error), _) => Refusal::Response(error.clone()),
        (Refusal::Outdated, _) => Refusal::Outdated,
        (Refusal::Fetch(error), _) => Refusal::Fetch(error.clone()),
    };
    RoundFailure { reason, ..posted }
}

// RFC 6960 appendix A.1 and RFC 5019 section 5: the request is part of the URL of a GET, which caches can answer.
fn address(responder: &str, request: &[u8]) -> String {
    // One slash in any case: caches and responders treat a path with two as another path.
    let mut url = responder.trim_end_matches('/').to_owned() + "/";
    for character in STANDARD.encode(request).chars() {
        match character {
            '+' => url.push_str("%2B"),
            '/' => url.push_str("%2F"),
            '=' => url.push_str("%3D"),
            plain => url.push(plain),
        }
    }
    url
}
