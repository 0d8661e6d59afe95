//! The client against nginx and openssl, and against the gateway's acceptor for cases that these do not support.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::PathBuf;

use brisk_telemetry::Resumption;
use brisk_testkit::ca::{LeafKey, TestCa};
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::wait_until;
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use stage::{HOST, Stage, soon, tcp};

mod failures;
mod openssl;
mod stage;

const V12: ProtocolVersion = ProtocolVersion::TLS1_2;
const V13: ProtocolVersion = ProtocolVersion::TLS1_3;

const NO_TICKETS: &str = "ssl_session_tickets off; ssl_session_cache shared:tests:1m;";
const BOTH: &str = "ssl_protocols TLSv1.2 TLSv1.3;";
const EARLY: &str = "ssl_early_data on;";

fn settings(ca: &TestCa, version: ProtocolVersion) -> ClientSettings {
    let mut settings = ClientSettings::new(HOST);
    settings.versions = vec![version];
    settings.verification = Verification::Authorities(vec![ca.root_file()]);
    settings.protocols = vec!["http/1.1".to_owned()];
    settings
}

fn client(settings: ClientSettings) -> Client {
    Client::new(settings).expect("settings that fit")
}

fn nginx(ca: &TestCa, directives: &str) -> Nginx {
    // Otherwise nginx waits for five seconds if the handshake is not complete when it has responded. With early data,
    // it would linger for seconds before it closes.
    Nginx::https_with(&ca.server(&[HOST]).issue(), &format!("{BOTH} lingering_close off; {directives}"))
}

async fn connect(
    client: &Client,
    address: SocketAddr,
    session: Option<SavedSession>,
) -> Result<ClientStream, ClientError> {
    connect_early(client, address, session, None).await
}

async fn connect_early(
    client: &Client,
    address: SocketAddr,
    session: Option<SavedSession>,
    early: Option<&[u8]>,
) -> Result<ClientStream, ClientError> {
    let tcp = TcpStream::connect(address).await.expect("a listener");
    soon(client.connect(tcp, session, early)).await
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n").into_bytes()
}

/// The response to the written request.
async fn answer(stream: &mut ClientStream) -> String {
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.expect("an answer with an end");
    String::from_utf8(answer).expect("text")
}

/// Performs a request and returns the sessions that arrived with its response.
async fn fetch(stream: &mut ClientStream, path: &str) -> Vec<SavedSession> {
    stream.write_all(&get(path)).await.expect("sent");
    let answer = answer(stream).await;
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    stream.take_sessions()
}

/// Waits for `count` requests in the log of nginx and returns them.
fn logged(nginx: &Nginx, count: usize) -> Vec<String> {
    wait_until("the access log", || Some(nginx.requests()).filter(|lines| lines.len() >= count))
}

