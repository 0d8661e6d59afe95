//! Requests and responses over HTTP/3 without QUIC.

mod limits;
mod quic;
mod rules;

use std::time::Duration;

use brisk_http::fields::{Field, Qpack};
use brisk_http::message::HeaderList;
use brisk_http_connection::end::End;
use brisk_http_connection::interim::InterimResponse;
use brisk_http_connection::settings::HttpSettings;
use brisk_net::TurnLimit;
use brisk_wire::fields::{Fields, Name};
use brisk_wire::h3::error::Code;
use brisk_wire::h3::frame::kind;
use brisk_wire::h3::qpack;
use http::header::LINK;
use http::{HeaderValue, StatusCode};

use super::testing::{Bench, Written, frame, headers};
use super::transport::Read;
use crate::testing::BIG;

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/")];

/// A request for a path of the host `a`, with more fields.
fn get(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut fields = GET;
    fields[3].1 = path;
    headers(&[&fields, more].concat())
}

fn post(more: &[(&str, &str)]) -> Vec<u8> {
    let mut fields = GET;
    fields[0].1 = "POST";
    headers(&[&fields, more].concat())
}

/// Status and headers of a response.
#[derive(Default)]
struct Head {
    status: u16,
    headers: HeaderList,
}

impl Fields for Head {
    type Field = Field;

    fn constant(&mut self, index: usize) -> Field {
        Field::constant::<Qpack>(index)
    }

    fn literal(&mut self, name: Name<'_, Field>, value: &[u8]) -> Field {
        Field::literal::<Qpack>(&name, value)
    }

    fn take(&mut self, field: Field) {
        match field {
            Field::Status(status) => self.status = status.as_u16(),
            Field::Header(name, value) => self.headers.append(name, value),
            other => panic!("{other:?} in a response"),
        }
    }
}

/// Statuses of the heads on a stream, headers of the last head, and the body.
fn response(bench: &Bench, stream: u64) -> (Vec<u16>, HeaderList, Vec<u8>) {
    parsed(bench.frames(stream))
}

fn parsed(frames: Vec<Written>) -> (Vec<u16>, HeaderList, Vec<u8>) {
    let (mut statuses, mut last, mut body) = (Vec::new(), HeaderList::new(), Vec::new());
    for frame in frames {
        match frame.kind {
            kind::HEADERS => {
                let mut head = Head::default();
                qpack::Decoder::default()
                    .decode(&frame.payload, 100, 1 << 16, &mut head)
                    .expect("a field section");
                statuses.push(head.status);
                last = head.headers;
            }
            kind::DATA => body.extend(frame.payload),
            other => panic!("a frame of type {other:#x} in a response"),
        }
    }
    (statuses, last, body)
}

#[test]
fn a_request_is_answered_and_its_stream_ends() {
    let mut bench = Bench::new();
    bench.settings(&[]);
    bench.send_all(0, &get("/", &[]));
    bench.turn();
    let (statuses, headers, body) = response(&bench, 0);
    assert_eq!((statuses, &body[..]), (vec![200], &b"hello"[..]));
    assert_eq!(headers["content-length"], "5");
    assert!(headers.contains_key("date"));
    assert!(bench.client.received[&0].is_finished);
    assert_eq!((bench.http3.open_requests(), bench.closing), (0, None));
}

#[test]
fn interim_responses_come_before_the_response() {
    let mut bench = Bench::new();
    bench.send_all(0, &get("/", &[]));
    let Bench { client, http3, .. } = &mut bench;
    http3.h3.read_requests(client);
    let headers = HeaderList::from_iter([(LINK, HeaderValue::from_static("</a.css>; rel=preload"))]);
    let hints = InterimResponse { stream: None, status: StatusCode::EARLY_HINTS, headers };
    let place = http3.h3.find(0).expect("a request");
    http3.h3.write_status(place, 100, false);
    http3.h3.write_interim(place, &hints);
    bench.turn();
    let (statuses, headers, body) = response(&bench, 0);
    assert_eq!((statuses, &body[..]), (vec![100, 103, 200], &b"hello"[..]));
    assert!(!headers.contains_key(LINK));
}

