//! The way of a request to an upstream group, from the client's head to the answer or its error.

use std::rc::Rc;

use brisk_http::path::RequestPath;
use brisk_http::validate;
use brisk_http::validate::Refusal;
use brisk_http_connection::Connection;
use brisk_http_connection::body::gathered::{Gathered, Room};
use brisk_http_connection::body::request::{Arriving, BodyProgress};
use brisk_http_connection::body::upload::Upload;
use brisk_upstream::forward::{ForwardFacts, forward, tunnel};
use brisk_upstream::{Group, Server, UpstreamBody, UpstreamError};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Response, header};

use super::{Service, Site};
use crate::body::Body;
use crate::consolidate::Consolidated;
use crate::error_page::error_page;
use crate::exchange::Exchange;
use crate::forwarding::Asked;
use crate::header_rules::HeaderRules;
use crate::headers;
use crate::hints::Hinting;
use crate::settings::UpstreamPath;

/// A request on its way to an upstream group.
pub(super) struct Passage<'a> {
    pub(super) service: &'a Service,
    pub(super) site: &'a Site,
    pub(super) group: &'a Rc<Group>,
    pub(super) body_limit: u64,
    pub(super) rules: Option<&'a HeaderRules>,
    pub(super) hinting: Option<Hinting>,
    pub(super) consolidated: Option<&'a Consolidated>,
}

impl Passage<'_> {
    /// Forwards the request once its whole body is gathered.
    pub(super) async fn gather_and_go(
        &self,
        mut head: Parts,
        target: PathAndQuery,
        body: Upload,
        exchange: &mut Exchange,
    ) -> Result<Response<Body>, Refusal> {
        let connection = exchange.connection();
        let progress = BodyProgress::new(connection, self.body_limit);
        let limit = connection.settings().map_or(u64::MAX, |settings| settings.gathered_total);
        let room = Room::new(&self.service.telemetry.metrics, limit);
        let gathered = Gathered::from(body, progress, room).await.map_err(|error| {
            self.service.not_gathered(&error, exchange.id());
            Refusal::new(error.status(), error.reason())
        })?;
        if !gathered.has_trailers() {
            head.headers.remove(header::TRANSFER_ENCODING);
            head.headers.insert(header::CONTENT_LENGTH, gathered.length().into());
        }
        self.go(head, target, Arriving::Whole(Box::new(gathered)), exchange).await
    }

    pub(super) async fn go(
        &self,
        mut head: Parts,
        target: PathAndQuery,
        body: impl Into<Arriving>,
        exchange: &mut Exchange,
    ) -> Result<Response<Body>, Refusal> {
        let connection = self.prepare(&mut head, target, exchange);
        let facts = ForwardFacts {
            connection: &connection,
            body_limit: self.body_limit,
            interim: self.hinting.as_ref().and_then(Hinting::interim),
            outcome: &exchange.outcome,
        };
        let answered = forward(self.group, Request::from_parts(head, body), &facts).await;
        Ok(self.answered(answered, exchange))
    }

    /// Joins a stream of the client with a server that speaks its protocol.
    pub(super) async fn tunnel(
        &self,
        mut head: Parts,
        target: PathAndQuery,
        upload: Upload,
        exchange: &mut Exchange,
    ) -> Result<Response<Body>, Refusal> {
        let connection = self.prepare(&mut head, target, exchange);
        let facts = ForwardFacts {
            connection: &connection,
            body_limit: u64::MAX,
            interim: None,
            outcome: &exchange.outcome,
        };
        let answered = tunnel(self.group, head, upload, &facts).await;
        Ok(self.answered(answered, exchange))
    }

    /// Makes the client's head one for an upstream.
    fn prepare(&self, head: &mut Parts, target: PathAndQuery, exchange: &Exchange) -> Rc<Connection> {
        let authority = validate::authority_of(head).to_owned();
        let connection = Rc::clone(exchange.connection());
        headers::prepare_request(head, &authority, target);
        if exchange.is_early() {
            headers::mark_early(&mut head.headers);
        }
        let asked = Asked { authority: &authority, id: exchange.id(), names: &self.site.names };
        self.service.forwarding.apply(&mut head.headers, &connection, &asked);
        match self.consolidated {
            // What clients prove to the host is not for others.
            Some(consolidated) if consolidated.place().is_some() => consolidated.address(&mut head.headers),
            _ => self.site.client_cert.apply(&mut head.headers, &connection.record.borrow()),
        }
        if let Some(rules) = self.rules {
            rules.apply(&mut head.headers);
        }
        connection
    }

    fn answered(
        &self,
        answered: Result<Response<UpstreamBody>, UpstreamError>,
        exchange: &mut Exchange,
    ) -> Response<Body> {
        match answered {
            Ok(response) => {
                let mut response = response.map(Body::Upstream);
                if let Some(consolidated) = self.consolidated {
                    consolidated.change_links(response.headers_mut());
                }
                if let Some(hinting) = &self.hinting {
                    hinting.answered(&response);
                }
                headers::prepare_response(response.status(), response.headers_mut());
                response
            }
            Err(error) => self.failed(&error, exchange),
        }
    }

    fn failed(&self, error: &UpstreamError, exchange: &mut Exchange) -> Response<Body> {
        let group = &self.group.state().settings().name;
        let server = exchange.outcome.server();
        let server = server.as_deref().map(Server::name);
        tracing::debug!(%error, group, server, request = %exchange.id(), "upstream gave no response");
        exchange.fail(error.side(), error.reason());
        error_page(error.status(), exchange.id())
    }
}

/// The target that is sent to an upstream: the client's own wherever its path is unambiguous.
pub(super) fn upstream_target(
    head: &Parts,
    path: &RequestPath<'_>,
    kept: UpstreamPath,
    route: &str,
) -> Result<PathAndQuery, Refusal> {
    let forwarded = match kept {
        UpstreamPath::Whole => path.forwarded.as_ref().into(),
        UpstreamPath::BelowRoute => path.below(route)?,
    };
    match head.uri.path_and_query() {
        // A query alone, of the path `/`, is spelled out.
        Some(asked) if asked.path() == forwarded && asked.as_str().starts_with('/') => Ok(asked.clone()),
        _ => with_query(&forwarded, head.uri.query()),
    }
}

fn with_query(path: &str, query: Option<&str>) -> Result<PathAndQuery, Refusal> {
    let target = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    PathAndQuery::from_maybe_shared(target).map_err(|_| Refusal::bad_request("target"))
}
