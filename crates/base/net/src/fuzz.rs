//! Properties of the parsers, for tests and libFuzzer.

use crate::proxy_protocol::{MAX_BINARY, Progress, parse};

/// The parser of PROXY headers does not panic, consumes no more than the input and its limit, and yields the same
/// result for fragmented input.
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
