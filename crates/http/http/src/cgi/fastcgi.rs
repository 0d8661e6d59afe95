//! Records of FastCGI 1.0 with one request on a connection at a time.
//!
//! The request has the ID 1 on every connection: servers that multiplex are unknown, and PHP-FPM refuses it.

use bytes::{Buf as _, BufMut as _, BytesMut};
use thiserror::Error;

use super::Variables;

const VERSION: u8 = 1;
const HEADER: usize = 8;
const REQUEST: u16 = 1;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

const RESPONDER: u16 = 1;
const KEEP_CONNECTION: u8 = 1;

/// Length of the content of `END_REQUEST`.
const END: usize = 8;

/// Maximum length, in bytes, of the content of a record that is written: a multiple of 8, so that the next one is aligned.
pub const CONTENT: usize = 65_528;

/// Maximum length, in bytes, of the messages of one request that are kept. The rest is counted.
const MESSAGES: usize = 2 << 10;

/// Reason why bytes of a server are no response of FastCGI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordFault {
    /// Another version of the protocol, or another protocol.
    #[error("a record of version {0}: the server does not speak FastCGI")]
    Version(u8),
    /// A record of a request that was not sent.
    #[error("a record of the unknown request {0}")]
    Request(u16),
    /// A record that no response has.
    #[error("a record of the unexpected type {0}")]
    Type(u8),
    /// `END_REQUEST` with another length than 8.
    #[error("an end of the request with {0} bytes instead of 8")]
    EndLength(u16),
    /// The server can handle no request now (`FCGI_OVERLOADED`), or none on this connection (`FCGI_CANT_MPX_CONN`), or not as a
    /// responder (`FCGI_UNKNOWN_ROLE`).
    #[error(
        "a refusal of the request with the protocol status {0} (1: one request at a time, 2: overloaded, 3: unknown role)"
    )]
    Refused(u8),
}

/// Writes the header of a record with `length` bytes of content and without padding.
fn header(kind: u8, length: usize, out: &mut BytesMut) {
    out.put_u8(VERSION);
    out.put_u8(kind);
    out.put_u16(REQUEST);
    // Does not truncate: callers divide at `CONTENT`.
    out.put_u16(length as u16);
    out.put_u16(0);
}

/// Writes the header of a record with a piece of the request body, of at most [`CONTENT`] bytes. A piece of 0 bytes is the end of
/// the body.
pub fn body_header(length: usize, out: &mut BytesMut) {
    debug_assert!(length <= CONTENT);
    header(STDIN, length, out);
}

/// Writes the begin of a request and its variables. `keeps`: the server is to keep the connection open after the response.
pub fn begin(variables: &Variables, keeps: bool, out: &mut BytesMut) {
    let size: usize = variables.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
    out.reserve(size + 4 * HEADER);
    header(BEGIN_REQUEST, 8, out);
    out.put_u16(RESPONDER);
    out.put_u8(if keeps { KEEP_CONNECTION } else { 0 });
    out.extend_from_slice(&[0; 5]);
    let start = out.len();
    header(PARAMS, 0, out);
    for (name, value) in variables.iter() {
        length(name.len(), out);
        length(value.len(), out);
        out.extend_from_slice(name);
        out.extend_from_slice(value);
    }
    // Most requests fit one record, whose length is known only now.
    let content = out.len() - start - HEADER;
    if content <= CONTENT {
        out[start + 4..start + 6].copy_from_slice(&(content as u16).to_be_bytes());
    } else {
        let all = out.split_off(start + HEADER);
        out.truncate(start);
        for piece in all.chunks(CONTENT) {
            header(PARAMS, piece.len(), out);
            out.extend_from_slice(piece);
        }
    }
    // Without variables, the first record is empty, and so already is their end.
    if content > 0 {
        header(PARAMS, 0, out);
    }
}

/// Length of a name or a value: one byte, or four with the highest bit set.
fn length(length: usize, out: &mut BytesMut) {
    match u8::try_from(length) {
        Ok(short @ ..128) => out.put_u8(short),
        _ => out.put_u32(length as u32 | 1 << 31),
    }
}

