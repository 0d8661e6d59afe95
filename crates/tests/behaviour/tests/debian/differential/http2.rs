//! Client over HTTP/2, which records every outcome.

use std::io::{self, BufReader, Read, Write};
use std::net::SocketAddr;

use brisk_behaviour::field_lines::FieldLines;
use brisk_behaviour::h2::{
    self, ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, frame,
};
use brisk_behaviour::h2_client::Received;
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_wire::h2::hpack::{self, Decoder};

use super::clients::Subject;
use super::http1::end_of;
use super::outcome::{End, Fields, Outcome};
use super::request::Request;

const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// Error code `REFUSED_STREAM`: the request may be repeated (RFC 9113 section 8.7).
const REFUSED_STREAM: u32 = 7;

/// Frames are no longer than the default of `SETTINGS_MAX_FRAME_SIZE`.
const LONGEST: usize = 16_384;

/// No push, and windows that no response of the comparison exhausts.
const FIRST_SETTINGS: [u8; 12] = [0, 2, 0, 0, 0, 0, 0, 4, 0, 0x10, 0, 0];

/// Client that keeps its connection where the server permits.
pub(super) struct Http2 {
    client: TlsClient,
    address: SocketAddr,
    connection: Option<Connection>,
}

struct Connection {
    stream: BufReader<TlsStream>,
    decoder: Decoder<(Vec<u8>, Vec<u8>)>,
    last: u32,
    is_leaving: bool,
}

/// Progress of an exchange.
enum Step {
    More,
    Ended(End),
    /// The server has not processed the request, which may be sent again.
    Unprocessed,
}

impl Http2 {
    pub(super) fn new(client: &TlsClient, address: SocketAddr) -> Self {
        Self { client: client.clone().alpn(&["h2"]), address, connection: None }
    }

    /// Sends a request; a connection on which the server processes no further requests is replaced. Returns the case of the
    /// last attempt, too.
    pub(super) fn exchange(
        &mut self,
        request: &Request,
        case: impl Fn(usize) -> String,
        subject: &dyn Subject,
    ) -> (Outcome, String) {
        for number in 0..3 {
            let is_kept = self.connection.is_some();
            let connect = || Connection::new(&self.client, self.address);
            let mut connection = self.connection.take().unwrap_or_else(connect);
            let outcome = connection.exchange(request, &case(number));
            // Also a server that has forwarded the request may state that it has not processed it.
            let arrived = || subject.has_arrived(&case(number));
            let Some(outcome) = outcome.or_else(|| arrived().then(|| Outcome::reset(REFUSED_STREAM.into())))
            else {
                continue;
            };
            if is_kept && outcome.is_nothing() && !arrived() {
                continue;
            }
            let persists = !connection.is_leaving && matches!(outcome.end, End::Whole | End::Reset(_));
            self.connection = persists.then_some(connection);
            return (outcome, case(number));
        }
        (Outcome { end: End::Closed, ..Outcome::default() }, case(2))
    }
}

