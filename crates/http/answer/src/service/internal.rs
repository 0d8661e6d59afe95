//! Internal redirects: responses of upstreams that are replaced by the response of an internal route, as `X-Accel-Redirect` of
//! nginx and `X-Sendfile` of Apache do.
//!
//! The target comes from an application, and often contains text of a client. It is never a path of an ordinary route, has no
//! dot segments, and files are looked up as for any other request.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use brisk_http::message::{HeaderList, RequestParts, Response};
use brisk_rules::RoutePath;
use brisk_transform::body::Body;
use http::uri::PathAndQuery;
use http::{HeaderName, Method, StatusCode, Uri, header};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

use crate::settings::{Action, RouteSettings};

/// Redirects of one request, as in nginx.
pub(super) const MOST_REDIRECTS: usize = 10;

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

/// A response names a target to which no request can be redirected.
pub(super) struct NoTarget;

/// The folders of the internal routes among `routes`.
pub(super) fn folders(routes: &[RouteSettings]) -> Vec<Folder> {
    let folder = |route: &RouteSettings| match (&route.action, &route.path) {
        // A changed path has no path of a request from which it could be formed.
        (Action::Static(files), RoutePath::Prefix(path))
            if route.internal.is_internal && files.rewrite.is_none() =>
        {
            // `X-Sendfile` has absolute paths.
            let root = std::path::absolute(&files.root).unwrap_or_else(|_| files.root.clone());
            Some(Folder { root, route: path.clone() })
        }
        _ => None,
    };
    routes.iter().filter_map(folder).collect()
}

/// The target that a response names; an error for an impossible one. Removes all headers for the gateway.
pub(super) fn target(
    folders: &[Folder],
    response: &mut Response<Body>,
) -> Option<Result<PathAndQuery, NoTarget>> {
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
    for name in &FOR_GATEWAY {
        headers.remove(name);
    }
    match (accel, file) {
        (None, None) => None,
        (Some((value, false)), None) => Some(path(value.as_bytes()).ok_or(NoTarget)),
        (None, Some((value, false))) => Some(path_of_file(folders, value.as_bytes()).ok_or(NoTarget)),
        // Two targets contradict each other.
        _ => Some(Err(NoTarget)),
    }
}

/// The path at which an internal route has a file.
fn path_of_file(folders: &[Folder], file: &[u8]) -> Option<PathAndQuery> {
    let below = |folder: &'_ Folder| {
        let root = folder.root.as_os_str().as_bytes();
        let root = root.strip_suffix(b"/").unwrap_or(root);
        let rest = file.strip_prefix(root)?.strip_prefix(b"/")?;
        Some((root.len(), folder.route.clone(), rest))
    };
    // The longest root: the folder of one route may be within that of another.
    let (_, route, rest) = folders.iter().filter_map(below).max_by_key(|(length, ..)| *length)?;
    let route = percent_encode(route.trim_end_matches('/').as_bytes(), OF_FILE);
    path(format!("{route}/{}", percent_encode(rest, OF_FILE)).as_bytes())
}

/// A path and query as applications write them; `None` for one that begins without a slash or has dot segments.
fn path(written: &[u8]) -> Option<PathAndQuery> {
    let path = written.split(|byte| *byte == b'?').next().filter(|path| path.starts_with(b"/"))?;
    // Encoded twice too: the application may have encoded a text that the client had encoded.
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
pub(super) fn redirect(head: &mut RequestParts, target: PathAndQuery) {
    // `take`: a `Uri` cannot be changed in place.
    let mut uri = std::mem::take(&mut head.uri).into_parts();
    uri.path_and_query = Some(target);
    // A host from the URI needs a scheme too, which a URI with a host has.
    head.uri = Uri::from_parts(uri).unwrap_or_default();
    if head.method != Method::HEAD {
        head.method = Method::GET;
    }
    for name in &OF_BODY {
        head.headers.remove(name);
    }
    // Several parts would have the media type of the file, not that of the application.
    if head.headers.get(header::RANGE).is_some_and(|ranges| ranges.as_bytes().contains(&b',')) {
        head.headers.remove(header::RANGE);
    }
}

/// Adds the headers of a replaced response that its replacement gets to `kept`.
pub(super) fn keep(headers: &HeaderList, kept: &mut HeaderList) {
    for name in &KEPT {
        if let Some(value) = headers.get(name) {
            kept.insert(name, value.clone());
        }
    }
    for value in headers.get_all(header::SET_COOKIE) {
        kept.append(header::SET_COOKIE, value.clone());
    }
}

/// Adds the headers of replaced responses to the response with a file, or of another upstream. An error gets cookies only: it is
/// not the content that the application describes.
pub(super) fn add(kept: &HeaderList, is_file: bool, response: &mut Response<Body>) {
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    let headers = response.headers_mut();
    for (name, value) in kept {
        if *name == header::SET_COOKIE {
            headers.append(name, value.clone());
        } else if !is_error && (is_file || !headers.contains_key(name)) {
            // For a file, the media type that the application states precedes the guess from the name.
            headers.insert(name, value.clone());
        }
    }
}