/// Reader of the records of one response. Its memory is bounded: content goes to the caller at once, of messages
/// [`Self::take_messages`] at most 2 KiB are kept.
#[derive(Debug)]
pub struct Records {
    kind: u8,
    content: u16,
    padding: u8,
    /// Content of `END_REQUEST`, and the number of its bytes so far.
    end: [u8; END],
    ended: u8,
    /// Whether no request is open: none was sent, or its response has ended.
    is_idle: bool,
    messages: Vec<u8>,
    /// Number of bytes of messages that were not kept.
    lost: usize,
}

impl Default for Records {
    /// No open request.
    fn default() -> Self {
        Self {
            kind: 0,
            content: 0,
            padding: 0,
            end: [0; END],
            ended: 0,
            is_idle: true,
            messages: Vec::new(),
            lost: 0,
        }
    }
}

impl Records {
    /// Expects the response to a request.
    pub fn begin(&mut self) {
        *self = Self { is_idle: false, ..Self::default() };
    }

    /// Whether no request is open: none was sent, or its response has ended.
    pub fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Takes the messages of the application so far (`FCGI_STDERR`), and the number of bytes that were not kept; `None` without
    /// messages.
    pub fn take_messages(&mut self) -> Option<(Vec<u8>, usize)> {
        let messages = std::mem::take(&mut self.messages);
        let lost = std::mem::take(&mut self.lost);
        (!messages.is_empty()).then_some((messages, lost))
    }

