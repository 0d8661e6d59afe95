//! HTTP/3 of a probed server: its announcements, the versions of QUIC, a full handshake and one with early data.

mod alt_svc;
mod versions;

#[cfg(any(test, fuzzing))]
pub(crate) use alt_svc::services as alternative_services;
#[cfg(any(test, fuzzing))]
pub(crate) use versions::read as read_versions;

use std::fmt::Write as _;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::pin;

use brisk_handshake_view::steps::millis;
use brisk_http_client::http3::{Http3, Http3Client, Http3Error, KeptFields, PendingResponse, RequestHead};
use brisk_tls_client::{Client, EarlyData, EarlyOutcome, SavedSession};
use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};

use crate::prober::SESSION_WAIT;
use crate::report::Report;
use crate::resolve::HttpsAnswer;
use crate::{ProbeError, Settings, block_on};

/// Results for HTTP/3.
#[derive(Clone, Debug, Serialize)]
pub struct Http3Report {
    /// `Alt-Svc` of the probed response (RFC 7838), several lines joined by commas.
    pub alt_svc: Option<String>,
    /// Whether `Alt-Svc` names `h3`, at any host.
    #[serde(skip)]
    names_h3: bool,
    /// Whether the HTTPS record names `h3`; `None` if it is unknown.
    pub in_record: Option<bool>,
    /// Tested UDP address: [`Report::address`], with the announced port.
    pub address: String,
    /// Versions of QUIC that the server names, in its order; empty if it names none.
    pub versions: Vec<String>,
    /// Full handshake and request.
    pub full: Http3Outcome,
    /// Resumption of the session of the first connection, with the request as early data if the session permits it. `None`
    /// without a session.
    pub resumed: Option<Http3Outcome>,
}

/// A connection over QUIC with one request.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Http3Outcome {
    /// From the first packet to the end of the handshake, in milliseconds.
    pub handshake_ms: Option<f64>,
    /// From the first packet to the first byte of the response, in milliseconds.
    pub first_byte_ms: Option<f64>,
    /// Status of the response.
    pub status: Option<u16>,
    /// `full`, or the kind of resumption.
    pub resumption: Option<&'static str>,
    /// Outcome of early data; `None` if the handshake failed.
    pub early_data: Option<&'static str>,
    /// Reason for an early end.
    pub failure: Option<String>,
}

/// Tests HTTP/3 of the server of `report`. Blocks for at most three times [`Settings::timeout`].
pub fn http3(settings: &Settings, report: &Report) -> Result<Http3Report, ProbeError> {
    let unknown = || ProbeError::System("HTTP/3 is tested at the address of a probed connection".to_owned());
    let probed: SocketAddr =
        report.address.as_ref().and_then(|text| text.parse().ok()).ok_or_else(unknown)?;
    let headers = report.answer.iter().flat_map(|answer| &answer.headers);
    let lines = headers.filter(|(name, _)| name == "alt-svc").map(|(_, value)| value.as_str());
    let lines: Vec<&str> = lines.collect();
    let services = alt_svc::services(lines.iter().copied());
    let records = match &report.https_record {
        HttpsAnswer::Found(records) => Some(&records[..]),
        HttpsAnswer::None => Some(&[][..]),
        HttpsAnswer::NotAsked | HttpsAnswer::Failed(_) => None,
    };
    let with_h3 = |records: &[crate::HttpsRecord]| {
        records.iter().position(|one| one.alpn.iter().any(|own| own == "h3"))
    };
    let in_record = records.map(|records| with_h3(records).is_some());
    let of_record = records.and_then(|records| records[with_h3(records)?].port);
    let announced = alt_svc::h3_port(&services, &settings.url.host);
    let port = announced.or(of_record).unwrap_or(settings.url.port);
    let address = SocketAddr::new(probed.ip(), port);
    let client = settings.client_of(&["h3"])?;
    let (versions, full, resumed) = block_on(async {
        let versions = timeout(settings.timeout, versions::ask(address)).await.unwrap_or_default();
        let trip = Trip { settings, client: &client, address };
        let (full, session) = trip.run(None).await;
        let resumed = match session {
            Some(session) => Some(trip.run(Some(session)).await.0),
            None => None,
        };
        (versions, full, resumed)
    })?;
    let alt_svc = (!lines.is_empty()).then(|| lines.join(", "));
    let names_h3 = services.iter().any(|service| service.protocol == "h3");
    Ok(Http3Report { alt_svc, names_h3, in_record, address: address.to_string(), versions, full, resumed })
}

struct Trip<'a> {
    settings: &'a Settings,
    client: &'a Client,
    address: SocketAddr,
}

