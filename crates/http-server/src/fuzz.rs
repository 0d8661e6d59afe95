//! Properties for arbitrary bytes from a client, checked by tests and by libFuzzer.

use crate::h2::testing;
use crate::lines::{Lines, Portion};

/// `Lines` finds the end of each line of a head like a plain search, however the bytes are split over reads.
pub fn head(bytes: &[u8]) {
    let Some((&split, bytes)) = bytes.split_first() else { return };
    let step = usize::from(split).max(1);
    let (mut lines, mut read) = (Lines::watched(), 0);
    let found = loop {
        let end = (read + step).min(bytes.len());
        match lines.portion(&bytes[read..end]) {
            Portion::BareLineFeed(before) => break Some((read + before, true)),
            Portion::Bytes(count) if lines == Lines::Headed => break Some((read + count, false)),
            Portion::Bytes(count) => {
                assert_eq!(count, end - read, "only the end of a head ends a portion");
                read = end;
            }
        }
        if read == bytes.len() {
            break None;
        }
    };
    let bare = (0..bytes.len()).find(|&at| bytes[at] == b'\n' && (at == 0 || bytes[at - 1] != b'\r'));
    let begin = bytes.chunks(2).take_while(|pair| *pair == b"\r\n").count() * 2;
    let blank = bytes[begin.min(bytes.len())..].windows(4).position(|four| four == b"\r\n\r\n");
    let blank = blank.map(|at| begin + at + 4);
    let expected = match (bare, blank) {
        (Some(bare), blank) if blank.is_none_or(|blank| bare < blank) => Some((bare, true)),
        (_, Some(blank)) => Some((blank, false)),
        _ => None,
    };
    assert_eq!(found, expected);
}

/// The output for HTTP/2 bytes after preface and settings does not depend on their split over reads, consists of whole
/// frames of permitted length, and leaves at most the permitted number of open streams.
pub fn http2(bytes: &[u8]) {
    if let Some((&split, bytes)) = bytes.split_first() {
        testing::compare(bytes, split.into());
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_head() {
        drive("head", &[b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"a: b"], super::head);
    }

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
}
