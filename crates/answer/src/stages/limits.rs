//! Limits of rate and concurrency.

use std::io::Write as _;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use brisk_limits::Excess;
use brisk_net::limits::client_of;
use brisk_rules::{Values, Variable};
use brisk_telemetry::Side;
use http::request::Parts;
use http::{Response, header};

use crate::body::Body;
use crate::error_page::error_page;
use crate::exchange::Exchange;
use crate::forwarding::Forwarding;
use crate::settings::{LimitKey, RequestLimit};
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext, StageTarget};
use crate::variables::RequestValues;

/// Refuses requests beyond a limit, by default with 429 and `Retry-After` (RFC 6585 section 4). Compiled for routes with limits,
/// and for requests without a route if their host has limits.
#[derive(Debug)]
pub(super) struct LimitsStage {
    limits: Arc<[RequestLimit]>,
    forwarding: Rc<Forwarding>,
}

impl Stage for LimitsStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let host = context.host?;
        let limits = match context.target {
            StageTarget::Route(route) => &route.limits,
            StageTarget::Unrouted => &host.settings.limits,
            StageTarget::Preconnect(_) | StageTarget::Script | StageTarget::Beacon => return None,
        };
        let forwarding = Rc::clone(&host.forwarding);
        (!limits.is_empty()).then(|| Self { limits: Arc::clone(limits), forwarding })
    }

    fn request(&self, exchange: &mut Exchange, request: &mut ClientRequest, _: &mut RequestState) -> Flow {
        // Early data may be a replay, and over QUIC the address of its sender may be forged: neither is charged to a key.
        if exchange.is_early() { Flow::Wait } else { self.decide(exchange, &request.head) }
    }

    async fn wait(&self, exchange: &mut Exchange, request: &mut ClientRequest, _: &mut RequestState) -> Flow {
        exchange.hold_until_confirmed().await;
        self.decide(exchange, &request.head)
    }
}

impl LimitsStage {
    fn decide(&self, exchange: &mut Exchange, head: &Parts) -> Flow {
        let mut admitted = Vec::with_capacity(self.limits.len());
        for limit in self.limits.iter() {
            let key = self.key(&limit.by, exchange, head);
            if key.is_empty() {
                continue;
            }
            match limit.limit.admit(&key) {
                Ok(admission) => admitted.push((limit, admission)),
                Err(excess) => {
                    // A refused request leaves the other limits as they were.
                    for (limit, admission) in &admitted {
                        limit.limit.revoke(admission);
                    }
                    return refuse(limit, excess, exchange);
                }
            }
        }
        exchange.permits = admitted.into_iter().filter_map(|(_, admission)| admission.permit).collect();
        Flow::Continue
    }

    fn key(&self, by: &LimitKey, exchange: &Exchange, head: &Parts) -> Vec<u8> {
        let values = KeyValues {
            client: self.forwarding.client(exchange.connection(), &head.headers),
            request: RequestValues { exchange, head },
        };
        match by {
            LimitKey::Client => {
                let mut key = Vec::new();
                values.append(&Variable::ClientAddress, &mut key);
                key
            }
            LimitKey::Template(template) => template.fill(&values).into_bytes(),
        }
    }
}

fn refuse(limit: &RequestLimit, excess: Excess, exchange: &mut Exchange) -> Flow {
    let reason = match excess {
        Excess::Rate(_) => "rate-limit",
        Excess::Concurrency => "concurrency-limit",
    };
    exchange.fail(Side::Client, reason);
    let mut response: Response<Body> = error_page(limit.status, exchange.id());
    if let Excess::Rate(wait) = excess {
        // Rounded up: `Retry-After` has whole seconds, and an earlier retry would be refused again.
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    Flow::Respond(Box::new(response))
}

/// The values of a key. They differ from those of header rules in the address of the client: an IPv6 client has a /64, and a
/// trusted proxy is not a client.
struct KeyValues<'a> {
    /// `None` if the address is unknown.
    client: Option<IpAddr>,
    request: RequestValues<'a>,
}

impl Values for KeyValues<'_> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        match (variable, self.client) {
            (Variable::ClientAddress, Some(client)) => {
                // A vector takes all bytes.
                let _ = write!(out, "{}", client_of(client));
            }
            (Variable::ClientAddress, None) => {}
            (variable, _) => self.request.append(variable, out),
        }
    }
}
