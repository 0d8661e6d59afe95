//! Actions of routes: they produce the responses to requests that have passed all stages.

use std::rc::Rc;

use brisk_http::message::{HeaderList, Response};
use brisk_http::validate::{self, Methods, Refusal};
use brisk_telemetry::Metrics;
use brisk_transform::body::Body;
use brisk_upstream::Group;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};

use super::Service;
use super::answers::found;
use super::site::{Route, Site};
use super::upstream_call::{UpstreamCall, UpstreamRoute};
use crate::error::ServiceError;
use crate::exchange::Exchange;
use crate::files::{StaticFiles, in_room};
use crate::headers::RESOURCE_POLICY;
use crate::redirect;
use crate::settings::{Action, FixedResponse, FormedResponse, Page, Redirect, RouteSettings, StaticSettings};
use crate::stage::{ClientRequest, RequestState};
use crate::variables::RequestValues;
use crate::visits::{SiteVisits, script};

/// The action of a route, with all values prepared that do not depend on a request.
#[derive(Debug)]
pub(super) enum RouteAction {
    Upstream(UpstreamRoute),
    Files(Box<StaticFiles>),
    /// Files, and an upstream for requests without a file.
    FilesOrUpstream(Box<(StaticFiles, UpstreamRoute)>),
    Fixed {
        status: StatusCode,
        headers: HeaderList,
        body: Bytes,
    },
    /// A response whose body has variables.
    Formed(Box<FormedResponse>),
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
            Action::Static(files) => Self::Files(Box::new(self::files(files, route))),
            Action::StaticOrUpstream(files, upstream) => {
                let upstream = UpstreamRoute::new(route, upstream, group, metrics)?;
                let files = self::files(files, route).without_scripts(upstream.scripts());
                Self::FilesOrUpstream(Box::new((files, upstream)))
            }
            Action::Fixed(response) => Self::fixed(response),
            Action::Formed(response) => Self::Formed(Box::new(response.clone())),
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
            RouteAction::Files(files) => found(Box::pin(file(files, request, exchange)).await),
            RouteAction::FilesOrUpstream(either) => {
                let (files, upstream) = &**either;
                if let Some(answered) = Box::pin(file_if_any(files, request, exchange)).await {
                    return answered;
                }
                let call = UpstreamCall::new((service, site), (self, upstream), state);
                call.start(request, exchange)?.await
            }
            RouteAction::Beacon(visits) => {
                let body = std::mem::take(&mut request.body);
                Box::pin(visits.take_beacon(&request.head, body, exchange)).await
            }
            RouteAction::Fixed { status, headers, body } => Ok(fixed(*status, headers, body)),
            RouteAction::Formed(response) => Ok(formed(response, request, exchange)),
            RouteAction::Redirect(redirect) => {
                let values = RequestValues { exchange, head: &request.head };
                let authority = validate::authority_of(&request.head);
                let path = redirect.to.has_groups().then(|| request.path().decoded);
                redirect::answer(redirect, &values, authority, path.as_deref().unwrap_or_default())
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

fn files(files: &StaticSettings, route: &RouteSettings) -> StaticFiles {
    StaticFiles::new(files, &route.path).with_types(route.media_types.clone())
}

/// The response with the file for the path of `request`.
async fn file(files: &StaticFiles, request: &ClientRequest, exchange: &mut Exchange) -> Response<Body> {
    let (head, path) = (&request.head, request.path());
    in_room(exchange, async |room| files.answer(head, &path, room).await).await
}

/// The response with a file, or `405` if there is one and the method is neither `GET` nor `HEAD`. `None` without a file.
async fn file_if_any(
    files: &StaticFiles,
    request: &ClientRequest,
    exchange: &mut Exchange,
) -> Option<Result<Response<Body>, Refusal>> {
    // RFC 8441: a tunnel has no content.
    if request.is_tunnel {
        return None;
    }
    if !matches!(request.head.method, Method::GET | Method::HEAD) {
        // RFC 9110 section 15.5.6: a 405 states that the resource exists, so the file is looked up first.
        let has_file = files.has(&request.head, &request.path()).await;
        return has_file.then_some(Err(Refusal::method(Methods::Read)));
    }
    let response = file(files, request, exchange).await;
    match response.status() {
        StatusCode::NOT_FOUND => None,
        // To a folder, which may have nothing to show.
        status if status.is_redirection() && status != StatusCode::NOT_MODIFIED => {
            files.has(&request.head, &request.path()).await.then_some(Ok(response))
        }
        _ => Some(found(response)),
    }
}

fn fixed(status: StatusCode, headers: &HeaderList, body: &Bytes) -> Response<Body> {
    let mut response = Response::new(Body::full(body.clone()));
    *response.status_mut() = status;
    *response.headers_mut() = headers.clone();
    response
}

fn formed(formed: &FormedResponse, request: &ClientRequest, exchange: &Exchange) -> Response<Body> {
    let path = formed.body.has_groups().then(|| request.path().decoded);
    let values = RequestValues { exchange, head: &request.head };
    let body = formed.body.form(&values, path.as_deref().unwrap_or_default());
    let mut headers = HeaderList::new();
    if !body.is_empty() {
        headers.insert(header::CONTENT_TYPE, formed.content_type.clone());
    }
    fixed(formed.status, &headers, &Bytes::from(body))
}
