//! Responses of routes in place of errors: `{ route = "/PATH" }` in `error_pages`.

use brisk_http::conditional::OF_COPIES;
use brisk_http::message::{HeaderList, RequestParts, Response};
use brisk_http::validate::authority_of;
use brisk_rules::{RedirectTarget, Values};
use brisk_transform::body::Body;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::pages::{is_of_gateway, remove_content};
use crate::error_page::ErrorSource;
use crate::headers::CLOSE;
use crate::redirect::host_with_brackets;

/// Headers of an error that a response with the same status has too: those that the status requires, and those for caches.
const OF_STATUS: [HeaderName; 7] = [
    header::WWW_AUTHENTICATE,
    header::ALLOW,
    header::RETRY_AFTER,
    header::CONTENT_RANGE,
    header::CACHE_CONTROL,
    header::UPGRADE,
    header::CONNECTION,
];

/// A route of the host whose response replaces an error.
#[derive(Clone, Debug)]
pub struct ErrorRoute {
    /// Path and query of the route; without a host.
    pub to: RedirectTarget,
    /// Status of the response.
    pub status: RouteStatus,
}

/// Status of the response of an [`ErrorRoute`]. Redirects keep their status, and so do errors of the gateway and fixed responses
/// without a body: the page has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteStatus {
    /// That of the error.
    Error,
    /// A fixed one.
    Code(StatusCode),
    /// That of the route.
    Route,
}

impl ErrorRoute {
    /// The path of the route for a request, whose head is `head`. `None` if the result is no path, for
    /// example because a value is too long.
    pub(crate) fn target(&self, values: &impl Values, head: &RequestParts) -> Option<PathAndQuery> {
        let location = self.to.location(values, host_with_brackets(authority_of(head)), b"").ok()?;
        location.parse().ok()
    }

    /// Removes headers of the first request that do not concern the request for the page.
    pub(crate) fn prepare(&self, head: &mut RequestParts) {
        // A page is no other protocol.
        head.headers.remove(header::UPGRADE);
        // The page has the status of an error, with which neither a 304 nor a part would agree.
        if self.status != RouteStatus::Route {
            for name in &OF_COPIES {
                head.headers.remove(name);
            }
        }
    }

    /// Status and headers of the error for the response of the route.
    pub(crate) fn head_of(&self, error: &Response<Body>) -> ErrorHead {
        let status = match self.status {
            RouteStatus::Error => Some(error.status()),
            RouteStatus::Code(status) => Some(status),
            RouteStatus::Route => None,
        };
        let headers = error.headers().iter().filter(|(name, _)| OF_STATUS.contains(name));
        let headers = headers.map(|(name, value)| (name.clone(), value.clone())).collect();
        ErrorHead { error: error.status(), status, headers }
    }
}

/// The parts of the head of an error that a page gets.
#[derive(Debug)]
pub(crate) struct ErrorHead {
    error: StatusCode,
    /// Status of the page; `None` for [`RouteStatus::Route`].
    status: Option<StatusCode>,
    headers: HeaderList,
}

impl ErrorHead {
    /// Adds status and headers to the response of a route; `is_refusal` if a stage has refused the request for the page.
    pub(crate) fn complete(self, is_refusal: bool, response: &mut Response<Body>) {
        let own = response.status();
        let is_error = own.is_client_error() || own.is_server_error();
        let has_failed = is_error && (is_refusal || is_of_gateway(response));
        if let Some(status) = self.status.filter(|_| !own.is_redirection() && !has_failed) {
            *response.status_mut() = status;
            // Also without content: a request has one page at most.
            response.extensions_mut().get_or_insert(ErrorSource::Page);
        }
        // RFC 9110 section 6.4.1.
        if matches!(response.status().as_u16(), 204 | 205 | 304) {
            remove_content(response);
        }
        let is_same = response.status() == self.error;
        let headers = response.headers_mut();
        let is_wanted = |name: &HeaderName, value: &HeaderValue| {
            // The connection ends after the error, whichever status its page has.
            is_same || (*name == header::CONNECTION && *value == CLOSE)
        };
        let missing: Vec<_> = self
            .headers
            .iter()
            .filter(|(name, value)| is_wanted(name, value) && !headers.contains_key(*name))
            .collect();
        for (name, value) in missing {
            headers.append(name, value.clone());
        }
    }
}
