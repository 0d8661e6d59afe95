//! Properties of the parsers, for tests and libFuzzer.

use crate::quic::padding::{Packets, frame_length, join};

/// The joining of `PADDING` frames in decrypted packets does not panic, keeps all other frames and the length of the packet,
/// and a second time changes nothing.
pub fn quic_padding(bytes: &[u8]) {
    for packets in [Packets::Handshake, Packets::Data] {
        let mut joined = bytes.to_vec();
        join(&mut joined, packets);
        assert_eq!(frames(&joined), frames(bytes));
        assert_eq!(joined.len(), bytes.len());
        let mut again = joined.clone();
        join(&mut again, packets);
        assert_eq!(again, joined);
    }
}

/// The frames except for `PADDING`; an unknown one ends at the end of the packet.
fn frames(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some(&kind) = bytes.first() {
        let padding =
            if bytes.starts_with(&[0xc0, 0, 0, 0, 0, 0, 0, 0]) { 8 } else { usize::from(kind == 0) };
        let length = if padding > 0 { padding } else { frame_length(bytes).unwrap_or(bytes.len()) };
        let (frame, rest) = bytes.split_at(length);
        if padding == 0 {
            frames.push(frame);
        }
        bytes = rest;
    }
    frames
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_quic_padding() {
        let words: &[&[u8]] =
            &[b"\x06\0\x04", b"\x02\x05\0\x01\0", b"\x0a\0\x02", b"\x18\x01\0\x08", &[0; 16]];
        brisk_testkit::fuzz::drive("quic_padding", words, super::quic_padding);
    }
}
