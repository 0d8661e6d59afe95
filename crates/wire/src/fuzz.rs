//! What must hold for any bytes, for tests and for libFuzzer.

use crate::client_hello::{ClientHello, Extent, Progress, extent};

const LIMIT: usize = 2048;

/// The reader of a `ClientHello`: no bytes make it panic, and bytes that come in pieces end as they do in one.
pub fn client_hello(bytes: &[u8]) {
    let whole = ClientHello::read(bytes, LIMIT);
    if let Ok(Extent::Complete { wire, message }) = extent(bytes, LIMIT) {
        assert!(message < wire && wire <= bytes.len() && wire <= LIMIT);
    }
    if let Ok(Progress::Complete(hello)) = &whole {
        assert!(!hello.versions.is_empty() && !hello.suites.is_empty());
    }
    let Some((&length, _)) = bytes.split_last() else {
        return;
    };
    match ClientHello::read(&bytes[..bytes.len().min(length.into())], LIMIT) {
        Ok(Progress::Incomplete) => {}
        Ok(complete) => assert_eq!(whole, Ok(complete)),
        Err(_) => assert!(whole.is_err()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_client_hello() {
        brisk_testkit::fuzz::drive(
            "client_hello",
            &[b"\0\x33", b"\0\x2b", b"\0\x0a", b"\x16\x03\x01"],
            super::client_hello,
        );
    }
}
