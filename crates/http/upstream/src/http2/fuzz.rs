//! A connection without I/O, for tests and for libFuzzer.

use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use brisk_http::error::Http2Error;
use brisk_http::http1::{HeadLimits, LINES};
use brisk_http::message::{Request, Response};
use brisk_http_connection::Connection;
use brisk_http_connection::body::client::ClientBody;
use brisk_http_connection::body::inbox::{Inbox, Notices};
use brisk_http_connection::body::request::RequestBody;
use brisk_net::TurnLimit;
use brisk_telemetry::{ConnectionRecord, Timeline};
use brisk_wire::h2::frame::{FrameHead, HEAD, PREFACE, WriteFrames, kind};
use bytes::BytesMut;
use http::Method;
use http::uri::Authority;

use super::output::Destination;
use super::state::{CONNECTION_WINDOW, Expect, State};

/// Bytes that a head may have.
const LIMITS: HeadLimits = HeadLimits { size: 4096, lines: LINES };

/// A client of an upstream that a test is.
pub(super) struct Bench {
    pub(super) state: State,
    client: Rc<Connection>,
    notices: Rc<Notices>,
    input: BytesMut,
    /// Request bodies end with what they begin with.
    ends: bool,
}

/// A frame that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) head: FrameHead,
    pub(super) payload: Vec<u8>,
}

/// A request without I/O.
pub(super) struct Asked {
    pub(super) place: u32,
    /// What the client sends as its body.
    pub(super) inbox: Option<Rc<Inbox>>,
    pub(super) head: Option<Response<()>>,
    pub(super) body: Vec<u8>,
    pub(super) error: Option<Http2Error>,
    pub(super) is_over: bool,
}

impl Bench {
    /// A connection whose server has sent `settings`.
    pub(super) fn new(settings: &[u8]) -> Self {
        let address = SocketAddr::from(([192, 0, 2, 1], 40000));
        let record = ConnectionRecord::new(1, address, address, Timeline::start());
        let client = Connection::new(record, true);
        let mut bench = Self {
            state: State::new(LIMITS, 100),
            client,
            notices: Rc::default(),
            input: BytesMut::new(),
            ends: false,
        };
        let mut bytes = Vec::new();
        bytes.frame(kind::SETTINGS, 0, 0, settings);
        bench.feed(&bytes);
        bench
    }

    /// Bytes of the server.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.state.recv.is_heard = true;
        let mut turn = TurnLimit::default();
        loop {
            self.state.feed(&mut self.input, &mut turn);
            if !turn.is_reached() {
                break;
            }
            turn.begin();
        }
    }

    /// Begins POST with this body, of which this is the end if it `is_whole`.
    #[cfg(test)]
    pub(super) fn ask_whole(&mut self, body: &[u8], is_whole: bool) -> Asked {
        self.ends = is_whole;
        let asked = self.ask(Method::POST, Some(body));
        self.ends = false;
        asked
    }

    /// Begins a request of this method to `https://a/`, with a body as far as `body` is not `None`.
    pub(super) fn ask(&mut self, method: Method, body: Option<&[u8]>) -> Asked {
        let inbox = body.map(|body| {
            let inbox = Inbox::new(7, None, false, &self.notices);
            if !body.is_empty() {
                assert!(inbox.push(body, 0).is_continue());
            }
            if self.ends {
                inbox.end(None);
            }
            inbox
        });
        let body = inbox.as_ref().map_or(RequestBody::Empty, |inbox| {
            let body = ClientBody::Stream(Rc::clone(inbox), Rc::clone(&self.client));
            RequestBody::new(body, &self.client, u64::MAX, Rc::default())
        });
        let mut request = Request::builder().method(method).uri("/").body(body).expect("a request");
        let authority = Authority::from_static("a");
        let to = Destination { is_encrypted: true, authority: &authority, protocol: None };
        let place = self.state.request(&mut request, to, None);
        Asked { place, inbox, head: None, body: Vec::new(), error: None, is_over: false }
    }

    /// Reads what there is of a response.
    pub(super) fn read(&mut self, asked: &mut Asked) {
        let context = Context::from_waker(Waker::noop());
        let stream = self.state.stream(asked.place);
        if asked.head.is_none() && !asked.is_over {
            match stream.poll_head(&context) {
                Poll::Ready(Ok(head)) => asked.head = Some(head),
                Poll::Ready(Err(error)) => (asked.error, asked.is_over) = (Some(error), true),
                Poll::Pending => return,
            }
        }
        while !asked.is_over {
            match self.state.stream(asked.place).poll_frame(&context) {
                Poll::Pending => return,
                Poll::Ready(None) => asked.is_over = true,
                Poll::Ready(Some(Err(error))) => asked.error = Some(error),
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        asked.body.extend_from_slice(&data);
                        self.state.claim(data.len() as u32);
                        self.state.claim_stream(asked.place, data.len() as u32);
                    }
                }
            }
        }
    }

    /// The frames that were written since the last call, which have to be whole, without the preface.
    pub(super) fn written(&mut self) -> Vec<Written> {
        let context = Context::from_waker(Waker::noop());
        self.state.begin_turn(&context);
        self.state.run_uploads();
        let mut taken = Vec::new();
        let wrote = self.state.write(|bytes| {
            taken.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        });
        assert!(wrote.expect("no error"), "all was taken");
        written(taken.strip_prefix(PREFACE).unwrap_or(&taken))
    }
}

