//! WebSocket over HTTP/2 (extended `CONNECT`, RFC 8441): connects a stream of the client with an HTTP/1.1 connection that
//! switches protocols, or with a stream of a server that sends `SETTINGS_ENABLE_CONNECT_PROTOCOL`.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use brisk_http::error::{BodyError, ConnectionError};
use brisk_http::message::{Request, RequestParts, Response};
use brisk_http_connection::Connection;
use brisk_http_connection::body::client::ClientBody;
use brisk_http_connection::body::request::RequestBody;
use brisk_net::{Deadline, TurnLimit};
use brisk_upstream_group::UpstreamIo;
use brisk_upstream_group::settings::ServerScheme;
use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderValue, Method, StatusCode, Version};
use http_body::{Body as _, Frame};
use tokio::io::{AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::task::{AbortHandle, spawn_local};
use tokio_util::io::poll_read_buf;

use super::{ForwardFacts, Placement, settle_length, to_origin_form};
use crate::body::UpstreamBody;
use crate::error::UpstreamError;
use crate::group::{Group, Lease, Server};
use crate::http1::{ExchangeFacts, Failure, Upgraded};
use crate::http2::Destination;
use crate::open::{AtLimit, OpenConnection};
use crate::proxied;

/// Size of a read in bytes.
const CHUNK: usize = 16 << 10;

/// GUID for `Sec-WebSocket-Accept` (RFC 6455 section 1.3).
const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Requests a server of `group` to switch to WebSocket, on a connection of its own. `upload` contains the client's
/// bytes.
///
/// On success the response is `200` with the server's bytes as its body; otherwise it is the server's response. There is no
/// retry.
///
/// # Errors
///
/// [`UpstreamError::NotSwitched`] for a success without the switch, or a wrong `Sec-WebSocket-Accept`; else as of
/// [`forward`](super::forward).
pub async fn tunnel(
    group: &Rc<Group>,
    mut head: RequestParts,
    upload: ClientBody,
    facts: &ForwardFacts<'_>,
) -> Result<Response<UpstreamBody>, UpstreamError> {
    let started = Instant::now();
    head.extensions.clear();
    let key = group.key(&head, || facts.client.ip());
    let assigned = group.assigned(&head);
    let mut server = assigned.clone().or_else(|| group.choose(key, None));
    if server.is_none() {
        group.await_servers().await;
        server = group.choose(key, None);
    }
    let server = server.ok_or(UpstreamError::NoServer)?;
    facts.outcome.server.replace(Some(Rc::clone(&server)));
    let asked = Asked { server: &server, connection: facts.connection, facts };
    let answered = if server.state().multiplexes() {
        asked.over_http2(head, upload).await
    } else {
        asked.over_http1(head, upload).await
    };
    match answered {
        Ok(mut response) => {
            server.answered(response.status());
            server.assign(assigned.as_ref(), response.headers_mut());
            facts.outcome.time.set(Some(started.elapsed()));
            *response.version_mut() = Version::HTTP_11;
            Ok(response)
        }
        Err(Failure { error, .. }) => {
            if error.blames_server() {
                server.failed(&error);
            }
            Err(error)
        }
    }
}

struct Asked<'a> {
    server: &'a Rc<Server>,
    connection: &'a Rc<Connection>,
    facts: &'a ForwardFacts<'a>,
}

impl Asked<'_> {
    async fn over_http1(
        &self,
        mut head: RequestParts,
        upload: ClientBody,
    ) -> Result<Response<UpstreamBody>, Failure> {
        let server = self.server;
        if server.is_application() {
            return Err(Failure::connecting(UpstreamError::NotSwitched));
        }
        let lease = Lease::new(server, self.facts.timeouts);
        let mut http1 =
            server.connect(self.facts.requester(), AtLimit::Wait).await.map_err(Failure::connecting)?;
        let key = key();
        // RFC 8441 section 5: over HTTP/1.1, the extended `CONNECT` is a `GET` with `Upgrade`.
        head.method = Method::GET;
        head.headers.insert(SEC_WEBSOCKET_KEY, header(&key));
        let mut request = Request::from_parts(head, RequestBody::Empty);
        to_origin_form(&mut request, server);
        request.headers_mut().remove(TRANSFER_ENCODING);
        let limit = server.head_timeout(self.facts.timeouts);
        let interims = self.facts.interims;
        let facts = ExchangeFacts { client: self.connection, progress: None, interims, variables: None };
        let mut response = http1.exchange(&mut request, facts, limit.into()).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            // A 2xx response would signal to the client that the protocol is switched.
            if response.status().is_success() {
                return Err(Failure::after_sending(UpstreamError::NotSwitched));
            }
            settle_length(&mut response);
            return Ok(response.map(|()| UpstreamBody::over_http1(http1, lease)));
        }
        // RFC 6455 section 4.1: with another value, the server has not read the key.
        if response.headers_mut().remove(SEC_WEBSOCKET_ACCEPT) != Some(header(&accept(&key))) {
            return Err(Failure::after_sending(UpstreamError::NotSwitched));
        }
        let upgraded = http1.into_upgraded(limit).await.map_err(Failure::after_sending)?;
        let upload = self.counted(upload);
        // RFC 8441 section 5: over HTTP/2, a switch of protocols succeeds with a 2xx status.
        *response.status_mut() = StatusCode::OK;
        let tunnel = Tunnel::new(upgraded, lease, upload);
        Ok(response.map(|()| UpstreamBody::through(tunnel)))
    }

    async fn over_http2(
        &self,
        mut head: RequestParts,
        upload: ClientBody,
    ) -> Result<Response<UpstreamBody>, Failure> {
        let server = self.server;
        let lease = Lease::new(server, self.facts.timeouts);
        let open = async |at_limit| server.connect_http2(self.facts.requester(), at_limit).await;
        let own = proxied::http2(self.facts.requester(), server);
        let pool = own.as_deref().unwrap_or_else(|| server.http2());
        let checkout = if server.closes_proxied() {
            pool.exclusive(self.connection, async || open(AtLimit::Wait).await).await
        } else {
            pool.checkout(self.connection, Placement::Kept, AtLimit::Wait, open).await
        };
        let mut http2 = checkout.map_err(Failure::connecting)?;
        let deadline = server.register_deadline();
        let limit = server.head_timeout(self.facts.timeouts);
        if !http2.offers_protocols(&deadline, limit).await? {
            return Err(Failure::connecting(UpstreamError::NotSwitched));
        }
        // `:method CONNECT` and `:protocol` replace these headers (RFC 8441 section 5).
        let protocol = head.headers.remove(UPGRADE);
        head.headers.remove(CONNECTION);
        head.headers.remove(SEC_WEBSOCKET_KEY);
        let body = self.counted(upload);
        let progress = body.progress().cloned();
        let mut request = Request::from_parts(head, body);
        let url = server.state().url();
        let to = Destination {
            is_encrypted: url.scheme() == ServerScheme::Https,
            authority: url.authority(),
            protocol: protocol.as_ref(),
        };
        let mut response = http2
            .exchange(&mut request, to, progress.as_deref(), &deadline, limit.into(), self.facts.interims)
            .await?;
        settle_length(&mut response);
        let body = UpstreamBody::over_http2(http2.into_body(), deadline, lease.upgraded());
        Ok(response.map(|()| body))
    }

    /// The client's bytes, counted in [`ForwardFacts::outcome`] for the access log.
    fn counted(&self, upload: ClientBody) -> RequestBody {
        let body = RequestBody::tunnel(upload, self.connection);
        self.facts.outcome.progress.replace(body.progress().cloned());
        body
    }
}

