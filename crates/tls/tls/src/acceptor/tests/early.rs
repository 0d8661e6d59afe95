//! Early data: accepted once, refused without effect, and never beyond its limits.

use std::future::poll_fn;
use std::io::{ErrorKind, Write};

use brisk_session::{Claim, Miss};
use brisk_telemetry::{EarlyData, Milestone, ResumptionFailure};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;

use super::*;
use crate::Stream;
use crate::testing::{Flights, Forgetful, ScriptedStore, close, read};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

/// A stage that accepts early data, and a client that has a session there.
async fn stage() -> (Stage, Arc<ScriptedStore>, Arc<ClientConfig>) {
    let (stage, store) = Stage::with_early_data(1000);
    let client = Arc::new(stage.client(&TLS13));
    assert_eq!(resumption(&stage, &client).await.resumption_failure, None);
    store.claims();
    (stage, store, client)
}

/// The client's first flight with the early data `early`, and the server's end of the connection.
async fn announced(client: &Arc<ClientConfig>, early: &[u8]) -> (Flights, Vec<u8>, TcpStream) {
    let (near, far) = tcp().await;
    let mut flights = Flights::new(client, near);
    flights.early(early);
    let first = flights.flight();
    (flights, first, far)
}

/// A connection whose early data is accepted.
async fn accepted(stage: &Stage, client: &Arc<ClientConfig>, early: &[u8]) -> (Flights, Accepted) {
    let (mut flights, first, far) = announced(client, early).await;
    flights.send(&first).await;
    let mut accepted = soon(stage.accept(far)).await.expect("early data");
    assert_eq!(accepted.facts.early_data, Some(EarlyData::Accepted));
    assert_eq!(accepted.facts.resumption, Resumption::EarlyData);
    assert!(accepted.stream.confirmation().is_some());
    drain(&mut accepted.stream).await.expect("a client that reads");
    (flights, accepted)
}

/// A complete handshake of a client that announces early data, which may be empty and which the server refuses.
async fn refused(stage: &Stage, client: &Arc<ClientConfig>, early: &[u8]) -> TlsFacts {
    let (mut flights, first, far) = announced(client, early).await;
    let client = async {
        flights.send(&first).await;
        flights.hear().await;
        assert!(!flights.tls.is_early_data_accepted());
        let second = flights.flight();
        flights.send(&second).await;
        flights
    };
    let (mut flights, accepted) = soon(async { tokio::join!(client, stage.accept(far)) }).await;
    let mut accepted = accepted.expect("a handshake");
    assert!(accepted.stream.confirmation().is_none());
    assert_eq!(accepted.stream.early_bytes(), 0);
    write(&mut accepted.stream, b"answer").await.expect("written");
    drain(&mut accepted.stream).await.expect("sent");
    soon(flights.read(b"answer")).await;
    accepted.facts
}

async fn confirm(stream: &mut Stream) -> std::io::Result<()> {
    soon(poll_fn(|cx| stream.poll_confirm(cx))).await
}

