//! Comparison of the request parser with hyper's server.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use bytes::{Buf as _, Bytes, BytesMut};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode, Uri, Version};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::response::Sent;
use crate::http1::HeadLimits;
use crate::http1::chunked::Part;
use crate::http1::request_head::RequestHead;
use crate::message::{Request, RequestParts};

const LIMITS: HeadLimits = HeadLimits { size: 16 << 10, lines: 100 };

/// Request, read to its end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    body: Vec<u8>,
    trailers: HeaderMap,
}

impl Read {
    fn begin(head: Request<()>) -> Self {
        let RequestParts { method, uri, version, headers, .. } = head.into_parts().0;
        Self { method, uri, version, headers: headers.into(), ..Self::default() }
    }
}

/// Bytes yield the same requests however they are split over reads, and hyper reads the same requests. hyper may accept
/// requests that are refused here.
pub fn requests(bytes: &[u8]) {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(read(bytes, usize::from(step) + 1), whole);
    // hyper refuses a target with a character that has been encoded here.
    let alike = whole.iter().position(|request| may_be_encoded(&request.uri)).unwrap_or(whole.len());
    if alike > 0 {
        let by_hyper = read_by_hyper(bytes);
        assert_eq!(by_hyper.get(..alike), Some(&whole[..alike]), "hyper reads something else");
    }
}

fn may_be_encoded(uri: &Uri) -> bool {
    let target = uri.path_and_query().map_or("", PathAndQuery::as_str);
    ["%22", "%3C", "%3E", "%60"].iter().any(|encoded| target.contains(encoded))
}

/// Reads requests from pieces of `step` bytes, until the end of the connection.
fn read(bytes: &[u8], step: usize) -> Vec<Read> {
    let mut requests = Vec::new();
    let (mut pieces, mut input) = (bytes.chunks(step), BytesMut::new());
    while let Some((request, persists)) = read_one(&mut pieces, &mut input) {
        requests.push(request);
        if !persists {
            break;
        }
    }
    requests
}

fn read_one<'a>(pieces: &mut impl Iterator<Item = &'a [u8]>, input: &mut BytesMut) -> Option<(Read, bool)> {
    let mut head = loop {
        match RequestHead::parse(input, LIMITS, &mut BytesMut::new()).ok()? {
            Some((head, length)) => {
                input.advance(length);
                break head;
            }
            None => input.extend_from_slice(pieces.next()?),
        }
    };
    let mut request = Read::begin(head.request);
    loop {
        match head.body.decode(input).ok()? {
            Some(Part::Data(data)) => request.body.extend_from_slice(&data),
            Some(Part::Trailers(trailers)) => {
                request.trailers = trailers;
                return Some((request, head.persists));
            }
            Some(Part::End) => return Some((request, head.persists)),
            None => input.extend_from_slice(pieces.next()?),
        }
    }
}

fn read_by_hyper(bytes: &[u8]) -> Vec<Read> {
    let requests = Rc::new(RefCell::new(Vec::new()));
    let service = service_fn(|request: http::Request<Incoming>| {
        let requests = Rc::clone(&requests);
        async move {
            let (head, body) = request.into_parts();
            if let Ok(body) = body.collect().await {
                let (method, uri, version, headers) = (head.method, head.uri, head.version, head.headers);
                let mut request = Read { method, uri, version, headers, ..Read::default() };
                request.trailers = body.trailers().cloned().unwrap_or_default();
                request.body = body.to_bytes().into();
                requests.borrow_mut().push(request);
            }
            // A status that does not switch protocols after CONNECT.
            let mut response = http::Response::new(Empty::<Bytes>::new());
            *response.status_mut() = StatusCode::NOT_FOUND;
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = http1::Builder::new()
        .max_headers(LIMITS.lines)
        .max_buf_size(LIMITS.size)
        .half_close(true)
        .serve_connection(TokioIo::new(Sent::at_once(bytes)), service);
    let mut context = Context::from_waker(Waker::noop());
    // The waker is ignored, so poll repeatedly.
    let turns = bytes.len() + 64;
    let ended = (0..turns).any(|_| Pin::new(&mut connection).poll(&mut context).is_ready());
    assert!(ended, "hyper does not come to an end");
    drop(connection);
    requests.take()
}