impl Asked {
    /// The status of the response.
    pub(super) fn status(&self) -> u16 {
        self.head.as_ref().map_or(0, |head| head.status().as_u16())
    }
}

/// The frames in `bytes`, which are whole and not too long.
fn written(mut bytes: &[u8]) -> Vec<Written> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
        let head = FrameHead::read(head);
        assert!(head.length <= 16_384, "{head:?}");
        let (payload, rest) = rest.split_at_checked(head.length as usize).expect("a whole frame");
        frames.push(Written { head, payload: payload.to_vec() });
        bytes = rest;
    }
    assert!(bytes.is_empty(), "a part of a head: {bytes:?}");
    frames
}

/// Plays a server and clients on two connections: what the server sends comes as it is to one, in pieces of `length` bytes to
/// the other, and they have to do the same.
///
/// `script` is a row of steps: a byte that says what to do, one for how much, and for what the server sends its bytes.
pub(crate) fn compare(script: &[u8], length: usize) {
    let mut pair = [Bench::new(&[]), Bench::new(&[])];
    let mut asked: [Vec<Asked>; 2] = Default::default();
    let mut rest = script;
    while let [step, amount, after @ ..] = rest {
        rest = after;
        let amount = usize::from(*amount);
        match step {
            b'G' | b'H' | b'P' if asked[0].len() < 16 && pair[0].state.takes_requests() => {
                for (bench, asked) in pair.iter_mut().zip(&mut asked) {
                    let (method, body) = match step {
                        b'G' => (Method::GET, None),
                        b'H' => (Method::HEAD, None),
                        _ => (Method::POST, Some(&script[..script.len().min(amount)])),
                    };
                    asked.push(bench.ask(method, body));
                }
            }
            b'R' | b'D' | b'E' => {
                for (bench, asked) in pair.iter_mut().zip(&mut asked) {
                    let count = asked.len();
                    let Some(one) = asked.get_mut(amount % count.max(1)) else { continue };
                    match step {
                        b'R' => bench.read(one),
                        b'E' => one.inbox.take().into_iter().for_each(|inbox| inbox.end(None)),
                        _ => {
                            bench.state.release(asked.swap_remove(amount % count).place);
                        }
                    }
                }
                assert_eq!(pair[0].written(), pair[1].written());
            }
            _ => {
                let (bytes, after) = rest.split_at(rest.len().min(amount));
                rest = after;
                pair[0].feed(bytes);
                bytes.chunks(length.max(1)).for_each(|piece| pair[1].feed(piece));
                assert_eq!(pair[0].state.failure, pair[1].state.failure);
            }
        }
    }
    finish(pair, asked);
}

fn finish(mut pair: [Bench; 2], mut asked: [Vec<Asked>; 2]) {
    assert_eq!(pair[0].written(), pair[1].written());
    for (bench, asked) in pair.iter_mut().zip(&mut asked) {
        assert!(bench.state.numbers.len() - bench.state.leftovers as usize <= 16);
        for asked in asked {
            bench.read(asked);
        }
    }
    for (one, other) in asked[0].iter().zip(&asked[1]) {
        assert_eq!((one.status(), one.error), (other.status(), other.error));
        // Of a frame that is too long for its response, pieces may have come before that was seen.
        assert!(other.body.starts_with(&one.body) && (one.error.is_some() || one.body == other.body));
    }
    for (bench, asked) in pair.iter_mut().zip(asked) {
        for asked in asked {
            bench.state.release(asked.place);
        }
        let recv = &bench.state.recv;
        // Whatever came was read or given back.
        if bench.state.failure.is_none() && matches!(recv.expect, Expect::Frame) {
            assert_eq!(recv.window + i64::from(recv.unclaimed), i64::from(CONNECTION_WINDOW));
        }
    }
}
