//! What must hold for any bytes that a server sends to a hello like Chrome's.

use std::future::Future;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use super::handshake::{Messages, Said, complete, flight};
use super::hello::{Hello, chrome};

/// The first byte says what the others are: the bytes of a server, who has no certificate and so never gets through; or what its
/// encrypted records carry, in pieces of that length, out of which the messages come in their order and none twice.
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
    let (mut said, mut messages, mut all) = (Said::default(), Messages::default(), Vec::new());
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
