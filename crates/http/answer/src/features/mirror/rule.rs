//! Mirrored requests: a second upstream group gets copies of requests, and its responses are discarded.
//!
//! A copy is sent by a task of its own when the upstream of the route has taken the body, without the client's connection:
//! neither waits for the other.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use brisk_http::error::BodyError;
use brisk_http::message::RequestParts;
use brisk_http::path::one_leading_slash;
use brisk_http_connection::Connection;
use brisk_http_connection::body::copied::{CopyMemory, EmptyCopy, NotCopied};
use brisk_http_connection::body::request::RequestBody;
use brisk_net::{FairShare, SharePermit, TurnLimit};
use brisk_rules::{Bucket, Share};
use brisk_telemetry::{ConnectionRecord, RequestId, Timeline};
use brisk_upstream::Group;
use brisk_upstream::forward::{ForwardFacts, ForwardOutcome, forward};
use bytes::Bytes;
use http::Uri;
use http::header::{CONTENT_LENGTH, UPGRADE};
use http::uri::PathAndQuery;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::metrics::{MirrorMetrics, MirrorSkip, Mirrored};
use crate::client_address::ClientAddress;
use crate::exchange::Exchange;
use crate::head_limits::size_of_fields;

/// Maximum length in bytes of the body of a response that is read to its end.
const LONGEST_RESPONSE: usize = 64 << 10;

/// A second upstream group that gets copies of requests.
#[derive(Clone, Debug)]
pub struct MirrorSettings {
    /// Name of the group.
    pub group: String,
    /// Share of the requests.
    pub share: Share,
    /// Maximum length of a body in bytes. Requests with a longer one are not mirrored.
    pub body_size: usize,
    /// Time in which the response has to end.
    pub timeout: Duration,
    /// Permits for mirrored requests in progress, of all workers.
    pub requests: FairShare,
}

/// The mirror of a route.
#[derive(Debug)]
pub(crate) struct Mirror {
    group: Rc<Group>,
    settings: Arc<MirrorSettings>,
    /// Path of the URLs of the group's servers.
    base: Box<str>,
    metrics: Arc<MirrorMetrics>,
}

/// A copy of a request's head, and facts for its exchange.
struct Copied {
    head: RequestParts,
    connection: Rc<Connection>,
    id: RequestId,
}

impl Mirror {
    /// The mirror with the servers of `group`, which counts in `metrics`.
    pub(crate) fn new(
        settings: &Arc<MirrorSettings>,
        group: Rc<Group>,
        metrics: Arc<MirrorMetrics>,
    ) -> Rc<Self> {
        let base = group.state().settings().base_path().into();
        Rc::new(Self { group, settings: Arc::clone(settings), base, metrics })
    }

    /// Mirrors a request, if it is drawn: at once without a body, otherwise when `body` has been read. Returns the body for
    /// the upstream of the route. `head` is the head for this upstream, whose servers have the path `base`.
    pub(crate) fn observe(
        self: &Rc<Self>,
        (head, base): (&RequestParts, &str),
        body: RequestBody,
        exchange: &Exchange,
    ) -> RequestBody {
        // Rotated, because the bucket of a split depends on the upper bits.
        if !self.settings.share.includes(Bucket::of(exchange.id().0.rotate_left(32))) {
            return body;
        }
        match self.copy(head, base, &body, exchange) {
            Ok((copied, memory)) if body.is_end_stream() => {
                self.send(copied, Bytes::new(), memory.into_memory());
                body
            }
            Ok((copied, memory)) => {
                let mirror = Rc::clone(self);
                memory.follow(body, self.settings.body_size, move |copy| match copy {
                    Ok((bytes, memory)) => mirror.send(copied, bytes, memory),
                    Err(reason) => mirror.metrics.skipped(skip(reason)),
                })
            }
            Err(reason) => {
                self.metrics.skipped(reason);
                body
            }
        }
    }

    fn copy(
        &self,
        head: &RequestParts,
        base: &str,
        body: &RequestBody,
        exchange: &Exchange,
    ) -> Result<(Copied, EmptyCopy), MirrorSkip> {
        if head.headers.contains_key(UPGRADE) {
            return Err(MirrorSkip::Upgrade);
        }
        // Before the copy: a body with a stated length beyond the limit needs no memory.
        if body.size_hint().lower() > self.settings.body_size as u64 {
            return Err(MirrorSkip::BodySize);
        }
        let connection = exchange.connection();
        let size = size_of_fields(&head.headers) + head.uri.path().len();
        let memory = connection.reserve_copy(size).map_err(|_| MirrorSkip::Memory)?;
        let mut head = head.clone();
        head.extensions.clear();
        head.uri = self.target(&head.uri, base);
        let connection = self.connection(connection, exchange.client());
        Ok((Copied { head, connection, id: exchange.id() }, memory))
    }

