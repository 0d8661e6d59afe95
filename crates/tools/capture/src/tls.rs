//! TLS of a connection: facts of the hellos, records, alerts, milestones and names of messages.

use std::time::{Duration, Instant};

use brisk_handshake_view::message::{CERTIFICATE, FINISHED, SERVER_KEY_EXCHANGE, certificates};
use brisk_handshake_view::records::{ContentType, Record, server_hellos};
use brisk_handshake_view::{Certificate, Chain, ConnectionView, Party, Recording, StepRow, Ticket, steps};
use brisk_telemetry::Milestone;
use brisk_wire::client_hello::{ClientHello, Progress};
use brisk_wire::ja4::{Transport, ja4};
use brisk_wire::registry::ProtocolVersion;
use brisk_wire::server_flight::alert_name;
use serde::Serialize;

use crate::decrypt::Decryption;
use crate::http::{Http, Place};
use crate::record_sizes::{RecordCounter, RecordSizes};
use crate::secrets::Secrets;
use crate::time::Nanos;

/// Bytes of each direction kept for the analysis: any handshake, and the begin of the response.
const KEPT: usize = 64 * 1024;

/// Longest `ClientHello` on the wire.
const LONGEST_HELLO: usize = 64 * 1024;

/// Maximum number of segments of a client until the `ServerHello`; with more, a connection stays encrypted.
const EARLY: usize = 64;

/// Record type of the handshake, the first of a connection.
const HANDSHAKE: u8 = 22;

/// Recorded bytes of a connection, and counters of its records.
#[derive(Debug)]
pub(crate) struct TlsBytes {
    recording: Recording,
    /// Time of `base` as an `Instant`, which the recording uses.
    epoch: Instant,
    base: Nanos,
    counters: [RecordCounter; 2],
    state: State,
    /// Segments of the client until the `ServerHello`: place, and number of bytes.
    early: Vec<(Place, usize)>,
}

/// State of the decryption while records arrive.
#[derive(Debug)]
enum State {
    /// The `ServerHello`, which determines the keys, has not arrived.
    Waiting,
    /// There are no secrets.
    Encrypted,
    Decrypted(Box<Decryption>),
}

impl TlsBytes {
    /// Starts a recording if `first`, the first bytes of a client, are those of TLS.
    pub(crate) fn start(first: &[u8], base: Nanos) -> Option<Box<Self>> {
        // The first segment may have a single byte.
        let is_tls = first.first() == Some(&HANDSHAKE) && first.get(1).is_none_or(|major| *major == 3);
        // Any `Instant` will do: only differences to it are used.
        let (recording, epoch, counters) = (Recording::default(), Instant::now(), Default::default());
        let (state, early) = (State::Waiting, Vec::new());
        is_tls.then(|| Box::new(Self { recording, epoch, base, counters, state, early }))
    }

    /// Adds bytes of the stream. Adds the decrypted application data to `http` if there are `secrets`.
    pub(crate) fn add(
        &mut self,
        from: Party,
        place: Place,
        bytes: &[u8],
        secrets: &Secrets,
        http: &mut Option<Box<Http>>,
    ) {
        self.counters[from as usize].add(bytes);
        let kept = self.recording.from(from).bytes.len();
        if kept < KEPT {
            let bytes = &bytes[..bytes.len().min(KEPT - kept)];
            self.recording.record(from, self.epoch + place.time.since(self.base), bytes);
        }
        match (&mut self.state, from) {
            (State::Decrypted(decryption), _) => {
                let http = http.get_or_insert_default();
                decryption
                    .add(from, bytes, &mut |offset, data| http.add(from, Place { offset, ..place }, data));
            }
            (State::Waiting, Party::Client) if self.early.len() < EARLY && kept + bytes.len() <= KEPT => {
                self.early.push((place, bytes.len()));
            }
            (State::Waiting, Party::Server) if kept + bytes.len() <= LONGEST_HELLO => {
                self.begin(place, secrets, http);
            }
            (State::Waiting, _) => self.state = State::Encrypted,
            (State::Encrypted, _) => {}
        }
    }