impl Connection {
    fn new(client: &TlsClient, address: SocketAddr) -> Self {
        let mut stream = client.connect(address).expect("a handshake");
        let settings = frame(SETTINGS, 0, 0, &FIRST_SETTINGS);
        let window = frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
        let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &window].concat();
        stream.write_all(&preface).expect("a server that reads");
        let decoder = Decoder::new(hpack::DEFAULT_TABLE);
        Self { stream: BufReader::new(stream), decoder, last: 0, is_leaving: false }
    }

    /// The outcome; `None` if the server has not processed the request.
    fn exchange(&mut self, request: &Request, case: &str) -> Option<Outcome> {
        self.last = if self.last == 0 { 1 } else { self.last + 2 };
        let _ = self.stream.get_mut().write_all(&frames(request, case, self.last));
        let (mut outcome, mut body) = (Outcome::default(), Vec::new());
        outcome.end = loop {
            match self.step(&mut outcome, &mut body) {
                Ok(Step::More) => {}
                Ok(Step::Ended(end)) => break end,
                Ok(Step::Unprocessed) => return None,
                Err(error) => break end_of(&error),
            }
        };
        outcome.body = String::from_utf8_lossy(&body).into_owned();
        Some(outcome)
    }

    /// Processes a frame.
    fn step(&mut self, outcome: &mut Outcome, body: &mut Vec<u8>) -> io::Result<Step> {
        let Received { kind, flags, stream, payload } = self.read_frame()?;
        let number = |at: usize| {
            let bytes = payload.get(at..at + 4);
            bytes.map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")))
        };
        let is_own = stream == self.last;
        match kind {
            SETTINGS if flags & ACK == 0 => self.stream.get_mut().write_all(&frame(SETTINGS, ACK, 0, &[]))?,
            PING if flags & ACK == 0 => self.stream.get_mut().write_all(&frame(PING, ACK, 0, &payload))?,
            GOAWAY if number(4) != Some(0) => return Ok(Step::Ended(End::Closed)),
            GOAWAY if number(0) < Some(self.last) => return Ok(Step::Unprocessed),
            GOAWAY => self.is_leaving = true,
            RST_STREAM if is_own && number(0) == Some(REFUSED_STREAM) => return Ok(Step::Unprocessed),
            RST_STREAM if is_own => {
                return Ok(Step::Ended(End::Reset(number(0).unwrap_or_default().into())));
            }
            DATA if is_own => body.extend_from_slice(content(flags, &payload)),
            HEADERS => {
                let fields = self.read_block(flags, &payload)?;
                take_section(fields, outcome)?;
            }
            _ => {}
        }
        let is_end = matches!(kind, DATA | HEADERS) && is_own && flags & END_STREAM != 0;
        Ok(if is_end { Step::Ended(End::Whole) } else { Step::More })
    }

    fn read_frame(&mut self) -> io::Result<Received> {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header)?;
        let [a, b, c, kind, flags, stream @ ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(Received { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    fn read_block(&mut self, flags: u8, payload: &[u8]) -> io::Result<Fields> {
        let mut block = content(flags, payload).to_vec();
        if flags & PRIORITY != 0 {
            block.drain(..5);
        }
        let mut is_whole = flags & END_HEADERS != 0;
        while !is_whole {
            let next = self.read_frame()?;
            block.extend_from_slice(&next.payload);
            is_whole = next.flags & END_HEADERS != 0;
        }
        let mut lines = FieldLines::new(|index| hpack::constant(index).expect("an index of the table"));
        let decoded = self.decoder.decode(&block, usize::MAX, usize::MAX, &mut lines);
        decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(lines.into_text())
    }
}

/// Enters a field section of a response: an interim response, the head, or trailers.
pub(super) fn take_section(mut fields: Fields, outcome: &mut Outcome) -> io::Result<()> {
    if outcome.status != 0 {
        outcome.trailers = fields;
        return Ok(());
    }
    let missing = || io::Error::from(io::ErrorKind::InvalidData);
    let at = fields.iter().position(|(name, _)| name == ":status").ok_or_else(missing)?;
    let status = fields.remove(at).1.parse().map_err(|_| missing())?;
    match status {
        100 => {}
        101..200 => outcome.interims.push(status),
        _ => (outcome.status, outcome.headers) = (status, fields),
    }
    Ok(())
}

/// Payload without padding (RFC 9113 section 6.1).
fn content(flags: u8, payload: &[u8]) -> &[u8] {
    match payload.split_first() {
        Some((padding, rest)) if flags & PADDED != 0 => &rest[..rest.len() - usize::from(*padding)],
        _ => payload,
    }
}

fn frames(request: &Request, case: &str, stream: u32) -> Vec<u8> {
    let (data, trailers) = request.data();
    let (has_data, has_trailers) = (!data.is_empty(), !trailers.is_empty());
    let end = |is_last: bool| if is_last { END_STREAM } else { 0 };
    let mut frames = section(&request.fields(case), end(!has_data && !has_trailers), stream);
    if has_data {
        frames.extend(frame(DATA, end(!has_trailers), stream, &data));
    }
    if has_trailers {
        frames.extend(section(&trailers, END_STREAM, stream));
    }
    frames
}

fn section(fields: &[(String, String)], flags: u8, stream: u32) -> Vec<u8> {
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let block = h2::lines(&fields);
    let last = block.len().div_ceil(LONGEST).max(1) - 1;
    let part = |(index, part): (usize, &[u8])| {
        let ends = if index == last { END_HEADERS } else { 0 };
        let (kind, flags) = if index == 0 { (HEADERS, flags | ends) } else { (CONTINUATION, ends) };
        frame(kind, flags, stream, part)
    };
    block.chunks(LONGEST).enumerate().flat_map(part).collect()
}
