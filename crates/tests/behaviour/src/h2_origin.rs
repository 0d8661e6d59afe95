//! HTTP/2 server without TLS that a test controls frame by frame (RFC 9113).

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brisk_testkit::origin::Origin;

use crate::h2::{ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, frame};

/// Length of a client's preface, in bytes.
const PREFACE: usize = 24;

/// Connection of a client to an origin.
pub struct H2Peer {
    stream: TcpStream,
    whole: HashSet<u32>,
    resets: usize,
}

/// Starts an origin that runs `talk` for each connection, with the connection's number from 0.
pub fn h2_origin(talk: impl Fn(&mut H2Peer, usize) -> io::Result<()> + Send + Sync + 'static) -> Origin {
    h2_origin_with(&[], talk)
}

/// Like [`h2_origin`], with these settings (pairs of identifier and value) in its first frame.
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

/// URL of the origin as an upstream.
pub fn h2c(origin: &Origin) -> String {
    format!("h2c://{}", origin.address())
}

impl H2Peer {
    fn accept(mut stream: TcpStream, settings: &[u8]) -> io::Result<Self> {
        stream.read_exact(&mut [0; PREFACE])?;
        stream.write_all(&frame(SETTINGS, 0, 0, settings))?;
        Ok(Self { stream, whole: HashSet::new(), resets: 0 })
    }

    /// Waits for the head of the next request. Returns its stream, or `None` after the client has closed.
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

    /// Waits for the end of the request on `stream`.
    pub fn wait_for_body(&mut self, stream: u32) -> io::Result<()> {
        while !self.is_whole(stream) {
            self.read_frame()?;
        }
        Ok(())
    }

    /// Waits until the request on `stream` is complete (true) or reset by the client (false).
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

    /// Reads and ignores everything until the client closes.
    pub fn fall_silent(&mut self) -> io::Result<()> {
        io::copy(&mut self.stream, &mut io::sink()).map(drop)
    }

    /// Number of streams reset by the client, among the frames read so far.
    pub fn resets(&self) -> usize {
        self.resets
    }

    /// Whether the request on `stream` has arrived completely.
    pub fn is_whole(&self, stream: u32) -> bool {
        self.whole.contains(&stream)
    }

    /// Sends status 200 and `body`; `ends` marks the end of the response.
    pub fn answer(&mut self, stream: u32, body: &[u8], ends: bool) -> io::Result<()> {
        let flags = if ends { END_STREAM } else { 0 };
        // RFC 7541 appendix A: index 8 is `:status: 200`.
        let head = frame(HEADERS, END_HEADERS, stream, &[0x88]);
        self.stream.write_all(&[head, frame(DATA, flags, stream, body)].concat())
    }

    /// Sends status 200, the `content-length` of `body`, and all of `body`, without the end of the stream.
    pub fn answer_of_length(&mut self, stream: u32, body: &[u8]) -> io::Result<()> {
        let length = body.len().to_string();
        // Literal field without indexing, with the name of index 28: `content-length`.
        let field = [&[0x88, 0x0f, 0x0d, length.len() as u8], length.as_bytes()].concat();
        let head = frame(HEADERS, END_HEADERS, stream, &field);
        self.stream.write_all(&[head, frame(DATA, 0, stream, body)].concat())
    }

    /// Resets `stream` with an error code.
    pub fn reset(&mut self, stream: u32, code: u32) -> io::Result<()> {
        self.stream.write_all(&frame(RST_STREAM, 0, stream, &code.to_be_bytes()))
    }

    /// Sends any bytes.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends GOAWAY without an error, with the last stream `last`.
    pub fn goaway(&mut self, last: u32) -> io::Result<()> {
        self.send(&frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat()))
    }

    /// Waits for the next frame, and acknowledges settings and pings. Returns its type and stream.
    pub fn read_frame(&mut self) -> io::Result<(u8, u32)> {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header)?;
        let [a, b, c, kind, flags, s0, s1, s2, s3] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload)?;
        let stream = u32::from_be_bytes([s0, s1, s2, s3]);
        // RFC 9113 sections 6.5.3 and 6.7: a peer without acknowledgements would be closed by a timeout, and
        // the test would end for another reason than its own.
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
