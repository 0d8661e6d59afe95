//! Simulation of a connection: a client that uses and cancels many streams, over a network that splits and delays all bytes.

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use brisk_http_connection::settings::HttpSettings;
use brisk_testkit::random::Random;
use brisk_testkit::simulation::{Wire, each_seed};
use brisk_wire::h2::frame::{FrameHead, HEAD};
use brisk_wire::h2::settings::DEFAULT_WINDOW;

use super::super::state::H2;
use super::*;
use crate::testing::with_settings;

const STEPS: usize = 60;

/// Rounds within which all streams end that were opened before the faults stopped.
const ROUNDS: usize = 200;

/// Number of streams that the server permits at a time.
const STREAMS: u32 = 8;

/// Windows above which the client grants nothing, so that they stay below the limit of RFC 9113 section 6.9.1.
const WIDE: i64 = 1 << 22;

struct Simulation<'b> {
    h2: H2<'b>,
    client: Client,
    to_server: Wire,
    to_client: Wire,
    now: u64,
}

/// The state of the connection as a client knows it.
struct Client {
    streams: BTreeMap<u32, Exchange>,
    /// Bytes of an incomplete frame.
    received: Vec<u8>,
    /// Bytes that the server may send, and the window of a new stream.
    window: i64,
    initial: u32,
    pings: VecDeque<Vec<u8>>,
    next: u32,
}

/// A request and its response.
struct Exchange {
    expected: Vec<u8>,
    received: usize,
    window: i64,
    /// Bytes of the request body that are not sent.
    upload: usize,
    has_head: bool,
    is_complete: bool,
    is_canceled: bool,
}

impl Exchange {
    fn is_open(&self) -> bool {
        !self.is_canceled && (!self.is_complete || self.upload > 0)
    }
}

impl Client {
    fn new() -> Self {
        Self {
            streams: BTreeMap::new(),
            received: Vec::new(),
            window: DEFAULT_WINDOW.into(),
            initial: DEFAULT_WINDOW,
            pings: VecDeque::new(),
            next: 1,
        }
    }

    /// The number of a random open stream.
    fn any(&self, random: &mut Random) -> Option<u32> {
        let open: Vec<_> =
            self.streams.iter().filter(|(_, own)| own.is_open()).map(|(number, _)| *number).collect();
        (!open.is_empty()).then(|| *random.of(&open))
    }

    /// The frames of a random action.
    fn act(&mut self, random: &mut Random) -> Vec<u8> {
        let (open, stream) = (self.streams.values().filter(|own| own.is_open()).count(), self.any(random));
        match (random.below(10), stream) {
            (0..=3, _) if open < STREAMS as usize => self.request(random),
            (4, Some(stream)) => self.upload(stream, 1 + random.below(20)),
            (5, Some(stream)) => self.cancel(stream),
            (6, Some(stream)) => self.grant(stream, 1 + random.below(100_000) as u32),
            (7, _) => self.grant(0, 1 + random.below(100_000) as u32),
            (8, _) => self.widen(random.below(10_000) as u32),
            (9, _) => {
                let payload = random.number().to_be_bytes().to_vec();
                let ping = frame(kind::PING, 0, 0, &payload);
                self.pings.push_back(payload);
                ping
            }
            _ => Vec::new(),
        }
    }

    fn request(&mut self, random: &mut Random) -> Vec<u8> {
        let number = self.next;
        self.next += 2;
        let (path, expected) =
            if random.chance(60) { ("/", b"hello".to_vec()) } else { ("/big", vec![b'x'; BIG]) };
        let upload = if random.chance(25) { 1 + random.below(60) } else { 0 };
        let (priority, length) = (format!("u={}", random.below(8)), upload.to_string());
        let mut fields = vec![("priority", priority.as_str())];
        if upload > 0 {
            fields.push(("content-length", length.as_str()));
        }
        let mut bytes = get(number, path, &fields);
        if upload > 0 {
            bytes[4] = flag::END_HEADERS;
        }
        let exchange = Exchange {
            expected,
            received: 0,
            window: self.initial.into(),
            upload,
            has_head: false,
            is_complete: false,
            is_canceled: false,
        };
        self.streams.insert(number, exchange);
        bytes
    }

    /// At most `most` further bytes of a request body.
    fn upload(&mut self, stream: u32, most: usize) -> Vec<u8> {
        let own = self.stream(stream);
        let length = own.upload.min(most);
        if length == 0 {
            return Vec::new();
        }
        own.upload -= length;
        let flags = if own.upload == 0 { flag::END_STREAM } else { 0 };
        frame(kind::DATA, flags, stream, &vec![b'y'; length])
    }

    fn cancel(&mut self, stream: u32) -> Vec<u8> {
        self.stream(stream).is_canceled = true;
        frame(kind::RST_STREAM, 0, stream, &Reason::CANCEL.0.to_be_bytes())
    }

    /// Opens the window of a stream, or of the connection as stream 0.
    fn grant(&mut self, stream: u32, bytes: u32) -> Vec<u8> {
        let window = if stream == 0 { &mut self.window } else { &mut self.stream(stream).window };
        if *window > WIDE {
            return Vec::new();
        }
        *window += i64::from(bytes);
        frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
    }

