//! Timeouts of HTTP/2 streams: a stalled stream ends, and the other streams of its connection continue.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use brisk_behaviour::h2::{get, post_head};
use brisk_behaviour::h2_client::{Client, GOAWAY, RST_STREAM};
use brisk_behaviour::site::{Site, proxy_to};
use brisk_testkit::http1::Head;
use brisk_testkit::origin::{Origin, write_response};

const CANCEL: [u8; 4] = [0, 0, 0, 8];
const DATA: u8 = 0;

/// An upstream that answers `/wait` when it is told to, other requests by `other`.
fn origin(
    released: Receiver<()>,
    other: impl Fn(&Head, &mut TcpStream, &Receiver<()>) -> std::io::Result<()> + Send + Sync + 'static,
) -> Origin {
    let released = Mutex::new(released);
    Origin::raw(move |mut stream| {
        while let Some(head) = Head::read(&mut stream)? {
            if head.line.starts_with("GET /wait ") {
                // Ends with the test at the latest.
                let _ = released.lock().expect("no panic").recv();
                write_response(&mut stream, b"late")?;
            } else {
                let (_unused, never) = channel();
                other(&head, &mut stream, &never)?;
            }
        }
        Ok(())
    })
}

/// The request on stream 3 is still answered.
fn bystander_goes_on(client: &mut Client, release: &Sender<()>) {
    release.send(()).expect("an upstream that waits");
    let end = client.wait_for("answer of the other stream", |frame| {
        assert_ne!(frame.kind, GOAWAY, "the connection ends");
        frame.stream == 3 && frame.kind == DATA
    });
    assert_eq!(end.payload, b"late");
}

#[test]
fn a_download_that_is_paused_ends_alone() {
    let (release, released) = channel();
    let origin = origin(released, |_, stream, _| write_response(stream, &vec![b'x'; 1 << 20]));
    let site = Site::custom("server.timeouts.write = \"1s\"\n", &proxy_to(&[&origin.url()]), |setup| setup);
    let mut client = Client::connect(&site);
    client.send(&[get(1, "/big"), get(3, "/wait")].concat());
    // The windows are 64 KiB, and nothing opens them.
    let reset = client.wait_for("reset", |frame| {
        assert_ne!(frame.kind, GOAWAY, "the connection ends");
        frame.kind == RST_STREAM
    });
    assert_eq!((reset.stream, &reset.payload[..]), (1, &CANCEL[..]));
    // Its bytes used up the window of the connection.
    client.open_window();
    bystander_goes_on(&mut client, &release);
}

#[test]
fn a_request_that_stays_open_while_its_answer_comes_is_no_stalled_upload() {
    let (release, released) = channel();
    let (more, wanted) = channel::<()>();
    let wanted = Mutex::new(wanted);
    let origin = origin(released, move |_, stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")?;
        let _ = wanted.lock().expect("no panic").recv();
        stream.write_all(b"6\r\nsecond\r\n0\r\n\r\n")
    });
    let site = Site::custom("server.timeouts.body = \"2s\"\n", &proxy_to(&[&origin.url()]), |setup| setup);
    let mut client = Client::connect(&site);
    client.send(&[post_head(1, "/watch"), get(3, "/wait")].concat());
    client.wait_for("first message", |frame| frame.payload == b"first");
    let meanwhile = client.frames(Duration::from_secs(4));
    assert!(!meanwhile.iter().any(|frame| matches!(frame.kind, GOAWAY | RST_STREAM)), "{meanwhile:?}");
    more.send(()).expect("an upstream that waits");
    client.wait_for("second message", |frame| frame.payload == b"second");
    bystander_goes_on(&mut client, &release);
}

#[test]
fn an_upload_that_stalls_ends_alone() {
    let (release, released) = channel();
    let origin = origin(released, |_, _, never| {
        let _ = never.recv();
        Ok(())
    });
    let site = Site::custom("server.timeouts.body = \"300ms\"\n", &proxy_to(&[&origin.url()]), |setup| setup);
    let mut client = Client::connect(&site);
    client.send(&[post_head(1, "/upload"), get(3, "/wait")].concat());
    assert_eq!(client.status(1), 408);
    bystander_goes_on(&mut client, &release);
}

#[test]
fn a_request_that_takes_longer_than_it_may_ends_alone() {
    let origin = brisk_behaviour::h2_client::silent();
    let site =
        Site::custom("server.timeouts.request = \"500ms\"\n", &proxy_to(&[&origin.url()]), |setup| setup);
    let mut client = Client::connect(&site);
    client.send(&get(1, "/"));
    let reset = client.wait_for("reset", |frame| frame.kind == RST_STREAM);
    assert_eq!(reset.stream, 1);
}
