//! Changes of messages for their connection: framing of bodies, and the form of the request's target.

use brisk_http::message::{HeaderList, Request, Response};
use brisk_http_connection::body::request::RequestBody;
use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode, Version, header};
use http_body::Body as _;

use crate::group::Server;

const CHUNKED: HeaderValue = HeaderValue::from_static("chunked");
const TE: HeaderValue = HeaderValue::from_static("te");
const UPGRADE_AND_TE: HeaderValue = HeaderValue::from_static("upgrade, te");

/// Whether the head of a response states the end of the body without contradiction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Clear,
    /// Both `Transfer-Encoding` and `Content-Length`. A recipient that uses the length would take the rest for another
    /// response (RFC 9112 section 6.3), so the connection is not reused.
    Contradictory,
}

/// Removes an invalid `Content-Length`, which would break the framing of the client's connection. The caller must not reuse the
/// connection after [`Framing::Contradictory`].
pub(super) fn settle_length<B>(response: &mut Response<B>) -> Framing {
    // RFC 9110 section 8.6: a 204 response has no length.
    if response.status() == StatusCode::NO_CONTENT {
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    // RFC 9112 section 6.3: `Transfer-Encoding` overrides the length.
    let overridden = response.headers().contains_key(header::TRANSFER_ENCODING);
    if overridden && response.headers_mut().remove(header::CONTENT_LENGTH).is_some() {
        return Framing::Contradictory;
    }
    Framing::Clear
}

/// Sets the framing of the body: `Content-Length` if it is present, else `Transfer-Encoding: chunked`. A request without a body
/// has no chunks.
pub(super) fn frame_body(request: &mut Request<RequestBody>) {
    let is_chunked =
        !request.body().is_end_stream() && !request.headers().contains_key(header::CONTENT_LENGTH);
    if is_chunked {
        request.headers_mut().insert(header::TRANSFER_ENCODING, CHUNKED);
    } else {
        // The head may have the field from an earlier attempt, before the body had ended.
        request.headers_mut().remove(header::TRANSFER_ENCODING);
    }
}

/// Converts the target to origin form (RFC 9112 section 3.2.1); `Host` names the server if the request has none.
/// Returns whether the request itself names a host.
pub(super) fn to_origin_form(request: &mut Request<RequestBody>, server: &Server) -> bool {
    *request.version_mut() = Version::HTTP_11;
    name_te(request.headers_mut());
    let mut is_named = true;
    if !request.headers().contains_key(header::HOST) {
        is_named = request.uri().authority().is_some();
        let authority = request.uri().authority().unwrap_or_else(|| server.state().url().authority());
        if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
            request.headers_mut().insert(header::HOST, host);
        }
    }
    if request.uri().authority().is_some() {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.unwrap_or(PathAndQuery::from_static("/")).into();
    }
    is_named
}

/// Names `TE` in `Connection`, so that the next intermediary does not forward it (RFC 9110 section 10.1.4).
fn name_te(headers: &mut HeaderList) {
    if !headers.contains_key(header::TE) {
        return;
    }
    match headers.get(header::CONNECTION) {
        None => drop(headers.insert(header::CONNECTION, TE)),
        Some(options) if options == "upgrade" => drop(headers.insert(header::CONNECTION, UPGRADE_AND_TE)),
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn te_is_named_by_connection_once() {
        let named = |lines: &[(&'static str, &'static str)]| {
            let lines = lines
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            let mut headers: HeaderList = lines.collect();
            name_te(&mut headers);
            name_te(&mut headers);
            let connection = headers.get_all("connection").map(|value| value.to_str().expect("text"));
            connection.collect::<Vec<_>>().join("|")
        };
        assert_eq!(named(&[("te", "trailers")]), "te");
        assert_eq!(named(&[("te", "trailers"), ("connection", "upgrade")]), "upgrade, te");
        assert_eq!(named(&[("connection", "upgrade")]), "upgrade");
        assert_eq!(named(&[]), "");
    }
}