#[tokio::test]
async fn early_data_is_answered_before_the_clients_finished() {
    let (stage, store, client) = stage().await;
    for _ in 0..3 {
        let (mut flights, Accepted { mut stream, .. }) = accepted(&stage, &client, REQUEST).await;
        assert_eq!(store.claims(), [Claim::Everywhere]);
        let confirmation = stream.confirmation().expect("not complete");
        assert_eq!(read(&mut stream).await.expect("early data"), REQUEST);
        assert_eq!(stream.early_bytes(), REQUEST.len() as u64);
        write(&mut stream, b"answer").await.expect("written");
        drain(&mut stream).await.expect("sent");
        soon(flights.read(b"answer")).await;
        assert!(!confirmation.is_confirmed());

        let second = flights.flight();
        flights.send(&second).await;
        confirm(&mut stream).await.expect("a Finished");
        soon(confirmation.confirmed()).await;
        assert!(confirmation.confirmed_at().is_some() && stream.confirmation().is_none());
        flights.tls.writer().write_all(b"more").expect("into memory");
        let more = flights.flight();
        flights.send(&more).await;
        assert_eq!(soon(read(&mut stream)).await.expect("data"), b"more");
        // The next response contains the session of the next round.
        write(&mut stream, b"end").await.expect("written");
        close(&mut stream).await.expect("sent");
        soon(flights.read(b"end")).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_ready_at_once_goes_with_our_flight() {
    let (stage, _, client) = stage().await;
    let (mut flights, first, far) = announced(&client, REQUEST).await;
    flights.send(&first).await;
    let mut stream = soon(stage.accept(far)).await.expect("early data").stream;
    assert_eq!(stream.bytes().1, 0);
    write(&mut stream, b"answer").await.expect("written");
    drain(&mut stream).await.expect("sent");
    let sent = stream.bytes().1;
    let mut received = vec![0; 4096];
    let len = soon(flights.tcp.read(&mut received)).await.expect("a flight");
    assert_eq!(len as u64, sent);
}

#[tokio::test]
async fn the_handshake_is_finished_when_it_is_confirmed() {
    let (stage, _, client) = stage().await;
    let (mut flights, first, far) = announced(&client, REQUEST).await;
    flights.send(&first).await;
    let mut timeline = Timeline::start();
    let accepted = soon(stage.acceptor.accept(far, Vec::new(), &mut timeline)).await.expect("early data");
    assert_eq!(timeline.offset(Milestone::HandshakeFinished), None);
    assert!(accepted.stream.confirmation().is_some());
}

#[tokio::test]
async fn early_data_that_comes_byte_by_byte_stays_in_order() {
    let (stage, _, client) = stage().await;
    let (mut flights, first, far) = announced(&client, REQUEST).await;
    let server = async {
        let mut stream = stage.accept(far).await.expect("early data").stream;
        drain(&mut stream).await.expect("sent");
        let mut data = Vec::new();
        while data.len() < REQUEST.len() + 4 {
            data.extend(read(&mut stream).await.expect("data"));
        }
        assert!(stream.confirmation().is_none());
        data
    };
    let client = async {
        for byte in first {
            flights.send(&[byte]).await;
            tokio::task::yield_now().await;
        }
        flights.hear().await;
        assert!(flights.tls.is_early_data_accepted());
        flights.tls.writer().write_all(b"more").expect("into memory");
        for byte in flights.flight() {
            flights.send(&[byte]).await;
            tokio::task::yield_now().await;
        }
    };
    let (data, ()) = soon(async { tokio::join!(server, client) }).await;
    assert_eq!(data, [REQUEST, b"more"].concat());
}

#[tokio::test]
async fn what_comes_while_confirming_is_kept_for_the_reader() {
    let (stage, _, client) = stage().await;
    let (mut flights, first, far) = announced(&client, REQUEST).await;
    flights.send(&first).await;
    let mut stream = soon(stage.accept(far)).await.expect("early data").stream;
    drain(&mut stream).await.expect("sent");
    soon(flights.hear()).await;
    flights.tls.writer().write_all(b"more").expect("into memory");
    let second = flights.flight();
    flights.send(&second).await;
    confirm(&mut stream).await.expect("a Finished");
    let mut data = Vec::new();
    while data.len() < REQUEST.len() + 4 {
        data.extend(soon(read(&mut stream)).await.expect("data"));
    }
    assert_eq!(data, [REQUEST, b"more"].concat());
}

#[tokio::test]
async fn a_flight_that_is_sent_again_is_not_accepted_again() {
    let (stage, _, client) = stage().await;
    let (mut flights, first, far) = announced(&client, REQUEST).await;
    flights.send(&first).await;
    let original = soon(stage.accept(far)).await.expect("early data");
    assert_eq!(original.facts.early_data, Some(EarlyData::Accepted));
    for _ in 0..10 {
        let (mut near, far) = tcp().await;
        near.write_all(&first).await.expect("sent");
        let replayed = async {
            // The server's flight of a full handshake, which the sender cannot complete.
            let len = near.read(&mut vec![0; 8192]).await.expect("a flight");
            assert!(len > 0);
            drop(near);
        };
        let (accepted, ()) = soon(async { tokio::join!(stage.accept(far), replayed) }).await;
        assert_eq!(accepted.err().expect("no handshake").outcome, HandshakeOutcome::ClientClosed);
    }
}

#[tokio::test]
async fn a_session_that_was_used_is_distinguished_from_one_that_never_was() {
    let (stage, store, client) = stage().await;
    store.spend();
    let facts = refused(&stage, &client, REQUEST).await;
    assert_eq!(facts.resumption, Resumption::Full);
    assert_eq!(facts.resumption_failure, Some(ResumptionFailure::Used));
    assert_eq!(facts.early_data, Some(EarlyData::NotResumed));
}

#[tokio::test]
async fn where_the_store_does_not_know_the_handshake_is_a_full_one() {
    for (miss, failure) in [
        (Miss::Unknown, ResumptionFailure::NoSession),
        (Miss::Used, ResumptionFailure::Used),
        (Miss::Late, ResumptionFailure::StoreLate),
        (Miss::Down, ResumptionFailure::StoreDown),
        (Miss::Forged, ResumptionFailure::Forged),
    ] {
        let (stage, store, client) = stage().await;
        store.miss(miss);
        let facts = refused(&stage, &client, REQUEST).await;
        assert_eq!(facts.resumption_failure, Some(failure));
        assert_eq!(facts.early_data, Some(EarlyData::NotResumed));
        assert_eq!(store.claims(), [Claim::Everywhere]);
    }
}

#[tokio::test]
async fn a_store_that_answers_later_serves_early_data() {
    let (stage, store, client) = stage().await;
    store.suspend();
    let (mut flights, Accepted { mut stream, .. }) = accepted(&stage, &client, REQUEST).await;
    soon(flights.hear()).await;
    let second = flights.flight();
    flights.send(&second).await;
    confirm(&mut stream).await.expect("a Finished");
    assert_eq!(read(&mut stream).await.expect("early data"), REQUEST);
    write(&mut stream, b"answer").await.expect("written");
    close(&mut stream).await.expect("sent");
    soon(flights.read(b"answer")).await;
    // The store did not accept the new session in time, so the client has none.
    assert!(Flights::new(&client, tcp().await.0).tls.early_data().is_none());
}

#[tokio::test]
async fn early_data_announced_and_not_sent_is_accepted() {
    for alpn in [&[][..], &["h2"], &["http/1.1"]] {
        let (stage, _) = Stage::with_early_data(1000);
        let mut client = stage.client(&TLS13);
        client.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let client = Arc::new(client);
        resumption(&stage, &client).await;
        let (near, far) = tcp().await;
        let mut flights = Flights::new(&client, near);
        let client = async {
            let first = flights.flight();
            flights.send(&first).await;
            flights.hear().await;
            assert!(flights.tls.is_early_data_accepted());
            let second = flights.flight();
            flights.send(&second).await;
        };
        let ((), accepted) = soon(async { tokio::join!(client, stage.accept(far)) }).await;
        let accepted = accepted.expect("a handshake");
        assert!(accepted.stream.confirmation().is_none());
        assert_eq!(accepted.facts.early_data, Some(EarlyData::Accepted));
        assert_eq!(accepted.facts.resumption, Resumption::EarlyData);
    }
}

#[tokio::test]
async fn without_early_data_a_session_is_taken_here_and_resumed() {
    let (stage, store, client) = stage().await;
    for _ in 0..2 {
        let facts = resumption(&stage, &client).await;
        assert_eq!((facts.resumption, facts.early_data), (Resumption::Psk, None));
        assert_eq!(store.claims(), [Claim::Here]);
    }
}

#[tokio::test]
async fn a_host_that_takes_none_any_more_skips_early_data() {
    let (mut stage, _, client) = stage().await;
    stage.reload(TlsSettings::default(), |host| host.early_data = 0);
    let facts = refused(&stage, &client, &[b'x'; 1000]).await;
    assert_eq!(facts.early_data, Some(EarlyData::Disabled));
    assert_eq!(facts.resumption_failure, Some(ResumptionFailure::UnknownKey));

    let (mut stage, _, client) = self::stage().await;
    stage.reload(TlsSettings { tickets: false, ..TlsSettings::default() }, |host| host.early_data = 0);
    let facts = refused(&stage, &client, &[b'x'; 1000]).await;
    assert_eq!((facts.early_data, facts.resumption), (Some(EarlyData::Disabled), Resumption::Psk));
}

#[tokio::test]
async fn a_host_that_asks_for_client_certificates_takes_no_early_data() {
    let (mut stage, _, client) = stage().await;
    stage.require_client_certificates(TlsSettings::default());
    let (mut flights, first, far) = announced(&client, REQUEST).await;
    let client = async {
        flights.send(&first).await;
        flights.hear().await;
        assert!(!flights.tls.is_early_data_accepted());
        let second = flights.flight();
        flights.send(&second).await;
        flights.alert().await
    };
    let (alert, accepted) = soon(async { tokio::join!(client, stage.accept(far)) }).await;
    assert_eq!(accepted.err().expect("a refusal").outcome, HandshakeOutcome::ClientCertificate);
    assert!(alert.contains("CertificateRequired"), "{alert}");
}

#[tokio::test]
async fn another_protocol_than_the_sessions_refuses_early_data_and_resumes() {
    let (stage, _) = Stage::with_early_data(1000);
    let mut client = stage.client(&TLS13);
    client.alpn_protocols = vec![b"h2".to_vec()];
    resumption(&stage, &Arc::new(client.clone())).await;
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    let facts = refused(&stage, &Arc::new(client), REQUEST).await;
    assert_eq!(facts.resumption, Resumption::Psk);
    assert_eq!(facts.early_data, Some(EarlyData::Unsuitable));
    assert_eq!(facts.resumption_failure, None);
}

/// A clock that is ahead.
#[derive(Debug)]
struct Ahead(u64);

impl TimeProvider for Ahead {
    fn current_time(&self) -> Option<UnixTime> {
        let now = UnixTime::now().as_secs() + self.0;
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(now)))
    }
}