#[test]
fn settings_are_the_first_output_on_the_control_stream() {
    let mut bench = Bench::new();
    bench.turn();
    let control = &bench.client.received[&3];
    // Type of the stream, then SETTINGS: the limit of a head, and extended CONNECT.
    assert_eq!(control.bytes, [0, 4, 0x40, 7, 6, 0x80, 1, 0, 0, 8, 1]);
    assert_eq!(control.priority, i32::MAX);
}

#[test]
fn a_head_that_arrives_byte_by_byte_is_answered() {
    let mut bench = Bench::new();
    for byte in get("/", &[("x-long", &"a".repeat(100))]) {
        bench.send(0, &[byte]);
        bench.turn();
    }
    bench.end(0, Read::End);
    bench.turn();
    assert_eq!(response(&bench, 0).0, [200]);
}

#[test]
fn a_body_is_read_to_its_end_after_an_early_response() {
    let mut bench = Bench::new();
    bench.send(0, &post(&[("content-length", "10")]));
    bench.turn();
    // The fixed response does not wait for the body.
    assert_eq!(response(&bench, 0).0, [200]);
    bench.send(0, &frame(kind::DATA, b"0123456789"));
    bench.end(0, Read::End);
    for _ in 0..2 {
        bench.turn();
    }
    let received = &bench.client.received[&0];
    assert_eq!((received.is_finished, received.reset, bench.http3.open_requests()), (true, None, 0));
}

#[test]
fn a_response_waits_for_flow_control_and_goes_on() {
    let mut bench = Bench::new();
    bench.client.window = Some(1000);
    bench.send_all(0, &get("/big", &[]));
    bench.turn();
    assert_eq!(bench.client.received[&0].bytes.len(), 1000);
    assert_eq!(bench.http3.open_requests(), 1);
    for window in [50_000, 1 << 20] {
        bench.client.window = Some(window);
        bench.unblock();
        bench.turn();
    }
    let (statuses, _, body) = response(&bench, 0);
    assert_eq!((statuses, body.len()), (vec![200], BIG));
    assert!(bench.client.received[&0].is_finished);
}

#[test]
fn urgent_responses_are_written_first() {
    let mut bench = Bench::new();
    bench.client.connection_window = Some(100_000);
    for (stream, priority) in [(0, "u=5"), (4, "u=1"), (8, "u=3, i")] {
        bench.send_all(stream, &get("/big", &[("priority", priority)]));
    }
    bench.turn();
    let received =
        |bench: &Bench, stream| bench.client.received.get(&stream).map_or(0, |out| out.bytes.len());
    assert!(received(&bench, 4) > 99_000);
    assert_eq!((received(&bench, 0), received(&bench, 8)), (0, 0));
    bench.client.connection_window = Some(150_000);
    bench.unblock();
    bench.turn();
    assert!(received(&bench, 4) > BIG && received(&bench, 8) > 0);
    assert_eq!(received(&bench, 0), 0);
    let priority = |stream: u64| bench.client.received[&stream].priority;
    assert!(priority(4) > priority(8) && priority(8) > priority(0));
}

#[test]
fn priorities_may_change_and_may_precede_their_request() {
    let mut bench = Bench::new();
    let update = |id: u8, value: &[u8]| frame(kind::PRIORITY_UPDATE, &[&[id], value].concat());
    bench.client.connection_window = Some(10_000);
    bench.settings(&[]);
    // The last counts.
    bench.send(2, &update(4, b"u=7"));
    bench.send(2, &update(4, b"u=0"));
    bench.turn();
    for stream in [0, 4, 8] {
        bench.send_all(stream, &get("/big", &[("priority", "u=3")]));
    }
    bench.turn();
    let received =
        |bench: &Bench, stream| bench.client.received.get(&stream).map_or(0, |out| out.bytes.len());
    assert!(received(&bench, 4) > 0);
    assert_eq!((received(&bench, 0), received(&bench, 8)), (0, 0));
    bench.send(2, &update(8, b"u=0"));
    bench.send(2, &update(4, b"u=7"));
    bench.client.connection_window = Some(BIG);
    bench.turn();
    bench.unblock();
    bench.turn();
    assert!(received(&bench, 8) > received(&bench, 0), "{}", received(&bench, 8));
    let priority = |stream: u64| bench.client.received[&stream].priority;
    assert!(priority(8) > priority(0));
}

