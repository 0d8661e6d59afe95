//! Parameters of a request to an upstream group, and its outcome for the access log.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use brisk_http::cgi::Variables;
use brisk_http_connection::Connection;
use brisk_http_connection::body::request::BodyProgress;
use brisk_http_connection::interim::InterimReceivers;
use brisk_upstream_group::settings::RequestTimeouts;

use crate::group::Server;
use crate::proxied::Requester;

/// Parameters of forwarding besides the request, and the record of its outcome.
#[derive(Debug)]
pub struct ForwardFacts<'a> {
    /// Connection of the client.
    pub connection: &'a Rc<Connection>,
    /// Address of the client of the request, for balancing and PROXY headers: that of the connection, or one that a trusted
    /// proxy states. The port is 0 if it is unknown.
    pub client: SocketAddr,
    /// Destinations of the server's interim responses.
    pub interims: InterimReceivers<'a>,
    /// The record of [`forward`](super::forward), updated during the request, regardless of its result.
    pub outcome: &'a ForwardOutcome,
    /// Timeouts of the request.
    pub timeouts: RequestTimeouts,
    /// Variables for an application server, without those of headers. A server of FastCGI gets only those of headers without.
    pub variables: Option<&'a Variables>,
}

impl<'a> ForwardFacts<'a> {
    pub(crate) fn requester(&self) -> Requester<'a> {
        Requester { connection: self.connection, address: self.client }
    }

    /// Parameters of a request beside that of the client: without interim responses, and with the timeouts of the group.
    pub fn aside(connection: &'a Rc<Connection>, client: SocketAddr, outcome: &'a ForwardOutcome) -> Self {
        let (interims, timeouts) = (InterimReceivers::default(), RequestTimeouts::default());
        Self { connection, client, interims, outcome, timeouts, variables: None }
    }
}

/// Outcome of a request, for the access log.
#[derive(Debug, Default)]
pub struct ForwardOutcome {
    pub(super) server: RefCell<Option<Rc<Server>>>,
    pub(super) time: Cell<Option<Duration>>,
    /// Of the last request with a body.
    pub(super) progress: RefCell<Option<Rc<BodyProgress>>>,
}

impl ForwardOutcome {
    /// The last server tried; `None` if there was none.
    pub fn server(&self) -> Option<Rc<Server>> {
        self.server.borrow().clone()
    }

    /// Time from the start of forwarding to the head of the response, including retries; `None` without a response.
    pub fn time(&self) -> Option<Duration> {
        self.time.get()
    }

    /// Records that the response begins.
    pub fn answered(&self) {
        if let Some(progress) = &*self.progress.borrow() {
            progress.answered();
        }
    }

    /// Whether the client has sent its request body to the end, as far as the upload has noticed.
    pub fn request_ended(&self) -> bool {
        self.progress.borrow().as_ref().is_some_and(|progress| progress.has_ended())
    }

    /// Number of bytes of the request body so far.
    pub fn request_bytes(&self) -> u64 {
        self.progress.borrow().as_ref().map_or(0, |progress| progress.bytes())
    }
}
