//! Properties for arbitrary bytes from a client, checked by tests and by libFuzzer.

use crate::{h2, h3};

/// The output for HTTP/2 bytes after preface and settings does not depend on their split over reads, consists of whole
/// frames of permitted length, and leaves at most the permitted number of open streams.
pub fn http2(bytes: &[u8]) {
    if let Some((&split, bytes)) = bytes.split_first() {
        h2::testing::compare(bytes, split.into());
    }
}

/// Streams of an HTTP/3 client, each piece after one byte with its stream and one with its length: the responses do not depend
/// on the split over reads, consist of whole frames, and at most the permitted number of requests is open.
pub fn http3(bytes: &[u8]) {
    if let Some((&split, bytes)) = bytes.split_first() {
        h3::testing::compare(bytes, split.into());
    }
}

/// Actions of an HTTP/3 client, two bytes each: after each, the connection is in the state that a model of the client expects.
pub fn http3_model(bytes: &[u8]) {
    h3::model::check(bytes);
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_http2() {
        let words: &[&[u8]] = &[
            b"\0\0\x09\x01\x05\0\0\0\x01\x82\x87\x41\x01a\x04\x01/\xbe",
            b"\0\0\x0b\x01\x04\0\0\0\x03\x83\x87\x41\x01a\x04\x04/big",
            b"\0\0\x02\0\x01\0\0\0\x03ab",
            b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08",
            b"\0\0\x04\x08\0\0\0\0\0\0\x10\0\0",
            b"\0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff",
            b"\0\0\x07\x10\0\0\0\0\0\0\0\0\x01u=1",
            b"\0\0\x02\x09\x04\0\0\0\x01\x84\x86",
        ];
        drive("http2", words, super::http2);
    }

    #[test]
    fn fuzz_http3_model() {
        let words: &[&[u8]] = &[
            b"\0\x07",
            b"\x01\0",
            b"\x01\x05\x01\x06",
            b"\x03\0",
            b"\x04\0",
            b"\x04\x02",
            b"\x04\x04",
            b"\x05\x10",
            b"\x05\x18",
            b"\x06\0\x06\x01",
        ];
        drive("http3_model", words, super::http3_model);
    }

    #[test]
    fn fuzz_http3() {
        let words: &[&[u8]] = &[
            b"\x02\x03\0\x04\0",
            b"\0\x08\x01\x06\0\0\xd1\xd7\xc1\x50",
            b"\x04\x0c\x01\x0a\0\0\xd1\xd7\x50\x01a\xc1\x24\x01",
            b"\x04\x06\0\x04abcd",
            b"\x02\x0b\x80\x0f\x07\0\x04\x04u=1",
            b"\x06\x02\x02\x20",
            b"\x0a\x02\x03\x41",
            b"\x08\x05\x01\x03\0\0\xd4",
        ];
        drive("http3", words, super::http3);
    }
}
