//! Measurement of page views in the visitors' browsers.

use std::rc::Rc;
use std::sync::Arc;

use brisk_http::message::Response;
use brisk_transform::body::Body;
use brisk_transform::weak_tags::WeakTags;
use http::{HeaderValue, StatusCode, header};

use crate::exchange::Exchange;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};
use crate::visits::SiteVisits;

/// Draws page views for measurement, and inserts the script and the view's id into their pages. Compiled if the visits
/// of the host are measured.
#[derive(Debug)]
pub(crate) struct PageMeasurementStage {
    visits: Rc<SiteVisits>,
    route: Arc<str>,
    /// Whether some requests of the route get early hints. All views of the route are then treated as if they did, so
    /// that they remain comparable.
    may_hint: bool,
    /// Whether pages for the script may be requested without a content coding; the gateway compresses them instead.
    may_recode: bool,
    /// Whether this stage also negotiates the compression of these pages, because the route has no compression setting.
    compresses: bool,
}

impl Stage for PageMeasurementStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let (host, route) = (context.host?, context.first_route()?);
        Some(Self {
            visits: Rc::clone(host.visits.as_ref()?),
            route: route.path.as_str().into(),
            may_hint: context.may_hint(),
            may_recode: !route.compression.is_off,
            compresses: !route.compression.is_off && route.compression.settings.is_none(),
        })
    }

    fn request(
        &self,
        exchange: &mut Exchange,
        request: &mut ClientRequest,
        state: &mut RequestState,
    ) -> Flow {
        if self.visits.inserts_script() {
            // For views that are not measured too: the client's copy may be that of another view.
            let known = WeakTags::of(&request.head.headers);
            state.known_pages = (!known.is_empty()).then(|| Box::new(known));
        }
        let Some(mut view) = self.visits.measure_request(exchange, &request.head, &self.route, self.may_hint)
        else {
            return Flow::Continue;
        };
        if self.may_recode && view.inserts_script() {
            if self.compresses {
                view.negotiate_compression(exchange.connection(), &request.head);
            }
            // The script can be inserted into identity content only.
            request.head.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        state.page_view = Some(view);
        Flow::Continue
    }

    fn response(&self, exchange: &Exchange, state: &RequestState, response: &mut Response<Body>) {
        if let Some(known) =
            state.known_pages.as_ref().filter(|_| response.status() == StatusCode::NOT_MODIFIED)
        {
            known.confirm(response.headers_mut());
        }
        if let Some(view) = &state.page_view {
            view.apply(exchange, response);
        }
    }
}
