//! Properties of HTTP/2 with any upstream, for tests and for libFuzzer.

use crate::http2::fuzz;

/// An upstream's side of HTTP/2, with requests and their ends in between. The output does not depend on the division of the
/// input into pieces and consists of whole frames within the size limit. Every byte of data is read or given back.
pub fn http2_upstream(bytes: &[u8]) {
    if let Some((&split, script)) = bytes.split_first() {
        fuzz::compare(script, split.into());
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_http2_upstream() {
        let words: &[&[u8]] = &[
            b"G\0",
            b"H\0",
            b"P\x20",
            b"R\0",
            b"R\x01",
            b"D\0",
            b"E\0",
            b"F\x0a\0\0\x01\x01\x04\0\0\0\x01\x88",
            b"F\x0e\0\0\x05\x01\x04\0\0\0\x03\x88\x5c\x02\x32\x30",
            b"F\x0e\0\0\x05\0\0\0\0\0\x01hello",
            b"F\x0c\0\0\x03\0\x09\0\0\0\x03\x01x\0",
            b"F\x0d\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08",
            b"F\x11\0\0\x08\x07\0\0\0\0\0\0\0\0\x01\0\0\0\0",
            b"F\x0d\0\0\x04\x08\0\0\0\0\0\0\0\x10\0",
            b"F\x0f\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x01",
            b"F\x0f\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\x05",
            b"F\x0b\0\0\x02\x09\x04\0\0\0\x01\x88\xbe",
        ];
        drive("http2_upstream", words, super::http2_upstream);
    }
}
