//! Packet keys that remove PADDING frames after decryption.
//!
//! quinn-proto reads padding as frames of one byte each: a fifth of the time of a handshake, whose first packets have about
//! 1,000 bytes of it. These keys remove PADDING frames and change nothing else. A payload that is not understood is left to
//! quinn-proto.

use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, KeyPair, Keys, PacketKey};

/// The packets that a key protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packets {
    /// Initial and Handshake packets. Browsers scatter padding among their frames.
    Handshake,
    /// 0-RTT and 1-RTT packets, in which padding comes last.
    Data,
}

/// Wraps the receiving key of `keys`.
pub(super) fn without_padding(keys: Keys, packets: Packets) -> Keys {
    let KeyPair { local, remote } = keys.packet;
    Keys { header: keys.header, packet: KeyPair { local, remote: wrap(remote, packets) } }
}

/// Wraps a receiving key.
pub(super) fn wrap(key: Box<dyn PacketKey>, packets: Packets) -> Box<dyn PacketKey> {
    Box::new(StrippingKey { key, packets })
}

struct StrippingKey {
    key: Box<dyn PacketKey>,
    packets: Packets,
}

impl PacketKey for StrippingKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.key.encrypt(packet, buf, header_len);
    }

    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        self.key.decrypt(packet, header, payload)?;
        strip(payload, self.packets);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

/// Trailing zeros in a packet with data from which on a search for padding pays off.
const WORTHWHILE: usize = 16;

/// Removes the PADDING frames of `payload`. A payload of padding only keeps one frame, because a packet without frames is
/// an error (RFC 9000 section 12.4).
pub(crate) fn strip(payload: &mut BytesMut, packets: Packets) {
    if packets == Packets::Data && !payload.ends_with(&[0; WORTHWHILE]) {
        return;
    }
    let (mut read, mut written) = (0, 0);
    while read < payload.len() {
        let rest = &payload[read..];
        if rest[0] == 0 {
            read += zeros(rest);
            continue;
        }
        let length = frame_length(rest).unwrap_or(rest.len());
        if written != read {
            payload.copy_within(read..read + length, written);
        }
        read += length;
        written += length;
    }
    if written == read {
        return;
    }
    let written = written.max(1);
    match packets {
        Packets::Data => payload.truncate(written),
        // quinn-proto takes the length of the payload for the memory that a CRYPTO frame holds. A copy makes this true:
        // otherwise fragments of one byte in padded packets would hold a datagram each.
        Packets::Handshake => *payload = BytesMut::from(&payload[..written]),
    }
}

/// Number of zero bytes at the start of `bytes`.
fn zeros(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<16>();
    let run = blocks.iter().take_while(|block| u128::from_ne_bytes(**block) == 0).count() * 16;
    run + bytes[run..].iter().take_while(|byte| **byte == 0).count()
}

/// Length of the frame at the start of `bytes` (RFC 9000 section 19); `None` if its type is unknown or it is cut short.
pub(crate) fn frame_length(bytes: &[u8]) -> Option<usize> {
    let mut frame = Frame { bytes, at: 1 };
    match bytes[0] {
        // PING, HANDSHAKE_DONE, IMMEDIATE_ACK.
        0x01 | 0x1e | 0x1f => {}
        // ACK, with ECN counts in 0x03.
        kind @ (0x02 | 0x03) => {
            frame.skip_numbers(2)?;
            let ranges = frame.number()?;
            // Each range takes two bytes or more.
            let ranges = usize::try_from(ranges).ok().filter(|ranges| *ranges <= bytes.len())?;
            frame.skip_numbers(1 + 2 * ranges + if kind == 0x03 { 3 } else { 0 })?;
        }
        // MAX_DATA, MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED, RETIRE_CONNECTION_ID.
        0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => frame.skip_numbers(1)?,
        // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED.
        0x05 | 0x11 | 0x15 => frame.skip_numbers(2)?,
        // RESET_STREAM.
        0x04 => frame.skip_numbers(3)?,
        // PATH_CHALLENGE, PATH_RESPONSE.
        0x1a | 0x1b => frame.skip(8)?,
        // CRYPTO.
        0x06 => {
            frame.skip_numbers(1)?;
            frame.skip_counted()?;
        }
        // NEW_TOKEN.
        0x07 => frame.skip_counted()?,
        // STREAM: with bit 0x04 an offset, with bit 0x02 a length; without a length, data to the end.
        kind @ 0x08..=0x0f => {
            frame.skip_numbers(1 + usize::from(kind & 0x04 != 0))?;
            if kind & 0x02 == 0 {
                return Some(bytes.len());
            }
            frame.skip_counted()?;
        }
        // NEW_CONNECTION_ID: sequence, retire prior to, ID with its length, reset token.
        0x18 => {
            frame.skip_numbers(2)?;
            let id = usize::from(*bytes.get(frame.at)?);
            frame.skip(1 + id + 16)?;
        }
        _ => return None,
    }
    Some(frame.at)
}

