//! What must hold for any bytes, for tests and for libFuzzer.

use crate::proxy_protocol::{MAX_BINARY, Progress, parse};

/// The reader of PROXY headers: no bytes make it panic, it takes no more than there is or than its limit, and bytes that
/// come in pieces end as they do in one.
pub fn proxy_protocol(bytes: &[u8]) {
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
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_proxy_protocol() {
        let words: &[&[u8]] = &[
            b"PROXY ",
            b"TCP4 ",
            b"TCP6 ",
            b"UNKNOWN",
            b"\r\n",
            b"\r\n\r\n\0\r\nQUIT\n",
            b"192.0.2.1 ",
            b"443",
        ];
        brisk_testkit::fuzz::drive("proxy_protocol", words, super::proxy_protocol);
    }
}