fn header(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("letters, digits and signs of base64")
}

/// A new `Sec-WebSocket-Key` (RFC 6455 section 4.1), because a client over HTTP/2 sends none.
fn key() -> String {
    let mut random = [0; 16];
    rand::fill(&mut random).expect("the system has random numbers");
    BASE64.encode(random)
}

/// The `Sec-WebSocket-Accept` value for a key (RFC 6455 section 4.2.2).
fn accept(key: &str) -> String {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key.as_bytes());
    hash.update(MAGIC);
    BASE64.encode(hash.finish())
}

/// The server's bytes after a switch of protocols. A task copies the client's bytes and ends with this value.
#[derive(Debug)]
pub(crate) struct Tunnel {
    reader: ReadHalf<UpstreamIo>,
    read_ahead: Bytes,
    input: BytesMut,
    /// Ends the tunnel when neither side has sent anything for `timeouts.upgraded`.
    idle: (Deadline, Duration),
    /// Whether the client has sent anything since the last check.
    has_moved: Rc<Cell<bool>>,
    copying: AbortHandle,
    _lease: Lease,
    _open: OpenConnection,
}

impl Tunnel {
    fn new(upgraded: Upgraded, lease: Lease, upload: RequestBody) -> Self {
        let Upgraded { io, read_ahead, open } = upgraded;
        let (reader, writer) = split(io);
        let has_moved = Rc::new(Cell::new(true));
        // A task of its own, because the client may send while the response is not polled.
        let copying = spawn_local(copy(upload, writer, Rc::clone(&has_moved))).abort_handle();
        let lease = lease.upgraded();
        let idle = (lease.server().register_deadline(), lease.pause_limit());
        Self {
            reader,
            read_ahead,
            input: BytesMut::new(),
            idle,
            has_moved,
            copying,
            _lease: lease,
            _open: open,
        }
    }

    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (deadline, limit) = &self.idle;
        // The deadline moves only here, so that a piece costs no operation on the wheel.
        if self.has_moved.take() {
            deadline.set(*limit);
        }
        deadline.poll_expired(context)
    }
}

/// Copies the client's bytes until their end, which is passed on as the end of writing.
async fn copy(mut upload: RequestBody, mut writer: WriteHalf<UpstreamIo>, has_moved: Rc<Cell<bool>>) {
    let mut turn = TurnLimit::default();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut upload).poll_frame(context)).await {
        let Ok(Ok(data)) = frame.map(Frame::into_data) else { break };
        has_moved.set(true);
        turn.take(data.len());
        std::future::poll_fn(|context| turn.poll_more(context)).await;
        // Flushed after each piece, because a message of WebSocket must not wait for the next one.
        if writer.write_all(&data).await.is_err() || writer.flush().await.is_err() {
            break;
        }
    }
    drop(upload);
    // A server that has gone needs no end.
    drop(writer.shutdown().await);
}

impl Tunnel {
    /// See [`http_body::Body::poll_frame`].
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.read_ahead.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.read_ahead)))));
        }
        // A waiting tunnel holds no buffer.
        let mut input = std::mem::take(&mut self.input);
        input.reserve(CHUNK);
        let Poll::Ready(read) = poll_read_buf(Pin::new(&mut self.reader), context, &mut input) else {
            ready!(self.poll_idle(context));
            return Poll::Ready(Some(Err(BodyError::UpstreamTimeout)));
        };
        self.has_moved.set(true);
        match read {
            Ok(0) => Poll::Ready(None),
            Ok(_) => Poll::Ready(Some(Ok(Frame::data(input.split().freeze())))),
            Err(error) => Poll::Ready(Some(Err(BodyError::Upstream(ConnectionError::Io(error))))),
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.copying.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The example of RFC 6455 section 1.3.
    #[test]
    fn a_key_has_its_answer() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_ne!(key(), key());
    }
}
