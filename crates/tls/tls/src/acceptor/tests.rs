mod early;

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use brisk_certs::{Catalogues, Served, load};
use brisk_keys::{Keystore, LocalEngine, Performer};
use brisk_session::Miss;
use brisk_telemetry::{Resumption, ResumptionFailure};
use brisk_testkit::ca::TestCa;
use brisk_testkit::client::TlsClient;
use brisk_wire::registry::{ProtocolVersion, SignatureScheme};
use rustls::client::Resumption as ClientResumption;
use rustls::compress::{BROTLI_DECOMPRESSOR, CertDecompressor, DecompressionFailed};
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateCompressionAlgorithm, ClientConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::LocalSet;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::testing::{BrokenEngine, HOST, LateEngine, Stage, drain, handshake, soon, tcp, write};

async fn resumption(stage: &Stage, client: &Arc<ClientConfig>) -> TlsFacts {
    let (mut tls, mut accepted) = stage.connect(client).await;
    // A TLS 1.3 client processes its tickets when it reads.
    write(&mut accepted.stream, b"x").await.expect("written");
    drain(&mut accepted.stream).await.expect("sent");
    assert_eq!(soon(tls.read_u8()).await.expect("data"), b'x');
    accepted.facts
}

#[tokio::test]
async fn both_versions_are_negotiated_and_resumed() {
    let stage = Stage::new();
    for (version, number, resumed) in [
        (&TLS12, ProtocolVersion::TLS1_2, Resumption::Ticket),
        (&TLS13, ProtocolVersion::TLS1_3, Resumption::Psk),
    ] {
        let client = Arc::new(stage.client(version));
        let facts = resumption(&stage, &client).await;
        assert_eq!(facts.version, number);
        assert_eq!(facts.resumption, Resumption::Full);
        assert_eq!(facts.scheme, Some(SignatureScheme::ECDSA_SECP256R1_SHA256));
        assert_eq!(facts.server_name.as_deref(), Some(HOST));
        assert!(facts.group.is_some());
        let facts = resumption(&stage, &client).await;
        assert_eq!(facts.resumption, resumed);
        assert_eq!(facts.scheme, None, "nothing is signed for a session that is resumed");
    }
}

#[tokio::test]
async fn sessions_are_resumed_by_id_without_tickets() {
    let stage = Stage::with(TlsSettings { tickets: false, ..TlsSettings::default() }, |engine| engine);
    for (version, resumed) in [(&TLS12, Resumption::SessionId), (&TLS13, Resumption::Psk)] {
        let client = Arc::new(stage.client(version));
        assert_eq!(resumption(&stage, &client).await.resumption, Resumption::Full);
        assert_eq!(resumption(&stage, &client).await.resumption, resumed);
    }
}

/// Decompresses and counts.
#[derive(Debug)]
struct Counting;

static DECOMPRESSED: AtomicUsize = AtomicUsize::new(0);

impl CertDecompressor for Counting {
    fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
        DECOMPRESSED.fetch_add(1, Ordering::Relaxed);
        BROTLI_DECOMPRESSOR.decompress(input, output)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        BROTLI_DECOMPRESSOR.algorithm()
    }
}

#[tokio::test]
async fn certificates_of_a_folder_are_not_compressed_by_a_worker() {
    let mut stage = Stage::new();
    let mut client = stage.client(&TLS13);
    client.cert_decompressors = vec![&Counting];
    client.resumption = ClientResumption::disabled();
    let client = Arc::new(client);
    stage.connect(&client).await;
    assert_eq!(DECOMPRESSED.load(Ordering::Relaxed), 1);
    let folder = tempfile::tempdir().expect("a folder");
    stage.put(&folder.path().join(format!("{HOST}.pem")));
    let catalogue = Catalogues::default().open(folder.path()).expect("a folder");
    catalogue.start(Arc::new(|keystore| Arc::new(LocalEngine::new(keystore))), None).expect("threads");
    stage.reload(TlsSettings::default(), |host| host.catalogue = Some(Arc::clone(&catalogue)));
    let facts = stage.connect(&client).await.1.facts;
    assert_eq!((facts.resumption, catalogue.statistics().loads), (Resumption::Full, 1));
    assert_eq!(DECOMPRESSED.load(Ordering::Relaxed), 1);
}

/// A stage whose engine responds when the test calls [`LateEngine::answer`].
fn late_stage() -> (Rc<Stage>, Arc<LateEngine>) {
    let mut late = None;
    let stage = Stage::with(TlsSettings::default(), |engine| {
        let engine = LateEngine::new(engine);
        late = Some(Arc::clone(&engine));
        engine
    });
    (Rc::new(stage), late.expect("an engine"))
}

