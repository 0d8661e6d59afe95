//! Application servers that break their protocol, and the protocols without an application.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;

const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const END_REQUEST: u8 = 3;

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("a short record").to_be_bytes();
    [&[1, kind, 0, 1, length[0], length[1], 0, 0], content].concat()
}

fn end() -> Vec<u8> {
    record(END_REQUEST, &[0; 8])
}

/// Reads a record: its type and its content.
fn read_record(stream: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut header = [0; 8];
    stream.read_exact(&mut header)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]])) + usize::from(header[6]);
    let mut content = vec![0; length];
    stream.read_exact(&mut content)?;
    Ok((header[1], content))
}

/// Reads the records of a request up to the end of its body, and returns the variables and the body.
fn read_request(stream: &mut TcpStream) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let (mut variables, mut body) = (Vec::new(), Vec::new());
    loop {
        match read_record(stream)? {
            (4, content) => variables.extend_from_slice(&content),
            (5, content) if content.is_empty() => return Ok((variables, body)),
            (5, content) => body.extend_from_slice(&content),
            _ => {}
        }
    }
}

fn answering(response: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Origin {
    Origin::raw(move |mut stream| {
        while read_request(&mut stream).is_ok() {
            stream.write_all(&response())?;
        }
        Ok(())
    })
}

fn site(server: &str, keys: &str) -> Site {
    Site::with(&(proxy_to(&[server]) + keys))
}

fn fastcgi(origin: &Origin, keys: &str) -> Site {
    site(&format!("fastcgi://{}", origin.address()), keys)
}

#[test]
fn a_response_that_breaks_fastcgi_is_a_502_with_its_reason_in_the_log() {
    let ok = b"Content-Type: text/plain\r\n\r\n";
    let long = format!("A: {}\r\n", "x".repeat(60_000));
    for (response, reason) in [
        (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), "a record of version 72"),
        ([&[1, STDOUT, 0, 9, 0, 1, 0, 0], &b"x"[..]].concat(), "a record of the unknown request 9"),
        ([&[1, 9, 0, 1, 0, 1, 0, 0], &b"x"[..]].concat(), "a record of the unexpected type 9"),
        (record(END_REQUEST, b"xyz"), "an end of the request with 3 bytes"),
        (record(END_REQUEST, b"\0\0\0\0\x02\0\0\0"), "protocol status 2"),
        (end(), "the application ended without the head of a response"),
        ([record(STDOUT, b"X-A: 1\r\n"), end()].concat(), "the application ended without the head"),
        (record(STDOUT, b"Status: 101\r\n\r\n"), "its status code is out of range"),
        (record(STDOUT, b"<html>no head</html>\r\n\r\n"), "its head is not HTTP/1.1"),
        (record(STDOUT, long.as_bytes()).repeat(2), "the head of the response is too large"),
        ([record(STDERR, b"Fatal error"), record(STDOUT, ok), vec![9; 8]].concat(), "Fatal error"),
    ] {
        let origin = answering(move || response.clone());
        let site = fastcgi(&origin, "");
        let answer = site.get("/");
        // The last one fails behind its head.
        assert!(reason == "Fatal error" || answer.status() == 502, "{reason}: {}", answer.status());
        site.brisk.log_with(reason);
    }
}

#[test]
fn a_response_that_ends_early_is_cut_off() {
    for response in [
        record(STDOUT, b"Content-Length: 9\r\n\r\nhello"),
        [record(STDOUT, b"Content-Length: 9\r\n\r\nhello"), end()].concat(),
        record(STDOUT, b"X-A: 1\r\n\r\nhello"),
    ] {
        let origin = Origin::raw(move |mut stream| {
            read_request(&mut stream)?;
            stream.write_all(&response)
        });
        let site = fastcgi(&origin, "");
        let mut connection = site.connect();
        write!(connection, "GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n").expect("a server");
        let answer = Message::read_response(&mut connection);
        assert!(answer.is_err(), "{answer:?}");
    }
}

