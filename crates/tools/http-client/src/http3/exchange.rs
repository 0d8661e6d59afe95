//! One request and its response: the frames of one stream.

use std::task::Waker;
use std::time::Instant;

use brisk_wire::h3::error::Code;
use brisk_wire::h3::frame::kind;
use brisk_wire::h3::order::RequestOrder;
use brisk_wire::h3::qpack::Decoder;
use brisk_wire::h3::reader::{FrameReader, Item};
use bytes::Bytes;
use quinn_proto::StreamId;

use super::error::Http3Error;
use super::head::{self, EncodedRequest, KeptFields};
use crate::response::Response;

/// Maximum length of an encoded head.
const HEAD: u64 = 64 << 10;

/// Maximum number of `1xx` responses before the final one.
const INTERIM: u32 = 32;

/// A request and its response.
pub(super) struct Exchange {
    /// `None` while a rejected request waits for a new stream.
    pub(super) stream: Option<StreamId>,
    /// The whole request, which is sent again if early data is rejected.
    pub(super) request: EncodedRequest,
    /// The rest of `request` that flow control has not permitted yet.
    pub(super) unsent: Bytes,
    kept_fields: KeptFields,
    reader: FrameReader<RequestOrder>,
    response: Response,
    /// Value of `content-length`.
    length: Option<u64>,
    /// The task that waits for the response.
    pub(super) waker: Option<Waker>,
    /// Set when the exchange has ended.
    pub(super) outcome: Option<Result<(), Http3Error>>,
}

/// Why an exchange fails, and whether its connection has to end.
pub(super) enum Fault {
    Stream(Http3Error),
    Connection(Code),
}

impl Exchange {
    pub(super) fn new(stream: StreamId, request: EncodedRequest, kept_fields: KeptFields) -> Self {
        Self {
            stream: Some(stream),
            unsent: request.bytes.clone(),
            request,
            kept_fields,
            reader: FrameReader::new(RequestOrder::new(HEAD)),
            response: Response::default(),
            length: None,
            waker: None,
            outcome: None,
        }
    }

    /// Processes bytes of the response.
    pub(super) fn take(&mut self, mut bytes: &[u8], decoder: &mut Decoder) -> Result<(), Fault> {
        self.response.first_byte_at.get_or_insert_with(Instant::now);
        while let Some(item) = self.reader.next(&mut bytes).map_err(Fault::Connection)? {
            match item {
                Item::Data(data) => self.response.body_bytes += data.len() as u64,
                Item::Frame(kind::HEADERS, section) if self.response.head_at.is_none() => {
                    self.head(&section, decoder)?;
                }
                Item::TooLong => {
                    return Err(protocol(format!("its head is longer than {HEAD} bytes")));
                }
                // Trailers, and types without a meaning here.
                Item::Head(_) | Item::Frame(..) => {}
            }
        }
        Ok(())
    }

    fn head(&mut self, section: &[u8], decoder: &mut Decoder) -> Result<(), Fault> {
        let response = &mut self.response;
        self.length = head::read(section, decoder, self.kept_fields, response).map_err(protocol)?;
        match response.status {
            100..200 => {
                response.interim += 1;
                if response.interim > INTERIM {
                    return Err(protocol("interim responses without an end".to_owned()));
                }
                // Fields of an interim response do not belong to the final one.
                response.headers.clear();
                self.reader.order.interim();
            }
            200..1000 => {
                "h3".clone_into(&mut response.protocol);
                response.head_bytes = section.len();
                response.head_at = Some(Instant::now());
            }
            other => return Err(protocol(format!("the status {other}"))),
        }
        Ok(())
    }

