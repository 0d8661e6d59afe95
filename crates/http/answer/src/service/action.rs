//! Actions of routes: they produce the responses to requests that have passed all stages.

use std::rc::Rc;

use brisk_http::message::{HeaderList, Response};
use brisk_http::validate::{self, Refusal};
use brisk_telemetry::Metrics;
use brisk_transform::body::Body;
use brisk_upstream::Group;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};

use super::Service;
use super::answers::found;
use super::site::{Route, Site};
use super::upstream_call::{UpstreamCall, UpstreamRoute};
use crate::error::ServiceError;
use crate::exchange::Exchange;
use crate::files::{StaticFiles, in_room};
use crate::headers::RESOURCE_POLICY;
use crate::redirect;
use crate::settings::{Action, FixedResponse, Page, Redirect, RouteSettings};
use crate::stage::{ClientRequest, RequestState};
use crate::variables::RequestValues;
use crate::visits::{SiteVisits, script};

/// The action of a route, with all values prepared that do not depend on a request.
#[derive(Debug)]
pub(super) enum RouteAction {
    Upstream(UpstreamRoute),
    Files(Box<StaticFiles>),
    Fixed {
        status: StatusCode,
        headers: HeaderList,
        body: Bytes,
    },
    Redirect(Redirect),
    Page(Page),
    /// The script that measures page views.
    Script,
    /// Stores the measurements of a page view.
    Beacon(Rc<SiteVisits>),
    /// Redirects to this path, with the query of the request.
    FinalSlash(Box<str>),
    Refuse(Refusal),
}

impl RouteAction {
    /// Compiles the action of a configured route. Fails if its upstream group does not exist.
    pub(super) fn new(
        route: &RouteSettings,
        group: &impl Fn(&str) -> Option<Rc<Group>>,
        metrics: &Metrics,
    ) -> Result<Self, ServiceError> {
        Ok(match &route.action {
            Action::Upstream(upstream) => {
                Self::Upstream(UpstreamRoute::new(route, upstream, group, metrics)?)
            }
            Action::Static(files) => Self::Files(Box::new(StaticFiles::new(files, &route.path))),
            Action::Fixed(response) => Self::fixed(response),
            Action::Redirect(redirect) => Self::Redirect(redirect.clone()),
            Action::Page(page) => Self::Page(page.clone()),
        })
    }

    fn fixed(response: &FixedResponse) -> Self {
        let mut headers = HeaderList::new();
        if !response.body.is_empty() {
            headers.insert(header::CONTENT_TYPE, response.content_type.clone());
        }
        Self::Fixed { status: response.status, headers, body: response.body.clone() }
    }

    /// The response to a page that opens a connection in advance: `204`, readable by pages of any origin, never cached.
    pub(super) fn preconnect() -> Self {
        // A response from a cache would open no connection.
        let mut headers = HeaderList::new();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
        Self::Fixed { status: StatusCode::NO_CONTENT, headers, body: Bytes::new() }
    }
}

impl Route {
    /// Performs the action for a request that has passed all stages.
    ///
    /// The futures of slow actions are boxed, so that the future of every request is no larger than the fastest actions
    /// need.
    pub(super) async fn act(
        &self,
        service: &Service,
        site: &Site,
        request: &mut ClientRequest,
        exchange: &mut Exchange,
        state: &RequestState,
    ) -> Result<Response<Body>, Refusal> {
        match &self.action {
            RouteAction::Upstream(upstream) => {
                let call = UpstreamCall::new((service, site), (self, upstream), state);
                call.start(request, exchange)?.await
            }
            RouteAction::Files(files) => {
                let (head, path) = (&request.head, request.path());
                found(Box::pin(in_room(exchange, async |room| files.answer(head, &path, room).await)).await)
            }
            RouteAction::Beacon(visits) => {
                let body = std::mem::take(&mut request.body);
                Box::pin(visits.take_beacon(&request.head, body, exchange)).await
            }
            RouteAction::Fixed { status, headers, body } => Ok(fixed(*status, headers, body)),
            RouteAction::Redirect(redirect) => {
                let values = RequestValues { exchange, head: &request.head };
                redirect::answer(redirect, &values, validate::authority_of(&request.head))
            }
            RouteAction::Page(page) => {
                Ok(page.make(exchange.connection(), &request.head, exchange.client().address))
            }
            RouteAction::Script => script(&request.head),
            RouteAction::FinalSlash(location) => Ok(redirect::final_slash(location, &request.head)),
            RouteAction::Refuse(refusal) => Err(*refusal),
        }
    }
}

fn fixed(status: StatusCode, headers: &HeaderList, body: &Bytes) -> Response<Body> {
    let mut response = Response::new(Body::full(body.clone()));
    *response.status_mut() = status;
    *response.headers_mut() = headers.clone();
    response
}