#[test]
fn records_without_progress_end_with_the_time_for_a_response() {
    for useless in [record(STDERR, &[b'x'; 1000]), record(STDOUT, b"")] {
        let origin = Origin::raw(move |mut stream| {
            read_request(&mut stream)?;
            loop {
                stream.write_all(&useless.repeat(20))?;
            }
        });
        let site = fastcgi(&origin, "timeouts = { head = \"300ms\" }\n");
        assert_eq!(site.get("/").status(), 504);
    }
}

#[test]
fn kept_connections_carry_one_request_after_the_other() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let origin = Origin::raw(move |mut stream| {
        counted.fetch_add(1, Ordering::SeqCst);
        while let Ok((variables, body)) = read_request(&mut stream) {
            let (length, has_name) = (body.len(), variables.windows(9).any(|name| name == b"PATH_INFO"));
            let text = format!("X-Name: {has_name}\r\n\r\n{length}");
            // The response in records of a few bytes, and its end in a segment of its own.
            let records: Vec<_> = text.as_bytes().chunks(3).flat_map(|piece| record(STDOUT, piece)).collect();
            stream.write_all(&records)?;
            stream.write_all(&end())?;
        }
        Ok(())
    });
    let site = Site::custom(
        "server.workers = 1\n",
        &(proxy_to(&[&format!("fastcgi://{}", origin.address())]) + "pool = { idle_connections = 4 }\n"),
        |setup| setup,
    );
    let mut connection = site.connect();
    let body = "x".repeat(70_000);
    for length in [0, 5, 70_000, 0] {
        let head = format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {length}\r\n\r\n");
        let answer = connection.request(&format!("{head}{}", &body[..length]));
        assert_eq!((answer.text(), answer.header("x-name")), (length.to_string(), Some("true")));
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn a_body_of_unknown_length_arrives_at_once_with_stream_bodies() {
    let (sender, receiver) = mpsc::channel();
    let origin = Origin::raw(move |mut stream| {
        let mut variables = Vec::new();
        let first = loop {
            match read_record(&mut stream)? {
                (4, content) => variables.extend_from_slice(&content),
                (5, content) => break content,
                _ => {}
            }
        };
        // The client sends the rest only now.
        sender.send(first.clone()).map_err(io::Error::other)?;
        let (_, rest) = read_request(&mut stream)?;
        let has_length = !variables.windows(16).any(|part| part == b"\x0e\0CONTENT_LENGTH");
        let text =
            format!("X-Length: {has_length}\r\n\r\n{}", String::from_utf8_lossy(&[first, rest].concat()));
        stream.write_all(&[record(STDOUT, text.as_bytes()), end()].concat())
    });
    let site = fastcgi(&origin, "cgi = { stream_bodies = true }\n");
    let mut connection = site.connect();
    let head =
        format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
    write!(connection, "{head}5\r\nfirst\r\n").expect("a server");
    assert_eq!(wait_until("the first piece", || receiver.try_recv().ok()), b"first");
    write!(connection, "6\r\nsecond\r\n0\r\n\r\n").expect("a server");
    let answer = Message::read_response(&mut connection).expect("a response");
    assert_eq!((answer.text().as_str(), answer.header("x-length")), ("firstsecond", Some("false")));
}

/// The variables of a uwsgi packet as text, a line each.
fn uwsgi(stream: &mut TcpStream) -> io::Result<String> {
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let mut packet = vec![0; u16::from_le_bytes([header[1], header[2]]).into()];
    stream.read_exact(&mut packet)?;
    let (mut rest, mut text) = (&*packet, String::new());
    while let [low, high, after @ ..] = rest {
        let (part, after) = after.split_at(u16::from_le_bytes([*low, *high]).into());
        text.push_str(&String::from_utf8_lossy(part));
        text.push('\n');
        rest = after;
    }
    Ok(text)
}

/// An SCGI server that responds with `head` and the text of the request up to `end`, its NUL bytes as `|`.
fn scgi(head: &'static str, end: &'static [u8]) -> Origin {
    Origin::raw(move |mut stream| {
        let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
        while !text.ends_with(end) {
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                read => text.extend_from_slice(&buffer[..read]),
            }
        }
        let text = String::from_utf8_lossy(&text).replace('\0', "|");
        write!(stream, "{head}Content-Type: text/plain\r\n\r\n{text}")
    })
}

