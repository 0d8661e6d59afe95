//! Properties that hold for any bytes from a server, for tests and for libFuzzer.

use crate::resolve;

/// A response of a name server: parsed, or refused with a reason.
pub fn probed_https_record(bytes: &[u8]) {
    if let Err(reason) = resolve::read(bytes) {
        assert!(!reason.is_empty());
    }
}

/// Bytes of a server after a hello like Chrome's: unencrypted, or the content of its encrypted records.
pub fn probed_browser(bytes: &[u8]) {
    crate::browser::fuzz::server(bytes);
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

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
