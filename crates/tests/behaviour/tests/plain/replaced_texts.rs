//! Texts of responses that are replaced.

use std::io::Write as _;

use brisk_behaviour::site::{NAME, Site, upstream};
use brisk_coding::{Coding, Decoder};
use brisk_testkit::origin::Origin;

fn site(origin: &Origin, keys: &str) -> Site {
    let texts = "texts = [{ from = \"http://app.internal\", to = \"https://{request.host}\" }]";
    Site::with(&format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nreplace_text = {{ {texts} }}\n{keys}{}",
        upstream(&[&origin.url()])
    ))
}

/// Responds with a page in chunks that divide the text everywhere.
fn chunked() -> Origin {
    Origin::answering(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        let page = "<a href=http://app.internal/a>HTTP://APP.INTERNAL http://app.interna</a>";
        let chunks: Vec<_> = page
            .as_bytes()
            .chunks(3)
            .flat_map(|piece| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat())
            .collect();
        stream.write_all(head.as_bytes())?;
        stream.write_all(&chunks)?;
        stream.write_all(b"0\r\n\r\n")
    })
}

const CHANGED: &str = "<a href=https://site.test/a>https://site.test http://app.interna</a>";

#[test]
fn texts_are_replaced_across_chunks() {
    let origin = chunked();
    let site = site(&origin, "");
    let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nAccept-Encoding: gzip\r\n\r\n");
    let answer = site.connect().request(&request);
    assert_eq!(answer.text(), CHANGED);
    assert_eq!((answer.header("etag"), answer.header("accept-ranges")), (Some("W/\"a\""), None));
    assert_eq!(origin.last_request().header("accept-encoding"), Some("identity"));
}

#[test]
fn changed_texts_are_compressed_afterwards() {
    let origin = chunked();
    let site = site(&origin, "compression = { least = \"1B\", breach_guard = \"off\" }\n");
    let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nAccept-Encoding: gzip\r\n\r\n");
    let answer = site.connect().request(&request);
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    let mut text = Vec::new();
    Decoder::new(Coding::Gzip).write(&answer.body, &mut text).expect("gzip");
    assert_eq!(text, CHANGED.as_bytes());
}

#[test]
fn responses_that_do_not_concern_are_unchanged() {
    for headers in ["Content-Type: text/css\r\n", "Content-Type: text/html\r\nContent-Encoding: gzip\r\n"] {
        let origin = Origin::answering(move |_, stream| {
            let body = "http://app.internal";
            write!(stream, "HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
        });
        let answer = site(&origin, "").get("/");
        assert_eq!(
            (answer.text(), answer.header("content-length")),
            ("http://app.internal".to_owned(), Some("19"))
        );
    }
}
