//! Several requests on one connection before their responses.

use std::task::{Context, Poll, ready};

use brisk_http::error::ConnectionError;
use brisk_http::http1::body::BodyReader;
use brisk_http::http1::request::Output;
use brisk_http::message::Response;
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body::Frame;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Messages;
use crate::http1::Frames;
use crate::interim::Interims;

/// Maximum number of pieces in which a body for [`Messages::poll_gather`] arrives, since each piece costs more than its bytes.
const PIECES: usize = 512;

impl<T: AsyncRead + AsyncWrite + Unpin> Messages<T> {
    /// Begins to send several requests without bodies.
    pub(in crate::http1) fn begin_all(&mut self, heads: Output) {
        self.interims = Interims::default();
        self.output = heads;
    }

    /// Begins the response to the next of several requests, whose head may be in `input` already.
    pub(in crate::http1) fn begin_next(&mut self) {
        self.interims = Interims::default();
        self.may_have_head = !self.input.is_empty();
    }

    /// Begins the response to the next of several requests, with `method`, and takes it if it has arrived completely and
    /// concerns its request only: `101`, `401` and `407` concern the connection too.
    pub(in crate::http1) fn take_next(&mut self, method: &Method) -> Option<(Response<()>, Bytes)> {
        self.begin_next();
        // The request that waits for the response meets an error again.
        let head = self.take_head(method).ok()?;
        self.may_have_head = false;
        let response = self.begin_response(head?);
        // A challenge may concern the connection.
        let is_plain = !matches!(
            response.status(),
            StatusCode::SWITCHING_PROTOCOLS
                | StatusCode::UNAUTHORIZED
                | StatusCode::PROXY_AUTHENTICATION_REQUIRED
        );
        if is_plain
            && self.persists
            && let Some(body) = self.take_whole()
        {
            return Some((response, body));
        }
        self.taken_head = Some(Box::new(response));
        None
    }

    /// Whether the response to the next of several requests may follow: the connection persists (RFC 9112 section 9.3).
    pub(in crate::http1) fn can_continue(&self) -> bool {
        self.persists && self.response.is_ended() && self.unsent.is_none()
    }

    /// Appends the response's body to `frames`. Returns `true` if the body is complete; `false` as soon as more than `limit`
    /// bytes of data are known to follow or were taken, or the body has arrived in more than [`PIECES`] pieces.
    pub(in crate::http1) fn poll_gather(
        &mut self,
        context: &mut Context<'_>,
        frames: &mut Frames,
        limit: usize,
    ) -> Poll<Result<bool, ConnectionError>> {
        while let BodyReader::Length(left) = self.response {
            if left > limit as u64 {
                return Poll::Ready(Ok(false));
            }
            if let Some(whole) = self.take_whole() {
                if !whole.is_empty() {
                    frames.push(Frame::data(whole));
                }
                return Poll::Ready(Ok(true));
            }
            match ready!(self.poll_read(context)) {
                Ok(0) => return Poll::Ready(Err(ConnectionError::Ended)),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        while frames.length() <= limit && frames.pieces() <= PIECES {
            match ready!(self.poll_frame(context)) {
                None => return Poll::Ready(Ok(true)),
                Some(frame) => frames.push(frame?),
            }
        }
        Poll::Ready(Ok(false))
    }
}