    /// Opens the windows of all streams, also of those to come.
    fn widen(&mut self, bytes: u32) -> Vec<u8> {
        self.initial += bytes;
        self.streams.values_mut().for_each(|own| own.window += i64::from(bytes));
        frame(kind::SETTINGS, 0, 0, &settings::payload(&[(id::INITIAL_WINDOW_SIZE, self.initial)]))
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        while let Some((head, rest)) = self.received.split_first_chunk::<HEAD>() {
            let head = FrameHead::read(head);
            let Some(payload) = rest.get(..head.length as usize).map(<[u8]>::to_vec) else { return };
            self.received.drain(..HEAD + payload.len());
            self.frame(head, &payload);
        }
    }

    /// Checks a frame of the server.
    fn frame(&mut self, head: FrameHead, payload: &[u8]) {
        assert!(payload.len() <= 16_384, "a frame of {} bytes", payload.len());
        match head.kind {
            kind::HEADERS => {
                let own = self.stream(head.stream);
                assert!(!mem::replace(&mut own.has_head, true), "stream {} has two heads", head.stream);
                assert_eq!(head.flags, flag::END_HEADERS);
            }
            kind::DATA => {
                self.window -= payload.len().cast_signed() as i64;
                assert!(self.window >= 0, "the window of the connection is exceeded");
                self.stream(head.stream).data(payload, head.flags & flag::END_STREAM != 0);
            }
            kind::RST_STREAM => {
                let own = self.stream(head.stream);
                let ends_upload = own.is_complete && payload == [0; 4];
                assert!(own.is_canceled || ends_upload, "stream {} is reset: {payload:?}", head.stream);
                own.upload = 0;
            }
            kind::PING => {
                assert_eq!((head.flags, self.pings.pop_front().as_deref()), (flag::ACK, Some(payload)));
            }
            kind::SETTINGS | kind::WINDOW_UPDATE => {}
            _ => panic!("an unexpected frame: {head:?}"),
        }
    }

    fn stream(&mut self, number: u32) -> &mut Exchange {
        self.streams.get_mut(&number).expect("a stream of the client")
    }
}

impl Exchange {
    fn data(&mut self, payload: &[u8], is_last: bool) {
        self.window -= payload.len().cast_signed() as i64;
        assert!(self.window >= 0, "the window of a stream is exceeded");
        assert!(self.has_head && !self.is_complete, "data outside of a body");
        let end = self.received + payload.len();
        assert!(self.expected.get(self.received..end) == Some(payload), "a wrong byte in a body");
        self.received = end;
        self.is_complete = is_last;
        assert!(!is_last || end == self.expected.len(), "a body ends after {end} bytes");
    }
}

impl Simulation<'_> {
    fn step(&mut self, random: &mut Random) {
        let bytes = self.client.act(random);
        self.to_server.send(&bytes, self.now, random);
        let most = *random.of(&[0, 1, 500, 40_000, usize::MAX]);
        self.exchange(most, random);
    }

    /// Delivers bytes that have arrived, and runs the server for a client that takes `most` bytes.
    fn exchange(&mut self, most: usize, random: &mut Random) {
        self.now += 1 + random.below(4) as u64;
        // Otherwise the server does not read.
        if self.h2.may_read() {
            for piece in self.to_server.receive(self.now) {
                self.h2.feed(&piece);
            }
        }
        let written = self.h2.write_up_to(most);
        assert_eq!((self.h2.broken_rule(), self.h2.failure()), (None, None));
        assert!(self.h2.open_streams() <= STREAMS as usize);
        self.to_client.send(&written, self.now, random);
        for piece in self.to_client.receive(self.now) {
            self.client.receive(&piece);
        }
    }

    fn settle(&mut self, random: &mut Random) {
        for _ in 0..ROUNDS {
            let open: Vec<_> = self
                .client
                .streams
                .iter()
                .filter(|(_, own)| own.is_open())
                .map(|(number, _)| *number)
                .collect();
            let mut bytes = self.client.grant(0, BIG as u32);
            for stream in open {
                bytes.extend(self.client.upload(stream, usize::MAX));
                bytes.extend(self.client.grant(stream, BIG as u32));
            }
            self.to_server.send(&bytes, self.now, random);
            self.exchange(usize::MAX, random);
        }
        for (number, own) in &self.client.streams {
            assert!(
                !own.is_open(),
                "stream {number} does not end: {} of {} bytes",
                own.received,
                own.expected.len()
            );
        }
        assert!(self.client.pings.is_empty(), "a PING without an answer");
        assert_eq!(self.h2.open_streams(), 0);
    }
}

#[test]
fn streams_keep_to_their_windows_and_all_of_them_end() {
    each_seed("http2 server", 40, |random| {
        let bench = Bench::of(with_settings(HttpSettings {
            h2_resets: 100_000,
            h2_streams: STREAMS,
            ..HttpSettings::default()
        }));
        let mut simulation = Simulation {
            h2: bench.connect(&[]),
            client: Client::new(),
            to_server: Wire::default(),
            to_client: Wire::default(),
            now: 0,
        };
        (0..STEPS).for_each(|_| simulation.step(random));
        simulation.settle(random);
    });
}
