//! Clients of one server over all its protocols.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::http1::Http1;
use super::http2::Http2;
use super::http3::Http3;
use super::outcome::Outcome;
use super::request::{Expressible, Request};
use super::servers::{Protocol, Server, Servers};

/// Outcomes by the number of the request and the protocol.
pub(super) type Outcomes = HashMap<(usize, Protocol), Outcome>;

/// The upstream or the files that are requested.
pub(super) trait Subject: Sync {
    /// Whether the request of a case has arrived, so that it must not be sent again.
    fn has_arrived(&self, case: &str) -> bool;

    /// Completes or simplifies the outcome of a case.
    fn complete(&self, case: &str, outcome: &mut Outcome);
}

/// Clients of a server.
pub(super) struct Clients<'a> {
    server: Server,
    subject: &'a dyn Subject,
    http1: Http1,
    http2: Http2,
    /// `None` for servers without HTTP/3.
    http3: Option<Http3>,
    /// `ETag` and `Last-Modified` by target.
    validators: HashMap<String, [String; 2]>,
}

impl<'a> Clients<'a> {
    pub(super) fn new(
        servers: &Servers,
        (server, address): (Server, SocketAddr),
        subject: &'a dyn Subject,
    ) -> Self {
        Self {
            server,
            subject,
            http1: Http1::new(&servers.client, address),
            http2: Http2::new(&servers.client, address),
            http3: server.protocols().contains(&Protocol::Http3).then(|| Http3::new(&servers.site)),
            validators: HashMap::new(),
        }
    }

    /// Sends all requests over all protocols of the server that express them.
    pub(super) fn exchange_all(&mut self, requests: &[Request]) -> Outcomes {
        let mut outcomes = HashMap::new();
        for protocol in self.server.protocols() {
            let is_expressible = |request: &&Request| match request.expressible {
                Expressible::Everywhere => true,
                Expressible::Http1 => *protocol == Protocol::Http1,
                Expressible::Multiplexed => *protocol != Protocol::Http1,
            };
            for request in requests.iter().filter(is_expressible) {
                outcomes.insert((request.number, *protocol), self.exchange(*protocol, request));
            }
        }
        outcomes
    }

    fn exchange(&mut self, protocol: Protocol, request: &Request) -> Outcome {
        let request = self.with_validators(request);
        let case = |attempt: usize| format!("{:?}-{protocol:?}-{}-{attempt}", self.server, request.number);
        let (mut outcome, case) = match protocol {
            Protocol::Http1 => self.http1.exchange(&request, case, self.subject),
            Protocol::Http2 => self.http2.exchange(&request, case, self.subject),
            Protocol::Http3 => {
                let http3 = self.http3.as_mut().expect("a server with HTTP/3");
                (http3.exchange(&request, &case(0)), case(0))
            }
        };
        self.subject.complete(&case, &mut outcome);
        outcome
    }

    /// The request with the validators that this server has for its target.
    fn with_validators(&mut self, request: &Request) -> Request {
        let mut request = request.clone();
        if request.headers.iter().any(|(_, value)| value.contains('{')) {
            let [tag, modified] = self.validators(&request.target);
            let etag = tag.trim_start_matches("W/").trim_matches('"');
            for (_, value) in &mut request.headers {
                let tagged = value.replace("{tag}", &tag).replace("{etag}", etag);
                *value = tagged.replace("{modified}", &modified);
            }
        }
        request
    }

    fn validators(&mut self, target: &str) -> [String; 2] {
        if let Some(known) = self.validators.get(target) {
            return known.clone();
        }
        let (outcome, _) = self.http2.exchange(&Request::plain(0, target), |_| String::new(), self.subject);
        let value = |name: &str| {
            let header = outcome.headers.iter().find(|(own, _)| own == name);
            header.map_or_else(|| "none".to_owned(), |(_, value)| value.clone())
        };
        let validators = [value("etag"), value("last-modified")];
        self.validators.insert(target.to_owned(), validators.clone());
        validators
    }
}
