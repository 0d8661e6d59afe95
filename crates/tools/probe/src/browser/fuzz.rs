//! Properties that hold for any bytes from a server after a hello like Chrome's.

use std::future::Future;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use super::handshake::{Messages, ServerFlight, complete, flight};
use super::hello::{Hello, chrome};

/// If the first byte is 0, the rest are the bytes of a server: without a key, no handshake completes. Otherwise the
/// rest are contents of encrypted records, in pieces of that length: messages are complete, in order and not repeated.
pub(crate) fn server(bytes: &[u8]) {
    static HELLO: OnceLock<Hello> = OnceLock::new();
    let Some((&first, rest)) = bytes.split_first() else { return };
    if first == 0 {
        let url = "https://example.test/".parse().expect("a URL");
        let hello = HELLO.get_or_init(|| chrome(&url).expect("a hello"));
        let (mut read, mut write) = (rest, tokio::io::sink());
        let work = complete(&mut read, &mut write, hello.message(), &hello.secrets);
        let Poll::Ready(ended) = pin!(work).poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("it waits for bytes that are there")
        };
        assert!(ended.is_err_and(|reason| !reason.is_empty()));
        return;
    }
    let (mut said, mut messages, mut all) = (ServerFlight::default(), Messages::default(), Vec::new());
    for piece in rest.chunks(first.into()) {
        match flight(&mut said, &mut messages, piece) {
            Ok(found) => all.extend(found.into_iter().flat_map(|(_, message)| message)),
            Err(reason) => {
                assert!(!reason.is_empty());
                return;
            }
        }
    }
    assert!(rest.starts_with(&all));
    assert!(said.protocol.is_none_or(|name| !name.contains(char::is_control)));
}