#[tokio::test]
async fn each_version_resumes_by_each_means() {
    let cases = [
        (V12, Tls12Sessions::Tickets, "", Resumption::Ticket),
        (V12, Tls12Sessions::Ids, NO_TICKETS, Resumption::SessionId),
        // The client requests tickets, but the server has none.
        (V12, Tls12Sessions::Tickets, NO_TICKETS, Resumption::SessionId),
        (V13, Tls12Sessions::Tickets, "", Resumption::Psk),
        (V13, Tls12Sessions::Tickets, NO_TICKETS, Resumption::Psk),
    ];
    for (version, sessions, directives, expected) in cases {
        let ca = TestCa::new();
        let server = nginx(&ca, directives);
        let client = client(ClientSettings { tls12_sessions: sessions, ..settings(&ca, version) });
        let mut stream = connect(&client, server.address(), None).await.expect("a handshake");
        assert_eq!(stream.facts().resumption, Resumption::Full);
        let session = fetch(&mut stream, "/1k").await.pop().expect("a session");
        assert_eq!(session.version(), version);
        let mut stream = connect(&client, server.address(), Some(session)).await.expect("a handshake");
        let facts = stream.facts();
        assert_eq!((facts.version, facts.resumption), (version, expected));
        assert_eq!((facts.scheme, facts.certificate_bytes), (None, 0));
        assert!(!fetch(&mut stream, "/1k").await.is_empty(), "{version}: a session after a session");
        let name = if version == V12 { "TLSv1.2" } else { "TLSv1.3" };
        let lines = logged(&server, 2);
        assert!(lines[0].starts_with(&format!("{name} . ")), "{lines:?}");
        assert!(lines[1].starts_with(&format!("{name} r ")), "{lines:?}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_resume_is_reported() {
    for version in [V12, V13] {
        let ca = TestCa::new();
        let (server, other) = (nginx(&ca, ""), nginx(&ca, ""));
        let client = client(settings(&ca, version));
        let mut stream = connect(&client, server.address(), None).await.expect("a handshake");
        let session = fetch(&mut stream, "/1k").await.pop().expect("a session");
        // A server with other ticket keys.
        let mut stream = connect(&client, other.address(), Some(session)).await.expect("a handshake");
        assert_eq!(stream.facts().resumption, Resumption::Full);
        assert!(stream.facts().scheme.is_some() && stream.facts().certificate_bytes > 0);
        fetch(&mut stream, "/1k").await;
        assert!(logged(&other, 1)[0].contains(" . "), "{version}");
    }
}

#[tokio::test]
async fn another_client_ignores_a_session() {
    for (version, session_use) in [(V12, SessionUse::Once), (V13, SessionUse::Once), (V13, SessionUse::Many)]
    {
        let ca = TestCa::new();
        let server = nginx(&ca, "");
        let settings = ClientSettings { session_use, ..settings(&ca, version) };
        let mut stream =
            connect(&client(settings.clone()), server.address(), None).await.expect("a handshake");
        let session = fetch(&mut stream, "/1k").await.pop().expect("a session");
        let stream = connect(&client(settings), server.address(), Some(session)).await.expect("a handshake");
        assert_eq!(stream.facts().resumption, Resumption::Full);
    }
}

#[tokio::test]
async fn early_data_is_accepted_and_answered() {
    for session_use in [SessionUse::Once, SessionUse::Many] {
        let ca = TestCa::new();
        let server = nginx(&ca, EARLY);
        let client = client(ClientSettings { session_use, ..settings(&ca, V13) });
        let mut stream = connect(&client, server.address(), None).await.expect("a handshake");
        assert_eq!(stream.facts().early_data, EarlyOutcome::None);
        let session = fetch(&mut stream, "/1k").await.pop().expect("a session");
        assert!(session.early_data_limit() > 1000);
        let request = get("/1k");
        let mut stream = connect_early(&client, server.address(), Some(session), Some(&request))
            .await
            .expect("a handshake");
        assert_eq!(stream.facts().early_data, EarlyOutcome::Accepted);
        assert_eq!(stream.facts().resumption, Resumption::EarlyData);
        assert!(stream.facts().bytes_sent > request.len() as u64 + 300);
        assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200"));
        let lines = logged(&server, 2);
        assert!(lines[0].starts_with("TLSv1.3 . ") && lines[1].starts_with("TLSv1.3 r "), "{lines:?}");
    }
}

/// A relay to `server`, which holds back the server's responses until the server has logged `count` requests.
async fn relay(server: &Nginx, count: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("an address");
    let mut upstream = TcpStream::connect(server.address()).await.expect("a listener");
    let log = server.log();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.expect("a client");
        let mut first = vec![0; 16 * 1024];
        let len = client.read(&mut first).await.expect("a hello");
        upstream.write_all(&first[..len]).await.expect("a server that listens");
        let logged = || std::fs::read_to_string(&log).is_ok_and(|text| text.lines().count() >= count);
        while !logged() {
            tokio::task::yield_now().await;
        }
        let _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
    });
    address
}

#[tokio::test]
async fn nginx_answers_early_data_before_the_handshake_is_complete() {
    let ca = TestCa::new();
    let server = nginx(&ca, EARLY);
    for (session_use, count) in [(SessionUse::Once, 2), (SessionUse::Many, 4)] {
        let client = client(ClientSettings { session_use, ..settings(&ca, V13) });
        let mut stream = connect(&client, server.address(), None).await.expect("a handshake");
        let session = fetch(&mut stream, "/1k").await.pop();
        let address = relay(&server, count).await;
        let stream = connect_early(&client, address, session, Some(&get("/1k"))).await;
        let mut stream = stream.expect("a handshake");
        assert_eq!(stream.facts().early_data, EarlyOutcome::Accepted);
        let answer = answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with('x'), "{answer}");
        assert!(logged(&server, count)[count - 1].starts_with("TLSv1.3 r 1 "), "{:?}", server.requests());
    }
}

