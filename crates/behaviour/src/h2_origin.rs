//! The server's side of HTTP/2 without TLS, as a test writes it: frame by frame (RFC 9113).

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brisk_testkit::origin::Origin;

use crate::h2::{DATA, END_HEADERS, END_STREAM, HEADERS, SETTINGS, frame};

const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;

/// The length of a client's preface.
const PREFACE: usize = 24;

/// One connection of a client to an origin.
pub struct H2Peer {
    stream: TcpStream,
    whole: HashSet<u32>,
    resets: usize,
}

/// An origin that gives each connection, numbered from 0, to `talk`.
pub fn h2_origin(talk: impl Fn(&mut H2Peer, usize) -> io::Result<()> + Send + Sync + 'static) -> Origin {
    h2_origin_with(&[], talk)
}

/// The same with these settings, in pairs of a number and a value, in its first frame.
pub fn h2_origin_with(
    settings: &'static [u8],
    talk: impl Fn(&mut H2Peer, usize) -> io::Result<()> + Send + Sync + 'static,
) -> Origin {
    let numbers = Arc::new(AtomicUsize::new(0));
    Origin::raw(move |stream| {
        let number = numbers.fetch_add(1, Ordering::SeqCst);
        talk(&mut H2Peer::accept(stream, settings)?, number)
    })
}

/// Its address as the URL of an upstream.
pub fn h2c(origin: &Origin) -> String {
    format!("h2c://{}", origin.address())
}

impl H2Peer {
    fn accept(mut stream: TcpStream, settings: &[u8]) -> io::Result<Self> {
        stream.read_exact(&mut [0; PREFACE])?;
        stream.write_all(&frame(SETTINGS, 0, 0, settings))?;
        Ok(Self { stream, whole: HashSet::new(), resets: 0 })
    }

    /// Waits for the head of the next request, and returns its stream. `None` when the client has gone.
    pub fn request(&mut self) -> io::Result<Option<u32>> {
        loop {
            match self.read_frame() {
                Ok((HEADERS, stream)) => return Ok(Some(stream)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for the rest of the request on `stream`.
    pub fn wait_for_body(&mut self, stream: u32) -> io::Result<()> {
        while !self.is_whole(stream) {
            self.read_frame()?;
        }
        Ok(())
    }

    /// Waits for the end of the request on `stream`: whether it is whole, or else the client reset it.
    pub fn ends_whole(&mut self, stream: u32) -> io::Result<bool> {
        while !self.is_whole(stream) {
            if self.read_frame()? == (RST_STREAM, stream) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until the client resets `stream`.
    pub fn wait_for_reset(&mut self, stream: u32) -> io::Result<()> {
        while self.read_frame()? != (RST_STREAM, stream) {}
        Ok(())
    }

    /// Reads and answers nothing more, until the client has gone.
    pub fn fall_silent(&mut self) -> io::Result<()> {
        io::copy(&mut self.stream, &mut io::sink()).map(drop)
    }

    /// Streams that the client has reset, as far as its frames were read.
    pub fn resets(&self) -> usize {
        self.resets
    }

    /// Whether the request on `stream` is here with its whole body.
    pub fn is_whole(&self, stream: u32) -> bool {
        self.whole.contains(&stream)
    }

    /// Status 200 and `body`, of which this is the end only if it `ends`.
    pub fn answer(&mut self, stream: u32, body: &[u8], ends: bool) -> io::Result<()> {
        let flags = if ends { END_STREAM } else { 0 };
        // RFC 7541, appendix A: index 8 is `:status: 200`.
        let head = frame(HEADERS, END_HEADERS, stream, &[0x88]);
        self.stream.write_all(&[head, frame(DATA, flags, stream, body)].concat())
    }

    /// Status 200, the length of `body` in the head, and all of it, but not the end of the stream.
    pub fn answer_of_length(&mut self, stream: u32, body: &[u8]) -> io::Result<()> {
        let length = body.len().to_string();
        // A field that is not indexed, whose name is that of index 28: `content-length`.
        let field = [&[0x88, 0x0f, 0x0d, length.len() as u8], length.as_bytes()].concat();
        let head = frame(HEADERS, END_HEADERS, stream, &field);
        self.stream.write_all(&[head, frame(DATA, 0, stream, body)].concat())
    }

    /// Resets `stream` with this error code.
    pub fn reset(&mut self, stream: u32, code: u32) -> io::Result<()> {
        self.stream.write_all(&frame(RST_STREAM, 0, stream, &code.to_be_bytes()))
    }

    /// Writes any bytes.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Announces the end of the connection behind the stream `last`, without an error.
    pub fn goaway(&mut self, last: u32) -> io::Result<()> {
        self.send(&frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat()))
    }

    /// Kind and stream of the next frame. Settings and pings are answered.
    fn read_frame(&mut self) -> io::Result<(u8, u32)> {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header)?;
        let [a, b, c, kind, flags, s0, s1, s2, s3] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload)?;
        let stream = u32::from_be_bytes([s0, s1, s2, s3]);
        match kind {
            SETTINGS if flags & ACK == 0 => self.stream.write_all(&frame(SETTINGS, ACK, 0, &[]))?,
            PING if flags & ACK == 0 => self.stream.write_all(&frame(PING, ACK, 0, &payload))?,
            RST_STREAM => self.resets += 1,
            DATA | HEADERS if flags & END_STREAM != 0 => {
                self.whole.insert(stream);
            }
            _ => {}
        }
        Ok((kind, stream))
    }
}
