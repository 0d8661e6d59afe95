//! Limits of rate and concurrency.

use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use brisk_http::message::{RequestParts, Response};
use brisk_limits::{Admission, Excess};
use brisk_net::limits::client_of;
use brisk_rules::{Values, Variable};
use brisk_telemetry::Side;
use brisk_transform::body::Body;
use http::{StatusCode, header};

use crate::error_page::{error_page, whole_seconds};
use crate::exchange::Exchange;
use crate::settings::{LimitKey, RequestLimit};
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext, StageTarget};
use crate::variables::RequestValues;

/// Refuses requests beyond a limit, by default with `429` and `Retry-After` (RFC 6585 section 4). Compiled for routes with
/// limits, and for requests without a route if their host has limits.
#[derive(Debug)]
pub(crate) struct LimitsStage {
    limits: Arc<[RequestLimit]>,
    /// Whether a decision may need a reply of Redis.
    has_fleet: bool,
}

impl Stage for LimitsStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let host = context.host?;
        let limits = match context.target {
            StageTarget::Route(route) => &route.limits,
            StageTarget::Unrouted => &host.settings.limits,
            StageTarget::Internal(_)
            | StageTarget::Preconnect(_)
            | StageTarget::Script
            | StageTarget::Beacon => return None,
        };
        let has_fleet = limits.iter().any(|limit| limit.limit.has_fleet());
        (!limits.is_empty()).then(|| Self { limits: Arc::clone(limits), has_fleet })
    }

    fn request(&self, exchange: &mut Exchange, request: &mut ClientRequest, _: &mut RequestState) -> Flow {
        // Early data may be a replay, and over QUIC the address of its sender may be forged: neither is charged to a key.
        // With a fleet, the decision is a reply of Redis, which only `wait` can await.
        if self.has_fleet || exchange.is_early() {
            return Flow::Wait;
        }
        match self.admit(exchange, &request.head) {
            Ok(admitted) => hold(admitted, exchange),
            Err(flow) => flow,
        }
    }

    async fn wait(&self, exchange: &mut Exchange, request: &mut ClientRequest, _: &mut RequestState) -> Flow {
        if exchange.is_early() {
            exchange.hold_until_confirmed().await;
        }
        let admitted = match self.admit(exchange, &request.head) {
            Ok(admitted) => admitted,
            Err(flow) => return flow,
        };
        // All questions are sent before the first reply is awaited.
        let ask = |own: &Admitted<'_>| {
            let limit = &own.limit.limit;
            // The key is formed again, because no memory is reserved to hold it.
            let key = limit.has_fleet().then(|| key(&own.limit.by, exchange, &request.head))?;
            limit.ask(&own.admission, &key)
        };
        let questions: Vec<_> = admitted.iter().map(ask).collect();
        for (own, question) in admitted.iter().zip(questions) {
            let Some(question) = question else { continue };
            if let Err(excess) = own.limit.limit.decide(&own.admission, question).await {
                let others = admitted.iter().filter(|other| !std::ptr::eq(*other, own));
                others.for_each(Admitted::revoke);
                return refuse(own.limit, excess, exchange);
            }
        }
        hold(admitted, exchange)
    }
}

/// A request that a limit has admitted.
struct Admitted<'a> {
    limit: &'a RequestLimit,
    admission: Admission,
}

impl Admitted<'_> {
    fn revoke(&self) {
        self.limit.limit.revoke(&self.admission);
    }
}

/// Counts the request in progress until its response ends.
fn hold(admitted: Vec<Admitted<'_>>, exchange: &mut Exchange) -> Flow {
    exchange.permits = admitted.into_iter().filter_map(|admitted| admitted.admission.permit).collect();
    Flow::Continue
}

impl LimitsStage {
    /// Admits a request at all limits, or at none.
    fn admit(&self, exchange: &mut Exchange, head: &RequestParts) -> Result<Vec<Admitted<'_>>, Flow> {
        let mut admitted = Vec::with_capacity(self.limits.len());
        for limit in self.limits.iter() {
            let key = key(&limit.by, exchange, head);
            if key.is_empty() {
                continue;
            }
            match limit.limit.admit(&key) {
                Ok(admission) => admitted.push(Admitted { limit, admission }),
                Err(excess) => {
                    admitted.iter().for_each(Admitted::revoke);
                    return Err(refuse(limit, excess, exchange));
                }
            }
        }
        Ok(admitted)
    }
}

fn key(by: &LimitKey, exchange: &Exchange, head: &RequestParts) -> Vec<u8> {
    let values = KeyValues { client: exchange.client().ip(), request: RequestValues { exchange, head } };
    match by {
        LimitKey::Client => {
            let mut key = Vec::new();
            values.append(&Variable::ClientAddress, &mut key);
            key
        }
        LimitKey::Template(template) => template.fill(&values).into_bytes(),
    }
}

fn refuse(limit: &RequestLimit, excess: Excess, exchange: &mut Exchange) -> Flow {
    let (side, reason, status) = match excess {
        Excess::Rate(_) => (Side::Client, "rate-limit", limit.status),
        Excess::Concurrency => (Side::Client, "concurrency-limit", limit.status),
        Excess::Undecided => (Side::Internal, "limit-store", StatusCode::SERVICE_UNAVAILABLE),
    };
    exchange.fail(side, reason);
    let mut response: Response<Body> = error_page(status, exchange.id());
    let seconds = match excess {
        Excess::Rate(wait) => whole_seconds(wait),
        // The time is unknown: the least that delays a client.
        Excess::Concurrency | Excess::Undecided => 1,
    };
    // `insert` replaces the usual value of a 503.
    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    Flow::Respond(Box::new(response))
}

/// The values of a key. They differ from those of header rules in the address of the client: an IPv6 client has a /64.
struct KeyValues<'a> {
    client: IpAddr,
    request: RequestValues<'a>,
}

impl Values for KeyValues<'_> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        match variable {
            Variable::ClientAddress => {
                // A vector takes all bytes.
                let _ = write!(out, "{}", client_of(self.client));
            }
            variable => self.request.append(variable, out),
        }
    }
}
