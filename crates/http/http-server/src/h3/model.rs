//! Client of HTTP/3 whose model states the outcome of each of its actions: right and wrong frames, field sections, instructions
//! and ends of streams.

use std::collections::BTreeMap;

use brisk_http_connection::settings::HttpSettings;
use brisk_wire::h3::error::Code;
use brisk_wire::h3::frame::kind;

use super::testing::{Bench, frame, headers};
use super::transport::Read;
use crate::testing::with_settings;

/// Maximum number of actions.
const ACTIONS: usize = 200;
/// Uploads in progress, fewer than requests that may be.
const UPLOADS: usize = 4;

/// Expected state of the client's streams.
#[derive(Default)]
struct Model {
    /// Error of the connection.
    failure: Option<Code>,
    /// Whole requests, and the error of each that is refused.
    requests: BTreeMap<u64, Option<Code>>,
    /// Streams of uploads, which are answered at once.
    uploads: Vec<u64>,
    /// Numbers of requests and of unidirectional streams.
    opened: [u64; 2],
    /// The control stream, and those of the encoder and decoder.
    critical: [Option<u64>; 3],
    goaway: Option<u8>,
    pushes: Option<u8>,
}

/// Types of frames that a request stream must not have: those of the control stream, `PUSH_PROMISE`, and those of HTTP/2.
const MISPLACED: [u64; 9] = [0x3, 0x4, 0x5, 0x7, 0xd, 0x2, 0x6, 0x8, 0x9];

/// Performs actions of two bytes each. After each, the connection is in the state that the model expects.
pub(crate) fn check(bytes: &[u8]) {
    let settings = HttpSettings { h2_resets: 100_000, h2_streams: 8, ..HttpSettings::default() };
    let mut bench = Bench::of(with_settings(settings));
    let mut model = Model::default();
    for [action, argument] in bytes.as_chunks::<2>().0.iter().take(ACTIONS) {
        match action % 8 {
            0 => model.request(&mut bench, *argument),
            1 | 2 => model.upload(&mut bench, *argument),
            3 => model.end_upload(&mut bench, *argument),
            4 => model.open(&mut bench, *argument),
            5 => model.control(&mut bench, *argument),
            6 => model.instruct(&mut bench, *argument),
            _ => model.end_critical(&mut bench, *argument),
        }
        bench.turn();
        model.compare(&bench);
        if model.failure.is_some() {
            return;
        }
        bench.client.piece = usize::from(*argument).max(1);
    }
}

fn fields(method: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let head = [(":method", method), (":scheme", "https"), (":authority", "a"), (":path", "/")];
    headers(&[&head[..], more].concat())
}

impl Model {
    fn fail(&mut self, code: Code) {
        self.failure = self.failure.or(Some(code));
    }

    fn next(&mut self, direction: usize) -> u64 {
        self.opened[direction] += 1;
        4 * (self.opened[direction] - 1) + 2 * direction as u64
    }

    /// A whole stream: right, malformed, empty, cut, undecodable or with another first frame.
    fn request(&mut self, bench: &mut Bench, argument: u8) {
        let stream = self.next(0);
        let right = fields("GET", &[]);
        let variant = usize::from(argument / 8);
        let bytes = match argument % 8 {
            0 => [frame(0x21, b"unknown"), right].concat(),
            1 => fields("GET", &[("X-Upper", "1")]),
            2 => Vec::new(),
            3 => right[..=variant % (right.len() - 1)].to_vec(),
            4 => frame(kind::HEADERS, [&b"\x02\0\xd1"[..], b"\0\0\x80", b"\0\0\x10", b""][variant % 4]),
            5 => frame(MISPLACED[variant % MISPLACED.len()], b""),
            6 => frame(kind::DATA, b"x"),
            _ => right,
        };
        match argument % 8 {
            1 => drop(self.requests.insert(stream, Some(Code::MESSAGE_ERROR))),
            2 => drop(self.requests.insert(stream, Some(Code::REQUEST_INCOMPLETE))),
            3 => self.fail(Code::FRAME_ERROR),
            4 => self.fail(Code::QPACK_DECOMPRESSION_FAILED),
            5 | 6 => self.fail(Code::FRAME_UNEXPECTED),
            _ => drop(self.requests.insert(stream, None)),
        }
        bench.send(stream, &bytes);
        bench.end(stream, Read::End);
    }

    /// The beginning of an upload, or data, trailers or an unknown frame of one.
    fn upload(&mut self, bench: &mut Bench, argument: u8) {
        let at = usize::from(argument / 4);
        if self.uploads.is_empty() || (argument.is_multiple_of(4) && self.uploads.len() < UPLOADS) {
            let stream = self.next(0);
            self.uploads.push(stream);
            return bench.send(stream, &fields("POST", &[]));
        }
        let at = at % self.uploads.len();
        let stream = self.uploads[at];
        match argument % 4 {
            0 | 1 => bench.send(stream, &frame(kind::DATA, b"data")),
            2 => {
                // The end of a request that has been answered: the rest of its stream is not read.
                self.uploads.remove(at);
                self.requests.insert(stream, None);
                bench.send(stream, &headers(&[("x-a", "1")]));
            }
            _ => bench.send(stream, &frame(0x21, b"unknown")),
        }
    }

