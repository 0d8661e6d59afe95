//! Issuers whose key sets are attacks.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::origin::{Origin, write_response};

/// A token of the form that a key set is needed for: {"alg":"EdDSA","kid":"a"}.
const TOKEN: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.e30.AA";

/// Largest memory of brisk in bytes, which endless responses would exceed within the test.
const MEMORY: u64 = 512 << 20;

/// Sends `bytes` again and again, until the client goes.
fn endless(stream: &mut TcpStream, bytes: &[u8], pause: Duration) -> io::Result<()> {
    loop {
        stream.write_all(bytes)?;
        std::thread::sleep(pause);
    }
}

fn issuer(kind: &'static str, inside: &str) -> Origin {
    let location = format!("HTTP/1.1 302 Found\r\nLocation: {inside}/keys\r\nContent-Length: 0\r\n\r\n");
    Origin::answering(move |_, stream| match kind {
        "endless" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"keys\":[")?;
            endless(stream, &vec![b' '; 1 << 20], Duration::ZERO)
        }
        "endless-head" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
            endless(stream, format!("X-A: {}\r\n", "a".repeat(10_000)).as_bytes(), Duration::ZERO)
        }
        "slow" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{\"keys\":[")?;
            endless(stream, b" ", Duration::from_millis(50))
        }
        "redirect" => stream.write_all(location.as_bytes()),
        "secret" => {
            write_response(stream, br#"{"keys":[{"kty":"oct","kid":"a","alg":"HS256","k":"c2VjcmV0"}]}"#)
        }
        "types" => write_response(
            stream,
            br#"{"keys":[1,[],{"kty":7},{"kty":"OKP","crv":"Ed25519","kid":"a","x":[]}]}"#,
        ),
        "deep" => write_response(stream, format!("{{\"keys\":{}", "[".repeat(200_000)).as_bytes()),
        _ => {
            let key = r#"{"kty":"OKP","crv":"Ed25519","kid":"a","x":"0mBRIEMDqyMWIScAUlUGDShYbV3p9se-xBewdIy1New"}"#;
            write_response(stream, format!("{{\"keys\":[{}]}}", vec![key; 1000].join(",")).as_bytes())
        }
    })
}

#[test]
fn key_sets_that_are_attacks_cost_little_and_lead_nowhere() {
    let inside = Origin::fixed("internal");
    let kinds = ["endless", "endless-head", "slow", "redirect", "secret", "types", "deep", "many"];
    let issuers = kinds.map(|kind| issuer(kind, &inside.url()));
    let route = |(kind, issuer): (&&str, &Origin)| {
        let keys = format!("jwks_url = \"{}/keys\"", issuer.url());
        format!(
            "\n[[host.route]]\npath = \"/{kind}\"\nrespond = {{ body = \"closed\" }}\njwt = {{ {keys} }}\n"
        )
    };
    let routes = kinds.iter().zip(&issuers).map(route).collect::<Vec<_>>().concat();
    let open = "\n[[host.route]]\npath = \"/open\"\nrespond = { body = \"open\" }\n";
    let site = Site::with(&format!("{open}{routes}"));
    let mut waiting = Vec::new();
    for kind in kinds {
        for _ in 0..3 {
            let mut connection = site.connect();
            write!(
                connection,
                "GET /{kind} HTTP/1.1\r\nHost: {NAME}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
            )
            .expect("a server");
            waiting.push((kind, connection));
        }
        assert_eq!(site.get("/open").text(), "open");
    }
    for (kind, connection) in &mut waiting {
        let response = connection.response();
        assert_eq!((response.status(), response.header("retry-after")), (503, Some("2")), "{kind}");
    }
    for reason in [
        "longer than 262144 bytes",
        "message head is too large",
        "no response within 5 s",
        "more than 0 redirects",
        "a secret",
        "invalid type: integer",
        "recursion limit",
        "1000 keys, at most 100",
    ] {
        site.brisk.log_with(reason);
    }
    assert_eq!(inside.connections(), 0);
    let memory = site.brisk.process().resident_bytes();
    assert!(memory < MEMORY, "{memory}");
    assert_eq!(site.get("/open").text(), "open");
}
