//! Stages: the features of a route, each with everything that it does to a request and to its response.
//!
//! A stage is compiled once per route from the [configuration](StageContext) and shared by all requests of the route. The facts
//! of one request that a stage needs for the response are in its own field of [`RequestState`].

use std::mem;
use std::rc::Rc;

use brisk_http::http2::Protocol;
use brisk_http::path::{AmbiguousPath, NormalizedPath, RequestPath};
use brisk_http::validate::Refusal;
use brisk_http_connection::body::upload::Upload;
use brisk_trials::HostExperiments;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body::Body as _;

use crate::body::Body;
use crate::compress::ResponseCompression;
use crate::consolidate::ConsolidatedRequest;
use crate::exchange::Exchange;
use crate::hints::RequestHints;
use crate::hosts::Names;
use crate::settings::{Action, HostSettings, Preconnect, RouteSettings};
use crate::visits::{PageView, SiteVisits};

/// One feature of a route. Every method but [`compile`](Self::compile) does nothing unless the stage defines it.
///
/// The methods of all stages of a route are called in the order of [`stages`](super::stages), the methods of one stage in the
/// order in which they are declared here.
pub(crate) trait Stage: Sized {
    /// The stage for one route; `None` where the configuration does not use the feature, so that requests pay nothing for it.
    fn compile(context: &StageContext<'_>) -> Option<Self>;

    /// Examines the client's request before the route's action. May change its headers, answer it, refuse it, or
    /// [wait](Flow::Wait).
    fn request(
        &self,
        _exchange: &mut Exchange,
        _request: &mut ClientRequest,
        _state: &mut RequestState,
    ) -> Flow {
        Flow::Continue
    }

    /// Waits, after [`request`](Self::request) returned [`Flow::Wait`]. The caller boxes the future, so its size does not
    /// burden requests that pass at once.
    async fn wait(
        &self,
        _exchange: &mut Exchange,
        _request: &mut ClientRequest,
        _state: &mut RequestState,
    ) -> Flow {
        Flow::Continue
    }

    /// Changes the headers that an upstream gets, after the headers of the client's connection are replaced by those of brisk.
    fn forward(&self, _exchange: &Exchange, _headers: &mut HeaderMap) {}

    /// Examines the response of an upstream as it arrived, before its hop-by-hop headers are removed. Not called where the
    /// upstream gave none.
    fn received(&self, _state: &RequestState, _response: &mut Response<Body>) {}

    /// Changes the response on its way to the client: the response of the action, of a stage, or the page of a refusal.
    fn response(&self, _exchange: &Exchange, _state: &RequestState, _response: &mut Response<Body>) {}
}

/// The way of a request after a stage has examined it.
#[derive(Debug)]
pub(crate) enum Flow {
    /// The next stage follows, and after the last stage the action.
    Continue,
    /// [`Stage::wait`] is to be awaited; its result replaces this one.
    Wait,
    /// The stage answers the request: later stages and the action get no request. Boxed, since few requests end so.
    Respond(Box<Response<Body>>),
    /// The request is refused with an error page.
    Refuse(Refusal),
}

/// A client's request on its way through the stages.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    /// Method, target, version and headers. Stages may change the headers and nothing else.
    pub(crate) head: Parts,
    /// The body, of which nothing is read yet.
    pub(crate) body: Upload,
    /// Whether the client wants to switch this stream to another protocol (RFC 8441): its body is no HTTP content.
    pub(crate) is_tunnel: bool,
    /// Whether servers could disagree about the meaning of the path. Such a request is refused, and its path is empty here.
    pub(crate) is_ambiguous: bool,
    path: NormalizedPath,
}

impl ClientRequest {
    /// A request as it arrived; normalizes its path.
    pub(crate) fn new(head: Parts, body: Upload) -> Self {
        let path = NormalizedPath::read(head.uri.path());
        Self {
            is_tunnel: head.extensions.get::<Protocol>().is_some(),
            is_ambiguous: path.is_err(),
            path: path.unwrap_or_else(|AmbiguousPath| NormalizedPath::empty()),
            head,
            body,
        }
    }

    /// The path for routes and upstreams.
    pub(crate) fn path(&self) -> RequestPath<'_> {
        self.path.of(self.head.uri.path())
    }

    /// Moves head and body out, for an action that forwards them.
    pub(crate) fn take(&mut self) -> (Parts, Upload) {
        let (nothing, ()) = Request::new(()).into_parts();
        (mem::replace(&mut self.head, nothing), mem::take(&mut self.body))
    }

    /// The bytes that the client states for the body at least.
    pub(crate) fn stated_length(&self) -> u64 {
        self.body.size_hint().lower()
    }
}

/// One request's facts for the response side of the stages, which runs when the request's head is gone. Only the stage that a field
/// is named after writes the field. Large fields are boxed, since every request's future carries this struct.
#[derive(Debug)]
pub(crate) struct RequestState {
    pub(crate) version: Version,
    pub(crate) is_head: bool,
    /// The request's content coding; `None` where its route does not compress.
    pub(crate) compression: Option<Box<ResponseCompression>>,
    /// Host, tags and path of the request, where the host serves other origins.
    pub(crate) consolidation: Option<Box<ConsolidatedRequest>>,
    /// The page view, if the request is a navigation that is measured or whose failures are to be reported.
    pub(crate) page_view: Option<Box<PageView>>,
    /// The early hints of a navigation.
    pub(crate) hints: Option<Box<RequestHints>>,
}

impl RequestState {
    /// The state before the first stage.
    pub(crate) fn new(head: &Parts) -> Self {
        Self {
            version: head.version,
            is_head: head.method == Method::HEAD,
            compression: None,
            consolidation: None,
            page_view: None,
            hints: None,
        }
    }
}

/// The configuration that the stages of one route are compiled from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageContext<'a> {
    /// The route's host; `None` for responses to requests that name no host of this gateway.
    pub(crate) host: Option<&'a HostContext<'a>>,
    /// The requests that the stages are for.
    pub(crate) target: StageTarget<'a>,
}

/// The configuration of a host, and its values that stages share.
#[derive(Debug)]
pub(crate) struct HostContext<'a> {
    pub(crate) settings: &'a HostSettings,
    pub(crate) names: Rc<Names>,
    pub(crate) experiments: Rc<HostExperiments>,
    /// `None` where no visits are measured.
    pub(crate) visits: Option<Rc<SiteVisits>>,
}

/// The requests that a list of stages is compiled for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StageTarget<'a> {
    /// A route of the configuration.
    Route(&'a RouteSettings),
    /// The path where pages have connections opened ahead of need.
    Preconnect(&'a Preconnect),
    /// The script that measures visits.
    Script,
    /// The path that takes beacons.
    Beacon,
    /// Requests that are refused for want of a route or of an unambiguous path.
    Unrouted,
}

impl<'a> StageContext<'a> {
    /// The route of the configuration, unless the stages are for requests without one.
    pub(crate) fn route(&self) -> Option<&'a RouteSettings> {
        match self.target {
            StageTarget::Route(route) => Some(route),
            _ => None,
        }
    }

    /// The route, if an upstream answers its requests.
    pub(crate) fn upstream_route(&self) -> Option<&'a RouteSettings> {
        self.route().filter(|route| matches!(route.action, Action::Upstream(_)))
    }
}