#[test]
fn whole_responses_are_written_one_after_the_other_and_incremental_ones_in_turns() {
    for (priority, is_whole) in [("u=3", true), ("u=3, i", false)] {
        let mut bench = Bench::new();
        bench.client.per_write = Some(20_000);
        for stream in [0, 4] {
            bench.send_all(stream, &get("/big", &[("priority", priority)]));
        }
        bench.turn();
        let writes: Vec<_> = bench.client.writes.iter().copied().filter(|stream| *stream != 3).collect();
        let first = writes.iter().position(|stream| *stream == 4).expect("a write");
        assert_eq!(first > 1, is_whole, "{priority}: {writes:?}");
        assert!(writes.len() > 20);
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_pauses_after_its_response_is_stopped() {
    let mut bench = Bench::new();
    let clock = Clock::of(&bench);
    bench.send(0, &post(&[]));
    bench.turn();
    assert_eq!((response(&bench, 0).0, bench.http3.open_requests()), (vec![200], 1));
    clock.pass(Duration::from_secs(3)).await;
    for _ in 0..2 {
        bench.turn();
    }
    let received = &bench.client.received[&0];
    assert_eq!((received.stop, received.reset), (Some(Code::NO_ERROR), None));
    assert_eq!(bench.http3.open_requests(), 0);
}

#[test]
fn a_client_that_resets_its_upload_keeps_the_response() {
    let mut bench = Bench::new();
    bench.send(0, &post(&[]));
    bench.turn();
    bench.end(0, Read::Reset);
    bench.turn();
    let received = &bench.client.received[&0];
    assert_eq!((received.is_finished, received.reset), (true, None));
    assert_eq!(bench.http3.open_requests(), 0);
}

#[test]
fn a_response_that_ends_while_it_is_written_is_recorded_in_the_same_turn() {
    let mut bench = Bench::new();
    bench.client.window = Some(1000);
    bench.send_all(0, &get("/big", &[]));
    bench.turn();
    let in_flight = |bench: &Bench| bench.http3.h3.http.connection.flow.in_flight();
    assert_eq!(in_flight(&bench), 1);
    bench.stop_silently(0);
    bench.unblock();
    bench.turn();
    assert_eq!(in_flight(&bench), 0);
}

#[test]
fn an_extended_connect_is_a_request_with_a_protocol() {
    let mut bench = Bench::new();
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "other"),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/"),
    ];
    bench.send(0, &headers(&fields));
    bench.turn();
    // RFC 9220 section 3: 501 for a protocol that is not known.
    assert_eq!(response(&bench, 0).0, [501]);
}

#[test]
fn memory_of_responses_is_held_until_it_is_acknowledged() {
    let mut bench = Bench::new();
    let held = |bench: &Bench| bench.http3.h3.http.connection.answers.held();
    bench.send_all(0, &get("/big", &[]));
    bench.turn();
    assert!(bench.client.received[&0].is_finished);
    assert!(held(&bench) > BIG && held(&bench) < BIG + 300, "{}", held(&bench));
    bench.acknowledge();
    bench.turn();
    assert_eq!(held(&bench), 0);
    // Abandoned output is released too.
    bench.client.window = Some(1000);
    bench.send_all(4, &get("/big", &[]));
    bench.turn();
    bench.stop(4);
    bench.client.received.clear();
    bench.turn();
    bench.turn();
    assert_eq!(held(&bench), 0);
}

#[test]
fn a_response_that_is_stopped_after_its_end_is_reset() {
    let mut bench = Bench::new();
    bench.send_all(0, &get("/big", &[]));
    bench.turn();
    assert!(bench.client.received[&0].is_finished);
    bench.stop(0);
    bench.turn();
    // Its client learns the length of the response, which counts in the window of the connection.
    assert_eq!(bench.client.received[&0].reset, Some(Code::REQUEST_CANCELLED));
    bench.client.received.clear();
    bench.turn();
    assert_eq!(bench.http3.h3.http.connection.answers.held(), 0);
}

/// Time of the worker of a connection.
struct Clock(tokio::task::LocalSet);

impl Clock {
    fn of(bench: &Bench) -> Self {
        let wheel = bench.http3.h3.http.deadline.wheel();
        let tasks = tokio::task::LocalSet::new();
        tasks.spawn_local(async move { wheel.run().await });
        Self(tasks)
    }

