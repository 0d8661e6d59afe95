//! Several parts of a file as one body: `multipart/byteranges` (RFC 9110 section 14.6).

use std::collections::VecDeque;
use std::io;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::task::{Context, Poll};

use aws_lc_rs::rand;
use brisk_http::error::BodyError;
use brisk_http::message::Response;
use brisk_transform::body::Body;
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http::{HeaderValue, StatusCode, header};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;

use super::Files;
use super::selected::{Found, range_value};

/// A body that consists of parts of a file. Each part is looked up after the part before it was sent, so that at most one file is
/// open and one buffer is in use.
struct Multipart<S> {
    stream: Pin<Box<S>>,
    left: u64,
}

/// A piece of a body.
enum Piece {
    Text(Bytes),
    Part(RangeInclusive<u64>),
}

/// The response with `parts` of the file that `response` has as a whole. `asked` is the lookup of the file.
pub(super) fn answer(
    files: &Files,
    asked: &http::Request<()>,
    (found, response): (Found, Response<Body>),
    parts: &[RangeInclusive<u64>],
) -> Response<Body> {
    let (mut head, _) = response.into_parts();
    let boundary = boundary();
    let kind = head.headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let (mut pieces, mut length, mut line) = (VecDeque::new(), 0, "");
    for part in parts {
        let (first, last) = (part.start(), part.end());
        let mut start = format!("{line}--{boundary}\r\nContent-Type: ").into_bytes();
        start.extend_from_slice(kind);
        let range = format!("\r\nContent-Range: bytes {first}-{last}/{}\r\n\r\n", found.length);
        start.extend_from_slice(range.as_bytes());
        length += start.len() as u64 + (last - first + 1);
        pieces.extend([Piece::Text(start.into()), Piece::Part(part.clone())]);
        // RFC 2046 section 5.1.1: the line end before a boundary belongs to the boundary.
        line = "\r\n";
    }
    let end = format!("\r\n--{boundary}--\r\n");
    // All lengths are known before the file is read, so the response has a length too.
    length += end.len() as u64;
    pieces.push_back(Piece::Text(end.into()));
    let kind = HeaderValue::try_from(format!("multipart/byteranges; boundary={boundary}"));
    head.headers.insert(header::CONTENT_TYPE, kind.expect("visible characters"));
    head.headers.insert(header::CONTENT_LENGTH, length.into());
    head.status = StatusCode::PARTIAL_CONTENT;
    let lookup = Lookup { files: files.clone(), asked: asked.clone(), found };
    Response::from_parts(
        head,
        Body::boxed(Multipart { stream: Box::pin(frames(lookup, pieces)), left: length }),
    )
}

/// A text that is in no file: 128 random bits.
fn boundary() -> String {
    let mut random = [0; 16];
    rand::fill(&mut random).expect("the system has random numbers");
    format!("{:032x}", u128::from_ne_bytes(random))
}

/// The lookup of the parts of one file, each with its own `Range`.
struct Lookup {
    files: Files,
    asked: http::Request<()>,
    found: Found,
}

impl Lookup {
    async fn open(&self, part: &RangeInclusive<u64>) -> Result<Body, BodyError> {
        let mut asked = self.asked.clone();
        asked.headers_mut().insert(header::RANGE, range_value(part));
        // With a range of its own, so that `ServeDir` reads the part and not the file from its beginning.
        let mut response = self.files.find(asked).await;
        let same = Found::of(&mut response, None)
            // Parts of two contents must not be joined.
            .is_some_and(|found| found.part.as_ref() == Some(part) && found.is_same_file(&self.found));
        if same {
            Ok(response.into_body())
        } else {
            Err(BodyError::File(io::Error::other("the file has changed between two parts")))
        }
    }
}

fn frames(lookup: Lookup, pieces: VecDeque<Piece>) -> impl Stream<Item = Result<Frame<Bytes>, BodyError>> {
    stream::try_unfold((lookup, pieces, Body::Empty), |(lookup, mut pieces, mut part)| async move {
        loop {
            if let Some(frame) = part.frame().await {
                return Ok(Some((frame?, (lookup, pieces, part))));
            }
            match pieces.pop_front() {
                None => return Ok(None),
                Some(Piece::Text(text)) => part = Body::full(text),
                Some(Piece::Part(range)) => part = lookup.open(&range).await?,
            }
        }
    })
}

impl<S: Stream<Item = Result<Frame<Bytes>, BodyError>>> http_body::Body for Multipart<S> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = self.stream.as_mut().poll_next(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let length = frame.data_ref().map_or(0, Bytes::len) as u64;
            self.left = self.left.saturating_sub(length);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
