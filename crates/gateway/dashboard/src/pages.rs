//! Routing of requests to responses.

use std::rc::Rc;

use http::header::{ALLOW, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use crate::admission::Authorized;
use crate::assets::{self, LOGIN, PAGE};
use crate::board::Board;
use crate::documentation;
use crate::responses::{self, Body};
use crate::settings::DashboardSettings;
use crate::token::TokenVerifier;
use crate::{admission, form, login};

/// Maximum length of a search text, in bytes.
const LONGEST_TEXT: usize = 100;

/// Responds to a request under these settings.
pub(crate) async fn answer(
    board: &Rc<Board>,
    settings: &DashboardSettings,
    verifier: &TokenVerifier,
    request: Request<Incoming>,
) -> Response<Body> {
    responses::protected(admitted(board, settings, verifier, request).await)
}

async fn admitted(
    board: &Rc<Board>,
    settings: &DashboardSettings,
    verifier: &TokenVerifier,
    request: Request<Incoming>,
) -> Response<Body> {
    // Before the path is known: all pages and files are protected from other names and origins alike.
    if !admission::is_for_own_host(settings, &request) {
        return responses::text(
            StatusCode::MISDIRECTED_REQUEST,
            "unknown host name: use an IP address or localhost, or add the name to `names` in [dashboard]\n",
        );
    }
    if admission::is_from_other_origin(&request) {
        return responses::text(StatusCode::FORBIDDEN, "requests of pages of other origins are refused\n");
    }
    match (request.method(), request.uri().path()) {
        (&Method::POST, "/login") => return login::log_in(settings, verifier, request.into_body()).await,
        (&Method::POST, "/logout") => return login::log_out(),
        (&Method::GET | &Method::HEAD, _) => {}
        _ => {
            let mut response = responses::text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
    }
    let path = request.uri().path();
    if let Some(asset) = assets::public(path).or_else(|| documentation::page(path)) {
        return responses::asset(asset, StatusCode::OK, request.headers());
    }
    if let Some(admitted) = admission::authorize(settings, verifier, request.headers()) {
        let query = request.uri().query().unwrap_or_default();
        return match request.uri().path() {
            "/api/visitors" => board.visitors(query).await,
            "/api/certificates" => match board.certificates(text(query), page(query)).await {
                Ok(list) => responses::json(&list),
                Err(_) => responses::text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "cannot create the list; see the log\n",
                ),
            },
            _ => shown(board, settings, admitted, &request),
        };
    }
    let mut response = match request.uri().path() {
        "/" => responses::asset(&LOGIN, StatusCode::UNAUTHORIZED, request.headers()),
        _ => responses::text(
            StatusCode::UNAUTHORIZED,
            "open / and log in, or send Authorization: Bearer TOKEN\n",
        ),
    };
    // RFC 9110 section 11.6.1: a 401 names the scheme, which programs without a cookie use.
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"brisk\""));
    response
}

/// Responses that require authorization.
fn shown(
    board: &Rc<Board>,
    settings: &DashboardSettings,
    admitted: Authorized,
    request: &Request<Incoming>,
) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default();
    match request.uri().path() {
        "/" => responses::asset(&PAGE, StatusCode::OK, request.headers()),
        // HEAD has no body, but would occupy a stream until it is noticed.
        "/events" if request.method() == Method::GET => match board.join(admitted.until) {
            Some(events) => responses::events(events),
            None => {
                responses::text(StatusCode::SERVICE_UNAVAILABLE, "too many open dashboards: 32 at most\n")
            }
        },
        "/api/history" => responses::json(&board.history(settings.token.is_some())),
        "/api/connections" => responses::json(&board.connections(parameter(query, "order") == "latest")),
        "/api/problems" => responses::json(&board.problems()),
        "/api/upstreams" => responses::json(&board.upstreams(&text(query), page(query))),
        _ => responses::text(StatusCode::NOT_FOUND, "not found\n"),
    }
}

/// The search text.
fn text(query: &str) -> String {
    parameter(query, "q").to_lowercase()
}

/// The requested page of a list.
fn page(query: &str) -> usize {
    parameter(query, "page").parse().unwrap_or(0)
}

/// The value of a query parameter; empty if missing.
fn parameter(query: &str, name: &str) -> String {
    form::field(query.as_bytes(), name, LONGEST_TEXT).unwrap_or_default()
}