#[test]
fn uwsgi_and_scgi_servers_get_the_variables_and_the_body() {
    let origin = Origin::raw(|mut stream| {
        let variables = uwsgi(&mut stream)?;
        let mut body = [0; 5];
        stream.read_exact(&mut body)?;
        let text = format!("{variables}{}", String::from_utf8_lossy(&body));
        write!(stream, "HTTP/1.1 201 Created\r\nX-A: 1\r\n\r\n{text}")
    });
    let post = format!("POST /a%20b?c=d HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 5\r\n\r\nhello");
    let answer = site(&format!("uwsgi://{}", origin.address()), "").connect().request(&post);
    let text = answer.text();
    assert_eq!((answer.status(), answer.header("x-a")), (201, Some("1")));
    for part in
        ["PATH_INFO\n/a b\n", "REQUEST_URI\n/a%20b?c=d\n", "CONTENT_LENGTH\n5\n", "QUERY_STRING\nc=d\n"]
    {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert!(text.ends_with("hello") && !text.contains("GATEWAY_INTERFACE"));
    // Uwsgi has a limit for a head.
    let long = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nX-A: {}\r\n\r\n", "x".repeat(63_000));
    let raised = "server.limits.head_size = \"100KiB\"\n";
    let server = format!("uwsgi://{}", origin.address());
    let tables =
        format!("{}cgi = {{ params = {{ A = \"{}\" }} }}\n", proxy_to(&[&server]), "y".repeat(5_000));
    let site_with = Site::custom(raised, &tables, |setup| setup);
    assert_eq!(site_with.connect().request(&long).status(), 431);

    let origin = scgi("Status: 404 None\r\n", b"hello");
    let answer = site(&format!("scgi://{}", origin.address()), "").connect().request(&post);
    let text = answer.text();
    let (_, rest) = text.split_once(':').expect("a netstring");
    assert_eq!(answer.status(), 404);
    assert!(rest.starts_with("CONTENT_LENGTH|5|SCGI|1|"), "{text}");
    assert!(text.contains("|PATH_INFO|/a b|") && text.ends_with("|,hello"), "{text}");
}

#[test]
fn no_variable_forges_another_one() {
    let origin = scgi("", b",");
    let keys = "cgi = { params = { X_NAME = \"{request.query.name}\" } }\n";
    let site = site(&format!("scgi://{}", origin.address()), keys);
    let text = site.get("/admin/../a?name=a%00REMOTE_USER%00b").text();
    assert!(text.contains("|X_NAME|a%00REMOTE_USER%00b|"), "{text}");
    // The path of the route, without dot segments.
    assert!(text.contains("|REQUEST_URI|/a?name="), "{text}");
}

#[test]
fn scripts_beside_an_application_without_a_root_are_not_sent_as_text() {
    let origin = answering(|| [record(STDOUT, b"X-A: 1\r\n\r\nran"), end()].concat());
    let tables = format!(
        "\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\nfallback = {{ upstream = \"app\" }}\n\n[upstream.app]\nservers = \
         [\"fastcgi://{}\"]\ncgi = {{ params = {{ SCRIPT_FILENAME = \"/srv/index.php\" }} }}\n",
        origin.address()
    );
    let site =
        Site::custom("", &tables, |setup| setup.file("www/a.php", "<?php secret").file("www/a.txt", "text"));
    assert_eq!(site.get("/a.php").text(), "ran");
    assert_eq!(site.get("/a.txt").text(), "text");
}