    /// Begins to decrypt if the `ServerHello` has arrived and there are `secrets`.
    fn begin(&mut self, place: Place, secrets: &Secrets, http: &mut Option<Box<Http>>) {
        let hellos = server_hellos(&self.recording.server.bytes);
        let Some(chosen) = hellos.iter().find(|hello| !hello.is_retry) else { return };
        self.state = State::Encrypted;
        if !self.add_secrets(secrets) {
            return;
        }
        let http = http.get_or_insert_default();
        let mut decryption = Box::new(Decryption::new(chosen, &self.recording));
        let mut client = &self.recording.client.bytes[..];
        for (place, length) in std::mem::take(&mut self.early) {
            let (bytes, rest) = client.split_at(length.min(client.len()));
            decryption.add(Party::Client, bytes, &mut |offset, data| {
                http.add(Party::Client, Place { offset, ..place }, data);
            });
            client = rest;
        }
        decryption.add(Party::Server, &self.recording.server.bytes, &mut |offset, data| {
            http.add(Party::Server, Place { offset, ..place }, data);
        });
        self.state = State::Decrypted(decryption);
    }

    /// Adds the secrets of the connection to the recording; `false` if there are none.
    fn add_secrets(&mut self, secrets: &Secrets) -> bool {
        let Some(random) = self.recording.client_random().copied() else { return false };
        for (label, value) in secrets.of(&random) {
            self.recording.add_secret(label, &random, value);
        }
        !secrets.of(&random).is_empty()
    }

    /// Heap memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        let directions = [&self.recording.client, &self.recording.server];
        let sizes = directions.map(|direction| direction.bytes.capacity() + direction.pieces.capacity() * 24);
        let decryption = match &self.state {
            State::Decrypted(decryption) => size_of::<Decryption>() + decryption.memory(),
            State::Waiting | State::Encrypted => 0,
        };
        let early = self.early.capacity() * size_of::<(Place, usize)>();
        size_of::<Self>() + sizes.into_iter().sum::<usize>() + decryption + early
    }

    /// Analyses the recording with the [`Secrets`] of a key log.
    pub(crate) fn analyse(
        mut self,
        connected: Nanos,
        round_trip: Duration,
        secrets: &Secrets,
    ) -> TlsAnalysis {
        if !matches!(self.state, State::Decrypted(_)) {
            self.add_secrets(secrets);
        }
        let view = ConnectionView::read(&self.recording);
        let connected = self.epoch + connected.since(self.base);
        let rows = steps(&view, self.epoch, connected, round_trip);
        let hello = ClientHello::read(&self.recording.client.bytes, LONGEST_HELLO);
        let facts = facts(&view, hello.ok(), self.counters);
        let milestones =
            milestones(&view, &rows, self.epoch, facts.offers_early_data && facts.hello_retry == 0);
        TlsAnalysis { facts, milestones, rows }
    }
}

/// Result of the analysis.
pub(crate) struct TlsAnalysis {
    pub(crate) facts: TlsFacts,
    /// Milestones, with the time since the first packet.
    pub(crate) milestones: Vec<(Milestone, Duration)>,
    rows: Vec<StepRow>,
}

impl TlsAnalysis {
    /// Names of the messages of `from` that begin in `len` bytes from `offset` on, or the name of the one that continues there.
    pub(crate) fn names(&self, from: Party, offset: u64, len: u64) -> Vec<String> {
        let begins = |row: &&StepRow| (offset..offset + len).contains(&row.offset);
        let mut names: Vec<_> = self.rows_of(from).filter(begins).map(readable).map(str::to_owned).collect();
        names.dedup();
        if names.is_empty() {
            let mut covering =
                self.rows_of(from).filter(|row| row.offset < offset && row.offset + row.wire_bytes > offset);
            let covering = covering.next().map(readable).filter(|name| !is_data(name));
            names.extend(covering.map(|name| format!("{name} continued")));
        }
        names
    }

    fn rows_of(&self, from: Party) -> impl Iterator<Item = &StepRow> {
        self.rows.iter().filter(move |row| row.from == from)
    }
}

fn is_data(name: &str) -> bool {
    name == APPLICATION_DATA || name == ENCRYPTED_DATA
}

/// Name of records that were not decrypted.
const ENCRYPTED_DATA: &str = "encrypted data";

/// Name of encrypted records with HTTP or other protocols.
pub(crate) const APPLICATION_DATA: &str = "application data";

/// Name of a step. Encrypted records without keys have the type of their outside.
fn readable(row: &StepRow) -> &str {
    match &row.name[..] {
        "unknown" => ENCRYPTED_DATA,
        "application_data" => APPLICATION_DATA,
        name => name,
    }
}