#[tokio::test]
async fn twenty_handshakes_wait_for_their_signatures_on_one_thread() {
    let (stage, engine) = late_stage();
    let tasks = LocalSet::new();
    let connected: Vec<_> = (0..20)
        .map(|i| {
            let stage = Rc::clone(&stage);
            tasks.spawn_local(async move {
                let mut client = stage.client(if i % 2 == 0 { &TLS12 } else { &TLS13 });
                client.resumption = ClientResumption::disabled();
                stage.connect(&Arc::new(client)).await.1.facts.resumption
            })
        })
        .collect();
    let answered = async {
        while engine.waiting() < 20 {
            tokio::task::yield_now().await;
        }
        engine.answer();
        for task in connected {
            assert_eq!(task.await.expect("a handshake"), Resumption::Full);
        }
    };
    soon(tasks.run_until(answered)).await;
}

#[tokio::test]
async fn a_handshake_goes_on_with_the_certificate_that_it_began_with() {
    for version in [&TLS12, &TLS13] {
        let (stage, engine) = late_stage();
        let mut client = stage.client(version);
        client.resumption = ClientResumption::disabled();
        let client = Arc::new(client);
        let shown = |tls: &TlsStream<TcpStream>| {
            tls.get_ref().1.peer_certificates().expect("certificates")[0].clone()
        };
        let renewed = async {
            while engine.waiting() == 0 {
                tokio::task::yield_now().await;
            }
            stage.renew();
            // A new handshake gets the new certificate, whose key the first engine does not have.
            let after = shown(&stage.connect(&client).await.0);
            assert_eq!(engine.waiting(), 1);
            engine.answer();
            after
        };
        let (before, after) = Box::pin(soon(async { tokio::join!(stage.connect(&client), renewed) })).await;
        assert_ne!(shown(&before.0), after);
        assert_eq!(shown(&stage.connect(&client).await.0), after);
    }
}

#[tokio::test]
async fn a_host_without_a_certificate_yet_refuses_and_serves_as_soon_as_it_has_one() {
    let stage = Stage::new();
    let client = Arc::new(stage.client(&TLS13));
    stage.withdraw();
    let (near, far) = tcp().await;
    let (_, accepted) = soon(async { tokio::join!(handshake(&client, near), stage.accept(far)) }).await;
    assert_eq!(accepted.err().expect("a refusal").outcome, HandshakeOutcome::NoCertificate);
    stage.renew();
    assert_eq!(stage.connect(&client).await.1.facts.resumption, Resumption::Full);
}

#[tokio::test]
async fn a_handshake_given_up_in_mid_signature_leaves_nothing_behind() {
    let (stage, engine) = late_stage();
    let client = Arc::new(stage.client(&TLS13));
    let (near, far) = tcp().await;
    {
        let waiting = async {
            while engine.waiting() == 0 {
                tokio::task::yield_now().await;
            }
        };
        soon(async {
            tokio::select! {
                _ = async { tokio::join!(handshake(&client, near), stage.accept(far)) } => panic!("not signed yet"),
                () = waiting => {}
            }
        })
        .await;
    }
    let (_, completion) = engine.take().pop().expect("an operation");
    assert!(completion.is_abandoned());
    completion.complete(Ok(vec![0; 70].into()), Performer::AWS_LC);
}

#[tokio::test]
async fn a_client_learns_that_the_key_is_out_of_order() {
    for version in [&TLS12, &TLS13] {
        let stage = Stage::with(TlsSettings::default(), |_| Arc::new(BrokenEngine));
        let client = Arc::new(stage.client(version));
        let (near, far) = tcp().await;
        let (client, accepted) =
            soon(async { tokio::join!(handshake(&client, near), stage.accept(far)) }).await;
        assert_eq!(accepted.err().expect("a refusal").outcome, HandshakeOutcome::KeyOperation);
        let error = client.expect_err("no handshake");
        assert!(error.to_string().contains("InternalError"), "{error}");
    }
}

#[tokio::test]
async fn a_message_behind_the_hello_is_refused() {
    let stage = Stage::new();
    let mut hello = TlsClient::new(&TestCa::new().root_file(), HOST).hello();
    // In the same record: a `Finished` without content.
    hello.extend([20, 0, 0, 0]);
    let length = u16::try_from(hello.len() - 5).expect("one record").to_be_bytes();
    hello[3..5].copy_from_slice(&length);
    let (mut near, far) = tcp().await;
    near.write_all(&hello).await.expect("sent");
    let answer = async {
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).await.expect("an answer");
        drop(near);
        answer
    };
    let (answer, accepted) = soon(async { tokio::join!(answer, stage.accept(far)) }).await;
    assert!(accepted.is_err());
    // Alert unexpected_message.
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 10]);
}

