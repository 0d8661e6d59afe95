//! Stages: the features of a route, each with its complete effect on a request and on its response.
//!
//! A stage is compiled once per route from a [`StageContext`] and shared by all requests of the route. Facts about one
//! request that the stage needs for the response are stored in the stage's own field of [`RequestState`].

use std::fmt;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use brisk_certs::CertError;
use brisk_http::fields::Protocol;
use brisk_http::message::{HeaderList, Request, RequestParts, Response};
use brisk_http::path::{AmbiguousPath, NormalizedPath, RequestPath};
use brisk_http::validate::Refusal;
use brisk_http_connection::body::client::ClientBody;
use brisk_jwt::Token;
use brisk_upstream::Group;
use brisk_variants::HostVariants;
use http::{Method, Version};
use http_body::Body as _;

use crate::exchange::Exchange;
use crate::features::early_hints::RequestHints;
use crate::features::headers::rules_stage::FormedHeaders;
use crate::features::replace_text::stage::FormedTexts;
use crate::features::trace::stage::RequestTrace;
use crate::forwarding::Forwarding;
use crate::settings::{HostSettings, HstsSettings, Preconnect, RouteSettings, ServiceSettings};
use crate::visits::{PageView, SiteVisits};
use brisk_rules::ResponseHeaders;
use brisk_transform::body::Body;
use brisk_transform::compress::ResponseCompression;
use brisk_transform::consolidate::ConsolidatedRequest;
use brisk_transform::names::Names;
use brisk_transform::weak_tags::WeakTags;

/// One feature of a route. Every method except [`Self::compile`] has an empty default.
///
/// The methods are called in the order of their declaration. Each is called for all stages of a route, in the order of
/// [`stages`](super::stages), before the next method is called.
pub(crate) trait Stage: Sized {
    /// Compiles the stage for one route. `None` if the configuration does not use the feature: requests of the route
    /// then pay nothing for it.
    fn compile(context: &StageContext<'_>) -> Option<Self>;

    /// Examines the client's request before the action of the route. May change its headers, [respond](Flow::Respond),
    /// [refuse](Flow::Refuse) the request, or [wait](Flow::Wait).
    fn request(
        &self,
        _exchange: &mut Exchange,
        _request: &mut ClientRequest,
        _state: &mut RequestState,
    ) -> Flow {
        Flow::Continue
    }

    /// Waits after [`Self::request`] returned [`Flow::Wait`].
    ///
    /// The caller boxes the future, so that its size does not enlarge the future of requests that pass at once.
    async fn wait(
        &self,
        _exchange: &mut Exchange,
        _request: &mut ClientRequest,
        _state: &mut RequestState,
    ) -> Flow {
        Flow::Continue
    }

    /// Changes the headers for the upstream, after the client's connection headers are replaced by the gateway's.
    fn forward(&self, _exchange: &Exchange, _state: &RequestState, _headers: &mut HeaderList) {}

    /// Examines the response of an upstream as it arrived, before its hop-by-hop headers are removed. Not called if the
    /// upstream sent no response.
    fn received(&self, _state: &RequestState, _response: &mut Response<Body>) {}

    /// Changes the response on its way to the client: the response of the action or of a stage, or an error page.
    fn response(&self, _exchange: &Exchange, _state: &RequestState, _response: &mut Response<Body>) {}
}

/// Continuation of a request after one stage.
#[derive(Debug)]
pub(crate) enum Flow {
    /// Continue with the next stage; after the last stage, with the action.
    Continue,
    /// Await [`Stage::wait`]; its result replaces this variant.
    Wait,
    /// Respond at once: later stages and the action do not see the request. Boxed because few requests take this path.
    Respond(Box<Response<Body>>),
    /// Refuse the request with an error page.
    Refuse(Refusal),
}

/// A client's request on its way through the stages.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    /// Method, target, version and headers. Stages may change the headers only.
    pub(crate) head: RequestParts,
    /// The body, unread.
    pub(crate) body: ClientBody,
    /// Whether the client wants to switch this stream to another protocol (RFC 8441). Its body is no HTTP content then.
    pub(crate) is_tunnel: bool,
    /// Whether servers could disagree about the meaning of the path. Such a request is refused, and
    /// [`Self::path`] is empty.
    pub(crate) is_ambiguous: bool,
    // Computed once, and without a borrow of the head: stages change headers while they examine the path.
    path: NormalizedPath,
}

