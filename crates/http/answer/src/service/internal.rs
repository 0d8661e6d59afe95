//! Internal redirects: responses of upstreams that are replaced by the response of an internal route, as `X-Accel-Redirect` of
//! nginx and `X-Sendfile` of Apache do.
//!
//! The target comes from an application, and often contains text of a client. It is never a path of an ordinary route, has no
//! dot segments, and files are looked up as for any other request.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use brisk_http::message::{HeaderList, RequestParts, Response};
use brisk_http::validate::Refusal;
use brisk_http_connection::body::client::ClientBody;
use brisk_rules::RoutePath;
use brisk_transform::body::Body;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

use super::Service;
use super::action::RouteAction;
use super::answers::refuse;
use super::site::{Route, Site};
use crate::exchange::Exchange;
use crate::head_limits::size_of_fields;
use crate::settings::{Action, RouteSettings};
use crate::stage::{ClientRequest, RequestState};

/// Redirects of one request, as in nginx.
const MOST_REDIRECTS: usize = 10;

const ACCEL_REDIRECT: HeaderName = HeaderName::from_static("x-accel-redirect");
const SENDFILE: HeaderName = HeaderName::from_static("x-sendfile");

/// Headers that applications send to the gateway in front of them, and not to clients.
const FOR_GATEWAY: [HeaderName; 7] = [
    ACCEL_REDIRECT,
    SENDFILE,
    HeaderName::from_static("x-accel-buffering"),
    HeaderName::from_static("x-accel-charset"),
    HeaderName::from_static("x-accel-expires"),
    HeaderName::from_static("x-accel-limit-rate"),
    HeaderName::from_static("x-sendfile-temporary"),
];

/// Headers of a replaced response that its replacement gets, besides `Set-Cookie`.
const KEPT: [HeaderName; 4] =
    [header::CONTENT_TYPE, header::CONTENT_DISPOSITION, header::CACHE_CONTROL, header::EXPIRES];

/// Headers about the body of the request, which a redirected request does not have.
const OF_BODY: [HeaderName; 5] = [
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::EXPECT,
];

/// Bytes that an application may write in a path, and that a request encodes (RFC 3986 section 3.3).
const OF_TARGET: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}')
    .add(b'#');

/// Bytes of the name of a file that a path encodes.
const OF_FILE: &AsciiSet = &OF_TARGET.add(b'%').add(b'?').add(b';').add(b'\\').add(b'[').add(b']');

/// The folder of an internal route.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    route: String,
}

/// The folders of the internal routes among `routes`.
pub(super) fn folders(routes: &[RouteSettings]) -> Vec<Folder> {
    let folder = |route: &RouteSettings| match (&route.action, &route.path) {
        (Action::Static(files) | Action::StaticOrUpstream(files, _), RoutePath::Prefix(path))
            if route.internal.is_internal =>
        {
            let root = std::path::absolute(&files.root).unwrap_or_else(|_| files.root.clone());
            Some(Folder { root, route: path.clone() })
        }
        _ => None,
    };
    routes.iter().filter_map(folder).collect()
}

impl Site {
    /// Performs the action of `route`, whose stages the request has passed, and follows its internal redirects.
    pub(super) async fn answer_internally(
        &self,
        service: &Service,
        mut route: &Route,
        request: &mut ClientRequest,
        exchange: &mut Exchange,
        mut state: RequestState,
    ) -> Response<Body> {
        // The upstream call takes the head away.
        let kept = exchange.hold_head(|| size_of_fields(&request.head.headers));
        let mut head = request.head.clone();
        let mut answered = match kept {
            Ok(()) => route.act(service, self, request, exchange, &state).await,
            Err(refusal) => Err(refusal),
        };
        let mut headers = HeaderList::new();
        for count in 0.. {
            let Ok(response) = &mut answered else { break };
            let target = if route.internal.redirects { self.target(response) } else { None };
            let Some(target) = target else { break };
            keep(response.headers(), &mut headers);
            // Drops the replaced body before the next one begins.
            answered = Err(Refusal::new(StatusCode::BAD_GATEWAY, "internal-redirect"));
            exchange.named = Vec::new();
            let Some(target) = target.filter(|_| count < MOST_REDIRECTS) else { break };
            redirect(&mut head, target);
            let mut next = ClientRequest::new(head.clone(), ClientBody::default());
            state = RequestState::new(&next.head);
            route = self.internal_route(&next, exchange);
            answered = match route.stages.request(exchange, &mut next, &mut state).await {
                Some(answered) => answered.map(|response| *response),
                None => without_location(route, route.act(service, self, &mut next, exchange, &state).await),
            };
        }
        let mut response = answered.unwrap_or_else(|refusal| refuse(refusal, state.version, exchange));
        add(&headers, route, &mut response);
        route.stages.response(exchange, &state, &mut response);
        response
    }

