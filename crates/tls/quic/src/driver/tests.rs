mod stage;

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use brisk_telemetry::{HandshakeOutcome, Resumption};
use brisk_testkit::quic::QuicConnection;
use brisk_wire::HttpVersion;
use brisk_wire::registry::ProtocolVersion;
use bytes::Bytes;
use quinn_proto::{ConnectionError, Dir, NoneTokenStore, Side, StreamId, TokenStore};
use stage::{FAST, GREETING, SLOW, STORED, Stage};

use super::Rate;
use crate::application::Failure;
use crate::settings::{QuicSettings, Timeouts};

/// The code of the alert in a connection that the server refused.
fn alert(error: &ConnectionError) -> u64 {
    match error {
        ConnectionError::ConnectionClosed(close) => u64::from(close.error_code) - 0x100,
        other => panic!("no alert: {other}"),
    }
}

fn echo(connection: &mut QuicConnection, data: &[u8]) {
    let stream = connection.request(data);
    assert_eq!(connection.response(stream).expect("a response"), data);
}

#[test]
fn a_client_is_served_until_it_closes() {
    let stage = Stage::new();
    stage.serve(|server| {
        let mut client = stage.client(FAST).connect(server);
        client.handshake().expect("a handshake");
        for size in [0, 1, 1000, 200_000] {
            echo(&mut client, &vec![7; size]);
        }
        client.close();
        stage.log.wait(|log| log.ended == 1);
    });
    let handshake = stage.log.handshakes().remove(0);
    assert_eq!((handshake.host, handshake.early_data), (0, false));
    assert_eq!(handshake.facts.version, ProtocolVersion::TLS1_3);
    assert_eq!(handshake.facts.alpn, Some(HttpVersion::Http3));
    assert_eq!(handshake.facts.server_name.as_deref(), Some(FAST));
    assert_eq!(handshake.facts.resumption, Resumption::Full);
    assert!(handshake.facts.scheme.is_some() && handshake.facts.group.is_some());
}

#[test]
fn the_end_of_a_client_is_not_answered() {
    let stage = Stage::new();
    stage.serve(|server| {
        let mut client = stage.client(FAST).connect(server);
        client.handshake().expect("a handshake");
        echo(&mut client, b"served");
        let received = |client: &mut QuicConnection| {
            let end = Instant::now() + Duration::from_millis(200);
            client.wait(|_| Instant::now() > end).expect("no other end");
            client.connection.stats().udp_rx.datagrams
        };
        let before = received(&mut client);
        client.close();
        stage.log.wait(|log| log.ended == 1);
        assert_eq!(received(&mut client), before);
    });
}

#[test]
fn the_application_closes_with_its_code() {
    let stage = Stage::new();
    stage.serve(|server| {
        let mut client = stage.client(FAST).connect(server);
        client.handshake().expect("a handshake");
        client.request(b"close");
        let lost = client.wait(|_| false).expect_err("closed");
        let ConnectionError::ApplicationClosed(close) = lost else { panic!("{lost}") };
        assert_eq!(u64::from(close.error_code), 7);
    });
}

#[test]
fn a_suspended_handshake_delays_no_other() {
    let stage = Stage::new();
    stage.serve(|server| {
        let mut slow = stage.client(SLOW).connect(server);
        stage.engine.wait_for(1);
        let mut fast = stage.client(FAST).connect(server);
        fast.handshake().expect("a handshake beside the other");
        echo(&mut fast, b"beside");
        assert!(!slow.is_connected);
        stage.engine.answer();
        slow.handshake().expect("a handshake");
        echo(&mut slow, b"after");
    });
    assert_eq!(stage.log.handshakes().len(), 2);
}

#[test]
fn many_handshakes_wait_at_the_same_time() {
    let stage = Stage::with(without_retries(), 1);
    stage.serve(|server| {
        let mut clients: Vec<_> = (0..20).map(|_| stage.client(SLOW).connect(server)).collect();
        stage.engine.wait_for(20);
        stage.engine.answer();
        for client in &mut clients {
            client.handshake().expect("a handshake");
            echo(client, b"answered");
        }
    });
}

#[test]
fn the_time_limit_drops_a_suspended_handshake() {
    let settings = QuicSettings { handshake_timeout: Duration::from_millis(300), ..QuicSettings::default() };
    let stage = Stage::with(settings, 1);
    stage.serve(|server| {
        let slow = stage.client(SLOW).connect(server);
        stage.engine.wait_for(1);
        stage.log.wait(|log| log.failed == 1);
        drop(slow);
        // The slot, with a new endpoint, serves the next client.
        let mut fast = stage.client(FAST).connect(server);
        fast.handshake().expect("a handshake");
        echo(&mut fast, b"next");
        stage.engine.answer();
        echo(&mut fast, b"still there");
    });
    assert_eq!(stage.log.failures(), [(Failure::LateSession, None)]);
}