impl ClientRequest {
    /// A request as it arrived, with its path normalized.
    pub(crate) fn new(head: RequestParts, body: ClientBody) -> Self {
        let path = NormalizedPath::read(head.uri.path());
        Self {
            is_tunnel: head.extensions.get::<Protocol>().is_some(),
            is_ambiguous: path.is_err(),
            path: path.unwrap_or_else(|AmbiguousPath| NormalizedPath::empty()),
            head,
            body,
        }
    }

    /// The normalized path, for routes and upstreams.
    pub(crate) fn path(&self) -> RequestPath<'_> {
        self.path.of(self.head.uri.path())
    }

    /// Moves head and body out, for an action that forwards them. Leaves an empty request.
    pub(crate) fn take(&mut self) -> (RequestParts, ClientBody) {
        let (nothing, ()) = Request::new(()).into_parts();
        (mem::replace(&mut self.head, nothing), mem::take(&mut self.body))
    }

    /// Lower bound of the body's length in bytes, as stated by the client.
    pub(crate) fn stated_length(&self) -> u64 {
        self.body.size_hint().lower()
    }
}

/// Facts about one request for the response side of the stages, when the request's head is gone.
///
/// Each field is written only by one stage, usually with the same name. Large fields are boxed because the future of every
/// request contains this struct.
#[derive(Debug)]
pub(crate) struct RequestState {
    pub(crate) version: Version,
    pub(crate) is_head: bool,
    /// Whether the request was refused because of maintenance.
    pub(crate) is_in_maintenance: bool,
    /// The token that the request was permitted by.
    pub(crate) token: Option<Arc<Token>>,
    /// The trace that the request belongs to.
    pub(crate) trace: Option<Box<RequestTrace>>,
    /// Content coding negotiated for the request; `None` if its route does not compress.
    pub(crate) compression: Option<Box<ResponseCompression>>,
    /// Host, tags and path of the request, if the host serves other origins.
    pub(crate) consolidation: Option<Box<ConsolidatedRequest>>,
    /// Texts in place of those that the route replaces.
    pub(crate) replaced_texts: Option<Box<FormedTexts>>,
    /// The page view, if the request is a navigation that is measured or whose failure is to be reported.
    pub(crate) page_view: Option<Box<PageView>>,
    /// Tags of the client's copies that may have the script, if the host inserts it.
    pub(crate) known_pages: Option<Box<WeakTags>>,
    /// Early hints of a navigation.
    pub(crate) hints: Option<Box<RequestHints>>,
    /// Values of header rules that are formed from the request; `None` if there are none, or an earlier stage has responded.
    pub(crate) formed_headers: Option<Box<FormedHeaders>>,
}

impl RequestState {
    /// The state before the first stage.
    pub(crate) fn new(head: &RequestParts) -> Self {
        Self {
            version: head.version,
            is_head: head.method == Method::HEAD,
            is_in_maintenance: false,
            token: None,
            trace: None,
            compression: None,
            consolidation: None,
            replaced_texts: None,
            page_view: None,
            known_pages: None,
            hints: None,
            formed_headers: None,
        }
    }
}

/// The configuration from which the stages of one route are compiled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageContext<'a> {
    /// Host of the route; `None` for responses to requests that reach no host.
    pub(crate) host: Option<&'a HostContext<'a>>,
    /// The requests that pass the stages.
    pub(crate) target: StageTarget<'a>,
}

