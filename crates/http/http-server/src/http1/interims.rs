//! Interim responses of an HTTP/1.1 connection that wait to be sent: `100 Continue`, and those of the upstream.

use std::io;
use std::task::Poll;

use brisk_http::http1::answer::write_interim;
use brisk_http_connection::interim::InterimResponse;
use bytes::{Buf as _, BytesMut};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Interim responses of the current request.
#[derive(Debug, Default)]
pub(super) struct Interims {
    /// Whether the client expects `100` and the body was not requested yet.
    is_expected: bool,
    /// Remaining bytes of [`CONTINUE`], once the body was requested.
    rest: &'static [u8],
    /// Interim responses of the upstream, and whether a part of the first is sent.
    forwarded: BytesMut,
    is_forwarding: bool,
}

impl Interims {
    /// Begins a request.
    pub(super) fn begin(&mut self, expects_continue: bool) {
        *self = Self { is_expected: expects_continue, ..Self::default() };
    }

    /// Queues `100` if the client expects it, because its body is requested. Returns whether the response was queued now.
    pub(super) fn request_body(&mut self) -> bool {
        let is_new = std::mem::take(&mut self.is_expected);
        if is_new {
            self.rest = CONTINUE;
        }
        is_new
    }

    /// Queues an interim response of the upstream.
    pub(super) fn forward(&mut self, interim: &InterimResponse) {
        write_interim(&mut self.forwarded, interim.status, &interim.headers);
    }

    /// Writes as much as `write` accepts; `None` discards the output.
    pub(super) fn write(&mut self, mut write: impl FnMut(&[u8]) -> Option<Poll<io::Result<usize>>>) {
        loop {
            // An interim response that is sent in part is completed first.
            let is_continue = !self.rest.is_empty() && !self.is_forwarding;
            let bytes = if is_continue { self.rest } else { &self.forwarded[..] };
            if bytes.is_empty() {
                return;
            }
            match write(bytes) {
                Some(Poll::Ready(Ok(length))) if is_continue => self.rest = &self.rest[length..],
                Some(Poll::Ready(Ok(length))) => {
                    self.forwarded.advance(length);
                    self.is_forwarding = !self.forwarded.is_empty();
                    if !self.is_forwarding {
                        self.forwarded = BytesMut::new();
                    }
                }
                Some(Poll::Pending) => return,
                // The next read or write reports the error again.
                Some(Poll::Ready(Err(_))) | None => *self = Self::default(),
            }
        }
    }

    /// Cancels `100`, because the response begins. Writes to `output` the bytes that have to precede the response: the rest of
    /// a `100` that is sent in part, and interim responses of the upstream.
    pub(super) fn end(&mut self, output: &mut Vec<u8>) {
        let Self { rest, forwarded, .. } = std::mem::take(self);
        if rest.len() < CONTINUE.len() {
            output.extend_from_slice(rest);
        }
        output.extend_from_slice(&forwarded);
    }
}

#[cfg(test)]
mod tests {
    use brisk_http::message::HeaderList;
    use http::StatusCode;

    use super::*;

    const PROCESSING: &str = "HTTP/1.1 102 Processing\r\n\r\n";

    fn processing() -> InterimResponse {
        InterimResponse { stream: None, status: StatusCode::PROCESSING, headers: HeaderList::new() }
    }

    /// The bytes that are written in pieces of at most `piece` bytes, until `room` bytes are written.
    fn written(interims: &mut Interims, piece: usize, mut room: usize) -> String {
        let mut output = Vec::new();
        interims.write(|bytes| {
            let length = bytes.len().min(piece).min(room);
            room -= length;
            output.extend_from_slice(&bytes[..length]);
            Some(if length == 0 { Poll::Pending } else { Poll::Ready(Ok(length)) })
        });
        String::from_utf8(output).expect("text")
    }

    fn ended(mut interims: Interims) -> String {
        let mut output = Vec::new();
        interims.end(&mut output);
        String::from_utf8(output).expect("text")
    }

    #[test]
    fn interim_responses_are_never_mixed() {
        let both = || {
            let mut interims = Interims::default();
            interims.begin(true);
            interims.forward(&processing());
            interims
        };
        let mut interims = both();
        assert_eq!(written(&mut interims, 9, 10), PROCESSING[..10]);
        assert!(interims.request_body() && !interims.request_body());
        let rest = written(&mut interims, 7, 1000);
        assert_eq!(rest, format!("{}HTTP/1.1 100 Continue\r\n\r\n", &PROCESSING[10..]));
        assert_eq!(ended(interims), "");
        let mut interims = both();
        interims.request_body();
        assert_eq!(written(&mut interims, 5, 5), "HTTP/");
        assert_eq!(ended(interims), format!("1.1 100 Continue\r\n\r\n{PROCESSING}"));
    }

    #[test]
    fn a_response_cancels_100_and_follows_the_others() {
        let mut interims = Interims::default();
        interims.begin(true);
        interims.request_body();
        interims.forward(&processing());
        interims.forward(&processing());
        assert_eq!(ended(interims), [PROCESSING, PROCESSING].concat());
        let mut interims = Interims::default();
        interims.forward(&processing());
        interims.write(|_| None);
        assert_eq!(ended(interims), "", "the stream is gone");
    }
}
