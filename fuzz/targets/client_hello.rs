//! The reader of a `ClientHello`: no bytes make it panic, and bytes that come in pieces end as they do in one.

#![no_main]

use brisk_wire::client_hello::{ClientHello, Extent, Progress, extent};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 2048;

fuzz_target!(|bytes: &[u8]| {
    let whole = ClientHello::read(bytes, LIMIT);
    if let Ok(Extent::Complete { wire, message }) = extent(bytes, LIMIT) {
        assert!(message < wire && wire <= bytes.len() && wire <= LIMIT);
    }
    let Some((&length, _)) = bytes.split_last() else {
        return;
    };
    match ClientHello::read(&bytes[..bytes.len().min(length.into())], LIMIT) {
        Ok(Progress::Incomplete) => {}
        Ok(complete) => assert_eq!(whole, Ok(complete)),
        Err(_) => assert!(whole.is_err()),
    }
});