#[tokio::test]
async fn plain_http_gets_a_400_that_says_so() {
    let stage = Stage::new();
    let (mut near, far) = tcp().await;
    near.write_all(b"GET / HTTP/1.1\r\nHost: example.test\r\n\r\n").await.expect("sent");
    let answer = async {
        let mut answer = String::new();
        near.read_to_string(&mut answer).await.expect("an answer");
        drop(near);
        answer
    };
    let (answer, accepted) = soon(async { tokio::join!(answer, stage.accept(far)) }).await;
    assert_eq!(accepted.err().expect("a refusal").outcome, HandshakeOutcome::PlainHttp);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 400 "));
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
}

#[tokio::test]
async fn a_session_without_a_client_certificate_does_not_resume_where_one_is_required() {
    for tickets in [true, false] {
        let settings = TlsSettings { tickets, ..TlsSettings::default() };
        for version in [&TLS12, &TLS13] {
            let mut stage = Stage::with(settings.clone(), |engine| engine);
            let client = Arc::new(stage.client(version));
            resumption(&stage, &client).await;
            stage.require_client_certificates(settings.clone());
            let (near, far) = tcp().await;
            let client = async {
                let mut tls = handshake(&client, near).await?;
                tls.read_u8().await
            };
            let (_, accepted) = soon(async { tokio::join!(client, stage.accept(far)) }).await;
            let refusal = accepted.err().expect("a refusal");
            assert_eq!(refusal.outcome, HandshakeOutcome::ClientCertificate);
        }
    }
}

#[tokio::test]
async fn a_resumption_that_failed_is_distinguished_from_none() {
    for version in [&TLS12, &TLS13] {
        let mut stage = Stage::new();
        let client = Arc::new(stage.client(version));
        // Clients that offer no session still send session IDs.
        assert_eq!(resumption(&stage, &client).await.resumption_failure, None);
        assert_eq!(resumption(&stage, &client).await.resumption_failure, None);
        stage.forget_ticket_keys();
        let facts = resumption(&stage, &client).await;
        assert_eq!(facts.resumption_failure, Some(ResumptionFailure::UnknownKey));
        stage.reload(TlsSettings { tickets: false, ..TlsSettings::default() }, |_| {});
        let facts = resumption(&stage, &client).await;
        assert_eq!(facts.resumption_failure, Some(ResumptionFailure::NoSession));
    }
}

#[tokio::test]
async fn session_ids_that_are_not_found_are_noted() {
    let (mut stage, store) = Stage::with_early_data(0);
    stage.reload(TlsSettings { tickets: false, ..TlsSettings::default() }, |_| {});
    let client = Arc::new(stage.client(&TLS12));
    assert_eq!(resumption(&stage, &client).await.resumption_failure, None);
    assert_eq!(resumption(&stage, &client).await.resumption, Resumption::SessionId);
    store.miss(Miss::Down);
    assert_eq!(resumption(&stage, &client).await.resumption_failure, Some(ResumptionFailure::StoreDown));
}

#[tokio::test]
async fn a_session_of_other_demands_is_unsuitable() {
    for tickets in [true, false] {
        let settings = TlsSettings { tickets, ..TlsSettings::default() };
        for version in [&TLS12, &TLS13] {
            let mut stage = Stage::with(settings.clone(), |engine| engine);
            let client = Arc::new(stage.client(version));
            stage.ask_for_client_certificates(settings.clone());
            resumption(&stage, &client).await;
            stage.ask_for_client_certificates(settings.clone());
            let facts = resumption(&stage, &client).await;
            assert_eq!(facts.resumption_failure, Some(ResumptionFailure::Unsuitable));
        }
    }
}

#[test]
fn a_publication_prepares_the_certificates_of_its_own_host_alone() {
    let ca = TestCa::new();
    let host = |name: &str| {
        let leaf = ca.server(&[name]).issue();
        let mut keys = Keystore::new();
        let loaded = load(&leaf.chain, &leaf.key, &mut keys, SystemTime::now()).expect("a certificate");
        let (certificate, host) = (Arc::new(loaded.certificate), HostSettings::new([name]));
        let (shown, engine) = (Arc::downgrade(&certificate), Arc::new(LocalEngine::new(Arc::new(keys))));
        host.slot.publish(vec![Served::new(certificate, engine)]);
        (HostSettings { obtained: true, ..host }, shown)
    };
    let ((first, of_first), (second, of_second)) = (host("a.test"), host("b.test"));
    let resources = Resources::of_process(SystemTime::now());
    let acceptor = Acceptor::new(TlsSettings::default(), [&first, &second], &resources).expect("hosts");
    first.slot.publish(Vec::new());
    second.slot.publish(Vec::new());
    acceptor.refresh_slot(&first.slot);
    assert!(of_first.upgrade().is_none(), "what was shown before is dropped");
    assert!(of_second.upgrade().is_some(), "the other host is as it was");
}