#[test]
fn the_time_limit_ends_a_connection_whose_early_data_is_served() {
    let settings = QuicSettings { handshake_timeout: Duration::from_secs(1), ..QuicSettings::default() };
    let stage = Stage::with(settings, 1);
    stage.serve(|server| {
        let client = stage.client(STORED);
        let mut first = client.connect(server);
        first.handshake().expect("a full handshake");
        echo(&mut first, b"ticket");
        first.close();
        stage.log.wait(|log| log.ended == 1);

        // A client that sends early data and then nothing more.
        let mut again = client.connect(server);
        again.request(b"early");
        stage.log.wait(|log| log.ended == 2);
        assert_eq!(stage.log.permits(), 0);
    });
    assert_eq!((stage.log.handshakes().len(), stage.log.failures()), (2, Vec::new()));
}

#[test]
fn the_memory_of_a_connection_goes_with_its_permit_and_late_packets_are_answered() {
    let stage = Stage::new();
    stage.serve(|server| {
        let mut client = stage.client(FAST).connect(server);
        client.handshake().expect("a handshake");
        echo(&mut client, b"served");
        assert_eq!((stage.log.permits(), stage.sessions()), (1, 1));
        client.request(b"close");
        client.wait(|_| false).expect_err("closed");
        stage::wait_until(|| stage.log.permits() == 0);
        assert_eq!(stage.sessions(), 0);

        let socket = client.socket();
        let answers = |packets: usize| {
            (0..packets).for_each(|_| client.repeat());
            socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
            std::iter::from_fn(|| socket.recv(&mut [0; 2000]).ok()).count()
        };
        // The first, the second, the fourth and the eighth.
        assert_eq!(answers(10), 4);
    });
}

#[test]
fn a_socket_with_an_error_is_reported_and_receives_again() {
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = peer.local_addr().expect("an address");
    let stage = Stage::connected_to(address);
    stage.serve(|server| {
        // Its answer, a version negotiation, reaches a closed port, which the kernel reports to the sender.
        let mut datagram = [&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8][..], &[1; 8], &[8], &[2; 8]].concat();
        datagram.resize(1200, 0);
        drop(peer);
        let refused = Some(ErrorKind::ConnectionRefused);
        stage::wait_until(|| {
            let receptions = stage.log.receptions();
            if receptions.is_empty() {
                // Again until an answer arrives after the port is closed.
                let peer = UdpSocket::bind(address).expect("the port");
                peer.send_to(&datagram, server).expect("sent");
            }
            receptions.starts_with(&[refused, None])
        });
        let mut client = stage.client(FAST).connect_from(UdpSocket::bind(address).expect("the port"), server);
        client.handshake().expect("a handshake");
        echo(&mut client, b"served again");
    });
}

#[test]
fn timeouts_apply_to_connections_that_begin_after_a_change() {
    let stage = Stage::new();
    let long = Duration::from_mins(10);
    stage.serve(|server| {
        let client = stage.client(FAST);
        let mut before = client.connect(server);
        before.handshake().expect("a handshake");
        stage.set_timeouts(Timeouts { handshake: long, idle: Duration::from_millis(300) });
        let mut after = client.connect(server);
        after.handshake().expect("a handshake");
        assert_eq!(after.wait(|_| false).expect_err("idle"), ConnectionError::TimedOut);
        echo(&mut before, b"agreed upon before");

        stage.set_timeouts(Timeouts { handshake: Duration::from_millis(300), idle: long });
        let _slow = stage.client(SLOW).connect(server);
        stage.log.wait(|log| log.failed == 1);
        let mut last = client.connect(server);
        last.handshake().expect("a handshake");
        echo(&mut last, b"within the limits");
    });
    assert_eq!(stage.log.failures(), [(Failure::LateSession, None)]);
}

#[test]
fn a_driver_can_be_dropped_with_suspended_handshakes() {
    let stage = Stage::new();
    let clients: Vec<_> = stage.serve(|server| {
        let clients = (0..3).map(|_| stage.client(SLOW).connect(server)).collect();
        stage.engine.wait_for(3);
        clients
    });
    // The driver is gone with its coroutines: their results have no receiver.
    stage.engine.answer();
    drop(clients);
    assert_eq!(stage.log.permits(), 0, "the permits of the dropped handshakes are free");
}