#[tokio::test]
async fn early_data_with_a_session_of_another_age_is_refused() {
    for (ahead, sent) in [(70, REQUEST), (70, b""), (50, REQUEST)] {
        let (stage, _, client) = stage().await;
        let mut client = ClientConfig::clone(&client);
        client.time_provider = Arc::new(Ahead(ahead));
        let client = Arc::new(client);
        if ahead == 50 {
            drop(accepted(&stage, &client, sent).await);
            continue;
        }
        let facts = refused(&stage, &client, sent).await;
        assert_eq!(facts.resumption, Resumption::Psk);
        assert_eq!(facts.early_data, Some(EarlyData::Unsuitable));
    }
}

#[tokio::test]
async fn early_data_before_a_hello_retry_is_refused() {
    let (stage, store) = Stage::with_early_data(1000);
    let groups = vec![aws_lc_rs::kx_group::MLKEM768, aws_lc_rs::kx_group::X25519];
    let provider = CryptoProvider { kx_groups: groups, ..aws_lc_rs::default_provider() };
    let mut client = stage.client_with(provider);
    client.resumption = ClientResumption::store(Forgetful::new());
    let client = Arc::new(client);
    assert!(resumption(&stage, &client).await.hello_retry);
    store.claims();
    let facts = refused(&stage, &client, REQUEST).await;
    assert!(facts.hello_retry);
    assert_eq!(facts.resumption, Resumption::Psk);
    assert_eq!(facts.early_data, Some(EarlyData::Unsuitable));
}