    fn end_upload(&mut self, bench: &mut Bench, argument: u8) {
        if self.uploads.is_empty() {
            return;
        }
        let stream = self.uploads.remove(usize::from(argument / 2) % self.uploads.len());
        if argument.is_multiple_of(2) {
            self.requests.insert(stream, None);
            bench.end(stream, Read::End);
        } else {
            bench.end(stream, Read::Reset);
        }
    }

    /// A unidirectional stream.
    fn open(&mut self, bench: &mut Bench, argument: u8) {
        let stream = self.next(1);
        let (bytes, place): (&[u8], _) = match argument % 8 {
            0 | 1 => (&[0, 4, 0], Some(0)),
            2 | 3 => (&[2], Some(1)),
            4 | 5 => (&[3], Some(2)),
            6 => (&[0x21, 1, 2], None),
            _ => (&[1], None),
        };
        bench.send(stream, bytes);
        if let Some(place) = place {
            if self.critical[place].replace(stream).is_some() {
                self.fail(Code::STREAM_CREATION_ERROR);
            }
        } else if bytes == [1] {
            self.fail(Code::STREAM_CREATION_ERROR);
        }
    }

    /// A frame on the control stream.
    fn control(&mut self, bench: &mut Bench, argument: u8) {
        let Some(stream) = self.critical[0] else { return };
        let id = argument / 8;
        let (kind, payload) = match argument % 8 {
            0 | 1 => (kind::GOAWAY, vec![id]),
            2 | 3 => (kind::MAX_PUSH_ID, vec![id]),
            4 => (kind::CANCEL_PUSH, vec![id]),
            5 => (kind::SETTINGS, Vec::new()),
            6 => (kind::GOAWAY, Vec::new()),
            _ => (0x21, vec![id]),
        };
        match argument % 8 {
            0 | 1 if self.goaway.replace(id).is_some_and(|before| before < id) => self.fail(Code::ID_ERROR),
            2 | 3 if self.pushes.replace(id).is_some_and(|before| before > id) => self.fail(Code::ID_ERROR),
            4 => self.fail(Code::ID_ERROR),
            5 => self.fail(Code::FRAME_UNEXPECTED),
            6 => self.fail(Code::FRAME_ERROR),
            _ => {}
        }
        bench.send(stream, &frame(kind, &payload));
    }

    /// An instruction on the stream of the encoder or decoder (RFC 9204 section 4).
    fn instruct(&mut self, bench: &mut Bench, argument: u8) {
        let place = 1 + usize::from(argument % 2);
        let Some(stream) = self.critical[place] else { return };
        let (bytes, error): (&[u8], _) = match (place, argument / 2 % 4) {
            // A capacity of 0, and the cancellation of a stream.
            (1, 0 | 1) => (&[0x20], None),
            (1, 2) => (&[0x21], Some(Code::QPACK_ENCODER_STREAM_ERROR)),
            (1, _) => (&[0xc0, 0], Some(Code::QPACK_ENCODER_STREAM_ERROR)),
            (_, 0 | 1) => (&[0x44], None),
            (_, 2) => (&[0x80], Some(Code::QPACK_DECODER_STREAM_ERROR)),
            _ => (&[1], Some(Code::QPACK_DECODER_STREAM_ERROR)),
        };
        bench.send(stream, bytes);
        if let Some(error) = error {
            self.fail(error);
        }
    }

    /// The end of a stream that must not end.
    fn end_critical(&mut self, bench: &mut Bench, argument: u8) {
        let place = usize::from(argument % 4);
        match self.critical.get(place) {
            Some(Some(stream)) => bench.end(*stream, if argument < 128 { Read::End } else { Read::Reset }),
            Some(None) => return,
            // That of the server.
            None => bench.stop(3),
        }
        self.fail(Code::CLOSED_CRITICAL_STREAM);
    }

    fn compare(&self, bench: &Bench) {
        assert_eq!(bench.closing.map(|closing| closing.code), self.failure);
        if self.failure.is_some() {
            return;
        }
        let kinds = |stream| bench.frames(stream).into_iter().map(|frame| frame.kind).collect::<Vec<_>>();
        assert_eq!(kinds(3), [kind::SETTINGS]);
        for (stream, error) in &self.requests {
            let received = &bench.client.received[stream];
            assert_eq!(received.reset, *error, "stream {stream}");
            if error.is_none() {
                assert_eq!((kinds(*stream), received.is_finished), (vec![kind::HEADERS, kind::DATA], true));
            }
        }
        assert!(bench.http3.open_requests() <= self.uploads.len());
    }
}
