//! What must hold for any bytes of a server, for tests and for libFuzzer.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::answer::Answer;
use crate::http1;
use crate::http2::Http2;
use crate::resolve;
use crate::trace::Milestones;
use crate::url::Url;

/// An answer over HTTP/1.1 or HTTP/2, as the first byte says: it ends, and no more is counted than came.
pub fn probed_answer(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let (mut milestones, mut answer) = (Milestones::default(), Answer::default());
    if first & 1 == 0 {
        let _ = at_once(http1::answer(&mut &*rest, &mut milestones, &mut answer));
        assert!(answer.head_bytes as u64 + answer.body_bytes <= rest.len() as u64);
        return;
    }
    let url: Url = "https://example.test/".parse().expect("a URL");
    let mut http2 = Http2::new();
    http2.request(&url, "fuzz");
    let mut stream = tokio::io::join(rest, tokio::io::sink());
    let ended = at_once(http2.answer(&mut stream, &mut milestones, &mut answer));
    assert!(answer.body_bytes <= rest.len() as u64 && (ended.is_err() || answer.status > 0));
}

/// An answer of a name server: read, or refused with a reason.
pub fn probed_https_record(bytes: &[u8]) {
    if let Err(reason) = resolve::read(bytes) {
        assert!(!reason.is_empty());
    }
}

/// What a server sends to a hello like Chrome's, in the clear or within its encrypted records.
pub fn probed_browser(bytes: &[u8]) {
    crate::browser::fuzz::server(bytes);
}

/// The result of a future that never waits.
fn at_once<T>(work: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(work).poll(&mut context) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits for bytes that are there"),
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

    #[test]
    fn fuzz_probed_https_record() {
        let words: &[&[u8]] = &[b"\0\x41\0\x01", b"\xc0\x0c", b"\0\x01\0\x03\x02h2", b"\0\x05\0\x02\0\0"];
        drive("probed_https_record", words, super::probed_https_record);
    }

    #[test]
    fn fuzz_probed_browser() {
        let words: &[&[u8]] = &[
            b"\0\x16\x03\x03\0",
            b"\x02\0\0\x76\x03\x03",
            b"\x13\x01\0\0\x2e\0\x2b\0\x02\x03\x04\0\x33\0\x24\0\x1d\0\x20",
            b"\x17\x03\x03\0\x20",
            b"\x08\0\0\x0b\0\x09\0\x10\0\x05\0\x03\x02h2",
            b"\x0d\0\0\x03\0\0\0",
            b"\x19\0\0\x02\0\x02",
        ];
        drive("probed_browser", words, super::probed_browser);
    }
}
