//! Client over HTTP/3, which records every outcome.

use std::net::SocketAddr;

use brisk_behaviour::h3_client::{self as h3, DATA, HEADERS, Received, frame};
use brisk_behaviour::site::Site;
use brisk_testkit::quic::{QuicClient, QuicConnection};

use super::http2::take_section;
use super::outcome::{End, Outcome};
use super::request::Request;

/// Requests of a connection, fewer than brisk permits at its start.
const MOST: usize = 50;

/// Client that renews its connection after some requests.
pub(super) struct Http3 {
    client: QuicClient,
    address: SocketAddr,
    connection: Option<(QuicConnection, usize)>,
}

impl Http3 {
    pub(super) fn new(site: &Site) -> Self {
        Self { client: h3::client(site), address: site.brisk.https(), connection: None }
    }

    /// Sends a request. `case` identifies the attempt.
    pub(super) fn exchange(&mut self, request: &Request, case: &str) -> Outcome {
        let connect = || (h3::connect(&self.client, self.address), 0);
        let (mut connection, count) = self.connection.take().unwrap_or_else(connect);
        let stream = connection.request(&frames(request, case));
        let mut outcome = Outcome::default();
        match connection.response_or_reset(stream) {
            Ok(Ok(bytes)) => outcome = read(&bytes),
            Ok(Err(code)) => outcome.end = End::Reset(code),
            Err(_) => outcome.end = End::Closed,
        }
        if outcome.end != End::Closed && count < MOST {
            self.connection = Some((connection, count + 1));
        } else {
            connection.close();
        }
        outcome
    }
}

fn read(bytes: &[u8]) -> Outcome {
    let Received { sections, body } = Received::read(bytes);
    let mut outcome = Outcome::default();
    for fields in sections {
        if take_section(fields, &mut outcome).is_err() {
            outcome.end = End::Invalid;
        }
    }
    outcome.body = String::from_utf8_lossy(&body).into_owned();
    outcome
}

fn frames(request: &Request, case: &str) -> Vec<u8> {
    let section = |fields: &[(String, String)]| {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        frame(HEADERS, &h3::section(&fields))
    };
    let (data, trailers) = request.data();
    let mut frames = section(&request.fields(case));
    if !data.is_empty() {
        frames.extend(frame(DATA, &data));
    }
    if !trailers.is_empty() {
        frames.extend(section(&trailers));
    }
    frames
}
