//! Second attempts of slow requests at another server.

use std::pin::pin;
use std::rc::Rc;

use brisk_http::message::{Request, Response};
use brisk_http_connection::body::request::RequestBody;
use brisk_upstream_group::Member as _;
use brisk_upstream_group::hedge::race;
use brisk_upstream_group::metrics::Hedge;
use brisk_upstream_group::settings::HedgeSettings;
use http::Method;
use tokio::time::timeout;

use super::{Attempt, Journey};
use crate::body::UpstreamBody;
use crate::group::Server;
use crate::http1::Failure;
use crate::http2::Placement;
use crate::login::PrivateConnections;
use crate::open::AtLimit;

impl<'a> Journey<'a> {
    /// The settings for a request that may be hedged: `GET` or `HEAD` without a body, whose connection has no login and no
    /// `Upgrade`. Early data is not repeated (RFC 8470), and hints (`103`) would arrive twice.
    pub(super) fn hedge(&self, request: &Request<RequestBody>) -> Option<&'a HedgeSettings> {
        let settings = self.group.state().settings().hedge.as_ref()?;
        let may_hedge = self.may_repeat
            && self.body.is_none()
            && matches!(*request.method(), Method::GET | Method::HEAD)
            && !self.logs_in
            && self.upgrade.is_empty()
            && self.interims.hints.is_none()
            && self.connection.client.handshake().is_none()
            && PrivateConnections::of(self.connection).is_none();
        may_hedge.then_some(settings)
    }

    /// Sends a request to the server of `first`, and after [`HedgeSettings::after`] to another one too, if the credit of
    /// [`Group::hedge_credit`] permits it. Returns the first response, with the second [`Attempt`] if that one has responded.
    pub(super) async fn send_hedged(
        &self,
        first: &Attempt,
        request: &mut Request<RequestBody>,
        settings: &HedgeSettings,
    ) -> (Option<Attempt>, Result<Response<UpstreamBody>, Failure>) {
        let credit = self.group.hedge_credit();
        credit.earn(settings.percent);
        let mut copy = copy_of(request);
        let mut sending = pin!(self.send(first, request));
        if let Ok(sent) = timeout(settings.after, sending.as_mut()).await {
            return (None, sent);
        }
        // A slow primary server is no reason to use a backup server.
        let suits =
            |server: &Rc<Server>| server.is_available() && server.is_backup() == first.server.is_backup();
        let Some(server) = self.group.choose(self.key, Some(&first.server)).filter(suits) else {
            return (None, sending.await);
        };
        if !credit.spend() {
            first.server.state().metrics().hedge(Hedge::Budget);
            return (None, sending.await);
        }
        // The second attempt is optional, so it must not wait for a permit that others need.
        let second = Attempt::new(server, Placement::Kept, AtLimit::Fail);
        // Two servers are enough for a request.
        first.may_leave.set(false);
        second.may_leave.set(false);
        let raced = race(sending, self.send(&second, &mut copy)).await;
        // No retry follows for this attempt. A kept connection may have reached its end, which is no evidence.
        let other = if raced.is_second { first } else { &second };
        if let Some(Failure { error, reused: false, .. }) = &raced.other
            && error.blames_server()
        {
            other.server.failed(error);
        }
        second.server.state().metrics().hedge(if raced.is_second { Hedge::Won } else { Hedge::Lost });
        (raced.is_second.then_some(second), raced.result)
    }
}

/// A request with the head of `request`, with [`RequestBody::Empty`] and without extensions.
fn copy_of(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::Empty);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    *copy.version_mut() = request.version();
    copy.headers_mut().clone_from(request.headers());
    copy
}
