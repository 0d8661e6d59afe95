//! FastCGI, uwsgi and SCGI in place of HTTP/1.1 on a connection: heads of requests, and records of responses.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use brisk_http::cgi::fastcgi::Records;
use brisk_http::cgi::{CgiProtocol, Variables};
use brisk_http::error::ConnectionError;
use brisk_http::http1::MalformedResponse;
use brisk_http::http1::request::{BodyWriter, Output};
use brisk_http::message::Request;
use brisk_http_connection::body::request::RequestBody;
use brisk_upstream_group::{GroupState, ServerState};
use bytes::{Buf as _, BytesMut};
use http::{HeaderValue, header};
use http_body::Body as _;
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

use super::{READ_FIRST, READ_MOST};
use crate::error::UpstreamError;

/// The server at the other end, which gets requests as variables.
#[derive(Debug)]
pub(crate) struct ApplicationServer {
    pub(crate) protocol: CgiProtocol,
    /// Whether the connection is kept for further requests. Only FastCGI has more than one.
    pub(crate) keeps: bool,
    pub(crate) server: Arc<ServerState>,
    pub(crate) group: Arc<GroupState>,
}

/// State of the protocol on one connection.
#[derive(Debug)]
pub(super) struct Application {
    server: ApplicationServer,
    records: Records,
    /// Received, but not decoded: an incomplete header of a record.
    input: BytesMut,
    /// Size of the next read.
    piece: usize,
}

impl Application {
    pub(super) fn new(server: ApplicationServer) -> Self {
        Self { server, records: Records::default(), input: BytesMut::new(), piece: READ_FIRST }
    }

    /// Writes the head of `request` to `output`. Returns the framing of its body.
    ///
    /// # Errors
    ///
    /// [`UpstreamError::LengthRequired`] for a body of unknown length without `cgi.stream_bodies`,
    /// [`UpstreamError::RequestHeadTooLarge`], and [`UpstreamError::NoVariables`]; nothing is written.
    pub(super) fn begin(
        &mut self,
        request: &Request<RequestBody>,
        variables: Option<&Variables>,
        output: &mut Output,
    ) -> Result<BodyWriter, UpstreamError> {
        let length = length(request);
        if length.is_none() && !self.server.group.settings().cgi.streams_bodies {
            return Err(UpstreamError::LengthRequired);
        }
        // A copy, because the request may be repeated at another server.
        let mut all = variables.cloned().ok_or(UpstreamError::NoVariables)?;
        let content_type = request.headers().get(header::CONTENT_TYPE);
        all.add_missing("CONTENT_TYPE", content_type.map_or(&[][..], HeaderValue::as_bytes));
        // SCGI has the length as its first variable, which `scgi` writes.
        if self.server.protocol != CgiProtocol::Scgi {
            // RFC 3875 section 4.1.2: the variable has no value if the request has no body. It has none either for a body of
            // unknown length.
            let is_empty = length == Some(0) && !request.headers().contains_key(header::CONTENT_LENGTH);
            let text = length.filter(|_| !is_empty).map(|length| length.to_string());
            all.add_missing("CONTENT_LENGTH", text.unwrap_or_default());
        }
        // After the variables of the operator, which prevail over headers of the client.
        all.add_headers(request.headers());
        self.records.begin();
        Ok(output.variables(self.server.protocol, &all, length, self.server.keeps)?)
    }

    /// Whether responses are read by [`Self::poll_read`].
    pub(super) fn has_records(&self) -> bool {
        self.server.protocol == CgiProtocol::FastCgi
    }

    /// Whether the server has ended its response.
    pub(super) fn has_ended(&self) -> bool {
        self.has_records() && self.records.is_idle()
    }

    /// Whether no request is open, and nothing follows the last response.
    pub(super) fn is_done(&self) -> bool {
        self.records.is_idle() && self.input.is_empty()
    }

    /// Whether another request may follow.
    pub(super) fn keeps(&self) -> bool {
        self.server.keeps && self.has_records()
    }

    /// Reads once and appends the content of records to `content`. Ready with 0 at the end of the response; records without
    /// content are no progress.
    pub(super) fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        content: &mut BytesMut,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, ConnectionError>> {
        if self.records.is_idle() {
            return Poll::Ready(Ok(0));
        }
        self.input.reserve(self.piece);
        let polled = poll_read_buf(Pin::new(io), context, &mut self.input);
        if polled.is_pending() {
            self.shrink(content);
        }
        let length = ready!(polled).map_err(ConnectionError::Io)?;
        if length == 0 {
            self.report();
            return Poll::Ready(Err(ConnectionError::Ended));
        }
        if length >= self.piece {
            self.piece = (2 * self.piece).min(READ_MOST);
        } else if length < self.piece / 4 {
            self.piece = (self.piece / 2).max(READ_FIRST);
        }
        let before = content.len();
        let decoded = self.records.decode(&mut self.input, content);
        self.shrink(content);
        if decoded.is_err() || self.records.is_idle() {
            self.report();
        }
        decoded.map_err(|fault| ConnectionError::from(MalformedResponse::from(fault)))?;
        let length = content.len() - before;
        if length == 0 && !self.records.is_idle() {
            // Other tasks run before a server without end sends more.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(length))
    }

    /// Releases the buffer of reads except for an incomplete header, and an empty buffer of content.
    fn shrink(&mut self, content: &mut BytesMut) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        } else if self.input.capacity() > READ_FIRST {
            self.input = BytesMut::from(self.input.chunk());
        }
        if content.is_empty() {
            *content = BytesMut::new();
        }
    }

    /// Logs the messages of the application.
    fn report(&mut self) {
        let Some((messages, lost)) = self.records.take_messages() else { return };
        let text = String::from_utf8_lossy(&messages);
        self.server.server.report(&self.server.group.settings().name, text.trim_end(), lost);
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.report();
    }
}

/// Length of the body of a request; `None` if it is unknown.
fn length(request: &Request<RequestBody>) -> Option<u64> {
    if request.body().is_end_stream() {
        return Some(0);
    }
    let stated = request.headers().get(header::CONTENT_LENGTH);
    let stated = stated.and_then(|length| length.to_str().ok()?.parse().ok());
    stated.or_else(|| request.body().size_hint().exact())
}
