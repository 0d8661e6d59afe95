//! Simulation of a connection: a server that delays, splits, mixes and resets responses, and requests that are canceled.

use std::collections::BTreeMap;

use brisk_testkit::random::Random;
use brisk_testkit::simulation::{Wire, each_seed};
use brisk_wire::h2::settings::DEFAULT_WINDOW;

use super::super::state::Expect;
use super::*;

const STEPS: usize = 80;

/// Rounds within which all requests end that began before the faults stopped.
const ROUNDS: usize = 100;

/// Requests at a time.
const REQUESTS: usize = 12;

/// Longest body in bytes, more than the window of a stream.
const LONGEST: usize = STREAM_WINDOW as usize + 60_000;

struct Simulation {
    bench: Bench,
    server: Server,
    to_client: Wire,
    now: u64,
    /// Requests by the number of their stream.
    requests: BTreeMap<u32, Asked>,
}

/// The state of the connection as the server knows it.
struct Server {
    streams: BTreeMap<u32, Exchange>,
    /// Bytes that the server may send, and that the client may send.
    send_window: i64,
    recv_window: i64,
}

struct Exchange {
    /// The whole body of the response, and the length of the part that is sent.
    body: Vec<u8>,
    sent: usize,
    send_window: i64,
    recv_window: i64,
    has_head: bool,
    is_over: bool,
    /// Whether the server, or the client, has reset the stream.
    is_reset: bool,
}

/// The body of the response on a stream, which no other stream has.
fn body_of(stream: u32) -> Vec<u8> {
    let length = stream as usize * 7_919 % LONGEST;
    format!("{stream:07};").into_bytes().repeat(length / 8)
}

impl Server {
    fn new() -> Self {
        Self {
            streams: BTreeMap::new(),
            send_window: DEFAULT_WINDOW.into(),
            recv_window: DEFAULT_WINDOW.into(),
        }
    }

    /// Checks a frame of the client, and follows it.
    fn receive(&mut self, frame: &Written) {
        let number = frame.head.stream;
        match frame.head.kind {
            kind::HEADERS => {
                let exchange = Exchange {
                    body: body_of(number),
                    sent: 0,
                    send_window: STREAM_WINDOW.into(),
                    recv_window: DEFAULT_WINDOW.into(),
                    has_head: false,
                    is_over: false,
                    is_reset: false,
                };
                assert!(self.streams.insert(number, exchange).is_none(), "stream {number} is opened twice");
            }
            kind::DATA => {
                let length = i64::from(frame.head.length);
                let own = self.streams.get_mut(&number).expect("an open stream");
                (self.recv_window, own.recv_window) = (self.recv_window - length, own.recv_window - length);
                assert!(self.recv_window >= 0 && own.recv_window >= 0, "the client exceeds a window");
            }
            kind::WINDOW_UPDATE => {
                let bytes = frame.payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                match self.streams.get_mut(&number) {
                    Some(own) => own.send_window += i64::from(bytes),
                    None => self.send_window += i64::from(bytes),
                }
            }
            kind::RST_STREAM => self.streams.get_mut(&number).expect("an open stream").is_reset = true,
            kind::SETTINGS | kind::PING => {}
            _ => panic!("an unexpected frame: {frame:?}"),
        }
    }

    /// The next frame of a response.
    fn send(&mut self, number: u32, most: usize) -> Vec<u8> {
        let Some(own) = self.streams.get_mut(&number).filter(|own| !own.is_over && !own.is_reset) else {
            return Vec::new();
        };
        if !own.has_head {
            own.has_head = true;
            return head(number, 0, &[]);
        }
        let window = own.send_window.min(self.send_window).max(0) as usize;
        let length = (own.body.len() - own.sent).min(most).min(window).min(16_384);
        let piece = own.body[own.sent..own.sent + length].to_vec();
        own.sent += length;
        own.is_over = own.sent == own.body.len();
        if piece.is_empty() && !own.is_over {
            return Vec::new();
        }
        own.send_window -= length.cast_signed() as i64;
        self.send_window -= length.cast_signed() as i64;
        data(number, if own.is_over { flag::END_STREAM } else { 0 }, &piece)
    }

    fn reset(&mut self, number: u32) -> Vec<u8> {
        let Some(own) = self.streams.get_mut(&number).filter(|own| !own.is_over && !own.is_reset) else {
            return Vec::new();
        };
        own.is_reset = true;
        reset(number, Reason::INTERNAL_ERROR)
    }

