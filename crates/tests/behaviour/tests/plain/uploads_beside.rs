//! Uploads over HTTP/1.1 to an upstream over HTTP/2, whose task reads them instead of the client connection's.

use std::fs;
use std::io::{self, Read, Write};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use brisk_behaviour::h2_origin::{h2_origin, h2c};
use brisk_behaviour::site::{LIMIT, NAME, Site, proxy_to, upstream};
use brisk_testkit::client::TlsStream;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;
use serde_json::Value;

/// Requests in a row.
const TIMES: usize = 8;

/// A gateway of one worker, with one connection to its upstream.
fn site(origin: &Origin) -> Site {
    Site::custom("server.workers = 1\n", &proxy_to(&[&h2c(origin)]), |setup| setup)
}

/// An origin that answers when the whole request is here.
fn answers_at_the_end() -> Origin {
    h2_origin(|peer, _| {
        while let Some(stream) = peer.request()? {
            peer.wait_for_body(stream)?;
            peer.answer(stream, b"taken", true)?;
        }
        Ok(())
    })
}

fn head(path: &str, length: usize, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {length}\r\n{more}\r\n")
}

fn descriptors(site: &Site) -> usize {
    let folder = format!("/proc/{}/fd", site.brisk.process().id());
    fs::read_dir(folder).expect("a process").count()
}

/// Reads to the end of the connection, which `close_notify` says.
#[track_caller]
fn assert_closed(mut connection: TlsStream) {
    let mut rest = Vec::new();
    connection.read_to_end(&mut rest).expect("close_notify");
    assert_eq!(rest, b"");
}

#[test]
fn an_early_answer_ends_the_connection_of_an_upload_that_stops() {
    let (ends, ended) = mpsc::channel();
    // It answers at once, and does not reset the stream.
    let origin = h2_origin(move |peer, _| {
        while let Some(stream) = peer.request()? {
            peer.answer(stream, b"no", true)?;
            ends.send(peer.ends_whole(stream)?).map_err(io::Error::other)?;
        }
        Ok(())
    });
    let site = site(&origin);
    assert_eq!(site.get("/").text(), "no");
    assert_eq!(ended.recv_timeout(LIMIT), Ok(true));
    let before = descriptors(&site);
    for _ in 0..TIMES {
        let mut connection = site.connect();
        let answer = connection.request(&(head("/", 1_000_000, "") + "0123456789"));
        assert_eq!(answer.text(), "no");
        assert_closed(connection);
        assert_eq!(ended.recv_timeout(LIMIT), Ok(false), "the upstream takes the part for the whole");
    }
    wait_until("the descriptors of all uploads to be closed", || {
        (descriptors(&site) <= before).then_some(())
    });
}

#[test]
fn an_upload_that_its_client_cuts_is_not_whole_for_the_upstream() {
    let (begins, begun) = mpsc::channel();
    let (ends, ended) = mpsc::channel();
    let origin = h2_origin(move |peer, _| {
        while let Some(stream) = peer.request()? {
            begins.send(()).map_err(io::Error::other)?;
            ends.send(peer.ends_whole(stream)?).map_err(io::Error::other)?;
        }
        Ok(())
    });
    let site = site(&origin);
    let chunked =
        format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    for upload in [head("/", 1000, "") + "hello", chunked] {
        let mut connection = site.connect();
        connection.write_all(upload.as_bytes()).expect("it is read");
        assert_eq!(begun.recv_timeout(LIMIT), Ok(()));
        drop(connection);
        assert_eq!(ended.recv_timeout(LIMIT), Ok(false), "{upload}");
    }
}

#[test]
fn the_client_is_asked_for_its_body_at_once() {
    let origin = answers_at_the_end();
    let site = site(&origin);
    let mut connection = site.connect();
    // The connection looks for its client after half a second, each time. On a busy machine, only some come before.
    wait_until("an interim answer before the connection looks for its client", || {
        let began = Instant::now();
        connection.write_all(head("/", 4, "Expect: 100-continue\r\n").as_bytes()).expect("it is read");
        let mut interim = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
        connection.read_exact(&mut interim).expect("an interim answer");
        let took = began.elapsed();
        assert_eq!(interim, *b"HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(connection.request("body").text(), "taken");
        (took < Duration::from_millis(450)).then_some(())
    });
}

#[test]
fn a_body_that_begins_as_early_data_goes_on_after_the_handshake() {
    let origin = answers_at_the_end();
    let routes = "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nearly_data = [\"/*\"]\n";
    let other = "\n[[host.route]]\npath = \"/other\"\nrespond = { body = \"other\" }\n";
    let tables = format!("{routes}{other}{}", upstream(&[&h2c(&origin)]));
    let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
    let client = site.client();
    let mut first = client.connect(site.brisk.https()).expect("a handshake");
    assert_eq!(first.get(NAME, "/").text(), "taken");
    let early = head("/early", 10, "") + "hello";
    let mut unfinished =
        client.first_flight(early.as_bytes()).send(site.brisk.https()).expect("a gateway that listens");
    assert!(unfinished.is_accepted().expect("the server's flight"));
    // Another client has its turn: until then all that came is read.
    assert_eq!(site.get("/other").text(), "other");
    let mut connection = unfinished.finish().expect("the rest of the handshake");
    connection.write_all(b"world").expect("it is read");
    let answer = Message::read_response(&mut connection).expect("a response");
    assert_eq!(answer.text(), "taken");
    let line: Value = serde_json::from_str(&site.brisk.logged("/early")).expect("JSON");
    assert_eq!((&line["early"], &line["error"]), (&"forwarded".into(), &Value::Null), "{line}");
}

#[test]
fn an_answer_of_its_length_is_whole_before_its_stream_ends() {
    // The end of the stream never comes.
    let origin = h2_origin(|peer, _| {
        while let Some(stream) = peer.request()? {
            peer.answer_of_length(stream, b"hello")?;
        }
        Ok(())
    });
    let site = site(&origin);
    let mut connection = site.connect();
    for path in ["/one", "/two"] {
        assert_eq!(connection.get(NAME, path).text(), "hello");
        let line: Value = serde_json::from_str(&site.brisk.logged(path)).expect("JSON");
        assert_eq!((&line["status"], &line["error"]), (&200.into(), &Value::Null), "{line}");
    }
}