#[tokio::test]
async fn more_early_data_than_allowed_is_refused() {
    // Immediately, and after some early data has been accepted.
    for at_once in [true, false] {
        let (mut stage, _, client) = stage().await;
        stage.reload(TlsSettings::default(), |host| host.early_data = 100);
        let (mut flights, mut first, far) = announced(&client, &[b'x'; 60]).await;
        flights.early(&[b'y'; 60]);
        let rest = flights.flight();
        if at_once {
            first.extend_from_slice(&rest);
        }
        flights.send(&first).await;
        let client = async {
            if !at_once {
                flights.send(&rest).await;
            }
            flights.alert().await
        };
        let server = async {
            let Ok(Accepted { mut stream, .. }) = stage.accept(far).await else { return };
            assert!(!at_once);
            assert_eq!(read(&mut stream).await.expect("early data"), [b'x'; 60]);
            let error = read(&mut stream).await.expect_err("too much");
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            close(&mut stream).await.expect("sent");
        };
        let (alert, ()) = soon(async { tokio::join!(client, server) }).await;
        assert!(alert.contains("UnexpectedMessage"), "{alert}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_after_its_early_data_has_not_confirmed() {
    let (stage, _, client) = stage().await;
    let (flights, Accepted { mut stream, .. }) = accepted(&stage, &client, REQUEST).await;
    drop(flights);
    let confirmation = stream.confirmation().expect("not complete");
    for _ in 0..2 {
        let error = confirm(&mut stream).await.expect_err("an end");
        assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{error}");
    }
    assert_eq!(read(&mut stream).await.expect("early data"), REQUEST);
    soon(read(&mut stream)).await.expect_err("no proper end");
    assert!(!confirmation.is_confirmed());
}

#[tokio::test]
async fn a_proper_end_before_the_finished_is_no_end_of_data() {
    let (stage, _, client) = stage().await;
    let (mut near, far) = tcp().await;
    let (mut flights, first, _) = announced(&client, REQUEST).await;
    near.write_all(&first).await.expect("sent");
    let mut stream = soon(stage.accept(far)).await.expect("early data").stream;
    near.shutdown().await.expect("closed");
    assert_eq!(read(&mut stream).await.expect("early data"), REQUEST);
    assert_eq!(soon(read(&mut stream)).await.expect_err("an end").kind(), ErrorKind::UnexpectedEof);
    flights.tcp = near;
    close(&mut stream).await.expect("closed");
}

#[tokio::test]
async fn what_is_no_finished_gets_its_alert() {
    // Garbage, an empty and a wrong Finished, and a wrong message; all but the first follow a valid EndOfEarlyData.
    let wrong = [&[20, 0, 0, 32][..], &[0x55; 32]].concat();
    let cases = [
        (None, "BadRecordMac"),
        (Some(wrong), "DecryptError"),
        (Some(vec![20, 0, 0, 0]), "DecryptError"),
        (Some(vec![24, 0, 0, 1, 0]), "UnexpectedMessage"),
    ];
    for (message, expected) in cases {
        let (stage, _, client) = stage().await;
        let (mut flights, Accepted { mut stream, .. }) = accepted(&stage, &client, REQUEST).await;
        write(&mut stream, b"answer").await.expect("written");
        drain(&mut stream).await.expect("sent");
        soon(flights.read(b"answer")).await;
        match message {
            None => flights.send(b"\x17\x03\x03\x00\x20ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ").await,
            Some(message) => {
                let second = flights.flight();
                let end_of_early_data = 5 + usize::from(second[4]);
                flights.send(&second[..end_of_early_data]).await;
                let forged = flights.forger().record(22, &message);
                flights.send(&forged).await;
            }
        }
        let confirmation = stream.confirmation().expect("not complete");
        let error = confirm(&mut stream).await.expect_err("no Finished");
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{expected}");
        close(&mut stream).await.expect("sent");
        let alert = soon(flights.alert()).await;
        assert!(alert.contains(expected), "{alert}");
        assert!(!confirmation.is_confirmed());
    }
}

#[tokio::test]
async fn clients_of_tls_1_2_keep_tickets_where_early_data_is_taken() {
    let (stage, store) = Stage::with_early_data(1000);
    let client = Arc::new(stage.client(&TLS12));
    assert_eq!(resumption(&stage, &client).await.resumption, Resumption::Full);
    assert_eq!(resumption(&stage, &client).await.resumption, Resumption::Ticket);
    assert_eq!(store.claims(), []);
}

#[tokio::test]
async fn stateful_sessions_need_no_early_data() {
    let (mut stage, store) = Stage::with_early_data(0);
    stage.reload(TlsSettings { stateful: true, ..TlsSettings::default() }, |_| {});
    let client = Arc::new(stage.client(&TLS13));
    assert_eq!(resumption(&stage, &client).await.resumption, Resumption::Full);
    assert_eq!(resumption(&stage, &client).await.resumption, Resumption::Psk);
    assert_eq!(store.claims(), [Claim::Here]);
    assert!(Flights::new(&client, tcp().await.0).tls.early_data().is_none());
    let client = Arc::new(stage.client(&TLS12));
    resumption(&stage, &client).await;
    assert_eq!(resumption(&stage, &client).await.resumption, Resumption::Ticket);
}

#[tokio::test]
async fn other_hosts_go_on_with_tickets() {
    let (stage, store) = Stage::with_early_data(0);
    let client = Arc::new(stage.client(&TLS13));
    resumption(&stage, &client).await;
    assert_eq!(resumption(&stage, &client).await.resumption, Resumption::Psk);
    assert_eq!(store.claims(), []);
}