    /// Opens the windows of the client.
    fn grant(&mut self, number: u32, bytes: u32) -> Vec<u8> {
        let open = self.streams.get_mut(&number).filter(|own| !own.is_over && !own.is_reset);
        let window = match (number, open) {
            (0, _) => &mut self.recv_window,
            (_, Some(own)) => &mut own.recv_window,
            (_, None) => return Vec::new(),
        };
        *window += i64::from(bytes);
        frame(kind::WINDOW_UPDATE, 0, number, &bytes.to_be_bytes())
    }
}

impl Simulation {
    fn step(&mut self, random: &mut Random) {
        let numbers: Vec<_> = self.requests.keys().copied().collect();
        let number = if numbers.is_empty() { 0 } else { *random.of(&numbers) };
        let bytes = match random.below(12) {
            0..=2 if self.requests.len() < REQUESTS => {
                self.ask(random);
                Vec::new()
            }
            3 if number > 0 && random.chance(30) => {
                self.release(number);
                Vec::new()
            }
            4 if random.chance(40) => self.server.reset(number),
            5 => frame(kind::PING, 0, 0, &[7; 8]),
            6 => self.server.grant(*random.of(&[0, number]), 1 + random.below(30_000) as u32),
            _ => self.server.send(number, 1 + random.below(20_000)),
        };
        self.exchange(&bytes, random);
        // Clients read at times of their own.
        if random.chance(50) {
            self.read(number);
        }
    }

    fn ask(&mut self, random: &mut Random) {
        let number = self.bench.state.next;
        let asked = match random.below(3) {
            0 => self.bench.ask_whole(&vec![b'y'; random.below(40_000)], true),
            _ => self.bench.ask(Method::GET, None),
        };
        self.requests.insert(number, asked);
    }

    /// The client has left, or has read the whole response.
    fn release(&mut self, number: u32) {
        if let Some(asked) = self.requests.remove(&number) {
            self.bench.state.release(asked.place);
        }
    }

    fn read(&mut self, number: u32) {
        let Some(asked) = self.requests.get_mut(&number) else { return };
        self.bench.read(asked);
        let own = self.server.streams.get(&number);
        let (is_reset, body) = own.map_or((false, &[][..]), |own| (own.is_reset, &own.body[..]));
        assert!(body.starts_with(&asked.body), "a wrong byte on stream {number}");
        assert!(
            matches!(asked.status(), 0 | 200) && (asked.error.is_none() || is_reset),
            "{:?}",
            asked.error
        );
        if asked.is_over {
            assert!(is_reset || asked.body.len() == body.len(), "a body is cut and looks complete");
            assert!(!is_reset || asked.error.is_some(), "a reset stream looks complete");
            self.release(number);
        }
    }

    /// Sends `bytes` to the client, and delivers all that has arrived at both sides.
    fn exchange(&mut self, bytes: &[u8], random: &mut Random) {
        self.now += 1 + random.below(4) as u64;
        self.to_client.send(bytes, self.now, random);
        for piece in self.to_client.receive(self.now) {
            self.bench.feed(&piece);
        }
        for frame in self.bench.written() {
            self.server.receive(&frame);
        }
        assert_eq!(self.bench.state.failure, None);
        assert!(self.bench.state.recv.window >= 0, "the server has exceeded the window of the connection");
    }

    fn settle(&mut self, random: &mut Random) {
        for _ in 0..ROUNDS {
            let mut bytes = self.server.grant(0, 1 << 17);
            for number in self.requests.keys().copied().collect::<Vec<_>>() {
                bytes.extend(self.server.grant(number, 1 << 16));
                for _ in 0..8 {
                    bytes.extend(self.server.send(number, usize::MAX));
                }
            }
            self.exchange(&bytes, random);
            for number in self.requests.keys().copied().collect::<Vec<_>>() {
                self.read(number);
            }
        }
        let left: Vec<_> = self.requests.keys().collect();
        assert!(left.is_empty(), "requests do not end: {left:?}");
        let recv = &self.bench.state.recv;
        // All bytes were read or given back.
        assert!(matches!(recv.expect, Expect::Frame));
        assert_eq!(recv.window + i64::from(recv.unclaimed), i64::from(CONNECTION_WINDOW));
    }
}

#[test]
fn responses_are_those_of_their_streams_and_all_requests_end() {
    each_seed("http2 upstream", 40, |random| {
        let mut simulation = Simulation {
            bench: Bench::new(&[]),
            server: Server::new(),
            to_client: Wire::default(),
            now: 0,
            requests: BTreeMap::new(),
        };
        (0..STEPS).for_each(|_| simulation.step(random));
        simulation.settle(random);
    });
}