impl Trip<'_> {
    /// Makes a connection and a request. Returns the newest [`SavedSession`] too.
    async fn run(&self, session: Option<SavedSession>) -> (Http3Outcome, Option<SavedSession>) {
        let mut outcome = Http3Outcome::default();
        let deadline = Instant::now() + self.settings.timeout;
        let ended = timeout_at(deadline, self.connect(session, &mut outcome)).await;
        let ended = ended.unwrap_or_else(|_| Err(format!("no response within {:?}", self.settings.timeout)));
        let session = ended.unwrap_or_else(|reason| {
            outcome.failure = Some(reason);
            None
        });
        (outcome, session)
    }

    async fn connect(
        &self,
        session: Option<SavedSession>,
        outcome: &mut Http3Outcome,
    ) -> Result<Option<SavedSession>, String> {
        let socket = socket(self.address).map_err(|error| error.to_string())?;
        let handshake = self.client.quic(session, EarlyData::Offered);
        let began = Instant::now();
        let connecting = Http3Client::default().connect(socket, self.address, handshake);
        let (connection, driver) = connecting.map_err(|error| error.to_string())?;
        let mut work = pin!(self.exchange(&connection, began, outcome));
        let done = tokio::select! {
            biased;
            done = &mut work => done,
            // The connection has ended, and the work returns its error.
            () = driver => work.await,
        };
        connection.close();
        done.map(|()| connection.tls().take_sessions().pop()).map_err(|error| error.to_string())
    }

    async fn exchange(
        &self,
        connection: &Http3,
        began: Instant,
        outcome: &mut Http3Outcome,
    ) -> Result<(), Http3Error> {
        let is_early = connection.permits_early_requests();
        let early = if is_early { Some(self.request(connection).await?) } else { None };
        let mut facts = connection.handshake().await?;
        outcome.handshake_ms = Some(millis(began.elapsed()));
        if !is_early {
            facts.early_data = EarlyOutcome::None;
        }
        outcome.resumption = Some(facts.resumption.name());
        outcome.early_data = Some(facts.early_data.name());
        let pending = match early {
            Some(pending) => pending,
            None => self.request(connection).await?,
        };
        let response = pending.finish().await?;
        let first_byte = response.first_byte_at.map(|at| at.saturating_duration_since(began.into_std()));
        outcome.first_byte_ms = first_byte.map(millis);
        outcome.status = Some(response.status);
        // A server sends its sessions soon after the handshake, or none.
        let _ = timeout(SESSION_WAIT, connection.receives_session()).await;
        Ok(())
    }

    fn request(&self, connection: &Http3) -> impl Future<Output = Result<PendingResponse, Http3Error>> {
        let url = &self.settings.url;
        let authority = url.authority();
        let head = RequestHead { method: "GET", scheme: "https", authority: &authority, path: &url.path };
        let fields: [(&[u8], &[u8]); 2] =
            [(b"user-agent", self.settings.agent.as_bytes()), (b"accept", b"*/*")];
        let (request, connection) = (head.encode(fields, b""), connection.clone());
        async move { connection.request(request, KeptFields::None).await }
    }
}

/// A socket that exchanges datagrams with `address`.
fn socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    // A connected socket receives ICMP errors, so a closed port ends the test at once, not by timeout.
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Http3Report {
    /// The results as names and values, and whether each is as it should be.
    pub fn lines(&self) -> Vec<(&'static str, String, bool)> {
        let announced = match (&self.alt_svc, self.in_record) {
            (Some(value), _) => format!("Alt-Svc: {value}"),
            (None, Some(true)) => "by the HTTPS record only".to_owned(),
            (None, Some(false)) => "no: neither Alt-Svc nor the HTTPS record name h3".to_owned(),
            (None, None) => "no Alt-Svc; the HTTPS record is unknown".to_owned(),
        };
        let record = match self.in_record {
            Some(true) => "h3",
            Some(false) => "without h3: the first request of a client goes over TCP",
            None => "unknown",
        };
        let versions =
            if self.versions.is_empty() { "none named".to_owned() } else { self.versions.join(", ") };
        let mut lines = vec![
            ("announced", announced, self.names_h3 || self.in_record == Some(true)),
            ("HTTPS record", record.to_owned(), self.in_record != Some(false)),
            ("QUIC versions", versions, self.versions.iter().any(|version| version == "1")),
            ("full handshake", self.full.text(), self.full.failure.is_none()),
        ];
        let resumed = self.resumed.as_ref();
        lines.push(("resumption", resumed.map_or_else(|| "no session".to_owned(), Http3Outcome::text), {
            resumed.is_some_and(|resumed| resumed.failure.is_none() && resumed.resumption != Some("full"))
        }));
        lines
    }
}

impl Http3Outcome {
    fn text(&self) -> String {
        let mut text = String::new();
        if let (Some(resumption), Some(time)) = (self.resumption, self.handshake_ms) {
            let _ = write!(text, "{resumption}, {}", crate::terminal::ms(time));
        }
        if let Some(early) = self.early_data.filter(|early| *early != EarlyOutcome::None.name()) {
            let _ = write!(text, ", early data {early}");
        }
        if let (Some(status), Some(time)) = (self.status, self.first_byte_ms) {
            let _ = write!(text, "; status {status}, first byte after {}", crate::terminal::ms(time));
        }
        if let Some(failure) = &self.failure {
            let _ = write!(text, "{}{failure}", if text.is_empty() { "" } else { "; " });
        }
        text
    }
}