    /// The target for servers of the mirror, from that for servers with the path `own_base`.
    fn target(&self, own: &Uri, own_base: &str) -> Uri {
        if *own_base == *self.base {
            return own.clone();
        }
        let target = own.path_and_query().map_or("/", PathAndQuery::as_str);
        let rest = one_leading_slash(target.strip_prefix(own_base).unwrap_or(target));
        // A path and a part of a valid target.
        format!("{}{rest}", self.base).parse().unwrap_or_else(|_| own.clone())
    }

    /// The client, for PROXY headers and balancing, on a connection that lasts as long as the copy.
    fn connection(&self, own: &Connection, client: ClientAddress) -> Rc<Connection> {
        let record = own.client.record.borrow();
        let mut copy = ConnectionRecord::new(record.id, client.address, record.local, Timeline::start());
        // Facts of TLS are needed for PROXY headers only.
        if self.group.state().settings().proxy_protocol.is_some() {
            copy.tls.clone_from(&record.tls);
        }
        let connection = Connection::new(copy, own.client.secure);
        // The address of a trusted proxy represents many clients and has no share of its own.
        if client.is_proxy {
            connection.client.set_many();
        }
        connection
    }

    fn send(self: &Rc<Self>, copied: Copied, body: Bytes, memory: CopyMemory) {
        let client = copied.connection.client.address();
        let Some(permit) = self.settings.requests.try_acquire_any(client) else {
            self.metrics.skipped(MirrorSkip::Concurrency);
            return;
        };
        // The task is detached: its timeout ends it, also after the client has gone.
        drop(spawn_local(Rc::clone(self).exchange(copied, body, (memory, permit))));
    }

    /// Sends a copy and discards the response.
    async fn exchange(self: Rc<Self>, copied: Copied, body: Bytes, held: (CopyMemory, SharePermit)) {
        let Copied { mut head, connection, id } = copied;
        let body = if body.is_empty() {
            RequestBody::Empty
        } else {
            head.headers.insert(CONTENT_LENGTH, body.len().into());
            RequestBody::Again(body)
        };
        let outcome = ForwardOutcome::default();
        let client = connection.client.record.borrow().client;
        let facts = ForwardFacts::aside(&connection, client, &outcome);
        let answered = async {
            let response =
                forward(&self.group, head, body, &facts).await.map_err(|error| error.to_string())?;
            discard(response.into_body()).await.map_err(|error| error.to_string())
        };
        let result = match timeout(self.settings.timeout, answered).await {
            Ok(Ok(())) => Mirrored::Answered,
            Ok(Err(error)) => {
                let group = &self.group.state().settings().name;
                tracing::debug!(%error, group, request = %id, "a mirrored request failed");
                Mirrored::Failed
            }
            Err(_) => Mirrored::TimedOut,
        };
        self.metrics.mirrored(result);
        // Memory and permit count until the response has ended.
        drop(held);
    }
}

/// Reads a short response to its end, so that its connection can be used again. The connection of a longer one is closed.
async fn discard(body: impl http_body::Body<Data = Bytes, Error = BodyError>) -> Result<(), BodyError> {
    let (mut body, mut left) = (pin!(body), LONGEST_RESPONSE);
    let mut turn = TurnLimit::default();
    while let Some(frame) = body.frame().await {
        let length = frame?.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(length) else { break };
        left = rest;
        turn.take(length);
        // Frames over HTTP/2 may be ready without end.
        poll_fn(|context| turn.poll_more(context)).await;
    }
    Ok(())
}

fn skip(reason: NotCopied) -> MirrorSkip {
    match reason {
        NotCopied::TooLarge => MirrorSkip::BodySize,
        NotCopied::NoRoom => MirrorSkip::Memory,
        NotCopied::Incomplete => MirrorSkip::Incomplete,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use http_body::Frame;

    use super::*;

    /// A body that always has another frame of this length.
    struct Endless<'c> {
        length: usize,
        frames: &'c Cell<usize>,
    }

    impl http_body::Body for Endless<'_> {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            self.frames.set(self.frames.get() + 1);
            Poll::Ready(Some(Ok(Frame::data(vec![0; self.length].into()))))
        }
    }

    #[test]
    fn a_response_without_an_end_is_read_in_turns_and_up_to_a_limit() {
        for length in [1, 100, 16 << 10] {
            let frames = Cell::new(0);
            let mut discarding = pin!(discard(Endless { length, frames: &frames }));
            for turn in 1.. {
                let done = discarding.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(
                    frames.get() <= turn * TurnLimit::FRAMES && frames.get() * length <= 2 * LONGEST_RESPONSE
                );
                if done.is_ready() {
                    break;
                }
            }
            assert_eq!(frames.get(), LONGEST_RESPONSE / length + 1);
        }
    }

    #[test]
    fn a_short_response_is_read_to_its_end() {
        let body = http_body_util::Full::new(Bytes::from_static(b"short"));
        let body = body.map_err(|never: Infallible| match never {});
        let mut discarding = pin!(discard(body));
        assert!(discarding.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}