#[tokio::test]
async fn early_data_that_is_refused_or_not_sent_is_reported() {
    let ca = TestCa::new();
    let keys = ca.folder().join("ticket.key");
    std::fs::write(&keys, [7; 80]).expect("a file");
    let shared = format!("ssl_session_ticket_key {};", keys.display());
    // A session is bound to the certificate.
    let leaf = ca.server(&[HOST]).issue();
    let taking = Nginx::https_with(&leaf, &format!("ssl_protocols TLSv1.3; {EARLY}{shared}"));
    let refusing = Nginx::https_with(&leaf, &format!("ssl_protocols TLSv1.3; {shared}"));
    let stranger = nginx(&ca, EARLY);
    let client = client(settings(&ca, V13));
    let session = || async {
        let mut stream = connect(&client, taking.address(), None).await.expect("a handshake");
        fetch(&mut stream, "/1k").await.pop()
    };
    let request = get("/1k");
    // The session is resumed without its early data; then it is not resumed at all.
    for (server, resumption) in [(&refusing, Resumption::Psk), (&stranger, Resumption::Full)] {
        let stream = connect_early(&client, server.address(), session().await, Some(&request)).await;
        let mut stream = stream.expect("a handshake");
        assert_eq!(stream.facts().early_data, EarlyOutcome::Rejected);
        assert_eq!(stream.facts().resumption, resumption);
        fetch(&mut stream, "/1k").await;
        assert_eq!(logged(server, 1).len(), 1, "what was refused is not answered");
    }
    let too_long = vec![b' '; 1 << 20];
    for (session, early) in [(None, &request), (session().await, &too_long)] {
        let stream = connect_early(&client, taking.address(), session, Some(early)).await;
        let mut stream = stream.expect("a handshake");
        assert_eq!(stream.facts().early_data, EarlyOutcome::Unsent);
        fetch(&mut stream, "/1k").await;
    }
}

#[tokio::test]
async fn a_session_serves_many_connections_where_the_caller_says_so() {
    let ca = TestCa::new();
    let server = nginx(&ca, EARLY);
    for (version, session_use) in [(V12, SessionUse::Once), (V13, SessionUse::Many)] {
        let client = client(ClientSettings { session_use, ..settings(&ca, version) });
        let mut stream = connect(&client, server.address(), None).await.expect("a handshake");
        let session = stream.next_session().await.expect("a server that stays").expect("a session");
        // The connection that received the session continues.
        fetch(&mut stream, "/1m").await;
        drop(stream);
        for _ in 0..3 {
            let again = session.try_clone().expect("a session for many uses");
            let mut stream = connect(&client, server.address(), Some(again)).await.expect("a handshake");
            assert_ne!(stream.facts().resumption, Resumption::Full);
            let brought = fetch(&mut stream, "/1k").await;
            assert!(version == V12 || brought.is_empty(), "a session that could not serve as many");
        }
        if version == V13 {
            let mut stream =
                connect(&client, server.address(), session.try_clone()).await.expect("a handshake");
            assert!(soon(stream.next_session()).await.expect("a server that stays").is_none());
        }
        let request = get("/1k");
        for _ in 0..3 {
            let again = session.try_clone();
            let stream = connect_early(&client, server.address(), again, Some(&request)).await;
            let expected = if version == V13 { EarlyOutcome::Accepted } else { EarlyOutcome::Unsent };
            assert_eq!(stream.expect("a handshake").facts().early_data, expected);
        }
    }
    let client = client(settings(&ca, V13));
    let mut stream = connect(&client, server.address(), None).await.expect("a handshake");
    let session = stream.next_session().await.expect("a server that stays").expect("a session");
    assert!(session.try_clone().is_none(), "once is the default");
}

