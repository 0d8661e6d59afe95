//! The check of links.

use std::sync::Arc;
use std::time::SystemTime;

use brisk_http::validate::Refusal;
use http::StatusCode;

use super::{LinkFault, LinkRule};
use crate::exchange::Exchange;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};
use crate::variables::RequestValues;

/// Refuses requests without a right signature, and those after their expiry. Compiled if the route has `signed_links`.
#[derive(Debug)]
pub(crate) struct SignedLinksStage(Arc<LinkRule>);

impl Stage for SignedLinksStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        context.route()?.signed_links.clone().map(Self)
    }

    fn request(&self, exchange: &mut Exchange, request: &mut ClientRequest, _: &mut RequestState) -> Flow {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let values = RequestValues { exchange, head: &request.head };
        match self.0.check(&values, &request.path().decoded, now) {
            Ok(()) => Flow::Continue,
            Err(LinkFault::Unsigned) => Flow::Refuse(Refusal::new(StatusCode::FORBIDDEN, "link-signature")),
            Err(LinkFault::Expired) => Flow::Refuse(Refusal::new(StatusCode::GONE, "link-expired")),
        }
    }
}
