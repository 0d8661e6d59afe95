//! Steps of a connection: messages and records with sizes, times, round trips and the side that waited.

use std::time::{Duration, Instant};

use serde::Serialize;

use brisk_wire::server_flight::alert_text;

use crate::message;
use crate::recording::Party;
use crate::records::{ConnectionView, ContentType, Message, Record};

/// A handshake message, or a record with other content.
#[derive(Clone, Debug, Serialize)]
pub struct StepRow {
    /// Sender.
    pub from: Party,
    /// Name of the message or of the record's content type.
    pub name: String,
    /// Offset of the first record in the bytes of its direction.
    pub offset: u64,
    /// Size of the message, or of the content of other records, in bytes.
    pub bytes: u64,
    /// Number of the first record in its direction, from 1.
    pub record: usize,
    /// Number of records that contain the step.
    pub records: usize,
    /// Size of these records in bytes, with headers and tags.
    pub wire_bytes: u64,
    /// The records are encrypted.
    pub is_encrypted: bool,
    /// Time since the begin of the connection in milliseconds.
    pub at_ms: f64,
    /// Time since the previous step in milliseconds.
    pub since_ms: f64,
    /// Number of the round trip; 1 is the TCP handshake.
    pub round: u32,
    /// Cause of the time since the previous step.
    pub waited: Waited,
    /// Time of the last byte.
    #[serde(skip)]
    pub at: Instant,
}

/// Cause of the time before a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "for")]
pub enum Waited {
    /// None: the step arrived together with the previous one.
    Nothing,
    /// The server waited for this client.
    Client,
    /// The client waited for the network and the server.
    Server {
        /// A round trip, or the time that passed if it was shorter; counted once per client flight. For the first step, the
        /// TCP handshake.
        network_ms: f64,
        /// The remaining time: the server's work, or a full congestion window.
        server_ms: f64,
    },
}

/// Shorter pauses are within one flight.
const TOGETHER: Duration = Duration::from_micros(200);

/// Steps by time. `began` is the begin of the TCP handshake, `connected` its end.
pub fn steps(view: &ConnectionView, began: Instant, connected: Instant, rtt: Duration) -> Vec<StepRow> {
    let mut rows: Vec<StepRow> =
        view.messages.iter().map(|message| of_message(view, message, began)).collect();
    for party in [Party::Client, Party::Server] {
        rows.extend(of_records(view.from(party), began));
    }
    // At one time the client is first: its bytes cannot respond to bytes that it has not read yet.
    rows.sort_by_key(|row| (row.at, row.from == Party::Server, row.offset));
    number(&mut rows, began, connected, rtt);
    rows
}

fn of_message(view: &ConnectionView, message: &Message, began: Instant) -> StepRow {
    let records = &view.from(message.from)[message.record..message.record + message.records];
    let name = match message.kind {
        Some(message::SERVER_HELLO)
            if message::ServerChoice::read(&message.body).is_some_and(|hello| hello.is_retry) =>
        {
            "HelloRetryRequest".to_owned()
        }
        Some(kind) => message::name(kind).map_or_else(|| format!("message {kind}"), str::to_owned),
        None => "Finished".to_owned(),
    };
    StepRow {
        from: message.from,
        name,
        offset: records[0].offset,
        bytes: message.len as u64,
        record: message.record + 1,
        records: records.len(),
        wire_bytes: records.iter().map(|record| record.len as u64).sum(),
        is_encrypted: records[0].is_encrypted,
        at_ms: millis(message.at.saturating_duration_since(began)),
        since_ms: 0.0,
        round: 0,
        waited: Waited::Nothing,
        at: message.at,
    }
}

/// Steps of records without handshake messages. Adjacent records with application data form one step.
fn of_records(records: &[Record], began: Instant) -> Vec<StepRow> {
    let mut rows: Vec<StepRow> = Vec::new();
    let mut last: Option<usize> = None;
    for (index, record) in records.iter().enumerate() {
        if record.content == ContentType::Handshake {
            last = None;
            continue;
        }
        let is_data = record.content == ContentType::ApplicationData;
        if let Some(row) = rows.last_mut().filter(|row| {
            is_data
                // A handshake record between two records of data ends the step.
                && last == Some(index.wrapping_sub(1))
                && row.name == ContentType::ApplicationData.name()
                && record.at.saturating_duration_since(row.at) < TOGETHER
        }) {
            row.records += 1;
            row.bytes += record.plaintext.unwrap_or(record.len) as u64;
            row.wire_bytes += record.len as u64;
            last = Some(index);
            continue;
        }
        last = is_data.then_some(index);
        rows.push(StepRow {
            from: record.from,
            name: name(record),
            offset: record.offset,
            bytes: record.plaintext.unwrap_or(record.len) as u64,
            record: index + 1,
            records: 1,
            wire_bytes: record.len as u64,
            is_encrypted: record.is_encrypted,
            at_ms: millis(record.at.saturating_duration_since(began)),
            since_ms: 0.0,
            round: 0,
            waited: Waited::Nothing,
            at: record.at,
        });
    }
    rows
}