    async fn pass(&self, time: Duration) {
        self.0.run_until(tokio::time::sleep(time)).await;
    }
}

/// Payloads of the server's `GOAWAY` frames.
fn goaways(bench: &Bench) -> Vec<Vec<u8>> {
    let frames = bench.frames(3).into_iter();
    frames.filter(|frame| frame.kind == kind::GOAWAY).map(|frame| frame.payload).collect()
}

#[tokio::test(start_paused = true)]
async fn a_drain_announces_the_end_twice_and_completes_requests() {
    let mut bench = Bench::new();
    let clock = Clock::of(&bench);
    bench.client.window = Some(1000);
    bench.send_all(0, &get("/big", &[]));
    bench.turn();
    bench.http3.h3.drain();
    bench.turn();
    // RFC 9114 section 5.2: 2^62-4, then the first request that is not processed.
    let largest = [[0xff; 7].as_slice(), &[0xfc]].concat();
    assert_eq!(goaways(&bench)[0], largest);
    // Requests on their way arrive within two round trips.
    bench.turn();
    clock.pass(Duration::from_millis(300)).await;
    bench.was_woken();
    bench.turn();
    assert!(bench.was_woken(), "the last GOAWAY is written in another turn");
    bench.turn();
    assert_eq!(goaways(&bench), [largest, vec![4]]);
    bench.send_all(4, &get("/", &[]));
    bench.turn();
    assert_eq!(bench.client.received[&4].reset, Some(Code::REQUEST_REJECTED));
    assert_eq!(bench.closing, None);
    bench.client.window = None;
    bench.unblock();
    bench.turn();
    assert!(bench.client.received[&0].is_finished && bench.closing.is_none());
    bench.acknowledge();
    bench.turn();
    assert_eq!(bench.failure(), Some(Code::NO_ERROR));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends_after_its_time() {
    let mut bench = Bench::new();
    let clock = Clock::of(&bench);
    bench.send_all(0, &get("/", &[]));
    bench.turn();
    bench.acknowledge();
    bench.turn();
    clock.pass(Duration::from_secs(59)).await;
    bench.turn();
    assert_eq!(goaways(&bench).len(), 0);
    clock.pass(Duration::from_secs(2)).await;
    for _ in 0..4 {
        bench.turn();
        clock.pass(Duration::from_millis(300)).await;
    }
    let closing = bench.closing.expect("an end");
    assert_eq!((closing.end, closing.code), (End::Idle, Code::NO_ERROR));
    assert_eq!(goaways(&bench).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_after_its_last_request() {
    let settings = HttpSettings { requests: Some(2), ..HttpSettings::default() };
    let mut bench = Bench::of(crate::testing::with_settings(settings));
    let clock = Clock::of(&bench);
    for stream in [0, 4, 8] {
        bench.send_all(stream, &get("/", &[]));
        bench.turn();
    }
    // The third was on its way when the end was announced.
    assert_eq!([0, 4, 8].map(|stream| response(&bench, stream).0), [[200]; 3]);
    bench.acknowledge();
    bench.turn();
    clock.pass(Duration::from_millis(300)).await;
    bench.turn();
    bench.send_all(12, &get("/", &[]));
    bench.turn();
    assert_eq!(bench.client.received[&12].reset, Some(Code::REQUEST_REJECTED));
    assert_eq!(bench.closing.map(|closing| closing.end), Some(End::Closed));
}

#[test]
fn a_turn_processes_a_limited_number_of_frames() {
    let mut bench = Bench::new();
    bench.client.piece = 1_200;
    let data = frame(kind::DATA, b"x");
    bench.send(0, &post(&[]));
    bench.send(0, &data.repeat(2_000));
    bench.turn();
    let left = bench.client.unread(0) / data.len();
    assert!(left >= 2_000 - TurnLimit::FRAMES - bench.client.piece / data.len() - 1, "{left}");
    // The rest follows without another datagram.
    for _ in 0..10 {
        assert!(bench.client.unread(0) == 0 || bench.was_woken());
        bench.turn();
    }
    assert_eq!((bench.client.unread(0), bench.failure()), (0, None));
}