#[tokio::test]
async fn suites_and_groups_are_what_the_caller_chose() {
    let ca = TestCa::new();
    let server = nginx(&ca, "ssl_ecdh_curve X25519:prime256v1:secp384r1;");
    let suites = [
        (CipherSuite::TLS_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256"),
        (CipherSuite::TLS_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384"),
        (CipherSuite::TLS_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256"),
        (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ];
    let groups = [
        (NamedGroup::X25519, "X25519"),
        (NamedGroup::SECP256R1, "prime256v1"),
        (NamedGroup::SECP384R1, "secp384r1"),
    ];
    let mut made = 0;
    for (suite, suite_name) in suites {
        for (group, group_name) in groups {
            for key_shares in [KeyShares::Fresh, KeyShares::Reused, KeyShares::Unit] {
                let version = if suite_name.starts_with("TLS_") { V13 } else { V12 };
                let mut settings = ClientSettings { key_shares, ..settings(&ca, version) };
                (settings.suites, settings.groups) = (vec![suite], vec![group]);
                if version == V12 && group != NamedGroup::SECP256R1 {
                    // For the certificate; nginx prefers the other groups.
                    settings.groups.push(NamedGroup::SECP256R1);
                }
                let client = client(settings);
                for _ in 0..2 {
                    let mut stream = connect(&client, server.address(), None).await.expect("a handshake");
                    let facts = stream.facts();
                    assert_eq!((facts.suite, facts.group), (suite, Some(group)), "{key_shares:?}");
                    fetch(&mut stream, "/1k").await;
                    made += 1;
                    let lines = logged(&server, made);
                    let seen = format!("{suite_name} {group_name} ");
                    assert!(lines[made - 1].contains(&seen), "{:?}", lines[made - 1]);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_retry_for_another_group_is_reported() {
    let ca = TestCa::new();
    let server = nginx(&ca, "ssl_ecdh_curve prime256v1;");
    for staple_request in [StapleRequest::Sent, StapleRequest::Omitted] {
        for (first, retry) in [(NamedGroup::X25519, true), (NamedGroup::SECP256R1, false)] {
            let mut settings = ClientSettings { staple_request, ..settings(&ca, V13) };
            settings.groups = vec![first, NamedGroup::SECP256R1];
            let stream = connect(&client(settings), server.address(), None).await.expect("a handshake");
            assert_eq!(stream.facts().hello_retry, retry);
            assert_eq!(stream.facts().group, Some(NamedGroup::SECP256R1));
        }
    }
}

#[tokio::test]
async fn signature_schemes_choose_the_certificate() {
    let ca = TestCa::new();
    let rsa = ca.server(&[HOST]).key(LeafKey::Rsa2048).issue();
    let (chain, key) = (rsa.chain.display(), rsa.key.display());
    let server = nginx(&ca, &format!("ssl_certificate {chain}; ssl_certificate_key {key};"));
    let cases = [
        (V12, SignatureScheme::ECDSA_SECP256R1_SHA256),
        (V12, SignatureScheme::RSA_PKCS1_SHA256),
        (V12, SignatureScheme::RSA_PSS_RSAE_SHA256),
        (V13, SignatureScheme::ECDSA_SECP256R1_SHA256),
        (V13, SignatureScheme::RSA_PSS_RSAE_SHA512),
    ];
    for (version, scheme) in cases {
        let client = client(ClientSettings { schemes: vec![scheme], ..settings(&ca, version) });
        // The second time, the chain is in the cache.
        for _ in 0..2 {
            let stream = connect(&client, server.address(), None).await.expect("a handshake");
            assert_eq!(stream.facts().scheme, Some(scheme));
        }
    }
}

#[tokio::test]
async fn a_staple_comes_only_when_it_is_asked_for() {
    let ca = TestCa::new();
    // An OCSP response with the status "try later" (RFC 6960 section 4.2.1).
    let staple = [0x30, 0x03, 0x0a, 0x01, 0x03];
    let file = ca.folder().join("staple.der");
    std::fs::write(&file, staple).expect("a file");
    let server = nginx(&ca, &format!("ssl_stapling on; ssl_stapling_file {};", file.display()));
    for version in [V12, V13] {
        for (staple_request, bytes) in [(StapleRequest::Sent, staple.len()), (StapleRequest::Omitted, 0)] {
            let client = client(ClientSettings { staple_request, ..settings(&ca, version) });
            let mut stream = connect(&client, server.address(), None).await.expect("a handshake");
            assert_eq!(stream.facts().staple_bytes, bytes, "{version}");
            let session = fetch(&mut stream, "/1k").await.pop();
            let mut stream = connect(&client, server.address(), session).await.expect("a handshake");
            assert_ne!(stream.facts().resumption, Resumption::Full);
            fetch(&mut stream, "/1k").await;
        }
    }
}

#[tokio::test]
async fn servers_that_ask_get_the_client_certificate() {
    let ca = TestCa::new();
    let directives =
        format!("ssl_verify_client optional; ssl_client_certificate {};", ca.root_file().display());
    let server = nginx(&ca, &format!("{directives} ssl_verify_depth 3;"));
    let leaf = ca.client("alice").issue();
    let mut count = 0;
    for version in [V12, V13] {
        for (identity, verdict) in [
            (None, "NONE"),
            (Some(ClientIdentity { chain: leaf.chain.clone(), key: leaf.key.clone() }), "SUCCESS"),
        ] {
            let client = client(ClientSettings { identity, ..settings(&ca, version) });
            let mut stream = connect(&client, server.address(), None).await.expect("a handshake");
            fetch(&mut stream, "/1k").await;
            count += 1;
            assert!(logged(&server, count)[count - 1].contains(verdict), "{version}");
        }
    }
}

#[tokio::test]
async fn the_server_sees_the_same_bytes_names_and_groups() {
    let stage = Stage::new();
    let mut settings = ClientSettings::new(HOST);
    settings.verification = Verification::Authorities(vec![stage.authority()]);
    settings.versions = vec![V13];
    for key_shares in [KeyShares::Fresh, KeyShares::Reused, KeyShares::Unit] {
        for (send_server_name, group) in [
            (true, NamedGroup::X25519MLKEM768),
            (false, NamedGroup::X25519MLKEM768),
            (true, NamedGroup::X25519),
        ] {
            let groups = vec![group];
            let client = client(ClientSettings { groups, send_server_name, key_shares, ..settings.clone() });
            let (near, far) = tcp().await;
            let (stream, accepted) =
                soon(async { tokio::join!(client.connect(near, None, None), stage.accept(far)) }).await;
            let (stream, mut accepted) = (stream.expect("a handshake"), accepted.expect("a handshake"));
            assert_eq!(accepted.facts.server_name.is_some(), send_server_name);
            assert_eq!((stream.facts().group, accepted.facts.group), (Some(group), Some(group)));
            let (received, sent) = accepted.stream.bytes();
            assert_eq!((stream.facts().bytes_sent, stream.facts().bytes_received), (received, sent));
            assert_eq!(stream.facts().suite, accepted.facts.suite);
            poll_fn(|cx| accepted.stream.poll_drain(cx)).await.expect("sent");
        }
    }
}

#[tokio::test]
async fn large_transfers_arrive_whole_and_end() {
    let ca = TestCa::new();
    let server = nginx(&ca, "");
    for (version, session_use) in [(V12, SessionUse::Once), (V13, SessionUse::Once), (V13, SessionUse::Many)]
    {
        let client = client(ClientSettings { session_use, ..settings(&ca, version) });
        let mut stream = connect(&client, server.address(), None).await.expect("a handshake");
        stream.write_all(&get("/1m")).await.expect("sent");
        let mut small = [0; 100];
        stream.read_exact(&mut small).await.expect("a beginning");
        let rest = answer(&mut stream).await;
        assert_eq!(rest.bytes().rev().take_while(|&byte| byte == b'x').count(), 1 << 20);
        assert!(stream.is_peer_closed());
        assert!(stream.bytes().0 > 1 << 20);
        soon(stream.shutdown()).await.expect("an end");
    }
}

#[test]
fn clients_streams_and_sessions_may_change_threads() {
    fn is_send<T: Send>(_: fn() -> Option<T>) {}
    is_send::<Client>(|| None);
    is_send::<ClientStream>(|| None);
    is_send::<SavedSession>(|| None);
    is_send::<ClientError>(|| None);
}

fn missing() -> PathBuf {
    PathBuf::from("/nonexistent/file.pem")
}

#[test]
fn settings_that_cannot_be_used_are_refused() {
    let refused = |change: &dyn Fn(&mut ClientSettings)| {
        let mut settings = ClientSettings { verification: Verification::Off, ..ClientSettings::new(HOST) };
        change(&mut settings);
        let error = Client::new(settings).expect_err("refused");
        assert_eq!(error.name(), "settings");
        error.to_string()
    };
    assert!(refused(&|settings| settings.versions = vec![ProtocolVersion::TLS1_1]).contains("TLS 1.1"));
    assert!(refused(&|settings| settings.suites = vec![CipherSuite(0x002f)]).contains("0x002f"));
    assert!(refused(&|settings| settings.groups = vec![NamedGroup::X448]).contains("x448"));
    refused(&|settings| settings.schemes = vec![SignatureScheme::ED448]);
    refused(&|settings| settings.server_name = "no name".to_owned());
    let file = refused(&|settings| settings.verification = Verification::Authorities(vec![missing()]));
    assert!(file.contains("/nonexistent/file.pem"), "{file}");
    let identity = ClientIdentity { chain: missing(), key: missing() };
    let file = refused(&|settings| settings.identity = Some(identity.clone()));
    assert!(file.contains("/nonexistent/file.pem"), "{file}");
    // A suite of the other version only.
    refused(&|settings| {
        settings.versions = vec![V12];
        settings.suites = vec![CipherSuite::TLS_AES_128_GCM_SHA256];
    });
}
