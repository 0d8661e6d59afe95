//! HTTP/1.1 over plain TCP, for responses that need only the head of a request: redirects and challenges.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use brisk_answer::RecordedBody;
use brisk_http::http1::answer::{Asked, Extent, Written};
use brisk_http::http1::body::BodyReader;
use brisk_http::http1::request_head::{MalformedRequest, RequestHead};
use brisk_http::message::{HeaderList, RequestParts, Response};
use brisk_http_connection::end::End;
use bytes::{Buf as _, BytesMut};
use http_body::Body as _;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::inbound::{drop_body, has_begun, take_head};
use super::{extent, head_limits};
use crate::driver::{Http, lingering};

/// Bytes per read: enough for a request that is redirected.
const PIECE: usize = 2048;

/// Serves a plain connection, whose first bytes are `received`, until it ends. Records its bytes in the record of
/// [`Http::connection`], and returns the reason of the end.
///
/// A client may send any number of requests, but its connection must not idle longer than `timeouts.idle`, and the client has
/// to read the responses within `timeouts.write`.
pub async fn serve_plain(
    tcp: TcpStream,
    received: &[u8],
    http: &Http,
    respond: impl AsyncFn(RequestParts) -> Response<RecordedBody>,
) -> End {
    let mut plain = Plain { tcp, http, input: received.into(), seen: 0 };
    let end = loop {
        if let Err(end) = plain.exchange(&respond).await {
            break end;
        }
    };
    if !http.deadline.is_evicted() && plain.tcp.shutdown().await.is_ok() {
        brisk_net::linger(&mut plain.tcp, lingering(end)).await;
    }
    end
}

/// Plain connection being served.
struct Plain<'a> {
    tcp: TcpStream,
    http: &'a Http,
    /// Bytes read but not yet consumed.
    input: BytesMut,
    /// Number of bytes of `input` known to contain no complete head.
    seen: usize,
}

impl Plain<'_> {
    /// Serves one request. `Err` is the end of the connection.
    async fn exchange(
        &mut self,
        respond: impl AsyncFn(RequestParts) -> Response<RecordedBody>,
    ) -> Result<(), End> {
        let head = self.head().await?;
        let asked = Asked::by(&head);
        let RequestHead { request, mut body, persists, .. } = head;
        let deadline = &self.http.deadline;
        deadline.set(self.http.settings.timeouts.write);
        let response = deadline.within(respond(request.into_parts().0)).await.ok_or(End::RequestTimeout)?;
        // Before the response: the head states whether the connection closes, which depends on the rest of
        // the body.
        let closes = !self.skip(&mut body) || !persists || self.http.drain.started();
        let (head, mut body) = response.into_parts();
        let mut output = Vec::new();
        let Written { mut framing, closes } =
            self.http.write_head(&mut output, (head.status, &head.headers), extent(&body), asked, closes);
        while !framing.is_ended() {
            // Bodies of redirects and challenges are in memory, so this loop never waits for an upstream.
            let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
            let data = frame.and_then(|frame| frame.ok()?.into_data().ok()).ok_or(End::AnswerBroken)?;
            let (length, after) = framing.data(data.remaining(), body.is_end_stream(), &mut output);
            output.extend_from_slice(&data.chunk()[..length]);
            output.extend_from_slice(after);
        }
        drop(body);
        self.write(&output).await?;
        match closes {
            true if self.http.drain.started() => Err(End::Drained),
            true => Err(End::Closed),
            false => Ok(()),
        }
    }

    async fn head(&mut self) -> Result<RequestHead, End> {
        let Http { settings, deadline, .. } = self.http;
        deadline.set_idle(settings.timeouts.idle);
        let mut begun = false;
        loop {
            let limits = head_limits(settings);
            match take_head(&mut self.input, &mut self.seen, limits, &mut BytesMut::new()) {
                Ok(Some(head)) => return Ok(head),
                Ok(None) => {}
                Err(error) => return Err(self.refuse(error).await),
            }
            if !begun && has_begun(&self.input) {
                begun = true;
                deadline.set(settings.timeouts.head);
            }
            self.read(begun).await?;
        }
    }

    /// Reads more of a head. Between two heads a drain ends the connection.
    async fn read(&mut self, begun: bool) -> Result<(), End> {
        loop {
            let Http { deadline, drain, .. } = self.http;
            poll_fn(|cx| match self.tcp.poll_read_ready(cx) {
                Poll::Ready(ready) => Poll::Ready(ready.map_err(|_| End::ClientGone)),
                Poll::Pending if !begun && drain.started() => Poll::Ready(Err(End::Drained)),
                Poll::Pending => {
                    deadline.poll_expired(cx).map(|()| Err(if begun { End::HeadTimeout } else { End::Idle }))
                }
            })
            .await?;
            match self.read_available() {
                Ok(0) => return Err(if begun { End::ClientGone } else { End::Closed }),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(End::ClientGone),
            }
        }
    }

    fn read_available(&mut self) -> io::Result<usize> {
        self.input.reserve(PIECE);
        let length = self.tcp.try_read_buf(&mut self.input)?;
        self.http.connection.client.record.borrow_mut().bytes_received += length as u64;
        Ok(length)
    }

    /// Drops the available part of a request body. Returns whether the body has ended.
    fn skip(&mut self, body: &mut BodyReader) -> bool {
        drop_body(body, &mut self.input)
            || (self.read_available().is_ok() && drop_body(body, &mut self.input))
    }

    /// Responds to a malformed request, if [`MalformedRequest::status`] has a response for it.
    async fn refuse(&mut self, error: MalformedRequest) -> End {
        self.http.refused_http1(error, &self.input);
        if let Some(status) = error.status() {
            let mut output = Vec::new();
            self.http.write_head(
                &mut output,
                (status, &HeaderList::new()),
                Extent::None,
                Asked::UNKNOWN,
                true,
            );
            if let Err(end) = self.write(&output).await {
                return end;
            }
        }
        End::Malformed
    }

    async fn write(&mut self, output: &[u8]) -> Result<(), End> {
        let Http { settings, deadline, connection, .. } = self.http;
        deadline.set(settings.timeouts.write);
        let written = deadline.within(self.tcp.write_all(output)).await.ok_or(End::WriteTimeout)?;
        written.map_err(|_| End::ClientGone)?;
        connection.client.record.borrow_mut().bytes_sent += output.len() as u64;
        Ok(())
    }
}