/// Facts of a TLS connection. Names and values are those of the access log.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TlsFacts {
    /// Host name in the `ClientHello`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// JA4 fingerprint of the `ClientHello`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ja4: Option<String>,
    /// Offered protocols of ALPN.
    pub offered_alpn: Vec<String>,
    /// Offered versions.
    pub offered_versions: Vec<String>,
    /// Offered groups.
    pub offered_groups: Vec<String>,
    /// Groups of `key_share`.
    pub key_shares: Vec<String>,
    /// Negotiated version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// Chosen suite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// Chosen group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// `1` if the server sent a `HelloRetryRequest`.
    pub hello_retry: u8,
    /// The client offered a session: ticket, PSK or, in TLS 1.2, a session ID.
    pub offers_session: bool,
    /// Whether the client sent `early_data`.
    pub offers_early_data: bool,
    /// The server continued an earlier session; `None` without `ServerHello`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_resumed: Option<bool>,
    /// Size of the server's `Certificate` in bytes, if it is visible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_bytes: Option<usize>,
    /// Certificates of the server, if they are visible.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<Certificate>,
    /// The first 64 tickets of the server, if they are visible.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tickets: Vec<Ticket>,
    /// Size of the server's first flight in bytes, if its end is visible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flight_bytes: Option<u64>,
    /// Visible alerts other than `close_notify`: sender and name.
    pub alerts: Vec<(Party, String)>,
    /// A key log contained secrets that opened records.
    pub is_decrypted: bool,
    /// Records of the client.
    pub client_records: RecordSizes,
    /// Records of the server.
    pub server_records: RecordSizes,
}

fn facts(view: &ConnectionView, hello: Option<Progress>, counters: [RecordCounter; 2]) -> TlsFacts {
    let [client_records, server_records] = counters.map(RecordCounter::sizes);
    let mut facts = TlsFacts { client_records, server_records, ..TlsFacts::default() };
    if let Some(Progress::Complete(hello)) = hello {
        offered(&mut facts, view, &hello);
    }
    facts.hello_retry = view.hellos.iter().any(|hello| hello.is_retry).into();
    if let Some(chosen) = view.chosen() {
        facts.tls = Some(chosen.version.to_string());
        facts.suite = Some(chosen.suite.to_string());
        facts.group = chosen.group.map(|group| group.to_string());
        let is_tls13 = chosen.version == ProtocolVersion::TLS1_3;
        let has_certificate = view.message(Party::Server, CERTIFICATE).is_some();
        // Before TLS 1.3, a full handshake has a Certificate, and it is not encrypted.
        let is_abbreviated = !has_certificate && view.message(Party::Server, SERVER_KEY_EXCHANGE).is_none();
        let has_finished = view.server.iter().any(|record| record.is_encrypted);
        facts.is_resumed = Some(chosen.is_resumed || !is_tls13 && is_abbreviated && has_finished);
        if let Some(message) = view.message(Party::Server, CERTIFICATE) {
            facts.certificates = Chain::read(&certificates(&message.body, chosen.version), 0).certificates;
        }
        facts.tickets = view.tickets(chosen.version);
        let flight = view.server_flight(is_tls13);
        facts.flight_bytes = flight.map(|(begin, end)| end - begin);
    }
    facts.certificate_bytes = view.message(Party::Server, CERTIFICATE).map(|message| message.len);
    let records = || view.client.iter().chain(&view.server);
    let alerts = records().filter_map(|record| Some((record.from, record.alert?.1)));
    // `close_notify` (0) is the regular end.
    let alerts = alerts.filter(|(_, alert)| *alert != 0).take(8);
    facts.alerts = alerts.map(|(from, alert)| (from, alert_text(alert))).collect();
    facts.is_decrypted = if is_tls13(&facts) {
        records().any(|record| record.is_encrypted && record.content != ContentType::Unknown)
    } else {
        view.message(Party::Client, FINISHED).is_some()
    };
    facts
}

fn is_tls13(facts: &TlsFacts) -> bool {
    facts.tls.as_deref() == ProtocolVersion::TLS1_3.name()
}

fn offered(facts: &mut TlsFacts, view: &ConnectionView, hello: &ClientHello) {
    let names = |values: &mut dyn Iterator<Item = String>| values.take(64).collect::<Vec<_>>();
    facts.server_name = hello.server_name.as_deref().map(brisk_report::text::printable);
    let alpn = hello.alpn.iter().map(|name| String::from_utf8_lossy(name));
    facts.offered_alpn = names(&mut alpn.map(|name| brisk_report::text::printable(&name)));
    facts.offered_versions = names(&mut hello.versions.iter().map(ToString::to_string));
    facts.offered_groups = names(&mut hello.groups.iter().map(ToString::to_string));
    facts.key_shares = names(&mut hello.key_shares.iter().flatten().map(ToString::to_string));
    facts.offers_session = hello.has_psk
        || hello.has_ticket
        || hello.session_id_len > 0 && !hello.offers_version(ProtocolVersion::TLS1_3);
    facts.offers_early_data = hello.early_data;
    let message = view.message(Party::Client, 1);
    facts.ja4 = message.and_then(|message| ja4(hello, &message.body, Transport::Tcp));
}