    /// Moves the response from the records in `input` to `out`. An incomplete header, and bytes after the end of the response,
    /// remain in `input`.
    ///
    /// # Errors
    ///
    /// [`RecordFault`] for bytes that are no response of FastCGI; the reader must not be used again.
    pub fn decode(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> Result<(), RecordFault> {
        while !self.is_idle {
            if self.content > 0 {
                let length = input.len().min(self.content.into());
                if length == 0 {
                    return Ok(());
                }
                self.read_content(&input[..length], out);
                input.advance(length);
                self.content -= length as u16;
            } else if self.padding > 0 {
                let length = input.len().min(self.padding.into());
                if length == 0 {
                    return Ok(());
                }
                input.advance(length);
                self.padding -= length as u8;
            } else if self.kind == END_REQUEST {
                self.is_idle = true;
                // FCGI_REQUEST_COMPLETE
                return if self.end[4] == 0 { Ok(()) } else { Err(RecordFault::Refused(self.end[4])) };
            } else {
                let Some(&header) = input.first_chunk::<HEADER>() else { return Ok(()) };
                self.read_header(header)?;
                input.advance(HEADER);
            }
        }
        Ok(())
    }

    fn read_header(&mut self, header: [u8; HEADER]) -> Result<(), RecordFault> {
        let [version, kind, request_high, request_low, length_high, length_low, padding, _] = header;
        let request = u16::from_be_bytes([request_high, request_low]);
        let content = u16::from_be_bytes([length_high, length_low]);
        if version != VERSION {
            return Err(RecordFault::Version(version));
        }
        if !matches!(kind, STDOUT | STDERR | END_REQUEST) {
            return Err(RecordFault::Type(kind));
        }
        // Another ID would be the response to a request of someone else.
        if request != REQUEST {
            return Err(RecordFault::Request(request));
        }
        if kind == END_REQUEST && usize::from(content) != END {
            return Err(RecordFault::EndLength(content));
        }
        (self.kind, self.content, self.padding) = (kind, content, padding);
        Ok(())
    }

    fn read_content(&mut self, piece: &[u8], out: &mut BytesMut) {
        match self.kind {
            STDOUT => out.extend_from_slice(piece),
            // A server that writes messages without end must not fill the memory.
            STDERR => {
                let kept = piece.len().min(MESSAGES - self.messages.len());
                self.messages.extend_from_slice(&piece[..kept]);
                self.lost += piece.len() - kept;
            }
            _ => {
                let start = usize::from(self.ended);
                self.end[start..start + piece.len()].copy_from_slice(piece);
                self.ended += piece.len() as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let mut out = BytesMut::new();
        header(kind, content.len(), &mut out);
        out[6] = padding;
        [&out, content, &vec![b'p'; padding.into()]].concat()
    }

    fn decode(bytes: &[u8], step: usize) -> Result<(Records, Vec<u8>, usize), RecordFault> {
        let (mut records, mut input, mut out) = (Records::default(), BytesMut::new(), BytesMut::new());
        records.begin();
        for piece in bytes.chunks(step) {
            input.extend_from_slice(piece);
            records.decode(&mut input, &mut out)?;
        }
        Ok((records, out.to_vec(), input.len()))
    }

    #[test]
    fn a_request_begins_with_its_variables() {
        let mut variables = Variables::default();
        variables.add("A", "bc");
        variables.add("D", "x".repeat(128));
        let mut out = BytesMut::new();
        begin(&variables, true, &mut out);
        assert_eq!(&out[..16], b"\x01\x01\0\x01\0\x08\0\0\0\x01\x01\0\0\0\0\0");
        assert_eq!(&out[16..24], b"\x01\x04\0\x01\0\x8b\0\0");
        assert_eq!(&out[24..35], b"\x01\x02Abc\x01\x80\0\0\x80D");
        assert_eq!(&out[out.len() - 8..], b"\x01\x04\0\x01\0\0\0\0");
    }

    #[test]
    fn many_variables_are_divided_into_records() {
        let mut variables = Variables::default();
        for _ in 0..3 {
            variables.add("A", "x".repeat(50_000));
        }
        let mut out = BytesMut::new();
        begin(&variables, false, &mut out);
        let (mut rest, mut content, mut lengths) = (&out[16..], 0, Vec::new());
        while !rest.is_empty() {
            let length = usize::from(u16::from_be_bytes([rest[4], rest[5]]));
            assert_eq!(rest[..2], [1, PARAMS]);
            lengths.push(length);
            content += length;
            rest = &rest[HEADER + length..];
        }
        assert_eq!((content, lengths), (150_018, vec![CONTENT, CONTENT, 18_962, 0]));
    }

    #[test]
    fn a_response_is_read_from_records_of_any_division() {
        let all = [
            record(STDOUT, b"Status: 200\r\n", 3),
            record(STDERR, b"PHP Notice", 0),
            record(STDOUT, b"", 0),
            record(STDOUT, b"\r\nbody", 255),
            record(END_REQUEST, b"\0\0\0\x07\0\0\0\0", 1),
            b"rest".to_vec(),
        ]
        .concat();
        for step in 1..all.len() {
            let (mut records, out, rest) = decode(&all, step).expect("a response");
            assert_eq!((&*out, rest), (&b"Status: 200\r\n\r\nbody"[..], 4), "{step}");
            assert!(records.is_idle());
            assert_eq!(records.take_messages(), Some((b"PHP Notice".to_vec(), 0)));
        }
    }

    #[test]
    fn what_is_no_response_is_refused() {
        let mut wrong = record(STDOUT, b"x", 0);
        wrong[0] = 72;
        assert_eq!(decode(&wrong, 100).err(), Some(RecordFault::Version(72)));
        let mut other = record(STDOUT, b"x", 0);
        other[3] = 2;
        assert_eq!(decode(&other, 100).err(), Some(RecordFault::Request(2)));
        assert_eq!(decode(&record(9, b"x", 0), 100).err(), Some(RecordFault::Type(9)));
        assert_eq!(decode(&record(END_REQUEST, b"", 0), 100).err(), Some(RecordFault::EndLength(0)));
        let refused = record(END_REQUEST, b"\0\0\0\0\x02\0\0\0", 0);
        assert_eq!(decode(&refused, 100).err(), Some(RecordFault::Refused(2)));
    }

    #[test]
    fn messages_without_end_hold_little_memory() {
        let many = record(STDERR, &[b'x'; 1000], 0).repeat(50);
        let (mut records, out, _) = decode(&many, 4096).expect("records");
        assert_eq!(records.take_messages(), Some((vec![b'x'; MESSAGES], 50_000 - MESSAGES)));
        assert!(out.is_empty() && !records.is_idle());
    }
}
