//! Forward authentication: another server decides about each request.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use brisk_http::claims::OwnNames;
use brisk_http::conditional::OF_COPIES;
use brisk_http::message::{HeaderList, Request, RequestParts, Response};
use brisk_http::path::one_leading_slash;
use brisk_http::validate::{self, Refusal};
use brisk_http_connection::body::request::RequestBody;
use brisk_telemetry::Side;
use brisk_transform::body::Body;
use brisk_transform::names::Names;
use brisk_upstream::forward::{ForwardFacts, ForwardOutcome, forward};
use brisk_upstream::{Group, UpstreamBody};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use tokio::time::timeout;

use super::CopiedHeader;
use crate::error_page::{error_page, of_upstream};
use crate::exchange::Exchange;
use crate::features::access::stage::AccessStage;
use crate::features::client_certificates::stage::ClientCertificateStage;
use crate::features::real_ip::RealIpStage;
use crate::forwarding::{self, Forwarding};
use crate::head_limits::size_of_fields;
use crate::headers;
use crate::own_names;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

const METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");
const ORIGINAL_URL: HeaderName = HeaderName::from_static("x-original-url");

/// Headers about the body and the connection, which the question does not have, besides [`OF_COPIES`].
const OMITTED: [HeaderName; 3] = [header::CONTENT_LENGTH, header::TE, header::UPGRADE];

/// Maximum length of the body of a permission, which is read to keep the connection to the server, and the time for it. The
/// request has to wait meanwhile, although the decision is known.
const LONGEST_PERMISSION: usize = 16 << 10;
const PERMISSION_TIME: Duration = Duration::from_secs(1);

/// Asks a server about each request, without the body. Status 2xx permits the request; `401`, `403`, `425` and redirects are
/// sent to the client. Everything else is a failure of the server. Compiled if the route has forward authentication.
#[derive(Debug)]
pub(crate) struct ForwardAuthStage {
    /// `None` in an explanation, which sends nothing.
    group: Option<Rc<Group>>,
    path: PathAndQuery,
    /// Headers of a permission that the upstream gets in place of all others with their names.
    copied: Arc<[CopiedHeader]>,
    /// Headers of a permission that are added to the response to the client.
    returned: Arc<[HeaderName]>,
    names: Rc<Names>,
    forwarding: Rc<Forwarding>,
    /// Names that the client's headers must not have in a question.
    own_names: OwnNames,
    /// Stages whose headers for the upstream are part of the question.
    access: Option<AccessStage>,
    certificate: Option<ClientCertificateStage>,
    real_ip: Option<RealIpStage>,
}

impl Stage for ForwardAuthStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let route = context.route()?;
        let settings = route.forward_auth.as_ref()?;
        let host = context.host?;
        Some(Self {
            group: host.groups.find(&settings.group),
            path: settings.path.clone(),
            copied: Arc::clone(&settings.copied),
            returned: Arc::clone(&settings.returned),
            names: Rc::clone(&host.names),
            forwarding: Rc::clone(&host.forwarding),
            own_names: own_names::of_question(host.settings, route),
            access: AccessStage::compile(context),
            certificate: ClientCertificateStage::for_questions(context),
            real_ip: RealIpStage::compile(context),
        })
    }

    fn request(&self, _: &mut Exchange, _: &mut ClientRequest, _: &mut RequestState) -> Flow {
        Flow::Wait
    }

    async fn wait(
        &self,
        exchange: &mut Exchange,
        request: &mut ClientRequest,
        state: &mut RequestState,
    ) -> Flow {
        let Some(group) = &self.group else {
            return Flow::Refuse(Refusal::new(StatusCode::BAD_GATEWAY, "forward-auth"));
        };
        let head = match self.question(request, exchange, state) {
            Ok(head) => head,
            Err(refusal) => return Flow::Refuse(refusal),
        };
        let connection = Rc::clone(exchange.connection());
        // Not that of the exchange, whose outcome is that of the upstream.
        let outcome = ForwardOutcome::default();
        let facts = ForwardFacts::aside(&connection, exchange.client().address, &outcome);
        match forward(group, head, RequestBody::Empty, &facts).await {
            Ok(response) => self.decided(response, exchange).await,
            Err(error) => {
                tracing::debug!(%error, request = %exchange.id(), "no decision about a request");
                exchange.fail(error.side(), "forward-auth");
                Flow::Respond(Box::new(error_page(error.status(), exchange.id())))
            }
        }
    }

    fn forward(&self, exchange: &Exchange, _: &RequestState, headers: &mut HeaderList) {
        for copied in &*self.copied {
            headers.remove(&copied.name);
        }
        // `append`: a permission may have several lines of one name.
        append(exchange.granted.iter().flat_map(|granted| granted.iter()), headers);
    }

    fn response(&self, exchange: &Exchange, _: &RequestState, response: &mut Response<Body>) {
        append(exchange.returned.iter().flat_map(|returned| returned.iter()), response.headers_mut());
    }
}