/// Name and meaning of an alert.
fn alert_text(alert: u8) -> String {
    let name = alert_name(alert).map_or_else(|| alert.to_string(), str::to_owned);
    let meaning = match alert {
        40 => "no version, suite or group in common",
        42 | 43 | 46 => "the certificate is not acceptable",
        45 => "the certificate has expired, or a clock is wrong",
        47 => "a field of the handshake is invalid",
        48 => "the certificate's issuer is not trusted, or an intermediate certificate is missing",
        70 => "no version in common",
        80 => "an error in the software of the sender",
        112 => "the server has no certificate for the name",
        116 => "a client certificate is required",
        120 => "no application protocol in common",
        _ => return name,
    };
    format!("{name}: {meaning}")
}

/// Milestones that are visible. Without a key log, in TLS 1.3, the first encrypted record of the client is its `Finished`, unless
/// early data precedes it (`is_early`), and the first record of the server after the request is the response, which may be a
/// session ticket.
fn milestones(
    view: &ConnectionView,
    rows: &[StepRow],
    epoch: Instant,
    is_early: bool,
) -> Vec<(Milestone, Duration)> {
    let mut found = Vec::new();
    let mut add = |milestone, at: Instant| found.push((milestone, at.saturating_duration_since(epoch)));
    let is_hello = |row: &&StepRow| row.from == Party::Client && row.name == "ClientHello";
    // After a `HelloRetryRequest`, the second hello is the one that the handshake continues from.
    let hello = rows.iter().rfind(is_hello);
    if let Some(hello) = hello {
        add(Milestone::ClientHello, hello.at);
    }
    let named = rows.iter().find(|row| row.from == Party::Client && row.name == "Finished");
    let is_unnamed =
        view.client.iter().all(|record| record.content != ContentType::Handshake || !record.is_encrypted);
    // RFC 8446 section 4.2.10: early data precedes a second hello, and none follows it.
    let begin = hello.map_or(0, |hello| hello.offset);
    let mut encrypted = view.client.iter().filter(|record| record.is_encrypted && record.offset >= begin);
    let finished = match named {
        Some(row) => Some((row.at, row.offset)),
        // The end of early data is not visible.
        None if is_unnamed && !is_early => encrypted.next().map(|record| (record.at, record.offset)),
        None => None,
    };
    let Some((at, offset)) = finished else { return found };
    add(Milestone::HandshakeFinished, at);
    let is_data = |record: &&Record| {
        record.is_encrypted && matches!(record.content, ContentType::ApplicationData | ContentType::Unknown)
    };
    let request = view.client.iter().filter(is_data).find(|record| record.offset > offset);
    let Some(request) = request else { return found };
    add(Milestone::FirstRequest, request.at);
    if let Some(response) = view.server.iter().filter(is_data).find(|record| record.at > request.at) {
        add(Milestone::FirstResponse, response.at);
    }
    found
}

#[cfg(test)]
mod tests {
    use brisk_handshake_view::records::Message;

    use super::*;

    #[test]
    fn early_data_is_not_taken_as_finished() {
        let (epoch, ms) = (Instant::now(), Duration::from_millis);
        let record = |index: u64, content| Record {
            from: Party::Client,
            offset: index * 100,
            len: 100,
            content,
            is_encrypted: content == ContentType::Unknown,
            plaintext: None,
            alert: None,
            at: epoch + ms(index),
        };
        let hello = |index: u64| Message {
            from: Party::Client,
            kind: Some(1),
            len: 95,
            record: index as usize,
            records: 1,
            body: Vec::new(),
            at: epoch + ms(index),
        };
        let found = |view: &ConnectionView, is_early| {
            milestones(view, &steps(view, epoch, epoch, ms(1)), epoch, is_early)
        };
        let client = vec![record(0, ContentType::Handshake), record(1, ContentType::Unknown)];
        let mut view = ConnectionView { client, messages: vec![hello(0)], ..ConnectionView::default() };
        assert_eq!(found(&view, true), [(Milestone::ClientHello, ms(0))]);
        // After a HelloRetryRequest.
        view.client.extend([record(2, ContentType::Handshake), record(3, ContentType::Unknown)]);
        view.messages.push(hello(2));
        let wanted = [(Milestone::ClientHello, ms(2)), (Milestone::HandshakeFinished, ms(3))];
        assert_eq!(found(&view, false), wanted);
    }
}
