//! HTTP/1.1 on a client connection.
//!
//! Requests are parsed in the buffer of the TLS stream and processed within the connection's future. Responses are written
//! to the stream, which sends those of one turn together. During a request only its body is read, on demand.

mod inbound;
mod interims;
mod outbound;
pub(super) mod plain;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use brisk_answer::RecordedBody;
use brisk_http::http1::HeadLimits;
use brisk_http::http1::answer::{Asked, Extent, Framing, Written, write_head};
use brisk_http::http1::request_head::MalformedRequest;
use brisk_http::message::{HeaderList, Response};
use brisk_http_connection::end::End;
use brisk_http_connection::settings::HttpSettings;
use brisk_upstream::upgrade::PendingUpgrade;
use http::StatusCode;
use http_body::Body as _;

use self::inbound::{Inbound, NoHead};
use self::outbound::Outbound;
use super::driver::{Driver, Http, Stop};
use super::turn::Turns;

/// Minimum of the limit for the size of a head, in bytes.
const HEAD_SIZE_AT_LEAST: usize = 8192;

/// Maximum number of pipelined requests per turn, so that other connections of the worker are not delayed.
const AT_ONCE: u32 = 16;

impl Driver<'_> {
    /// Serves HTTP/1.1 until the connection rests, closes or is upgraded. Returns for an upgraded connection after its end.
    pub(super) async fn http1_turns(&self) -> Stop {
        let Self { io, http } = self;
        let inbound = Inbound::attach(io.clone());
        let switched = RefCell::new(None);
        let stop = self.serve_http1(&inbound, &switched).await;
        let read_ahead = inbound.take_input();
        // Detaches request bodies that outlive this function from the stream.
        drop(inbound);
        let upgrade = PendingUpgrade::take(&http.connection);
        // The body records the request at the end of the connection, also if this future is dropped before.
        let switched: Option<RecordedBody> = switched.take();
        let joined = switched.as_ref().and_then(RecordedBody::switched);
        if let (Some(upgrade), Some(joined), Stop::Close(End::Closed | End::Drained)) =
            (upgrade, joined, stop)
        {
            io.flush_at_once();
            upgrade.join(io.clone(), read_ahead, &http.deadline, joined).await;
            return Stop::Close(End::Upgraded);
        }
        if !read_ahead.is_empty() {
            io.stream_mut().unread(&read_ahead);
        }
        stop
    }

    async fn serve_http1(&self, inbound: &Rc<Inbound>, switched: &RefCell<Option<RecordedBody>>) -> Stop {
        let mut turns = Turns::new(false, self.http.connection.flow.requests());
        let last = Cell::new(false);
        let mut serving = pin!(Exchanges { driver: self, inbound, last: &last, switched }.run());
        poll_fn(|cx| {
            self.advance_handshake(cx);
            inbound.begin_turn(cx);
            if turns.begins_to_drain(self.http) {
                last.set(true);
            }
            match serving.as_mut().poll(cx) {
                Poll::Ready(stop) => Poll::Ready(stop),
                Poll::Pending => {
                    inbound.write_interims(&self.http.connection, cx);
                    turns.poll_end(cx, self.http, &self.io)
                }
            }
        })
        .await
    }

    /// [`Stop`] after a response, or after the client's end between two requests.
    fn closed(&self) -> Stop {
        Stop::Close(if self.http.drain.started() { End::Drained } else { End::Closed })
    }
}

/// Requests of a connection and their responses, in sequence.
struct Exchanges<'a> {
    driver: &'a Driver<'a>,
    inbound: &'a Rc<Inbound>,
    /// Whether the current or next response is the last.
    last: &'a Cell<bool>,
    /// Body of the response that has switched protocols.
    switched: &'a RefCell<Option<RecordedBody>>,
}