#[test]
fn early_requests_that_wait_for_a_session_are_answered() {
    let stage = Stage::new();
    stage.serve(|server| {
        let client = stage.client(STORED);
        let mut first = client.connect(server);
        first.handshake().expect("a full handshake");
        // The ticket arrives with or before the response.
        echo(&mut first, b"ticket");
        first.close();

        let mut again = client.connect(server);
        assert!(again.connection.has_0rtt());
        let streams: Vec<_> = (0..40u8).map(|number| (number, again.request(&[number; 100]))).collect();
        let begun = Instant::now();
        for (number, stream) in streams {
            assert_eq!(again.response(stream).expect("a response"), [number; 100]);
        }
        assert!(begun.elapsed() > stage::STORE_DELAY / 2, "the store did not wait");
        assert!(again.connection.accepted_0rtt());
        stage.log.wait(|log| log.confirmed == 1);
    });
    let handshakes = stage.log.handshakes();
    assert!(!handshakes[0].early_data && handshakes[1].early_data);
    assert_eq!(handshakes[1].facts.resumption, Resumption::EarlyData);
}

#[test]
fn early_data_of_an_address_without_proof_waits_for_the_handshake() {
    let stage = Stage::new();
    stage.serve(|server| {
        // Without tokens, as a host has none that claims the address of another one.
        let client = stage.client(STORED).token_store(Arc::new(NoneTokenStore));
        let mut first = client.connect(server);
        first.handshake().expect("a full handshake");
        echo(&mut first, b"ticket");
        first.close();
        stage.log.wait(|log| log.ended == 1);
        assert_eq!(stage.log.handshakes().len(), 1);

        let mut again = client.connect(server);
        assert!(again.connection.has_0rtt());
        let early = again.request(b"early");
        // The flight of the server comes after its decision about the early data.
        let has_flight = |client: &mut QuicConnection| client.connection.accepted_0rtt();
        again.wait_without_sending(has_flight).expect("the flight of the server");
        assert_eq!(stage.log.handshakes().len(), 0, "served before the address is proven");
        assert_eq!(again.response(early).expect("a response"), b"early");
        stage.log.wait(|log| log.confirmed == 1);
        assert_eq!(stage.log.handshakes().len(), 1);
        echo(&mut again, b"ticket");

        // A forged flight, whose sender receives nothing, ends without having been served.
        let settings = Timeouts { handshake: Duration::from_millis(300), idle: Duration::from_mins(3) };
        stage.set_timeouts(settings);
        let mut forged = client.connect(server);
        forged.request(b"forged");
        stage.log.wait(|log| log.failed == 1);
    });
    assert_eq!(stage.log.handshakes().len(), 0);
}

#[test]
fn early_data_of_an_address_with_a_token_is_served_before_the_handshake_is_complete() {
    let stage = Stage::new();
    stage.serve(|server| {
        let client = stage.client(STORED);
        let mut first = client.connect(server);
        first.handshake().expect("a full handshake");
        echo(&mut first, b"ticket");
        let mut again = client.connect(server);
        let stream = again.request(b"early");
        let mut received = Vec::new();
        // Without sending, so that the handshake is not complete.
        again.wait_without_sending(|client| client.read(stream, &mut received)).expect("a response");
        assert_eq!(received, b"early");
        again.handshake().expect("a handshake");
        echo(&mut again, b"ticket");
        // A token is bound to the address.
        let elsewhere = UdpSocket::bind("127.0.0.2:0").expect("a socket");
        let mut moved = client.connect_from(elsewhere, server);
        moved.request(b"early");
        let has_flight = |client: &mut QuicConnection| client.connection.accepted_0rtt();
        moved.wait_without_sending(has_flight).expect("the flight of the server");
        assert_eq!(stage.log.handshakes().len(), 2, "the token proves another address");
    });
}

#[test]
fn a_client_that_changes_its_port_keeps_its_worker() {
    let stage = Stage::with(QuicSettings::default(), 4);
    stage.serve(|server| {
        let mut clients: Vec<_> = (0..8).map(|_| stage.client(FAST).connect(server)).collect();
        for client in &mut clients {
            client.handshake().expect("a handshake");
        }
        for round in 0..5u8 {
            for client in &mut clients {
                client.rebind();
                echo(client, &[round; 64]);
            }
        }
    });
    assert_eq!(stage.log.handshakes().len(), 8);
}

