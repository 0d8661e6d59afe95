//! Inserts the script into a page while it streams.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use brisk_beacon::{Beacons, Insertion};
use brisk_http::error::BodyError;
use brisk_http::message::{HeaderList, Response};
use brisk_http_connection::Connection;
use brisk_rewrite::Insertion as Search;
use brisk_transform::body::Body;
use brisk_transform::compress::weaken;
use brisk_transform::digests::{DIGESTS, without_digests};
use brisk_transform::header_values::{forbids_transforming, is_identity};
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Frame, SizeHint};

use super::policy;

/// Maximum length in bytes of complete pages that are changed at once and keep a `Content-Length`.
const AT_ONCE: usize = 32 << 10;

/// Inserts `tag` into a page with status `200`. Returns the outcome, if it is known before the page streams.
pub(super) fn insert(
    tag: &Bytes,
    beacons: &Arc<Beacons>,
    connection: &Rc<Connection>,
    response: &mut Response<Body>,
) -> Option<Insertion> {
    let headers = response.headers();
    if !is_identity(headers) || headers.contains_key(header::CONTENT_RANGE) || forbids_transforming(headers) {
        return Some(Insertion::Unchangeable);
    }
    if !policy::allows(headers) {
        return Some(Insertion::Policy);
    }
    let mut body = mem::take(response.body_mut());
    let whole = body.whole();
    let short = whole.as_ref().filter(|whole| whole.len() <= AT_ONCE && connection.may_work(whole.len()));
    let (changed, outcome) = match (short, &whole) {
        (Some(page), _) => {
            let changed = at_once(page, tag);
            let outcome = if changed.is_some() { Insertion::Done } else { Insertion::NoPlace };
            (Body::full(changed.unwrap_or_else(|| page.clone())), Some(outcome))
        }
        (None, Some(page)) => (streaming(Body::full(page.clone()), tag, beacons), None),
        (None, None) => (streaming(body, tag, beacons), None),
    };
    *response.body_mut() = changed;
    // An unchanged page keeps its length and its tag.
    if outcome != Some(Insertion::NoPlace) {
        mark(response.headers_mut());
    }
    outcome
}

fn at_once(page: &Bytes, tag: &Bytes) -> Option<Bytes> {
    let mut search = Search::default();
    let mut changed = Vec::with_capacity(page.len() + tag.len());
    search.write(page, tag, &mut changed);
    search.finish(&mut changed);
    (search.is_done() == Some(true)).then(|| changed.into())
}

fn streaming(source: Body, tag: &Bytes, beacons: &Arc<Beacons>) -> Body {
    Body::boxed(InsertedBody {
        source,
        search: Search::default(),
        tag: tag.clone(),
        beacons: Arc::clone(beacons),
        trailers: None,
        is_counted: false,
    })
}

/// Adapts the headers to the changed page.
fn mark(headers: &mut HeaderList) {
    headers.remove(header::CONTENT_LENGTH);
    // Ranges would address the page without the script.
    headers.remove(header::ACCEPT_RANGES);
    for name in &DIGESTS {
        headers.remove(name);
    }
    // The page is not the one of the application byte by byte, so its tag becomes weak.
    weaken(headers);
}

/// A page that gets the script at the first suitable position and passes unchanged from there.
struct InsertedBody {
    source: Body,
    search: Search,
    tag: Bytes,
    beacons: Arc<Beacons>,
    trailers: Option<HeaderMap>,
    is_counted: bool,
}

impl InsertedBody {
    /// Counts the outcome of the search once.
    fn count(&mut self) {
        let Some(is_found) = self.search.is_done().filter(|_| !self.is_counted) else { return };
        self.is_counted = true;
        self.beacons.insertion(if is_found { Insertion::Done } else { Insertion::NoPlace });
    }

    /// Returns the held back content at the end of the page.
    fn finish(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.search.finish(&mut rest);
        self.count();
        rest
    }
}

impl http_body::Body for InsertedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if let Some(trailers) = self.trailers.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            let frame = match ready!(Pin::new(&mut self.source).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    let rest = self.finish();
                    return Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest.into()))));
                }
            };
            let output = match frame.into_data() {
                Ok(piece) if self.search.is_done().is_some() => {
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                Ok(piece) => {
                    let Self { search, tag, .. } = &mut *self;
                    let mut output = Vec::with_capacity(piece.len() + tag.len());
                    search.write(&piece, tag, &mut output);
                    self.count();
                    output
                }
                Err(frame) => {
                    // A digest is that of the page without the script.
                    self.trailers = frame.into_trailers().ok().map(without_digests);
                    self.finish()
                }
            };
            if !output.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(output.into()))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.search.is_done().is_some() && self.trailers.is_none() && self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // The length depends on the search.
        SizeHint::default()
    }
}

impl fmt::Debug for InsertedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InsertedBody").field("source", &self.source).finish_non_exhaustive()
    }
}