/// A frame that is read, up to `at`.
struct Frame<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Frame<'_> {
    /// A variable-length integer (RFC 9000 section 16).
    fn number(&mut self) -> Option<u64> {
        let first = *self.bytes.get(self.at)?;
        let encoded = self.bytes.get(self.at..self.at + (1 << (first >> 6)))?;
        self.at += encoded.len();
        let value = |value, byte: &u8| value << 8 | u64::from(*byte);
        Some(encoded[1..].iter().fold(u64::from(first & 0x3f), value))
    }

    fn skip_numbers(&mut self, count: usize) -> Option<()> {
        (0..count).try_for_each(|_| self.number().map(drop))
    }

    fn skip(&mut self, length: usize) -> Option<()> {
        self.at = self.at.checked_add(length).filter(|at| *at <= self.bytes.len())?;
        Some(())
    }

    /// Bytes after their number.
    fn skip_counted(&mut self) -> Option<()> {
        let length = usize::try_from(self.number()?).ok()?;
        self.skip(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(payload: &[u8], packets: Packets) -> Vec<u8> {
        let mut payload = BytesMut::from(payload);
        strip(&mut payload, packets);
        payload.to_vec()
    }

    #[test]
    fn padding_among_the_frames_of_a_handshake_is_removed() {
        // A CRYPTO frame whose data are zeros.
        let hello = [6, 0, 4, 0, 0, 0, 0];
        let acknowledgement = [2, 5, 0, 1, 0, 0, 0];
        let padded = [&[0; 40][..], &hello, &[0; 33], &[1], &acknowledgement, &[0; 700]].concat();
        let frames = [&hello[..], &[1], &acknowledgement].concat();
        assert_eq!(stripped(&padded, Packets::Handshake), frames);
        assert_eq!(stripped(&frames, Packets::Handshake), frames);
    }

    #[test]
    fn a_packet_of_padding_keeps_one_frame() {
        assert_eq!(stripped(&[0; 1100], Packets::Handshake), [0]);
        assert_eq!(stripped(&[0; 1100], Packets::Data), [0]);
        assert!(stripped(&[], Packets::Handshake).is_empty());
    }

    #[test]
    fn what_is_not_understood_is_left() {
        let hello = [6, 0, 4, 0, 0, 0, 0];
        for cut in 1..hello.len() {
            assert_eq!(stripped(&hello[..cut], Packets::Handshake), hello[..cut]);
        }
        let close = [0x1c, 0, 0, 0, 0, 0];
        assert_eq!(stripped(&[&[0; 3][..], &close].concat(), Packets::Handshake), close);
        let endless = [6, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0];
        assert_eq!(stripped(&endless, Packets::Handshake), endless);
        let ranges = [&[0x2, 9, 0, 0xbf, 0xff, 0xff, 0xff, 0][..], &[0; 64]].concat();
        assert_eq!(stripped(&ranges, Packets::Data), ranges);
    }

    #[test]
    fn only_trailing_padding_of_data_is_removed() {
        assert_eq!(stripped(&[&[1, 0x1f][..], &[0; 1400]].concat(), Packets::Data), [1, 0x1f]);
        let stream = [&[0x0a, 0, 20][..], &[0; 20]].concat();
        let to_the_end = [&[0x08, 4][..], &[0; 20]].concat();
        let id = [&[0x18, 1, 0, 8][..], &[0; 24]].concat();
        for frames in [&stream, &to_the_end, &id, &[&id[..], &stream, &to_the_end].concat()] {
            assert_eq!(stripped(frames, Packets::Data), *frames);
        }
        assert_eq!(
            stripped(&[&stream[..], &id, &[0; 99]].concat(), Packets::Data),
            [&stream[..], &id].concat()
        );
    }
}