#[test]
fn a_datagram_at_the_wrong_socket_is_passed_on() {
    let stage = Stage::apart(2);
    let [first, second] = stage.addresses()[..] else { panic!("two sockets") };
    stage.serve(|_| {
        // An even byte names the first socket.
        let mut client = stage.client(FAST).first_id_byte(2).connect(first);
        client.handshake().expect("a handshake");
        echo(&mut client, b"at home");
        client.redirect = Some(second);
        echo(&mut client, b"passed on");
    });
    assert!(stage.counters().datagrams_passed.get() > 0);
    assert_eq!(stage.log.handshakes().len(), 1);
}

#[test]
fn above_the_rate_clients_have_to_prove_their_address() {
    let first_byte = |unvalidated_rate| {
        let stage = Stage::with(QuicSettings { unvalidated_rate, ..QuicSettings::default() }, 1);
        stage.serve(|server| {
            let mut client = stage.client(FAST).connect(server);
            client.handshake().expect("a handshake");
            echo(&mut client, b"served");
            let retries = stage.counters().retries.get();
            (client.first_byte.expect("a datagram") & 0x30, retries)
        })
    };
    // RFC 9000 section 17.2: bits 4 and 5 are the type, 3 for Retry and 0 for Initial.
    assert_eq!(first_byte(0), (0x30, 1));
    assert_eq!(first_byte(1), (0, 0));
}

#[test]
fn completed_handshakes_do_not_count_for_the_rate() {
    let stage = Stage::with(QuicSettings { unvalidated_rate: 1, ..QuicSettings::default() }, 1);
    stage.serve(|server| {
        for _ in 0..20 {
            let mut client = stage.client(FAST).connect(server);
            client.handshake().expect("a handshake");
            echo(&mut client, b"served");
        }
    });
    assert_eq!(stage.counters().retries.get(), 0);
}

#[test]
fn a_handshake_of_an_earlier_second_is_not_subtracted_from_the_present_one() {
    let (mut rate, first) = (Rate::default(), Instant::now());
    let second = first + Duration::from_secs(1);
    assert!(!rate.exceeds(1, first) && !rate.exceeds(1, second));
    rate.complete(first);
    assert!(rate.exceeds(1, second));
    (0..2).for_each(|_| rate.complete(second));
    assert!(!rate.exceeds(1, second));
}

#[test]
fn the_padding_of_a_hello_counts_for_what_its_sender_may_be_sent() {
    let stage = Stage::new();
    stage.serve(|server| {
        let relay = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        relay.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let client = stage.client(FAST).connect(relay.local_addr().expect("an address"));
        let mut datagram = [0; 1500];
        assert_eq!(relay.recv(&mut datagram).expect("a hello"), client.first().len());
        relay.send_to(client.first(), server).expect("sent");
        // Without an acknowledgement, the server repeats its flight: it may send three times 1,200 bytes.
        let mut received = 0;
        while received <= 1200 {
            received += relay.recv(&mut datagram).expect("a repetition");
        }
    });
}

#[test]
fn the_greeting_comes_with_the_handshake() {
    let stage = Stage::new();
    stage.serve(|server| {
        let mut client = stage.client(FAST).connect(server);
        let mut received = Vec::new();
        // Without the end of its handshake, the server has no application for the connection yet.
        client
            .wait_without_sending(|client| {
                let stream = StreamId::new(Side::Server, Dir::Uni, 0);
                client.read(stream, &mut received);
                received.len() >= GREETING.len()
            })
            .expect("a greeting");
        assert_eq!((&received[..], stage.log.handshakes().len()), (GREETING, 0));
        client.handshake().expect("a handshake");
        echo(&mut client, b"served");
    });
}

/// The first token of a server, presented again and again.
#[derive(Default)]
struct OneToken(Mutex<Option<Bytes>>);

impl TokenStore for OneToken {
    fn insert(&self, _name: &str, token: Bytes) {
        self.0.lock().expect("not poisoned").get_or_insert(token);
    }

    fn take(&self, _name: &str) -> Option<Bytes> {
        self.0.lock().expect("not poisoned").clone()
    }
}

#[test]
fn a_token_of_an_earlier_connection_proves_the_address_once() {
    let stage = Stage::with(QuicSettings { unvalidated_rate: 0, ..QuicSettings::default() }, 1);
    stage.serve(|server| {
        let returning = stage.client(FAST).token_store(Arc::new(OneToken::default()));
        let retries = [(); 3].map(|()| {
            let mut client = returning.connect(server);
            client.handshake().expect("a handshake");
            echo(&mut client, b"served");
            stage.counters().retries.get()
        });
        assert_eq!(retries, [1, 1, 2], "no token, a new one, a used one");
    });
}

/// Settings with which no client of a test has to prove its address.
fn without_retries() -> QuicSettings {
    QuicSettings { unproven_of_client: 1000, ..QuicSettings::default() }
}

