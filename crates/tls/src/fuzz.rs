//! Properties of the parsers, for tests and libFuzzer.

use bytes::BytesMut;

use crate::quic::padding::{Packets, frame_length, strip};

/// The removal of padding from decrypted packets does not panic, keeps all other frames as they are, and a second removal
/// changes nothing.
pub fn quic_padding(bytes: &[u8]) {
    for packets in [Packets::Handshake, Packets::Data] {
        let mut stripped = BytesMut::from(bytes);
        strip(&mut stripped, packets);
        assert_eq!(frames(&stripped), frames(bytes));
        assert_eq!(stripped.is_empty(), bytes.is_empty());
        let mut again = stripped.clone();
        strip(&mut again, packets);
        assert_eq!(again, stripped);
    }
}

/// The frames except for padding; an unknown one ends at the end of the packet.
fn frames(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some(&kind) = bytes.first() {
        let length = if kind == 0 { 1 } else { frame_length(bytes).unwrap_or(bytes.len()) };
        let (frame, rest) = bytes.split_at(length);
        if kind != 0 {
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
