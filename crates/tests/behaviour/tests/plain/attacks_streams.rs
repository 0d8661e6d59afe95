//! Timeouts of HTTP/2 streams: a stalled stream ends, and the other streams of its connection continue.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::sleep;
use std::time::Duration;

use brisk_behaviour::h2::{ACK, DATA, GOAWAY, PING, RST_STREAM, WINDOW_UPDATE, frame, get, post_head};
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::http1::Head;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;
use rustix::net::sockopt::set_socket_send_buffer_size;

const CANCEL: [u8; 4] = [0, 0, 0, 8];

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
    // A response that comes before a window that was opened for it would wait, for as long as a pause of the machine lasts.
    client.send(&frame(PING, 0, 0, b"12345678"));
    client.wait_for("acknowledgement", |frame| {
        assert_ne!(frame.kind, GOAWAY, "the connection ends");
        frame.kind == PING && frame.flags == ACK
    });
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

/// A client that takes the rest of a download of 1 MiB on stream 1 by these frames, one byte at a time.
fn trickle(client: &mut Client, opening: &[u8], mut is_over: impl FnMut(&mut Client) -> bool) {
    wait_until("the end of a response that is read byte by byte", || {
        client.send(opening);
        is_over(client).then_some(())
    });
}

#[test]
fn a_download_that_is_read_byte_by_byte_ends_alone() {
    let (release, released) = channel();
    let origin = origin(released, |_, stream, _| write_response(stream, &vec![b'x'; 1 << 20]));
    let site = Site::custom("server.timeouts.write = \"1s\"\n", &proxy_to(&[&origin.url()]), |setup| setup);
    let mut client = Client::connect(&site);
    client.send(&[get(1, "/big"), get(3, "/wait")].concat());
    let opening = [0, 1].map(|stream| frame(WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes())).concat();
    trickle(&mut client, &opening, |client| {
        let frames = client.frames(Duration::from_millis(100));
        assert!(!frames.iter().any(|frame| frame.kind == GOAWAY), "the connection ends");
        frames.iter().any(|frame| (frame.kind, frame.stream) == (RST_STREAM, 1))
    });
    client.open_window();
    bystander_goes_on(&mut client, &release);
}

#[test]
fn a_connection_whose_window_opens_byte_by_byte_is_closed() {
    let (_release, released) = channel();
    let origin = origin(released, |_, stream, _| write_response(stream, &vec![b'x'; 1 << 20]));
    let site = Site::custom("server.timeouts.write = \"1s\"\n", &proxy_to(&[&origin.url()]), |setup| setup);
    let mut client = Client::connect(&site);
    client.send(&[get(1, "/big"), frame(WINDOW_UPDATE, 0, 1, &(1_u32 << 20).to_be_bytes())].concat());
    trickle(&mut client, &frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()), |client| {
        client.frames(Duration::from_millis(100));
        client.is_closed()
    });
}

#[test]
fn an_http_1_download_below_the_minimum_rate_is_closed() {
    let origin = Origin::raw(|mut stream| {
        Head::read(&mut stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")?;
        let piece = vec![b'x'; 1 << 20];
        loop {
            stream.write_all(&piece)?;
        }
    });
    // The client reads 128 KiB a second, so that brisk and the origin always wait for it: the buffers of the kernel are small. Each
    // piece is worth 16 s of the lower rate, and a pause of the machine is shorter. The download lasts longer than `write`.
    for (rate, write, is_too_slow, pieces) in
        [("\"1GiB\"", "\"3s\"", true, 360), ("\"4KiB\"", "\"12s\"", false, 32)]
    {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        set_socket_send_buffer_size(&socket, 16 << 10).expect("a socket");
        let address = socket.local_addr().expect("an address");
        let keys = format!(
            "server.https = [\"{address}\"]\nserver.timeouts.write = {write}\nserver.limits.read_rate = {rate}\n"
        );
        let site = Site::custom(&keys, &proxy_to(&[&origin.url()]), |setup| setup.inherit("", &socket));
        let mut connection = site.connect();
        Origin::receive_little(connection.tcp());
        write!(connection, "GET /big HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server that reads");
        let mut piece = vec![0; 64 << 10];
        let is_cut = (0..pieces).any(|_| {
            sleep(Duration::from_millis(500));
            connection.read_exact(&mut piece).is_err()
        });
        assert_eq!(is_cut, is_too_slow, "{rate}");
    }
}

#[test]
fn events_with_pauses_have_no_minimum_rate() {
    let (_release, released) = channel();
    let origin = origin(released, |_, stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        for _ in 0..6 {
            stream.write_all(b"5\r\nevent\r\n")?;
            sleep(Duration::from_millis(700));
        }
        stream.write_all(b"4\r\nlast\r\n0\r\n\r\n")
    });
    let keys = "server.timeouts.write = \"1s\"\nserver.limits.read_rate = \"1MiB\"\n";
    let site = Site::custom(keys, &proxy_to(&[&origin.url()]), |setup| setup);
    assert_eq!(site.get("/events").text(), "event".repeat(6) + "last");
    let mut client = Client::connect(&site);
    client.send(&get(1, "/events"));
    client.wait_for("last event", |frame| {
        assert!(!matches!(frame.kind, GOAWAY | RST_STREAM), "the stream ends");
        frame.payload == b"last"
    });
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
    // Longer than a pause of the machine before the response begins.
    let site = Site::custom("server.timeouts.body = \"15s\"\n", &proxy_to(&[&origin.url()]), |setup| setup);
    let mut client = Client::connect(&site);
    client.send(&[post_head(1, "/watch"), get(3, "/wait")].concat());
    client.wait_for("first message", |frame| frame.payload == b"first");
    let meanwhile = client.frames(Duration::from_secs(18));
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
