//! Requests and their responses on the streams of a multiplexed connection: from the request to the pieces of the body.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use brisk_answer::RecordedBody;
use brisk_http::claims::may_be_trailer;
use brisk_http::fields::is_connection_specific;
use brisk_http::message::{HeaderList, Request, Response, ResponseParts};
use brisk_http_connection::body::client::ClientBody;
use brisk_http_connection::chunk::Chunk;
use bytes::Buf as _;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, DATE, TE};
use http_body::Body as _;

use crate::driver::Http;
use crate::flood::FloodWatch;

/// Maximum number of times that woken streams run in one turn of their connection.
pub(crate) const ROUNDS: usize = 2;

/// Processing state of a stream.
pub(crate) enum Work {
    Running(Pin<Box<dyn Future<Output = Response<RecordedBody>>>>),
    Answer(Box<Answer>),
    /// Everything is sent.
    Done,
}

/// Response being sent.
pub(crate) struct Answer {
    /// Head, until it is sent.
    pub(crate) head: Option<ResponseParts>,
    pub(crate) body: RecordedBody,
    /// Piece of the body that waits for the client.
    pub(crate) chunk: Option<Chunk>,
    pub(crate) trailers: Option<HeaderMap>,
}

/// Next item of a response body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    Data,
    /// No data yet.
    Pending,
    /// End of the data; trailers may follow.
    End,
    Broken,
}

impl Work {
    /// Whether the head of the final response is not sent, so that interim responses may precede it.
    pub(crate) fn awaits_head(&self) -> bool {
        match self {
            Self::Running(_) => true,
            Self::Answer(answer) => answer.head.is_some(),
            Self::Done => false,
        }
    }

    /// Creates the future that produces the response to `request`.
    pub(crate) fn respond(http: &Http, flood: &FloodWatch, request: Request<ClientBody>) -> Self {
        let (service, connection) = (http.service.current(), Rc::clone(&http.connection));
        let flood = flood.clone();
        Self::Running(Box::pin(async move {
            // Checked per request: requests that arrived together with the one that exhausted the budget are refused too.
            flood.heads(connection.multiplex().long_heads());
            if flood.exhausted_by().is_some() {
                return service.turn_away(&connection, request);
            }
            service.respond(&connection, request).await
        }))
    }
}

impl Answer {
    /// Creates the state of a response of which nothing is sent.
    pub(crate) fn new(response: Response<RecordedBody>) -> Box<Self> {
        let (head, body) = response.into_parts();
        Box::new(Self { head: Some(head), body, chunk: None, trailers: None })
    }

    /// Polls the body for its next piece, which becomes [`Self::chunk`].
    pub(crate) fn next(&mut self, context: &mut Context<'_>) -> Next {
        loop {
            let frame = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => return Next::Pending,
                Poll::Ready(None) => return Next::End,
                Poll::Ready(Some(Err(_))) => return Next::Broken,
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            match frame.into_data() {
                Ok(data) if data.has_remaining() => {
                    self.chunk = Some(data);
                    return Next::Data;
                }
                Ok(_) if self.body.is_end_stream() => return Next::End,
                // No empty frame for an empty piece: a client may count such frames as a flood
                // (CVE-2019-9518).
                Ok(_) => {}
                Err(frame) => {
                    self.trailers = frame.into_trailers().ok();
                    return Next::End;
                }
            }
        }
    }
}

/// Passes the fields of a response's head to `field`, without those that only HTTP/1.1 has, and adds `Date` and
/// `Content-Length` if they are missing.
pub(crate) fn head_fields(
    headers: &HeaderList,
    length: Option<u64>,
    date: &str,
    mut field: impl FnMut(&[u8], &[u8]),
) {
    let (mut has_date, mut has_length) = (false, false);
    for (name, value) in headers {
        // RFC 9113 section 8.2.2, RFC 9114 section 4.2; `TE` has no meaning in a response.
        if is_connection_specific(name) || *name == TE {
            continue;
        }
        has_date |= *name == DATE;
        has_length |= *name == CONTENT_LENGTH;
        field(name.as_str().as_bytes(), value.as_bytes());
    }
    // RFC 9110 section 6.6.1
    if !has_date {
        field(b"date", date.as_bytes());
    }
    if let Some(length) = length.filter(|_| !has_length) {
        field(b"content-length", itoa::Buffer::new().format(length).as_bytes());
    }
}

/// Passes the fields of trailers to `field`, without those that belong to the head.
pub(crate) fn trailer_fields(trailers: &HeaderMap, mut field: impl FnMut(&[u8], &[u8])) {
    for (name, value) in trailers.iter().filter(|(name, _)| may_be_trailer(name)) {
        field(name.as_str().as_bytes(), value.as_bytes());
    }
}
