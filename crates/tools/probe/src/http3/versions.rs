//! Version negotiation (RFC 9000 section 6): a packet with a version that no server supports is answered by a list of those
//! that it does.

use std::net::SocketAddr;
use std::time::Duration;

use aws_lc_rs::rand;
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// A version reserved for this purpose (RFC 9000 section 15).
const RESERVED: u32 = 0x1a2a_3a4a;
/// Length of the packet: a server answers none that is shorter (RFC 9000 section 14.1).
const LENGTH: usize = 1200;
/// Length of the connection IDs.
const ID: usize = 8;
/// Attempts, in case that a packet is lost, and time for each.
const ATTEMPTS: usize = 3;
const WAIT: Duration = Duration::from_millis(500);
/// Maximum number of versions that are reported.
const VERSIONS: usize = 16;

/// The versions that the server at `address` names, as text. Empty without an answer.
pub(super) async fn ask(address: SocketAddr) -> Vec<String> {
    let Ok(socket) = super::socket(address).and_then(UdpSocket::from_std) else { return Vec::new() };
    let mut ids = [0; 2 * ID];
    rand::fill(&mut ids).expect("the system has randomness");
    let (destination, source) = ids.split_at(ID);
    let mut packet =
        [&[0xc0][..], &RESERVED.to_be_bytes(), &[ID as u8], destination, &[ID as u8], source].concat();
    packet.resize(LENGTH, 0);
    let mut buffer = [0; 2048];
    for _ in 0..ATTEMPTS {
        if socket.send(&packet).await.is_err() {
            break;
        }
        let answer = timeout(WAIT, async {
            loop {
                let length = socket.recv(&mut buffer).await.ok()?;
                // Other datagrams are skipped, or a late or forged one would end the attempt.
                if let Some(versions) = read(&buffer[..length], destination, source) {
                    return Some(versions);
                }
            }
        });
        match answer.await {
            Ok(Some(versions)) => return versions.into_iter().filter_map(name).collect(),
            // No program receives at this port.
            Ok(None) => break,
            Err(_) => {}
        }
    }
    Vec::new()
}

/// The versions of a `Version Negotiation` packet (RFC 9000 section 17.2.1) that has these IDs; `None` for other packets.
pub(crate) fn read(packet: &[u8], destination: &[u8], source: &[u8]) -> Option<Vec<u32>> {
    let (header, rest) = packet.split_first_chunk::<5>()?;
    // RFC 9000 section 17.2.1: the other bits of the first byte are arbitrary.
    if header[0] & 0x80 == 0 || header[1..] != [0; 4] {
        return None;
    }
    let (own, rest) = id(rest)?;
    let (theirs, rest) = id(rest)?;
    let (versions, remainder) = rest.as_chunks::<4>();
    // RFC 9000 section 17.2.1: both random IDs are echoed, so a host that has not seen the packet cannot
    // forge the list.
    let is_answer = own == source && theirs == destination && remainder.is_empty();
    is_answer.then(|| versions.iter().take(VERSIONS).map(|version| u32::from_be_bytes(*version)).collect())
}

fn id(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

/// The name of a version; `None` for reserved ones, which servers name in order that clients ignore unknown ones.
fn name(version: u32) -> Option<String> {
    Some(match version {
        1 => "1".to_owned(),
        // RFC 9369.
        0x6b33_43cf => "2".to_owned(),
        _ if version & 0x0f0f_0f0f == 0x0a0a_0a0a => return None,
        _ if version >> 8 == 0xff_0000 => format!("draft {}", version & 0xff),
        _ => format!("{version:#010x}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_the_own_packet_is_read() {
        let packet =
            [&[0x80, 0, 0, 0, 0, 2][..], b"me", &[3], b"you", &[0, 0, 0, 1, 0x6b, 0x33, 0x43, 0xcf]].concat();
        assert_eq!(read(&packet, b"you", b"me"), Some(vec![1, 0x6b33_43cf]));
        assert_eq!(read(&packet, b"you", b"us"), None);
        for length in 0..packet.len() {
            assert!(
                length % 4 == packet.len() % 4 || read(&packet[..length], b"you", b"me").is_none(),
                "{length}"
            );
        }
        let mut other = packet;
        other[4] = 1;
        assert_eq!(read(&other, b"you", b"me"), None, "another version");
    }

    #[test]
    fn versions_have_names() {
        let names = [1, 0x6b33_43cf, 0xff00_001d, 0x5a6a_7a8a, 0x5130_3530].into_iter().filter_map(name);
        assert!(names.eq(["1", "2", "draft 29", "0x51303530"]));
    }
}
