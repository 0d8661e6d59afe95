//! The reader of PROXY headers: no bytes make it panic, it takes no more than there is or than its limit, and bytes that
//! come in pieces end as they do in one.

#![no_main]

use brisk_net::proxy_protocol::{MAX_BINARY, Progress, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = parse(bytes);
    if let Ok(Progress::Header { consumed, .. } | Progress::Local { consumed }) = whole {
        assert!(consumed <= bytes.len() && consumed <= MAX_BINARY);
        assert_eq!(whole.ok(), parse(&bytes[..consumed]).ok());
        return;
    }
    let incomplete = matches!(whole, Ok(Progress::Incomplete));
    assert!(!incomplete || bytes.len() < MAX_BINARY);
    let Some((&length, _)) = bytes.split_last() else {
        return;
    };
    let part = parse(&bytes[..bytes.len().min(length.into())]);
    assert!(matches!(part, Ok(Progress::Incomplete)) || !incomplete);
});
