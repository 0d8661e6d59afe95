//! Requests whose early data was rejected.

use std::mem::swap;
use std::net::UdpSocket;

use brisk_testkit::quic_pair::QuicPair;
use brisk_tls_client::{Client, ClientSettings, EarlyData, Verification};
use quinn_proto::{Side, TransportConfig};

use super::*;

fn shared() -> Shared {
    let protocols = vec!["h3".to_owned()];
    let settings = ClientSettings { verification: Verification::Off, protocols, ..ClientSettings::new("a") };
    let handshake = Client::new(settings).expect("settings that fit").quic(None, EarlyData::Omitted);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let server = socket.local_addr().expect("an address");
    let socket = Socket::new(socket).expect("a socket");
    Shared::begin(&Http3Client::default(), socket, server, handshake).expect("a connection")
}

#[tokio::test]
async fn rejected_requests_wait_until_the_server_permits_streams() {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(1_u32.into());
    let (mut pair, mut shared) = (QuicPair::new(transport), shared());
    swap(&mut shared.connection, &mut pair.client.connection);
    // As begun with early data, for which the session has permitted more streams than this server does.
    for number in 0..3 {
        let request = EncodedRequest { bytes: Bytes::from_static(b"request"), is_head: false };
        let stream = StreamId::new(Side::Client, Dir::Bi, number);
        shared.exchanges.insert(number, Exchange::new(stream, request, KeptFields::None));
        shared.numbers.insert(stream, number);
    }
    shared.repeat();
    assert_eq!(shared.rejected, BTreeSet::from([1, 2]));
    shared.abandon(1);
    swap(&mut shared.connection, &mut pair.client.connection);
    pair.exchange();
    let server = &mut pair.server.connection;
    let stream = server.streams().accept(Dir::Bi).expect("the first request");
    let mut receiving = server.recv_stream(stream);
    let mut chunks = receiving.read(true).expect("a new stream");
    while let Ok(Some(_)) = chunks.next(usize::MAX) {}
    let _ = chunks.finalize();
    server.send_stream(stream).finish().expect("an open stream");
    pair.exchange();
    let events = pair.client.take_events();
    assert!(
        events.iter().any(|event| matches!(event, StreamEvent::Available { dir: Dir::Bi })),
        "{events:?}"
    );
    swap(&mut shared.connection, &mut pair.client.connection);
    shared.send_rejected();
    assert!(shared.rejected.is_empty() && shared.numbers.values().any(|number| *number == 2));
}
