//! Switched protocols such as WebSocket: joins the client's and the upstream's transport after HTTP has ended on both.

use std::cell::Cell;
use std::fmt;

use brisk_http::message::HeaderList;
use brisk_http_connection::Connection;
use brisk_net::Deadline;
use brisk_telemetry::UpgradedEnd;
use brisk_upstream_group::UpstreamIo;
use bytes::Bytes;
use http::header::{HeaderValue, UPGRADE};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::direction::{CopyEnd, Directions, IdleLimit, Side};
use crate::group::Lease;
use crate::http1::Upgraded;
use crate::open::OpenConnection;

/// The upstream's transport after a switch of protocols (`101`), waiting for the client's transport.
pub struct PendingUpgrade {
    upstream: UpstreamIo,
    read_ahead: Bytes,
    lease: Lease,
    _open: OpenConnection,
}

/// Number of bytes copied so far after a switch of protocols, and the cause of the end.
#[derive(Debug, Default)]
pub struct Joined {
    /// Bytes from the client to the upstream.
    pub from_client: Cell<u64>,
    /// Bytes from the upstream to the client.
    pub from_upstream: Cell<u64>,
    /// Cause of the end; `None` before the end. The first cause is kept.
    pub end: Cell<Option<UpgradedEnd>>,
}

impl Joined {
    /// Records the cause of the end, unless an earlier one exists.
    pub fn ended(&self, cause: UpgradedEnd) {
        self.end.set(self.end.get().or(Some(cause)));
    }
}

impl PendingUpgrade {
    pub(crate) fn new(upgraded: Upgraded, lease: Lease) -> Self {
        let Upgraded { io, read_ahead, open } = upgraded;
        Self { upstream: io, read_ahead, lease: lease.upgraded(), _open: open }
    }

    /// Stores the transport in `connection` for its driver, which calls [`Self::take`].
    pub(crate) fn leave_to(self, connection: &Connection) {
        connection.extras.leave_upgrade(Box::new(self));
    }

    /// Takes the transport that a request on `connection` has left; `None` if no protocol was switched.
    pub fn take(connection: &Connection) -> Option<Box<Self>> {
        connection.extras.take_upgrade()?.downcast().ok()
    }

    /// Copies in both directions until both sides have ended, one has failed, or neither has sent anything for
    /// `timeouts.upgraded`; the cause is in [`Joined::end`].
    ///
    /// `read_ahead` contains bytes read from the client after its request; `deadline` is the deadline of the client's
    /// connection. The end of one side is passed on as the end of writing; the other direction continues. `joined` is
    /// updated continuously, so that it is also correct if the future is dropped.
    pub async fn join<C>(self, mut client: C, read_ahead: Bytes, deadline: &Deadline, joined: &Joined)
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let (limit, mut upstream) = (self.lease.pause_limit(), self.upstream);
        // The response that switched protocols may still be in the client's buffer.
        let mut directions = Directions::new(read_ahead, self.read_ahead);
        let limit = IdleLimit::new(deadline, limit);
        let end = directions.copy(&mut client, &mut upstream, limit, |moved, first| {
            match first {
                Some(Side::Client) => joined.ended(UpgradedEnd::ClientClosed),
                Some(Side::Server) => joined.ended(UpgradedEnd::UpstreamClosed),
                None => {}
            }
            joined.from_client.set(moved.0);
            joined.from_upstream.set(moved.1);
        });
        joined.ended(match end.await {
            CopyEnd::Closed => UpgradedEnd::UpstreamClosed,
            CopyEnd::Failed(Side::Client) => UpgradedEnd::ClientClosed,
            CopyEnd::Failed(Side::Server) => UpgradedEnd::Error,
            // An upgraded connection does not give way to others, so it is not evicted.
            CopyEnd::Idle | CopyEnd::Evicted => UpgradedEnd::IdleTimeout,
        });
    }
}

impl fmt::Debug for PendingUpgrade {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PendingUpgrade").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

/// Whether each protocol in the `Upgrade` fields of a response is among `requested`, the fields of the request, and at least
/// one is named. A client that receives another protocol would interpret its bytes as one that it chose.
///
/// `h2c` is never accepted: its streams would bypass the checks of requests.
pub(crate) fn is_requested(requested: &[HeaderValue], response: &HeaderList) -> bool {
    let requested: Vec<_> = requested.iter().flat_map(protocols).collect();
    let mut switched = response.get_all(UPGRADE).flat_map(protocols).peekable();
    // RFC 9110 section 15.2.2: a `101` names the new protocol.
    switched.peek().is_some()
        && switched.all(|protocol| {
            !protocol.eq_ignore_ascii_case("h2c")
                && requested.iter().any(|own| own.eq_ignore_ascii_case(protocol))
        })
}

/// RFC 9110 section 7.8: a comma-separated list. A value that is not text counts as one unknown protocol.
fn protocols(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or("\u{fffd}").split(',').map(str::trim).filter(|protocol| !protocol.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_requested_protocol_is_switched_to() {
        let check = |request: &'static str, response: &'static str| {
            let response = [(UPGRADE, HeaderValue::from_static(response))].into_iter().collect();
            is_requested(&[HeaderValue::from_static(request)], &response)
        };
        assert!(check("websocket", "WebSocket") && check("a/1, b", "b"));
        for (request, response) in [
            ("websocket", "h2c"),
            ("h2c", "h2c"),
            ("websocket", "other"),
            ("websocket", "websocket, other"),
            ("a", ""),
        ] {
            assert!(!check(request, response), "{request} {response}");
        }
        assert!(!is_requested(&[HeaderValue::from_static("websocket")], &HeaderList::new()));
    }
}
