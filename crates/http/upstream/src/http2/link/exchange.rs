//! A request on a connection, from before its stream is opened to the end of the response's body.

use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use brisk_http::error::{ConnectionError, Http2Error};
use brisk_http::message::{Request, Response};
use brisk_http_connection::Connection;
use brisk_http_connection::body::request::RequestBody;
use brisk_http_connection::held::{Account, HeldBytes};
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::Link;
use crate::http2::output::Destination;
use crate::http2::stream::Released;
use crate::interim::Waiting;

/// A request on a [`Link`]: before its stream is opened, while it waits, and as the body of its response. Dropping it
/// abandons the rest of the exchange; an open stream whose response has not ended counts as canceled by `client`.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(super) link: Rc<Link>,
    pub(super) place: Option<u32>,
    /// The client, which has canceled the request if it ends early; `None` after a timeout of the server.
    pub(super) client: Option<Rc<Connection>>,
}

/// The failure of a request without a response.
#[derive(Debug)]
pub(in crate::http2) struct Unanswered {
    pub(in crate::http2) error: ConnectionError,
    /// The request body, if the server has not processed the request and it can be repeated unchanged; otherwise `None`.
    pub(in crate::http2) again: Option<RequestBody>,
}

impl Exchange {
    /// Opens a stream for `request` as soon as the server permits another, and takes the request's body.
    ///
    /// # Errors
    ///
    /// [`Http2Error::Refused`] if the connection takes no further requests, or its failure before the first request.
    pub(in crate::http2) fn poll_begin(
        &mut self,
        context: &mut Context<'_>,
        request: &mut Request<RequestBody>,
        to: Destination<'_>,
    ) -> Poll<Result<(), Unanswered>> {
        let mut wire = self.link.wire.borrow_mut();
        wire.look();
        let state = &mut wire.state;
        if !state.takes_requests() {
            // The error of other requests does not concern this one, which was not sent.
            let is_first = state.next == 1;
            let error = state.failure.filter(|_| is_first).unwrap_or(Http2Error::Refused);
            let body = mem::replace(request.body_mut(), RequestBody::Empty);
            return Poll::Ready(Err(Unanswered { error: error.into(), again: Some(body) }));
        }
        if !state.has_room() {
            state.wait_for_room(context.waker());
            return Poll::Pending;
        }
        let held = self.client.as_ref().and_then(|client| HeldBytes::begin(client, Account::Input));
        self.place = Some(state.request(request, to, held));
        Poll::Ready(Ok(()))
    }

    /// Whether the server sent `SETTINGS_ENABLE_CONNECT_PROTOCOL` (RFC 8441 section 3). Ready once its `SETTINGS` have arrived.
    pub(in crate::http2) fn poll_offers_protocols(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let mut wire = self.link.wire.borrow_mut();
        let state = &mut wire.state;
        if state.recv.order.has_settings() || !state.takes_requests() {
            return Poll::Ready(state.send.peer.connect_protocol);
        }
        state.wait_for_room(context.waker());
        Poll::Pending
    }

    /// The head of the response; pending until [`Self::poll_begin`] has opened a stream.
    pub(in crate::http2) fn poll_head(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<()>, Unanswered>> {
        let mut wire = self.link.wire.borrow_mut();
        let Some(place) = self.place else { return Poll::Pending };
        let stream = wire.state.stream(place);
        let polled = stream.poll_head(context);
        if let Poll::Ready(answer) = &polled {
            self.link.is_shunned.set(answer.is_err());
        }
        polled.map_err(|error| Unanswered {
            error: stream.explain(error),
            again: stream.is_untouched.then(|| stream.take_request_body()),
        })
    }

    /// Takes the interim responses that have arrived.
    pub(in crate::http2) fn take_interims(&mut self) -> Waiting {
        let mut wire = self.link.wire.borrow_mut();
        self.place.map(|place| wire.state.stream(place).interims.take()).unwrap_or_default()
    }

    /// See [`http_body::Body::poll_frame`].
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        let mut wire = self.link.wire.borrow_mut();
        let Some(place) = self.place else { return Poll::Ready(None) };
        let state = &mut wire.state;
        let stream = state.stream(place);
        let polled = stream.poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let length = data.len() as u32;
            // The windows open when the response takes the data, so a slow client slows its server down.
            state.claim(length);
            state.claim_stream(place, length);
            return polled.map_err(ConnectionError::Http2);
        }
        polled.map_err(|error| stream.explain(error))
    }

    /// See [`http_body::Body::is_end_stream`].
    pub(crate) fn is_end_stream(&self) -> bool {
        let wire = self.link.wire.borrow();
        self.place.is_none_or(|place| wire.state.streams[place as usize].is_end_stream())
    }

    /// See [`http_body::Body::size_hint`].
    pub(crate) fn size_hint(&self) -> SizeHint {
        let wire = self.link.wire.borrow();
        let unread = self.place.and_then(|place| wire.state.streams[place as usize].unread);
        unread.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Excludes the connection from further requests, because a response on it timed out. The end of the exchange then counts
    /// for no client.
    pub(crate) fn retire_connection(&mut self) {
        self.client = None;
        self.link.is_retired.set(true);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let link = &self.link;
        let mut wire = link.wire.borrow_mut();
        if let Some(place) = self.place
            && wire.state.release(place) == Released::Canceled
        {
            let client = self.client.as_ref().and_then(|client| client.client.address());
            link.cancels.add(client, Instant::now());
        }
        link.load.set(link.load.get() - 1);
        // The last request wakes the task, which closes the connection.
        if link.load.get() == 0 && link.is_closing.get() {
            wire.state.schedule();
        }
    }
}
