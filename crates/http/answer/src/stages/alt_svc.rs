//! `Alt-Svc`: the announcement of HTTP/3 in responses, and its withdrawal.

use std::cell::RefCell;

use brisk_http::message::Response;
use brisk_http::validate::Refusal;
use brisk_transform::body::Body;
use http::header::ALT_SVC;
use http::{HeaderValue, StatusCode, Version};

use crate::exchange::Exchange;
use crate::settings::{AltSvc, Announcement};
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Announces HTTP/3, or withdraws the announcement. Compiled if the configuration makes a statement about HTTP/3; the header
/// of an upstream, which is about another server, is then removed.
#[derive(Debug)]
pub(super) struct AltSvcStage {
    alt_svc: AltSvc,
    /// The last value, with the port of its listener: listeners usually have the same port.
    value: RefCell<Option<(u16, HeaderValue)>>,
}

impl Stage for AltSvcStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        context.host?.settings.alt_svc.map(|alt_svc| Self { alt_svc, value: RefCell::default() })
    }

    fn request(&self, _: &mut Exchange, request: &mut ClientRequest, _: &mut RequestState) -> Flow {
        // A connection for another host, or from before a reload.
        let is_withdrawn = self.alt_svc == AltSvc::Clear && request.head.version == Version::HTTP_3;
        if is_withdrawn {
            return Flow::Refuse(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "misdirected"));
        }
        Flow::Continue
    }

    fn response(&self, exchange: &Exchange, state: &RequestState, response: &mut Response<Body>) {
        let headers = response.headers_mut();
        headers.remove(ALT_SVC);
        if let Some(value) = self.header(exchange, state) {
            headers.insert(ALT_SVC, value);
        }
    }
}

impl AltSvcStage {
    fn header(&self, exchange: &Exchange, state: &RequestState) -> Option<HeaderValue> {
        let client = &exchange.connection().client;
        let record = client.record.borrow();
        // Clients of a proxy, or of a balancer that sends PROXY headers, reach its address, where datagrams do not lead here.
        if !client.secure || client.address().is_none() || record.client != record.peer {
            return None;
        }
        match self.alt_svc {
            AltSvc::Clear => Some(HeaderValue::from_static("clear")),
            // Over HTTP/3, once for each connection: clients renew the stored announcement, and use HTTP/3 again.
            AltSvc::Announce(_) if state.version == Version::HTTP_3 && exchange.number() > 1 => None,
            AltSvc::Announce(announcement) if announcement.max_age.is_zero() => None,
            AltSvc::Announce(announcement) => Some(self.announced(announcement, record.local.port())),
        }
    }

    fn announced(&self, announcement: Announcement, port: u16) -> HeaderValue {
        let mut kept = self.value.borrow_mut();
        match &*kept {
            Some((of, value)) if *of == port => value.clone(),
            _ => kept.insert((port, announcement.value(port))).1.clone(),
        }
    }
}