/// Configuration of a host, and values derived from it that several stages share.
#[derive(Debug)]
pub(crate) struct HostContext<'a> {
    pub(crate) settings: &'a HostSettings,
    // `Rc`: each worker compiles its own stages, so their counts need no atomics.
    pub(crate) names: Rc<Names>,
    /// `None` if responses of the host have no headers in common.
    pub(crate) headers: Option<Rc<ResponseHeaders>>,
    /// Settings that vary between connections.
    pub(crate) variants: Arc<HostVariants>,
    /// `None` if the visits of the host are not measured.
    pub(crate) visits: Option<Rc<SiteVisits>>,
    pub(crate) forwarding: Rc<Forwarding>,
    pub(crate) groups: Groups<'a>,
}

// `dyn`: with a type parameter, every type of the compilation would have one too.
/// The upstream groups of the worker.
#[derive(Clone, Copy)]
pub(crate) struct Groups<'a>(pub(crate) &'a dyn Fn(&str) -> Option<Rc<Group>>);

impl Groups<'_> {
    /// The group of a name.
    pub(crate) fn find(&self, name: &str) -> Option<Rc<Group>> {
        (self.0)(name)
    }
}

impl fmt::Debug for Groups<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Groups")
    }
}

impl<'a> HostContext<'a> {
    /// The context of the host at `index` of `all.hosts`. Fails for an invalid host name.
    pub(crate) fn new(
        index: usize,
        all: &'a ServiceSettings,
        (forwarding, groups): (&Rc<Forwarding>, Groups<'a>),
    ) -> Result<Self, CertError> {
        let host = &all.hosts[index];
        let variants = all.variants.of_host(index);
        let measured = host.visits.as_ref().zip(all.beacons.as_ref());
        Ok(Self {
            settings: host,
            names: Rc::new(Names::new(&host.tls.names)?.with(host.tls.on_demand.as_ref())),
            headers: ResponseHeaders::new(host.headers.hsts.map(HstsSettings::value), &host.headers.others),
            visits: measured
                .map(|(visits, beacons)| SiteVisits::new(visits, beacons, host.tls.names.first(), &variants)),
            variants,
            forwarding: Rc::clone(forwarding),
            groups,
        })
    }
}

/// The requests that pass a list of stages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StageTarget<'a> {
    /// A route of the configuration.
    Route(&'a RouteSettings),
    /// An internal route: the request has passed the stages of another route, whose limits and log settings it keeps. Page views
    /// are not measured.
    Internal(&'a RouteSettings),
    /// The path on which pages open connections in advance.
    Preconnect(&'a Preconnect),
    /// The script that measures page views.
    Script,
    /// The path that receives beacons.
    Beacon,
    /// Requests refused because no route matches or because the path is ambiguous.
    Unrouted,
}

impl<'a> StageContext<'a> {
    /// The configured route; `None` for [targets](StageTarget) without one.
    pub(crate) fn route(&self) -> Option<&'a RouteSettings> {
        match self.target {
            StageTarget::Route(route) | StageTarget::Internal(route) => Some(route),
            _ => None,
        }
    }

    /// The configured route, unless it is an internal one.
    pub(crate) fn first_route(&self) -> Option<&'a RouteSettings> {
        self.route().filter(|_| !matches!(self.target, StageTarget::Internal(_)))
    }

    /// The route, if it has an upstream.
    pub(crate) fn upstream_route(&self) -> Option<&'a RouteSettings> {
        self.route().filter(|route| route.action.upstream().is_some())
    }

    /// The settings of the host, if the requests have no route.
    pub(crate) fn unrouted_host(&self) -> Option<&'a HostSettings> {
        self.host.filter(|_| matches!(self.target, StageTarget::Unrouted)).map(|host| host.settings)
    }

    /// Whether some requests of the route get early hints, by its configuration or because hints vary.
    pub(crate) fn may_hint(&self) -> bool {
        let is_varied = self.host.is_some_and(|host| host.variants.varies_early_hints());
        self.upstream_route().is_some_and(|route| is_varied || route.early_hints.settings.is_some())
    }
}