fn name(record: &Record) -> String {
    match record.alert {
        Some((_, description)) => alert_text(description),
        None => record.content.name().to_owned(),
    }
}

/// Assigns round trips and waits. A server step responds to a client flight sent at least 0.7 round trips earlier.
fn number(rows: &mut [StepRow], began: Instant, connected: Instant, rtt: Duration) {
    let near = rtt.mul_f64(0.7);
    // Begin of the client's flight of each round.
    let mut flights: Vec<(Instant, u32)> = Vec::new();
    let (mut heard, mut before, mut last) = (1, began, None);
    let connect =
        Waited::Server { network_ms: millis(connected.saturating_duration_since(began)), server_ms: 0.0 };
    for row in rows {
        let since = row.at.saturating_duration_since(before);
        row.since_ms = millis(since);
        match row.from {
            Party::Client => {
                let round = heard + 1;
                if flights.last().is_none_or(|(_, last)| *last < round) {
                    flights.push((row.at, round));
                }
                row.round = flights.last().map_or(round, |(_, last)| *last);
                row.waited = match last {
                    None => connect,
                    Some(Party::Client) => Waited::Nothing,
                    Some(Party::Server) => Waited::Client,
                };
            }
            Party::Server => {
                let answered = flights.iter().rev().find(|(sent, _)| *sent + near <= row.at);
                // A round trip never decreases, even if the measured one was too long for this step.
                row.round = answered.or(flights.first()).map_or(1, |(_, round)| *round).max(heard);
                let sent = flights.iter().find(|(_, round)| *round == row.round).map(|(sent, _)| *sent);
                // Between two steps of one round nothing of the client had to arrive.
                let took =
                    sent.filter(|_| heard < row.round).map(|sent| row.at.saturating_duration_since(sent));
                heard = row.round;
                row.waited = waited(since, took, rtt, last);
            }
        }
        (before, last) = (row.at, Some(row.from));
    }
}

/// Cause of a server step. `took` is the time since the client's flight, for the first step in response to it.
fn waited(since: Duration, took: Option<Duration>, rtt: Duration, last: Option<Party>) -> Waited {
    if since < TOGETHER && last == Some(Party::Server) {
        return Waited::Nothing;
    }
    let server = took.map_or(since, |took| took.saturating_sub(rtt).min(since));
    Waited::Server { network_ms: millis(since.saturating_sub(server)), server_ms: millis(server) }
}

/// Milliseconds, rounded to microseconds.
pub fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(from: Party, at: Instant) -> StepRow {
        StepRow {
            from,
            name: String::new(),
            offset: 0,
            bytes: 0,
            record: 1,
            records: 1,
            wire_bytes: 0,
            is_encrypted: false,
            at_ms: 0.0,
            since_ms: 0.0,
            round: 0,
            waited: Waited::Nothing,
            at,
        }
    }

    #[test]
    fn rounds_follow_from_who_answers_whom() {
        let (began, ms) = (Instant::now(), Duration::from_millis);
        let at = |time: u64| began + ms(time);
        let mut rows = vec![
            row(Party::Client, at(20)),
            row(Party::Server, at(41)),
            row(Party::Server, at(41)),
            row(Party::Client, at(42)),
            // Sent before the client's second flight can have arrived.
            row(Party::Server, at(45)),
            row(Party::Server, at(65)),
        ];
        number(&mut rows, began, at(19), ms(20));
        assert_eq!(rows.iter().map(|row| row.round).collect::<Vec<_>>(), [2, 2, 2, 3, 2, 3]);
        assert_eq!(rows[1].waited, Waited::Server { network_ms: 20.0, server_ms: 1.0 });
        assert_eq!(rows[2].waited, Waited::Nothing);
        assert_eq!(rows[3].waited, Waited::Client);
        // TCP's handshake is the network's, not the client's.
        assert_eq!(rows[0].waited, Waited::Server { network_ms: 19.0, server_ms: 0.0 });
        assert_eq!(rows[4].waited, Waited::Server { network_ms: 0.0, server_ms: 3.0 });
    }

    #[test]
    fn a_round_trip_counts_once_and_the_rest_of_the_round_is_the_servers() {
        let (began, ms) = (Instant::now(), Duration::from_millis);
        let at = |time: u64| began + ms(time);
        // ServerHello at once, its certificate after 15 ms of signing, and more after 30.
        let mut rows = vec![
            row(Party::Client, at(20)),
            row(Party::Server, at(40)),
            row(Party::Server, at(55)),
            row(Party::Server, at(70)),
        ];
        number(&mut rows, began, at(20), ms(20));
        let server = |network_ms: f64, server_ms: f64| Waited::Server { network_ms, server_ms };
        let waited: Vec<_> = rows.iter().map(|row| row.waited).collect();
        assert_eq!(waited, [server(20.0, 0.0), server(20.0, 0.0), server(0.0, 15.0), server(0.0, 15.0)]);
    }
}
