//! Packets that consist of a `PATH_CHALLENGE` frame, without the padding that quinn-proto adds.
//!
//! quinn-proto expands these packets to 1,200 bytes. An address that is not validated gets at most three times its bytes, and
//! an acknowledgement has about 35 of them: a challenge of this size must not be expanded then (RFC 9000 section 8.2.1).

use std::cell::Cell;

use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, KeyPair, Keys, PacketKey};

/// Type and length of a `PATH_CHALLENGE` frame (RFC 9000 section 19.17).
const TYPE: u8 = 0x1a;
const LENGTH: usize = 9;

thread_local! {
    static SEALING: Cell<Sealing> = const { Cell::new(Sealing::Padded) };
}

#[derive(Clone, Copy)]
enum Sealing {
    Padded,
    Bare,
    /// A packet of this length was sealed without its padding.
    Done(usize),
}

/// Lets quinn-proto build one datagram in `send`. If it is a packet that consists of a `PATH_CHALLENGE` frame and padding, it
/// is sealed without the padding: then the second value is its length, and the bytes behind it are not to be sent.
pub fn bare_challenge<T>(send: impl FnOnce() -> T) -> (T, Option<usize>) {
    // By a thread-local value, because quinn-proto passes no further argument to its packet keys.
    SEALING.set(Sealing::Bare);
    let value = send();
    let length = match SEALING.replace(Sealing::Padded) {
        Sealing::Done(length) => Some(length),
        Sealing::Padded | Sealing::Bare => None,
    };
    (value, length)
}

/// Wraps the sending key of `keys` for [`bare_challenge`].
pub(super) fn trimming(keys: Keys) -> Keys {
    let KeyPair { local, remote } = keys.packet;
    Keys { header: keys.header, packet: KeyPair { local: wrap(local), remote } }
}

/// Wraps a sending key of 1-RTT packets.
pub(super) fn wrap(key: Box<dyn PacketKey>) -> Box<dyn PacketKey> {
    Box::new(TrimmingKey(key))
}

struct TrimmingKey(Box<dyn PacketKey>);

impl PacketKey for TrimmingKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let tag = self.0.tag_len();
        let Some(end) = bare_end(&buf[..buf.len() - tag], header_len) else {
            return self.0.encrypt(packet, buf, header_len);
        };
        // Header protection takes its sample from the first 20 bytes behind the start of the packet number: frame and tag
        // have 25.
        self.0.encrypt(packet, &mut buf[..end + tag], header_len);
        SEALING.set(Sealing::Done(end + tag));
    }

    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        self.0.decrypt(packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.0.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

/// The end of the `PATH_CHALLENGE` frame in a packet that has no other frame than padding, and is to be sealed without it.
fn bare_end(packet: &[u8], header_len: usize) -> Option<usize> {
    if packet.get(header_len) != Some(&TYPE) || !matches!(SEALING.get(), Sealing::Bare) {
        return None;
    }
    let end = header_len + LENGTH;
    packet.get(end..)?.iter().all(|byte| *byte == 0).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: usize = 16;

    /// A key that marks the end of a packet with a tag of ones.
    struct Marking;

    impl PacketKey for Marking {
        fn encrypt(&self, _packet: u64, buf: &mut [u8], _header_len: usize) {
            let end = buf.len() - TAG;
            buf[end..].fill(1);
        }

        fn decrypt(&self, _: u64, _: &[u8], _: &mut BytesMut) -> Result<(), CryptoError> {
            Ok(())
        }

        fn tag_len(&self) -> usize {
            TAG
        }

        fn confidentiality_limit(&self) -> u64 {
            1
        }

        fn integrity_limit(&self) -> u64 {
            1
        }
    }

    /// The place of the tag in a packet with these frames.
    fn sealed(frames: &[u8]) -> (usize, Option<usize>) {
        let header = [0x40; 11];
        let mut packet = [&header[..], frames, &[0; TAG]].concat();
        let key = wrap(Box::new(Marking));
        let seal = || key.encrypt(7, &mut packet, header.len());
        let ((), length) = bare_challenge(seal);
        let tag = packet.windows(TAG).position(|bytes| bytes == [1; TAG]).expect("a tag");
        (tag - header.len(), length)
    }

    #[test]
    fn a_lone_challenge_is_sealed_without_padding() {
        // Zeros at the end of the token are no padding.
        for token in [[9; 8], [0; 8]] {
            let frames = [&[TYPE][..], &token, &[0; 1000]].concat();
            assert_eq!(sealed(&frames), (LENGTH, Some(11 + LENGTH + TAG)));
        }
        assert_eq!(sealed(&[TYPE, 1, 2, 3, 4, 5, 6, 7, 8]), (LENGTH, Some(11 + LENGTH + TAG)));
    }

    #[test]
    fn other_packets_are_sealed_whole() {
        let with_stream = [&[TYPE; 9][..], &[0; 50], &[0x08, 0, 7]].concat();
        let ping = [&[1][..], &[0; 50]].concat();
        for frames in [with_stream, ping, vec![TYPE, 1, 2]] {
            assert_eq!(sealed(&frames), (frames.len(), None));
        }
    }

    #[test]
    fn challenges_are_padded_outside_of_the_call() {
        let mut packet = [&[0x40; 11][..], &[TYPE; 9], &[0; 100]].concat();
        let length = packet.len();
        wrap(Box::new(Marking)).encrypt(7, &mut packet, 11);
        assert_eq!(packet[length - TAG..], [1; TAG]);
    }
}