    /// The target that a response names: `Some(None)` for an impossible one. Removes all headers for the gateway.
    fn target(&self, response: &mut Response<Body>) -> Option<Option<PathAndQuery>> {
        // The connection is no longer one of requests.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return None;
        }
        let headers = response.headers_mut();
        let one = |name: &HeaderName| {
            let mut values = headers.get_all(name);
            values.next().map(|value| (value.clone(), values.next().is_some()))
        };
        let (accel, file) = (one(&ACCEL_REDIRECT), one(&SENDFILE));
        FOR_GATEWAY.iter().for_each(|name| drop(headers.remove(name)));
        match (accel, file) {
            (None, None) => None,
            (Some((value, false)), None) => Some(path(value.as_bytes())),
            (None, Some((value, false))) => Some(self.path_of_file(value.as_bytes())),
            // Two targets contradict each other.
            _ => Some(None),
        }
    }

    /// The path at which an internal route has a file.
    fn path_of_file(&self, file: &[u8]) -> Option<PathAndQuery> {
        let below = |folder: &'_ Folder| {
            let root = folder.root.as_os_str().as_bytes();
            let root = root.strip_suffix(b"/").unwrap_or(root);
            let rest = file.strip_prefix(root)?.strip_prefix(b"/")?;
            Some((root.len(), folder.route.clone(), rest))
        };
        let (_, route, rest) = self.folders.iter().filter_map(below).max_by_key(|(length, ..)| *length)?;
        let route = percent_encode(route.trim_end_matches('/').as_bytes(), OF_FILE);
        path(format!("{route}/{}", percent_encode(rest, OF_FILE)).as_bytes())
    }
}

/// A path and query as applications write them; `None` for one that begins without a slash or has dot segments.
fn path(written: &[u8]) -> Option<PathAndQuery> {
    let path = written.split(|byte| *byte == b'?').next().filter(|path| path.starts_with(b"/"))?;
    // Encoded twice too: the application may have encoded what a client had encoded.
    let once: Vec<_> = percent_decode(path).collect();
    let twice = percent_decode(&once);
    let mut segments = Vec::new();
    segments.extend(twice);
    let has_dots = |path: &[u8]| {
        let mut segments = path.split(|byte| matches!(byte, b'/' | b'\\'));
        segments.any(|segment| matches!(segment, b"." | b".."))
    };
    if has_dots(&once) || has_dots(&segments) {
        return None;
    }
    percent_encode(written, OF_TARGET).to_string().parse().ok()
}

/// Changes the head of a request into that of a redirected one: `GET`, or `HEAD` as before, without a body.
fn redirect(head: &mut RequestParts, target: PathAndQuery) {
    let mut uri = std::mem::take(&mut head.uri).into_parts();
    uri.path_and_query = Some(target);
    // A host from the URI needs a scheme too, which a URI with a host has.
    head.uri = Uri::from_parts(uri).unwrap_or_default();
    if head.method != Method::HEAD {
        head.method = Method::GET;
    }
    OF_BODY.iter().for_each(|name| drop(head.headers.remove(name)));
}

/// Adds the headers of a replaced response that its replacement gets to `kept`.
fn keep(headers: &HeaderList, kept: &mut HeaderList) {
    for name in &KEPT {
        if let Some(value) = headers.get(name) {
            kept.insert(name, value.clone());
        }
    }
    for value in headers.get_all(header::SET_COOKIE) {
        kept.append(header::SET_COOKIE, value.clone());
    }
}

/// Adds the headers of replaced responses. An error gets cookies only: it is not the content that the application describes.
fn add(kept: &HeaderList, route: &Route, response: &mut Response<Body>) {
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    let is_file = matches!(route.action, RouteAction::Files(_));
    let headers = response.headers_mut();
    for (name, value) in kept.iter() {
        if *name == header::SET_COOKIE {
            headers.append(name, value.clone());
        } else if !is_error && (is_file || !headers.contains_key(name)) {
            headers.insert(name, value.clone());
        }
    }
}

/// `answered`, or 404 in place of a redirect to the final slash of a folder: it would name the path of the internal route.
fn without_location(
    route: &Route,
    answered: Result<Response<Body>, Refusal>,
) -> Result<Response<Body>, Refusal> {
    match answered {
        Ok(response)
            if matches!(route.action, RouteAction::Files(_))
                && response.headers().contains_key(header::LOCATION) =>
        {
            Err(Refusal::new(StatusCode::NOT_FOUND, "no-file"))
        }
        answered => answered,
    }
}
