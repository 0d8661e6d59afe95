//! Packet keys that join `PADDING` frames after decryption.
//!
//! quinn-proto reads padding as frames of one byte each: a fifth of the time of a handshake, whose first packets have about
//! 1,000 bytes of it. These keys write eight `PADDING` frames as one, with the longest encoding of its type. They do not change
//! other frames, and keep two thirds of the length of a packet: quinn-proto takes it for the bytes received, of which it sends three times as many
//! to a client that has not proven its address (RFC 9000 section 8.1), and for the memory that a CRYPTO frame holds.

use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, KeyPair, Keys, PacketKey};

/// The packets that a key protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packets {
    /// Initial and Handshake packets. Browsers scatter `PADDING` among their frames.
    Handshake,
    /// 0-RTT and 1-RTT packets, in which `PADDING` comes last.
    Data,
}

/// Wraps the receiving key of `keys`.
pub(super) fn joining(keys: Keys, packets: Packets) -> Keys {
    let KeyPair { local, remote } = keys.packet;
    Keys { header: keys.header, packet: KeyPair { local, remote: wrap(remote, packets) } }
}

/// Wraps a receiving key.
pub(super) fn wrap(key: Box<dyn PacketKey>, packets: Packets) -> Box<dyn PacketKey> {
    Box::new(JoiningKey { key, packets })
}

struct JoiningKey {
    key: Box<dyn PacketKey>,
    packets: Packets,
}

impl PacketKey for JoiningKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.key.encrypt(packet, buf, header_len);
    }

    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        self.key.decrypt(packet, header, payload)?;
        let end = join(payload, self.packets);
        if self.packets == Packets::Handshake {
            // quinn-proto sends up to one datagram more than three times the bytes that it takes for received, and a hello
            // has the length of a datagram.
            let padding = (payload.len() * 2 / 3).saturating_sub(end);
            payload.truncate(end + padding / 8 * 8);
        }
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

/// The first byte of the longest encoding of zero, the type of `PADDING` (RFC 9000 section 16).
const LONGEST: u8 = 0xc0;

/// Joins the `PADDING` frames of `payload` in groups of eight. From an unknown frame on, `payload` is left to quinn-proto.
/// Returns the length without the padding at the end.
pub(crate) fn join(payload: &mut [u8], packets: Packets) -> usize {
    let (length, mut at) = (payload.len(), 0);
    // Most packets with data end here, at the cost of one comparison.
    if packets == Packets::Data && !payload.ends_with(&[0; WORTHWHILE]) {
        return length;
    }
    while let Some(rest) = payload.get_mut(at..).filter(|rest| !rest.is_empty()) {
        let run = zeros(rest);
        for frames in rest[..run].as_chunks_mut::<8>().0 {
            frames[0] = LONGEST;
        }
        if run > 0 && at + run == length {
            return at;
        }
        at += if run > 0 { run } else { frame_length(rest).unwrap_or(rest.len()) };
    }
    length
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

    fn joined(payload: &[u8], packets: Packets) -> Vec<u8> {
        let mut payload = payload.to_vec();
        join(&mut payload, packets);
        payload
    }

    /// Eight PADDING frames as one.
    const EIGHT: [u8; 8] = [0xc0, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn padding_among_the_frames_of_a_handshake_is_joined() {
        // A CRYPTO frame whose data are zeros.
        let hello = [6, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let acknowledgement = [2, 5, 0, 1, 0, 0, 0];
        let padded = [&[0; 17][..], &hello, &[0; 7], &[1], &acknowledgement, &[0; 24]].concat();
        let frames =
            [&EIGHT[..], &EIGHT, &[0], &hello, &[0; 7], &[1], &acknowledgement, &EIGHT, &EIGHT, &EIGHT]
                .concat();
        assert_eq!(joined(&padded, Packets::Handshake), frames);
        assert_eq!(joined(&frames, Packets::Handshake), frames);
        assert!(joined(&[], Packets::Handshake).is_empty());
    }

    #[test]
    fn what_is_not_understood_is_left() {
        let hello = [6, 0, 4, 0, 0, 0, 0];
        for cut in 1..hello.len() {
            assert_eq!(joined(&hello[..cut], Packets::Handshake), hello[..cut]);
        }
        let close = [&[0x1c][..], &[0; 40]].concat();
        assert_eq!(joined(&close, Packets::Handshake), close);
        let endless = [&[6, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff][..], &[0; 40]].concat();
        assert_eq!(joined(&endless, Packets::Handshake), endless);
        let ranges = [&[0x2, 9, 0, 0xbf, 0xff, 0xff, 0xff, 0][..], &[0; 64]].concat();
        assert_eq!(joined(&ranges, Packets::Data), ranges);
    }

    #[test]
    fn only_padding_of_data_is_joined() {
        let stream = [&[0x0a, 0, 20][..], &[0; 20]].concat();
        let to_the_end = [&[0x08, 4][..], &[0; 20]].concat();
        let id = [&[0x18, 1, 0, 8][..], &[0; 24]].concat();
        for frames in [&stream, &to_the_end, &id, &[&id[..], &stream, &to_the_end].concat()] {
            assert_eq!(joined(frames, Packets::Data), *frames);
        }
        assert_eq!(
            joined(&[&stream[..], &id, &[0; 17]].concat(), Packets::Data),
            [&stream[..], &id, &EIGHT, &EIGHT, &[0]].concat()
        );
    }
}
