//! A client connection that speaks HTTP/1.1: its driver.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use hyper::server::conn::http1;
use hyper::service::service_fn;

use super::driver::{Driver, Stop};
use super::turn::Turns;
use crate::body::client::ClientBody;
use crate::connection::end::End;
use crate::upstream::upgrade::PendingUpgrade;

impl Driver<'_> {
    /// Serves HTTP/1.1 until the connection rests, closes or is upgraded. An upgraded one is served to its end here.
    pub(super) async fn http1_turns(&self) -> Stop {
        let Self { io, http } = self;
        io.watch_lines();
        let service = service_fn(|request| {
            let request = ClientBody::of_hyper(request);
            io.expect(request.body());
            let (service, connection) = (http.service.current(), Rc::clone(&http.connection));
            async move { Ok::<_, Infallible>(service.respond(&connection, request).await) }
        });
        let mut hyper = http1::Builder::new()
            .max_headers(http.settings.headers)
            .max_buf_size(http.settings.head_size.max(8192))
            .header_read_timeout(None)
            // A client that has closed its side still gets its answer; one that is gone causes a read error.
            .half_close(true)
            .serve_connection(io.clone(), service);
        let mut turns = Turns::new(false, http.connection.requests());
        let stop = poll_fn(|cx| {
            self.advance_handshake(cx);
            if turns.begins_to_drain(self) {
                Pin::new(&mut hyper).graceful_shutdown();
            }
            if let Poll::Ready(result) = Pin::new(&mut hyper).poll(cx) {
                return Poll::Ready(self.finished(&result));
            }
            turns.poll_end(cx, self)
        })
        .await;
        let read_ahead = hyper.into_parts().read_buf;
        let upgrade = PendingUpgrade::take(&http.connection);
        if let (Some(upgrade), Stop::Close(End::Closed | End::Drained)) = (upgrade, stop) {
            io.flush_at_once();
            upgrade.join(io.clone(), read_ahead, &http.deadline, http.settings.timeouts.idle).await;
            return Stop::Close(End::Upgraded);
        }
        if !read_ahead.is_empty() {
            io.stream_mut().unread(&read_ahead);
        }
        stop
    }
}
