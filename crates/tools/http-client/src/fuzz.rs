//! Properties that hold for any bytes from a server, for tests and for libFuzzer.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::http1;
use crate::http2::Http2;
use crate::request::Request;
use crate::response::Response;

/// A response over HTTP/1.1 or HTTP/2, selected by the first byte: reading ends, and no more bytes are counted than came.
pub fn probed_answer(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let mut response = Response::default();
    if first & 1 == 0 {
        let _ = at_once(http1::read_response(&mut &*rest, &mut response));
        assert!(response.head_bytes as u64 + response.body_bytes <= rest.len() as u64);
        return;
    }
    let mut http2 = Http2::new();
    http2.request(&Request { authority: "example.test", path: "/", agent: "fuzz" });
    let mut stream = tokio::io::join(rest, tokio::io::sink());
    let ended = at_once(http2.read_response(&mut stream, &mut response));
    assert!(response.body_bytes <= rest.len() as u64 && (ended.is_err() || response.status > 0));
}

/// The result of a future that never waits.
fn at_once<T>(work: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(work).poll(&mut context) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the future waits for bytes that are there"),
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_probed_answer() {
        let words: &[&[u8]] = &[
            b"\0HTTP/1.1 200 OK\r\n",
            b"Transfer-Encoding: chunked\r\n\r\n",
            b"Content-Length: 3\r\n\r\n",
            b"ffffffffffffffff\r\n",
            b"\x01\0\0\0\x04\0\0\0\0\0",
            b"\0\0\x01\x01\x05\0\0\0\x01\x88",
            b"\0\0\x03\0\x01\0\0\0\x01abc",
        ];
        drive("probed_answer", words, super::probed_answer);
    }
}