    /// Ends the exchange with the stream.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        self.reader.end().map_err(Fault::Connection)?;
        if self.response.head_at.is_none() {
            return Err(protocol("it has no head".to_owned()));
        }
        // RFC 9110 section 8.6: a response to `HEAD` states the length of another one, and has no body.
        let length = if self.request.is_head { Some(0) } else { self.length };
        self.response.end(length).map_err(protocol)?;
        self.finish(Ok(()));
        Ok(())
    }

    /// Sets `outcome`, unless there is one.
    pub(super) fn finish(&mut self, outcome: Result<(), Http3Error>) {
        self.outcome.get_or_insert(outcome);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// The [`Response`] of an ended exchange.
    pub(super) fn into_response(self) -> Result<Response, Http3Error> {
        self.outcome.unwrap_or(Ok(())).map(|()| self.response)
    }
}

fn protocol(message: String) -> Fault {
    Fault::Stream(Http3Error::Protocol(message))
}

#[cfg(test)]
mod tests {
    use brisk_wire::h3::frame::{self, FrameHead};
    use brisk_wire::h3::qpack;

    use super::*;

    fn head(status: u16, length: Option<&str>) -> Vec<u8> {
        let mut out = Vec::new();
        let at = frame::begin(kind::HEADERS, &mut out);
        qpack::begin(&mut out);
        qpack::status(status, &mut out);
        if let Some(length) = length {
            qpack::field(b"content-length", length.as_bytes(), &mut out);
        }
        frame::end(at, &mut out);
        out
    }

    fn data(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        FrameHead { kind: kind::DATA, length: bytes.len() as u64 }.write(&mut out);
        [out, bytes.to_vec()].concat()
    }

    fn read(frames: &[Vec<u8>], pieces: usize) -> Result<Response, String> {
        answer(false, frames, pieces)
    }

    fn answer(is_head: bool, frames: &[Vec<u8>], pieces: usize) -> Result<Response, String> {
        let request = EncodedRequest { bytes: Bytes::new(), is_head };
        let mut exchange =
            Exchange::new(StreamId::from(quinn_proto::VarInt::from_u32(0)), request, KeptFields::None);
        let mut decoder = Decoder::default();
        let text = |fault| match fault {
            Fault::Stream(error) => error.to_string(),
            Fault::Connection(code) => format!("{code:?}"),
        };
        for piece in frames.concat().chunks(pieces) {
            exchange.take(piece, &mut decoder).map_err(text)?;
        }
        exchange.end().map_err(text)?;
        exchange.into_response().map_err(|error| error.to_string())
    }

    #[test]
    fn a_response_is_read_in_any_pieces() {
        let frames = [head(103, None), head(200, Some("5")), data(b"he"), data(b"llo"), head(0, None)];
        for pieces in [1, 2, 7, 1000] {
            let response = read(&frames[..4], pieces).expect("a response");
            assert_eq!((response.status, response.body_bytes, response.interim), (200, 5, 1));
        }
        assert!(read(&frames, 1000).is_ok(), "with trailers");
    }

    #[test]
    fn a_response_without_a_body_may_state_a_length() {
        assert!(answer(true, &[head(200, Some("5"))], 7).is_ok());
        assert!(answer(true, &[head(200, Some("5")), data(b"hello")], 7).is_err());
        assert!(read(&[head(304, Some("5"))], 7).is_ok());
    }

    #[test]
    fn responses_that_are_cut_or_wrong_are_errors() {
        for (frames, hint) in [
            (vec![], "no head"),
            (vec![head(200, Some("5")), data(b"hell")], "4 of 5 bytes"),
            (vec![head(200, Some("5"))], "0 of 5 bytes"),
            (vec![head(200, None), vec![0, 5, b'h']], "FRAME_ERROR"),
            (vec![data(b"hello")], "FRAME_UNEXPECTED"),
            (vec![head(103, None)], "no head"),
            (vec![head(0, None)], "status 0"),
        ] {
            let error = read(&frames, 3).expect_err(hint);
            assert!(error.contains(hint), "{error}, not {hint}");
        }
        let endless = read(&vec![head(103, None); 100], 1000).expect_err("endless");
        assert!(endless.contains("interim"), "{endless}");
    }
}
