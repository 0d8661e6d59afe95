//! Redirects of routes, and the redirect from plain HTTP to HTTPS.

use brisk_http::message::{RequestParts, Response};
use brisk_http::path::one_leading_slash;
use brisk_http::validate;
use brisk_http::validate::{Refusal, Target, host_of};
use brisk_rules::{NoLocation, Values};
use brisk_transform::body::Body;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::settings::{Action, Redirect, RoutePath, RouteSettings};

/// Default port of HTTPS, omitted in URLs.
const HTTPS: u16 = 443;

/// Bytes that are encoded in a path (RFC 3986 section 3.3).
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Redirects plain HTTP to HTTPS: `308` with the same host, path and query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpsRedirect {
    port: u16,
}

impl HttpsRedirect {
    /// Redirects to HTTPS on `port`.
    pub fn new(port: u16) -> Self {
        Self { port }
    }

    /// The response to a request; `400` if the request names no host.
    pub fn answer(self, request: &RequestParts) -> Response<Body> {
        self.location(request).map_or_else(
            |refusal| status_only(refusal.status),
            |location| to(StatusCode::PERMANENT_REDIRECT, location),
        )
    }

    fn location(self, request: &RequestParts) -> Result<HeaderValue, Refusal> {
        let Target::Path { authority } = validate::target(request)? else {
            return Err(Refusal::bad_request("target"));
        };
        // Without the port of the client, which is that of plain HTTP.
        let host = host_of(authority).ok_or(Refusal::bad_request("host-missing"))?;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        let path = path_and_query(request);
        let location = match self.port {
            HTTPS => format!("https://{open}{host}{close}{path}"),
            port => format!("https://{open}{host}{close}:{port}{path}"),
        };
        HeaderValue::try_from(location).map_err(|_| Refusal::bad_request("target"))
    }
}

/// The response of a route that redirects. `path` is the normalized path of the request, if [the target has
/// groups](brisk_rules::RedirectTarget::has_groups). `404` if the target is empty for this request.
pub(crate) fn answer(
    redirect: &Redirect,
    values: &impl Values,
    authority: &str,
    path: &[u8],
) -> Result<Response<Body>, Refusal> {
    let location = redirect.to.location(values, host_with_brackets(authority), path);
    let location = location.map_err(|reason| match reason {
        NoLocation::Host => Refusal::bad_request("host-missing"),
        NoLocation::Empty => Refusal::new(StatusCode::NOT_FOUND, "no-redirect"),
        NoLocation::Length => Refusal::new(StatusCode::URI_TOO_LONG, "redirect-length"),
    })?;
    let location = HeaderValue::try_from(location).map_err(|_| Refusal::bad_request("target"))?;
    Ok(to(redirect.status, location))
}

/// The path of a prefix without its final slash, and the location with the slash, for routes whose requests to this path are
/// redirected: those to upstreams, as in nginx.
pub(crate) fn slashless(route: &RouteSettings) -> Option<(String, Box<str>)> {
    let (Action::Upstream(_), RoutePath::Prefix(path)) = (&route.action, &route.path) else { return None };
    // A redirect would disclose the path of an internal route.
    if route.internal.is_internal {
        return None;
    }
    let slashless = path.strip_suffix('/').filter(|slashless| !slashless.is_empty())?;
    Some((slashless.to_owned(), encoded(path).into()))
}

/// The redirect to `location` with the query of the request. A request with another method than `GET` and `HEAD` keeps method
/// and body (`308`), which clients drop after `301` (RFC 9110 section 15.4.2).
pub(crate) fn final_slash(location: &str, request: &RequestParts) -> Response<Body> {
    let is_read = request.method == Method::GET || request.method == Method::HEAD;
    let status = if is_read { StatusCode::MOVED_PERMANENTLY } else { StatusCode::PERMANENT_REDIRECT };
    let location = match request.uri.query() {
        Some(query) => format!("{location}?{query}"),
        None => location.to_owned(),
    };
    HeaderValue::try_from(location)
        .map_or_else(|_| status_only(StatusCode::BAD_REQUEST), |location| to(status, location))
}

/// A path as a location: percent-encoded, on this host.
pub(crate) fn encoded(path: &str) -> String {
    one_leading_slash(&utf8_percent_encode(path, IN_PATH).to_string()).to_owned()
}

pub(crate) fn host_with_brackets(authority: &str) -> Option<&str> {
    let host = host_of(authority)?;
    // With the brackets, which `host_of` removes.
    if host.contains(':') { authority.get(..host.len() + 2) } else { Some(host) }
}

fn path_and_query(request: &RequestParts) -> &str {
    request.uri.path_and_query().map_or("/", PathAndQuery::as_str)
}

/// A response with `Location` and without content.
pub(crate) fn to(status: StatusCode, location: HeaderValue) -> Response<Body> {
    let mut response = status_only(status);
    response.headers_mut().insert(header::LOCATION, location);
    response
}

fn status_only(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use brisk_http::message::Request;

    use super::*;

    fn request(target: &str, host: Option<&str>) -> RequestParts {
        let mut request = Request::get(target);
        if let Some(host) = host {
            request = request.header("host", host);
        }
        request.body(()).expect("a request").into_parts().0
    }

    fn location(response: &Response<Body>) -> &str {
        response.headers()["location"].to_str().expect("text")
    }

    #[test]
    fn plain_http_is_shown_the_way_to_https() {
        let redirect = HttpsRedirect::new(443);
        let response = redirect.answer(&request("/a?b=c", Some("a.example:80")));
        assert_eq!(response.status(), 308);
        assert_eq!(location(&response), "https://a.example/a?b=c");
        let elsewhere = HttpsRedirect::new(8443).answer(&request("/", Some("[::1]:8080")));
        assert_eq!(location(&elsewhere), "https://[::1]:8443/");
    }

    #[test]
    fn without_a_host_there_is_no_way() {
        let redirect = HttpsRedirect::new(443);
        assert_eq!(redirect.answer(&request("/", None)).status(), 400);
        assert_eq!(redirect.answer(&request("/", Some("a b"))).status(), 400);
        let mut old = request("/", None);
        old.version = http::Version::HTTP_10;
        assert_eq!(redirect.answer(&old).status(), 400);
    }
}
