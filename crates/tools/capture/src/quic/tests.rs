use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use brisk_handshake_view::open::expand;

use super::*;

/// A `ClientHello` for site.test with TLS 1.3 and h3.
fn hello() -> Vec<u8> {
    let mut extensions = vec![0, 0, 0, 14, 0, 12, 0, 0, 9];
    extensions.extend(b"site.test");
    extensions.extend([0, 16, 0, 5, 0, 3, 2, b'h', b'3', 0, 43, 0, 3, 2, 3, 4]);
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0, 0, extensions.len() as u8]);
    body.extend(extensions);
    [&[1, 0, 0, body.len() as u8][..], &body].concat()
}

/// An Initial packet of a client with a CRYPTO frame, padded to 600 bytes; keys by `id` (RFC 9001 section 5.2).
fn initial(destination: &[u8], id: &[u8], number: u8, offset: u8, crypto: &[u8]) -> Vec<u8> {
    let salt = [
        0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc,
        0xbb, 0x7f, 0x0a,
    ];
    let secret = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &salt), id);
    let secret = expand(hmac::HMAC_SHA256, secret.as_ref(), b"client in", &[], 32);
    let derive = |name: &[u8], len| expand(hmac::HMAC_SHA256, &secret, name, &[], len);
    let mut payload = vec![6, offset, 0x40, crypto.len() as u8];
    payload.extend(crypto);
    payload.resize(600, 0);
    let length = (payload.len() + 16 + 1) as u16 | 0x4000;
    let mut header = vec![0xc0, 0, 0, 0, 1, destination.len() as u8];
    header.extend(destination);
    header.extend([0, 0]);
    header.extend(length.to_be_bytes());
    header.push(number);
    let mut nonce: [u8; 12] = derive(b"quic iv", 12).try_into().expect("12 bytes");
    nonce[11] ^= number;
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &derive(b"quic key", 16)).expect("a key"));
    let nonce = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(nonce, Aad::from(&header), &mut payload).expect("sealed");
    let protection = HeaderProtectionKey::new(&AES_128, &derive(b"quic hp", 16)).expect("a key");
    let mask = protection.new_mask(&payload[3..19]).expect("a mask");
    header[0] ^= mask[0] & 0x0f;
    *header.last_mut().expect("a number") ^= mask[1];
    [header, payload].concat()
}

fn datagram(payload: &[u8], is_client: bool, port: u16) -> Datagram<'_> {
    let client = SocketAddr::from(([192, 0, 2, 1], port));
    let server = SocketAddr::from(([192, 0, 2, 2], 443));
    let (source, destination) = if is_client { (client, server) } else { (server, client) };
    Datagram { source, destination, len: payload.len() as u32, payload }
}

#[test]
fn a_hello_in_two_packets_after_a_retry_is_read() {
    let (id, other) = (b"first-id", b"retry-id");
    let hello = hello();
    let mut table = QuicTable::default();
    let mut add = |millis: u64, payload: &[u8], is_client| {
        assert!(table.add(&datagram(payload, is_client, 5000), Nanos(millis * 1_000_000)).0);
    };
    // The first hello is lost before its second packet, which has later bytes.
    add(0, &initial(id, id, 0, 20, &hello[20..]), true);
    let retry = [&[0xf0, 0, 0, 0, 1, 0, 8][..], other, b"token and integrity tag"].concat();
    add(20, &retry, false);
    add(40, &initial(other, other, 1, 0, &hello[..30]), true);
    add(41, b"\x40 a short header", true);
    let reports = table.finish();
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert!(report.has_retry && !report.has_version_negotiation && !report.has_early_data, "{report:?}");
    assert_eq!((report.server_name.as_deref(), &report.version[..]), (Some("site.test"), "QUIC v1"));
    assert_eq!((report.response_us, report.hello_bytes), (Some(20_000), Some(hello.len())));
    assert!(report.ja4.as_ref().is_some_and(|ja4| ja4.starts_with("q13d0103h3_")), "{report:?}");
    assert_eq!((report.client_udp.datagrams, report.server_udp.datagrams), (3, 1));
}

#[test]
fn connections_are_bounded_and_other_datagrams_ignored() {
    let mut table = QuicTable::default();
    let packet = initial(b"first-id", b"first-id", 0, 0, &hello());
    let mut evicted = 0;
    for number in 0..CONNECTIONS + 10 {
        let (is_quic, report) =
            table.add(&datagram(&packet, true, 1000 + number as u16), Nanos(number as u64));
        evicted += usize::from(report.is_some());
        assert!(is_quic && table.connections.len() <= CONNECTIONS && table.order.len() <= CONNECTIONS);
    }
    assert_eq!((evicted, table.finish().len()), (10, CONNECTIONS));
    for cut in [0, 1, 5, 30, packet.len() - 1] {
        assert!(!table.add(&datagram(&packet[..cut], true, 1), Nanos(0)).0, "{cut}");
    }
    assert!(!table.add(&datagram(&[0xff; 1200], true, 1), Nanos(0)).0);
}
