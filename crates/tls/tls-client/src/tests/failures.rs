//! Errors: one clear line for each kind.

use super::*;

async fn refused(client: &Client, address: SocketAddr) -> ClientError {
    connect(client, address, None).await.expect_err("refused")
}

#[tokio::test]
async fn certificates_that_are_not_believed() {
    for version in [V12, V13] {
        let (ca, other) = (TestCa::new(), TestCa::new());
        let trusting = client(settings(&ca, version));
        let cases = [
            (ca.server(&["other.test"]).issue(), "wrong-name"),
            (ca.server(&[HOST]).expired().issue(), "expired"),
            (ca.server(&[HOST]).not_yet_valid().issue(), "not-yet-valid"),
            (other.server(&[HOST]).issue(), "unknown-issuer"),
        ];
        for (leaf, name) in cases {
            let server = Nginx::https_with(&leaf, BOTH);
            let error = refused(&trusting, server.address()).await;
            assert_eq!(error.name(), name, "{error}");
            assert!(!error.to_string().contains('\n'));
            let off = ClientSettings { verification: Verification::Off, ..settings(&ca, version) };
            connect(&client(off), server.address(), None).await.expect("anyone is believed");
        }
    }
}

#[tokio::test]
async fn a_certificate_for_an_address_is_believed_for_it() {
    let ca = TestCa::new();
    let server = Nginx::https_with(&ca.server(&["127.0.0.1"]).issue(), BOTH);
    for (name, believed) in [("127.0.0.1", true), ("127.0.0.2", false), ("[::1]", false)] {
        let settings = ClientSettings { server_name: name.to_owned(), ..settings(&ca, V13) };
        let result = connect(&client(settings), server.address(), None).await;
        assert_eq!(result.is_ok(), believed, "{name}: {result:?}");
    }
}

#[tokio::test]
async fn servers_with_nothing_in_common() {
    let ca = TestCa::new();
    let tls12 = Nginx::https_with(&ca.server(&[HOST]).issue(), "ssl_protocols TLSv1.2;");
    let error = refused(&client(settings(&ca, V13)), tls12.address()).await;
    assert_eq!(error.name(), "nothing-in-common");
    assert!(error.to_string().contains("protocol_version"), "{error}");
    let rsa = SignatureScheme::RSA_PSS_RSAE_SHA256;
    let server = nginx(&ca, "");
    let settings = ClientSettings { schemes: vec![rsa], ..settings(&ca, V13) };
    let error = refused(&client(settings), server.address()).await;
    assert_eq!(error.name(), "nothing-in-common", "{error}");
}

#[tokio::test]
async fn a_server_that_knows_no_protocol_offered() {
    let ca = TestCa::new();
    let server = nginx(&ca, "");
    let protocols = vec!["smtp".to_owned()];
    let error = refused(&client(ClientSettings { protocols, ..settings(&ca, V13) }), server.address()).await;
    assert_eq!(error.name(), "protocol-refused", "{error}");
}

#[tokio::test]
async fn a_server_that_demands_a_client_certificate() {
    let ca = TestCa::new();
    let stage = Stage::requiring_client_certificates();
    let authorities = Verification::Authorities(vec![stage.authority()]);
    let client = client(ClientSettings { verification: authorities, ..settings(&ca, V12) });
    let (near, far) = tcp().await;
    let (stream, _) = soon(async { tokio::join!(client.connect(near, None, None), stage.accept(far)) }).await;
    let error = stream.expect_err("refused");
    // RFC 5246 section 7.4.6: TLS 1.2 has no specific alert for a missing client certificate.
    assert_eq!(error.name(), "nothing-in-common", "{error}");
}

/// A server that applies `what` to its connections.
async fn server<F: Future + Send>(what: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F::Output: Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            what(tcp).await;
        }
    });
    address
}

#[tokio::test]
async fn servers_that_do_not_speak_tls_or_leave() {
    let ca = TestCa::new();
    let client = client(settings(&ca, V13));
    let http = server(|mut tcp| async move {
        let _ = tcp.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
        let _ = tcp.read_to_end(&mut Vec::new()).await;
    });
    assert_eq!(refused(&client, http.await).await.name(), "not-tls");
    let closing = server(|mut tcp| async move {
        let _ = tcp.read(&mut [0; 4096]).await;
    });
    assert_eq!(refused(&client, closing.await).await.name(), "closed");
    let resetting = server(|tcp| async move {
        let _ = tcp.readable().await;
        // Closing with unread data causes a reset.
        drop(tcp);
    });
    assert_eq!(refused(&client, resetting.await).await.name(), "reset");
}
