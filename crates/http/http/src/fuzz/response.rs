//! Comparison of the response parser with hyper's client.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode, header};
use http_body::Body as _;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http1::chunked::Part;
use crate::http1::response::ResponseHead;
use crate::http1::{HeadLimits, LINES};

const HEAD_SIZE: usize = 16 << 10;

/// Response, read to its end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    trailers: HeaderMap,
}

/// Bytes yield the same response, or the same error, however they are split over reads, and hyper reads the same response.
/// hyper may accept responses that are refused here.
pub fn response(bytes: &[u8]) {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    let method = if step & 0x80 == 0 { Method::GET } else { Method::HEAD };
    let whole = read(bytes, &method, bytes.len().max(1));
    assert_eq!(read(bytes, &method, usize::from(step & 0x7f) + 1), whole);
    if let Some(mut response) = whole
        && response.status != StatusCode::SWITCHING_PROTOCOLS
    {
        let mut by_hyper = read_by_hyper(bytes, &method).expect("a response to hyper too");
        // hyper keeps repeated equal lengths, and options that state only persistence.
        for headers in [&mut response.headers, &mut by_hyper.headers] {
            headers.remove(header::CONTENT_LENGTH);
            headers.remove(header::CONNECTION);
        }
        assert_eq!(by_hyper, response, "hyper reads something else");
    }
}

/// Reads a response from pieces of `step` bytes, until the end of the connection.
fn read(bytes: &[u8], method: &Method, step: usize) -> Option<Read> {
    let mut pieces = bytes.chunks(step);
    let mut input = BytesMut::new();
    let mut head = loop {
        match ResponseHead::take(&mut input, method, HeadLimits { size: HEAD_SIZE, lines: LINES }).ok()? {
            Some(head)
                if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS => {}
            Some(head) => break head,
            None => input.extend_from_slice(pieces.next()?),
        }
    };
    let mut read = Read { status: head.status, headers: head.headers.into(), ..Read::default() };
    loop {
        match head.body.decode(&mut input).ok()? {
            Some(Part::Data(data)) => read.body.extend_from_slice(&data),
            Some(Part::Trailers(trailers)) => {
                read.trailers = trailers;
                return Some(read);
            }
            Some(Part::End) => return Some(read),
            None => match pieces.next() {
                Some(piece) => input.extend_from_slice(piece),
                None => return head.body.close().then_some(read),
            },
        }
    }
}

fn read_by_hyper(bytes: &[u8], method: &Method) -> Option<Read> {
    let mut context = Context::from_waker(Waker::noop());
    let mut builder = http1::Builder::new();
    builder.max_header_size(HEAD_SIZE).max_buf_size(64 << 10);
    let mut handshake =
        Box::pin(builder.handshake(TokioIo::new(Sent { asked: false, ..Sent::at_once(bytes) })));
    let Poll::Ready(Ok((mut sender, mut connection))) = handshake.as_mut().poll(&mut context) else {
        panic!("nothing is needed to begin");
    };
    let request =
        http::Request::builder().method(method).uri("/").body(Empty::<Bytes>::new()).expect("a request");
    let mut answer = Box::pin(sender.send_request(request));
    let mut connected = true;
    let mut drive = |context: &mut Context<'_>| {
        connected = connected && Pin::new(&mut connection).poll(context).is_pending();
    };
    let turns = bytes.len() + 64;
    let response = (0..turns).find_map(|_| {
        drive(&mut context);
        match answer.as_mut().poll(&mut context) {
            Poll::Ready(answer) => Some(answer.ok()),
            Poll::Pending => None,
        }
    });
    let (head, mut body) = response.flatten()?.into_parts();
    let mut read = Read { status: head.status, headers: head.headers, ..Read::default() };
    for _ in 0..turns {
        drive(&mut context);
        match Pin::new(&mut body).poll_frame(&mut context) {
            Poll::Pending => {}
            Poll::Ready(None) => return Some(read),
            Poll::Ready(Some(Err(_))) => return None,
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => read.body.extend_from_slice(&data),
                Err(frame) => read.trailers = frame.into_trailers().expect("trailers"),
            },
        }
    }
    panic!("hyper does not come to an end");
}

/// Connection that accepts all output, and supplies the given bytes and the end of the stream after the first write.
pub(super) struct Sent {
    bytes: Vec<u8>,
    position: usize,
    asked: bool,
}

impl Sent {
    /// Supplies the bytes without waiting for a write.
    pub(super) fn at_once(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), position: 0, asked: true }
    }
}

impl AsyncRead for Sent {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // The waker is ignored, because the connection is polled repeatedly.
        if !this.asked {
            return Poll::Pending;
        }
        let end = this.bytes.len().min(this.position + buffer.remaining());
        buffer.put_slice(&this.bytes[this.position..end]);
        this.position = end;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Sent {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.asked = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