impl Exchanges<'_> {
    async fn run(self) -> Stop {
        let Self { driver, inbound, last, .. } = self;
        let http = driver.http;
        let limits = head_limits(&http.settings);
        let mut outbound = Outbound::default();
        let mut answered: u32 = 0;
        loop {
            let head = match poll_fn(|cx| inbound.poll_head(cx, limits, last.get())).await {
                Ok(head) => head,
                Err(NoHead::End) => return driver.closed(),
                // `Close` instead of `Abort`, because an alert may wait to be sent.
                Err(NoHead::Broken) => return Stop::Close(End::ClientGone),
                Err(NoHead::Malformed(error)) => return self.refuse(error, &mut outbound).await,
            };
            let asked = Asked::by(&head);
            let persists = head.persists;
            let request = inbound.begin(head);
            let service = http.service.current();
            let response = service.respond(&http.connection, request).await;
            // Released before the response is sent, so that a slow client does not keep a replaced service
            // alive.
            drop(service);
            if let Err(stop) = self.answer(response, asked, persists, &mut outbound).await {
                return stop;
            }
            answered = answered.wrapping_add(1);
            if answered.is_multiple_of(AT_ONCE) {
                yield_once().await;
            }
        }
    }

    /// Sends a response. `Err` is the reason to stop after it; `Ok` if another request may follow.
    async fn answer(
        &self,
        response: Response<RecordedBody>,
        asked: Asked,
        persists: bool,
        outbound: &mut Outbound,
    ) -> Result<(), Stop> {
        // Decides before the head, which states whether the connection persists. A body still being read is checked after
        // the response.
        let is_read = poll_fn(|cx| Poll::Ready(self.inbound.is_read(cx))).await;
        let closes = !persists || self.last.get() || is_read == Some(false);
        let (head, body) = response.into_parts();
        self.inbound.answer_begins(&self.driver.http.connection, outbound.buffer());
        let (status, extent) = match head.status {
            StatusCode::SWITCHING_PROTOCOLS => (head.status, Extent::None),
            // A 1xx status is not a final response (RFC 9110 section 15.2), so it is an error of the service.
            status if status.is_informational() => (StatusCode::INTERNAL_SERVER_ERROR, Extent::None),
            status => (status, extent(&body)),
        };
        let http = self.driver.http;
        let Written { framing, closes } =
            http.write_head(outbound.buffer(), (status, &head.headers), extent, asked, closes);
        // The fields are in the buffer now, so their memory is free while the body is sent.
        drop(head);
        // RFC 9112 section 8: such a body ends with the connection, so without TLS only a reset shows that it
        // is truncated.
        if framing == Framing::UntilClose {
            self.driver.io.stream().cuts_by_reset();
        }
        self.write(outbound).await?;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            self.switched.replace(Some(body));
            return Err(self.driver.closed());
        }
        self.send_body(body, framing, outbound).await?;
        if closes {
            return Err(self.driver.closed());
        }
        match poll_fn(|cx| Poll::Ready(self.inbound.is_read(cx))).await {
            Some(true) => Ok(()),
            _ => Err(self.driver.closed()),
        }
    }

    async fn send_body(
        &self,
        mut body: RecordedBody,
        mut framing: Framing,
        outbound: &mut Outbound,
    ) -> Result<(), Stop> {
        const BROKEN: Stop = Stop::Abort(End::AnswerBroken);
        while !framing.is_ended() {
            let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
            match frame.transpose().map_err(|_| BROKEN)?.map(http_body::Frame::into_data) {
                Some(Ok(data)) => {
                    let length = bytes::Buf::remaining(&data);
                    let last = body.is_end_stream();
                    if length > 0 {
                        let (length, after) = framing.data(length, last, outbound.buffer());
                        outbound.push(data, length, after);
                    }
                    if last || framing.is_ended() {
                        if !last {
                            poll_fn(|cx| body.poll_sent_whole(cx)).await;
                        }
                        // The response counts as complete from here on, even if the client does not read all of it.
                        drop(body);
                        if !framing.is_ended() {
                            framing.end(None, outbound.buffer()).map_err(|_| BROKEN)?;
                        }
                        return self.write(outbound).await;
                    }
                    self.write(outbound).await?;
                }
                Some(Err(frame)) => {
                    let trailers = frame.into_trailers().ok();
                    drop(body);
                    framing.end(trailers.as_ref(), outbound.buffer()).map_err(|_| BROKEN)?;
                    return self.write(outbound).await;
                }
                None => {
                    drop(body);
                    framing.end(None, outbound.buffer()).map_err(|_| BROKEN)?;
                    return self.write(outbound).await;
                }
            }
        }
        Ok(())
    }

    async fn write(&self, outbound: &mut Outbound) -> Result<(), Stop> {
        let written = poll_fn(|cx| outbound.poll_write(cx, &self.driver.io)).await;
        // `Close` instead of `Abort`, because an alert may wait to be sent.
        written.map_err(|_| Stop::Close(End::ClientGone))
    }

    /// Responds to a malformed request, if [`MalformedRequest::status`] has a response for it, and closes: the start of the
    /// next request is unknown.
    async fn refuse(&self, error: MalformedRequest, outbound: &mut Outbound) -> Stop {
        self.inbound.with_input(|input| self.driver.http.refused_http1(error, input));
        if let Some(status) = error.status() {
            let (http, head) = (self.driver.http, (status, &HeaderList::new()));
            http.write_head(outbound.buffer(), head, Extent::None, Asked::UNKNOWN, true);
            if let Err(stop) = self.write(outbound).await {
                return stop;
            }
        }
        Stop::Close(End::Malformed)
    }
}

impl Http {
    /// Writes the head of a response with the [`Date`](crate::date::Date) of the worker.
    fn write_head(
        &self,
        output: &mut Vec<u8>,
        head: (StatusCode, &HeaderList),
        extent: Extent,
        asked: Asked,
        closes: bool,
    ) -> Written {
        let date = self.service.date();
        date.with(self.deadline.now(), |date| write_head(output, head, extent, asked, closes, date))
    }
}

fn head_limits(settings: &HttpSettings) -> HeadLimits {
    HeadLimits { size: settings.head_size.max(HEAD_SIZE_AT_LEAST), lines: settings.headers }
}

fn extent(body: &RecordedBody) -> Extent {
    if body.is_end_stream() {
        return Extent::None;
    }
    body.size_hint().exact().map_or(Extent::Unknown, Extent::Known)
}

/// Yields to the other tasks of the worker once.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