fn append<'h>(lines: impl Iterator<Item = (&'h HeaderName, &'h HeaderValue)>, headers: &mut HeaderList) {
    lines.for_each(|(name, value)| headers.append(name, value.clone()));
}

/// The headers of a permission with these names.
fn of_permission(headers: &HeaderList, names: &[HeaderName]) -> Option<Box<HeaderList>> {
    let mut named = HeaderList::new();
    append(headers.iter().filter(|(name, _)| names.contains(name)), &mut named);
    (!named.is_empty()).then(|| Box::new(named))
}

/// The headers of a permission for the upstream, under their names there.
fn granted(headers: &HeaderList, copied: &[CopiedHeader]) -> Option<Box<HeaderList>> {
    let mut named = HeaderList::new();
    for copied in copied {
        append(headers.get_all(&copied.source).map(|value| (&copied.name, value)), &mut named);
    }
    (!named.is_empty()).then(|| Box::new(named))
}

impl ForwardAuthStage {
    /// `GET` with the headers of the client's request, and with its method and target in headers as Traefik and the examples
    /// of nginx send them.
    fn question(
        &self,
        request: &ClientRequest,
        exchange: &Exchange,
        state: &RequestState,
    ) -> Result<RequestParts, Refusal> {
        let own = &request.head;
        let method = if request.is_tunnel { &Method::GET } else { &own.method };
        // The path as the upstream gets it, so that both decide about the same one. The server may redirect to it after a login.
        let path = request.path();
        let path = one_leading_slash(&path.forwarded);
        // The query belongs to the target on which the server decides.
        let target = match own.uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        let authority = validate::authority_of(own);
        let forwarded = forwarding::described(exchange, authority, &self.names);
        let (mut head, ()) = Request::new(()).into_parts();
        (head.uri, head.version, head.headers) = (own.uri.clone(), own.version, own.headers.clone());
        for name in OMITTED.iter().chain(&OF_COPIES) {
            head.headers.remove(name);
        }
        headers::prepare_request(&mut head, &forwarded.authority, self.path.clone());
        if exchange.is_early() {
            headers::mark_early(&mut head.headers);
        }
        self.forwarding.apply(&mut head.headers, exchange, &forwarded);
        let value = |text: &str| HeaderValue::from_str(text).map_err(|_| Refusal::bad_request("target"));
        let headers = &mut head.headers;
        self.own_names.remove_from(headers);
        // Credentials that the upstream must not get are not for this server either, and it gets the same facts.
        if let Some(stage) = &self.access {
            stage.forward(exchange, state, headers);
        }
        if let Some(stage) = &self.certificate {
            stage.forward(exchange, state, headers);
        }
        if let Some(stage) = &self.real_ip {
            stage.forward(exchange, state, headers);
        }
        headers.insert(METHOD, value(method.as_str())?);
        headers.insert(ORIGINAL_METHOD, value(method.as_str())?);
        headers.insert(URI, value(&target)?);
        headers.insert(ORIGINAL_URI, value(&target)?);
        // Removed also if no value follows: an upstream would believe the value of a client.
        headers.remove(ORIGINAL_URL);
        if self.names.include(authority) {
            // A trusted proxy that terminates TLS states the scheme of the client.
            let stated = headers.get(&forwarding::PROTO).and_then(|value| value.to_str().ok());
            let is_secure = exchange.connection().client.secure || stated == Some("https");
            let scheme = if is_secure { "https" } else { "http" };
            headers.insert(ORIGINAL_URL, value(&format!("{scheme}://{authority}{target}"))?);
        }
        Ok(head)
    }

    async fn decided(&self, response: Response<UpstreamBody>, exchange: &mut Exchange) -> Flow {
        let status = response.status();
        // The copied headers wait for the response of the upstream, so they count with the heads.
        if let Err(refusal) = exchange.hold_head(|| size_of_fields(response.headers())) {
            return Flow::Refuse(refusal);
        }
        if status.is_success() {
            let (head, body) = response.into_parts();
            exchange.granted = granted(&head.headers, &self.copied);
            exchange.returned = of_permission(&head.headers, &self.returned);
            // A body that is too long, too slow or breaks costs its connection only.
            let _ = timeout(PERMISSION_TIME, Limited::new(body, LONGEST_PERMISSION).collect()).await;
            return Flow::Continue;
        }
        // The question has no condition to which a 304 would respond.
        let is_redirect = status.is_redirection() && status != StatusCode::NOT_MODIFIED;
        // RFC 8470 section 5.2: a 425 reaches the client, which repeats the request after the handshake.
        let is_decision =
            matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_EARLY);
        if is_redirect || is_decision {
            exchange.hold_first(response.body().unread());
            let mut response = of_upstream(response);
            exchange.named = headers::prepare_response(status, response.headers_mut());
            return Flow::Respond(Box::new(response));
        }
        tracing::debug!(%status, request = %exchange.id(), "no decision about a request");
        exchange.fail(Side::Upstream, "forward-auth");
        Flow::Respond(Box::new(error_page(StatusCode::BAD_GATEWAY, exchange.id())))
    }
}