#[test]
fn a_client_has_half_of_the_handshakes_in_progress() {
    let stage = Stage::with(QuicSettings { pending_handshakes: 4, ..without_retries() }, 1);
    stage.serve(|server| {
        let mut slow: Vec<_> = (0..3).map(|_| stage.client(SLOW).connect(server)).collect();
        stage.engine.wait_for(2);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(stage.engine.waiting(), 2, "the third is not begun");
        stage.engine.answer();
        assert!(stage.counters().handshakes_over_limit.get() > 0);
        // The third client repeats its hello.
        for client in &mut slow {
            client
                .wait(|client| {
                    stage.engine.answer();
                    client.is_connected
                })
                .expect("a handshake");
        }
    });
}

#[test]
fn an_address_that_is_only_claimed_has_eight_handshakes_and_further_clients_prove_theirs() {
    let stage = Stage::new();
    stage.serve(|server| {
        let mut slow: Vec<_> = (0..10).map(|_| stage.client(SLOW).connect(server)).collect();
        stage.engine.wait_for(8);
        for client in &mut slow {
            client
                .wait(|client| {
                    stage.engine.answer();
                    client.is_connected
                })
                .expect("a handshake");
        }
        assert!(stage.counters().retries.get() >= 2);
    });
}

#[test]
fn an_unknown_version_is_negotiated_without_state() {
    let stage = Stage::new();
    stage.serve(|server| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let mut datagram = [&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8][..], &[1; 8], &[8], &[2; 8]].concat();
        // Smaller ones get no answer, because the answer would be larger.
        socket.send_to(&datagram, server).expect("sent");
        datagram.resize(1200, 0);
        socket.send_to(&datagram, server).expect("sent");
        let mut answer = [0; 100];
        let length = socket.recv(&mut answer).expect("an answer");
        assert_eq!(answer[1..5], [0; 4], "version negotiation");
        assert_eq!(answer[5..23], [&[8][..], &[2; 8], &[8], &[1; 8]].concat());
        assert!(answer[23..length].chunks(4).any(|version| version == [0, 0, 0, 1]));
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        assert!(socket.recv(&mut answer).is_err(), "one answer");
    });
    assert_eq!(stage.log.permits(), 0);
}

#[test]
fn a_packet_of_an_unknown_connection_is_answered_by_a_reset() {
    let stage = Stage::new();
    stage.serve(|server| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        socket.send_to(&[0x41; 100], server).expect("sent");
        let mut answer = [0; 200];
        let length = socket.recv(&mut answer).expect("a reset");
        assert!(length < 100 && answer[0] & 0xc0 == 0x40);
    });
}

#[test]
fn a_refused_hello_is_answered_by_its_alert() {
    let stage = Stage::new();
    stage.serve(|server| {
        let mut unknown = stage.client("unknown.test").connect(server);
        assert_eq!(alert(&unknown.handshake().expect_err("refused")), 112, "unrecognized_name");
        let mut protocol = stage.client_with(FAST, "hq-interop").connect(server);
        assert_eq!(alert(&protocol.handshake().expect_err("refused")), 120, "no_application_protocol");
        stage.log.wait(|log| log.failed == 2);
    });
    let failures = stage.log.failures();
    let outcomes: Vec<_> = failures.iter().filter_map(|(_, outcome)| *outcome).collect();
    assert_eq!(outcomes, [HandshakeOutcome::UnknownName, HandshakeOutcome::ProtocolError]);
    assert!(failures.iter().all(|(failure, _)| matches!(failure, Failure::Lost(_))), "{failures:?}");
    assert_eq!(stage.log.permits(), 0);
}

#[test]
fn datagrams_that_wait_for_a_handshake_are_bounded() {
    let stage = Stage::new();
    stage.serve(|server| {
        let mut slow = stage.client(SLOW).connect(server);
        stage.engine.wait_for(1);
        // A flood of copies of the first packet, which all lead to the suspended handshake.
        for _ in 0..2000 {
            slow.repeat();
        }
        stage::wait_until(|| stage.counters().datagrams_over_limit.get() > 0);
        let mut fast = stage.client(FAST).connect(server);
        fast.handshake().expect("a handshake beside the flood");
        stage.engine.answer();
        slow.handshake().expect("a handshake");
        echo(&mut slow, b"after the flood");
    });
    // Some of the 2,000 may be lost by the socket, and 48 wait.
    let dropped = stage.counters().datagrams_over_limit.get();
    assert!((100..=2000 - 48).contains(&dropped), "{dropped} dropped");
    assert_eq!(stage.log.handshakes().len(), 2);
}
